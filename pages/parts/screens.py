"""The screens, an entry each: the navigation, the links and the titles are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Tab(NamedTuple):
    """A part of a screen that is drawn alone; its name is in the URL."""

    name: str
    title: str
    symbol: str

    @property
    def label(self) -> str:
        return f":material/{self.symbol}: {self.title}"


@dataclass(frozen=True)
class Screen:
    """A screen.

    Attributes
    ----------
    url_path : its address (the first one's is `/`); its file is `pages/{url_path}_page.py`
    title : in the navigation, on links and above the page
    symbol : name of a Material symbol
    tabs : its parts, the one that is shown first before the others
    listed : whether it stands in the navigation; else something on another screen leads to it
    """

    url_path: str
    title: str
    symbol: str
    tabs: tuple[Tab, ...] = ()
    listed: bool = True

    @property
    def file(self) -> str:
        # Its stem is not the url_path: otherwise a bare `streamlit run app.py` would run a page
        # that is opened by its address on a fresh server without app.py.
        return f"pages/{self.url_path}_page.py"

    @property
    def icon(self) -> str:
        return f":material/{self.symbol}:"


EXPLORE = (
    Tab("pairs", "Pairs of layers", "grid_on"),
    Tab("profiles", "Profiles", "show_chart"),
    Tab("all", "All layers", "hub"),
    Tab("stimuli", "Stimuli", "table"),
)
# What is seen of the chosen pair, beside the matrices.
PAIR = (
    Tab("why", "Why alike", "account_tree"),
    Tab("features", "Features", "compare_arrows"),
    Tab("maps", "Stimuli", "scatter_plot"),
)
TABS = {"tab": EXPLORE, "look": PAIR}

SCREENS = {
    screen.url_path: screen
    for screen in (
        Screen("home", "Home", "home"),
        Screen("new", "New analysis", "add_circle"),
        Screen("explore", "Explore", "travel_explore", tabs=EXPLORE),
        Screen("trust", "Trust", "verified"),
        Screen("report", "Report", "description"),
        Screen("docs", "Docs", "menu_book"),
        Screen("versus", "Two analyses", "difference", listed=False),
    )
}

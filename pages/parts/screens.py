"""The screens, an entry each: the navigation, the links and the titles are made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Screen:
    """A screen.

    Attributes
    ----------
    url_path : its address (the first one's is `/`); its file is `pages/{url_path}_page.py`
    title : in the navigation, on links and above the page
    symbol : name of a Material symbol
    is_view : whether it shows a finished analysis, chosen in the sidebar
    formerly : an address that it had, and that still leads to it
    """

    url_path: str
    title: str
    symbol: str
    is_view: bool = True
    formerly: str = ""

    @property
    def file(self) -> str:
        # Its stem is not the url_path: otherwise a bare `streamlit run app.py` would run a page
        # that is opened by its address on a fresh server without app.py.
        return f"pages/{self.url_path}_page.py"

    @property
    def icon(self) -> str:
        return f":material/{self.symbol}:"


SCREENS = {
    screen.url_path: screen
    for screen in (
        Screen("home", "Home", "home", is_view=False),
        Screen("new", "New analysis", "add_circle", is_view=False, formerly="analysis"),
        Screen("profiles", "Profiles", "show_chart"),
        Screen("similarity", "Similarity", "grid_on"),
        Screen("compare", "Compare", "compare_arrows"),
        Screen("why", "Why alike", "account_tree"),
        Screen("robustness", "Robustness", "verified"),
        Screen("stimuli", "Stimuli", "table"),
    )
}

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
    listed : whether it stands in the navigation; else something on another screen leads to it
    """

    url_path: str
    title: str
    symbol: str
    listed: bool = True

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
        Screen("home", "Why", "account_tree"),
        # Drawn last; where there is no room for all, those at the end are folded away.
        Screen("new", "New analysis", "add_circle"),
        Screen("profiles", "Importance profiles", "show_chart"),
        Screen("heatmaps", "Similarity heatmaps", "grid_on"),
        Screen("layers", "Layer map", "hub"),
        Screen("trust", "Confidence", "verified"),
        Screen("report", "Report", "description"),
        Screen("docs", "Docs", "menu_book"),
        Screen("stimuli", "Stimuli", "table", listed=False),
        Screen("versus", "Two analyses", "difference", listed=False),
    )
}

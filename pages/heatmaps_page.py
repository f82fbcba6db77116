"""The similarity heatmaps of all layers, and the importances of two of them."""

from __future__ import annotations

from pages.explore.heatmaps import show_heatmaps
from pages.parts import frame
from pages.parts.opening import show_view


def heatmaps_body() -> None:
    show_view("heatmaps", show_heatmaps)


frame.page(heatmaps_body)

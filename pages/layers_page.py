"""The layer map, groups of models, and pairs that surprise."""

from __future__ import annotations

from pages.explore.all_layers import show_all_layers
from pages.parts import frame
from pages.parts.opening import show_view


def layers_body() -> None:
    show_view("layers", show_all_layers)


frame.page(layers_body)

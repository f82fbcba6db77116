"""Explore: the pairs of layers, the layers' profiles, and the stimuli of one analysis."""

from __future__ import annotations

from pages.explore import all_layers, pairs, profiles, stimuli
from pages.parts import frame, navigation
from pages.parts.opening import open_view

SHOWN = {
    "pairs": pairs.show_pairs,
    "profiles": profiles.show_profiles,
    "all": all_layers.show_all_layers,
    "stimuli": stimuli.show_stimuli,
}


def explore_body() -> None:
    view = open_view("explore", "Which layers are alike, why, and what shapes each of them.")
    if view is not None:
        tab = navigation.choose_tab("tab", "What is shown of the analysis; choices go along.")
        frame.attempt(lambda: SHOWN[tab](view))


frame.page(explore_body)

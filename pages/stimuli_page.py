"""The stimuli of an analysis."""

from __future__ import annotations

from pages.explore.stimuli import show_stimuli
from pages.parts import frame
from pages.parts.opening import show_view


def stimuli_body() -> None:
    show_view("stimuli", show_stimuli)


frame.page(stimuli_body)

"""How far a map is off, said below it."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from mlem_core.base.text import stress_in_words
from mlem_core.figures.style import GREY, SIZE

UNKNOWN = math.nan
BELOW = 26  # px that it takes


def say_stress(figure: go.Figure, stress: float, ref: str = "") -> None:
    """Below the panel of a map, how far its distances are off; nothing where that is not known.

    Parameters
    ----------
    stress : see `mlem_core.measures.similarity.map_stress`
    ref : what Plotly writes behind x and y for the panel
    """
    text = stress_in_words(stress)
    if not text:
        return
    figure.add_annotation(
        text=text,
        x=0.5,
        xref=f"x{ref} domain",
        y=0,
        yref=f"y{ref} domain",
        yanchor="top",
        yshift=-5,
        showarrow=False,
        font={"size": SIZE - 1, "color": GREY},
    )

"""How far a map is off, said below it."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from mlem_core.base.text import stress_in_words
from mlem_core.figures.style import GREY, SIZE

UNKNOWN = math.nan


def say_stress(figure: go.Figure, stress: float, ref: str = "", more: str = "") -> None:
    """Below the panel of a map, how far its distances are off; nothing where that is not known.

    Parameters
    ----------
    stress : see `mlem_core.measures.similarity.map_stress`
    ref : what Plotly writes behind x and y for the panel
    more : what else stands there
    """
    text = "<br>".join(filter(None, (stress_in_words(stress), more)))
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

"""Similarity of two layers as a sum of contributions, and which further columns explain it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.figures.captions import joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import feature_labels, feature_name
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    LINE,
    SIZE,
    as_number,
    error_bar,
    faded,
    feature_colors,
    interval,
    names_along,
    note,
    quiet_layout,
    round_ticks,
    shape,
)
from mlem_core.inference.explanation_text import settled
from mlem_core.inference.permutation_null import UNCORRECTED
from mlem_core.measures.decomposition import UNEXPLAINED, is_identity, sort_terms
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES


def waterfall(
    terms: pd.DataFrame,
    features: Sequence[str],
    total: str = SIMILARITIES[RSA].unit,
    random_reach: float = 0.0,
) -> go.Figure:
    """A similarity as a running sum of its terms, the largest first, what is unexplained last.

    Parameters
    ----------
    terms : term, value, and lower, upper where there are confidence intervals
    features : all features of the analysis, which decide the colours
    total : what the sum is
    random_reach : what random labels contribute, a thin line in the row of each feature; 0: unknown
    """
    terms = sort_terms(terms)
    values = terms["value"].to_numpy(dtype=np.float64)
    ends = np.cumsum(values)
    similarity = float(ends[-1]) if len(ends) else 0.0
    bars = _term_bars(terms, ends, features)
    reach = np.concatenate([[0.0], ends])
    error = bars["error_x"]
    if error is not None:
        reach = np.concatenate([reach, ends + error["array"], ends - error["arrayminus"]])
    low, high = float(reach.min()), float(reach.max())
    span = float(np.ptp(reach)) or 1.0
    edge = high + 0.03 * span
    shapes = []
    for row, end in enumerate(ends.tolist()):
        # The thin line along which the sum goes on into the next row.
        line = shape("line", (end, row - 0.36), (end, row + 1.36), (LINE, 1))
        shapes.append(line | {"layer": "below"})
    is_feature = ~is_identity(terms) & (terms["term"] != UNEXPLAINED)
    for row in np.flatnonzero(is_feature if random_reach > 0 else []).tolist():
        x = bars["base"][row] + random_reach
        shapes.append(shape("line", (x, row - 0.42), (x, row + 0.42), (GREY, 1)))
    numbers = []
    for row, value in enumerate([*values, similarity]):
        sign = "+" if row < len(terms) and round(value, 3) > 0 else ""
        text = sign + as_number(value)
        numbers.append(note(text, edge, row, xanchor="left", font={"size": SIZE}))
    layout = quiet_layout(100 + 34 * (len(terms) + 1))
    layout |= {"barmode": "overlay", "bargap": 0.2, "shapes": shapes, "annotations": numbers}
    layout["margin"]["t"] = 16
    names = [*feature_labels([str(term) for term in terms["term"]], LEGEND), f"<b>{total}</b>"]
    layout["yaxis"] |= names_along(names, range=[len(terms) + 0.6, -0.6])
    layout["xaxis"] |= {
        # No line of the grid goes through the numbers on the right.
        **round_ticks(low, high),
        "zeroline": True,
        "showgrid": True,
        "range": [low - 0.04 * span, edge + 0.14 * span],
    }
    layout["xaxis"]["title"]["text"] = f"contribution to {total}"
    whole = {
        **_BAR,
        "y": [len(terms)],
        "x": [similarity],
        "marker": {"color": "rgba(0,0,0,0)", "line": {"width": 2, "color": GREY}},
        "hovertext": [f"<b>{total}</b><br>{as_number(similarity)}"],
        "name": "total",
    }
    # Checking each property would take most of the time; the tests check them.
    return go.Figure([bars, whole], layout, _validate=False)


_BAR = {"type": "bar", "orientation": "h", "width": 0.72, "hoverinfo": "text", "showlegend": False}


def _term_bars(terms: pd.DataFrame, ends: np.ndarray, features: Sequence[str]) -> dict[str, Any]:
    """A bar a term, each from where the one before it ended, with its interval where known."""
    values = terms["value"].to_numpy(dtype=np.float64)
    colors = feature_colors(features)
    hover = [
        f"<b>{feature_name(term)}</b><br>{as_number(value)} of {as_number(float(ends[-1]))}"
        for term, value in zip(terms["term"], values, strict=True)
    ]
    error = None
    if {"lower", "upper"} <= set(terms.columns):
        low, high = (terms[key].to_numpy(dtype=np.float64) for key in ("lower", "upper"))
        hover = [
            f"{text}<br>{interval(a, b)}" if a == a else text
            for text, a, b in zip(hover, low, high, strict=True)
        ]
        error = error_bar(values, low, high, thickness=1.2, width=4, color=LINE)
        error |= {end: np.nan_to_num(error[end]) for end in ("array", "arrayminus")}
    # What is no feature is pale, with an outline.
    pale = is_identity(terms) | (terms["term"] == UNEXPLAINED)
    fills = zip((colors.get(term, GREY) for term in terms["term"]), pale, strict=True)
    marker = {
        "color": [faded(color, 0.2 if light else 0.85) for color, light in fills],
        "line": {"width": pale.astype(int).to_numpy(), "color": GREY},
    }
    at = {"y": np.arange(len(terms)), "x": values, "base": [0.0, *ends[:-1].tolist()]}
    named = {"name": "terms", "hovertext": hover}
    return {**_BAR, **at, **named, "marker": marker, "error_x": error}


@figure(
    "why",
    "Why two layers are similar",
    "The contribution of each feature to the similarity of two layers, and the unexplained part.",
    by_similarity="of terms",
    offered=True,
)
def draw_why(context: FigureContext) -> RenderedFigure | None:
    """The similarity of both layers as a sum; None of one that has no terms."""
    if not context.several or (context.compared and not context.compared.similarity.divides):
        return None
    explained, (a, b) = context.why, context.called
    table, how, similarity = explained.terms, explained.how, explained.similarity
    of_rsa = similarity.name == RSA
    what = f"The {similarity.called} ({similarity.meaning})"
    if of_rsa:
        what = "RSA of the two layers"
    over = Units.from_stimuli(context.analysis.stimuli).over
    # Grey bars make no claim.
    features = context.all_features if settled(explained) else ()
    return RenderedFigure(
        waterfall(explained.terms, features, similarity.unit, explained.random_reach),
        joined(
            f"{what} as a sum of cross-fitted Shapley contributions and the unexplained part.",
            f"Bars: 95 % CI over {over}, {how}." if how else "",
            "" if "p" in table else UNCORRECTED,
            f"Thin grey lines: a random number for each {explained.most_random_unit}."
            if explained.random_reach > 0
            else "",
            context.basis_sentence,
        ),
        table,
        title=f"Why {a} and {b} are similar" + ("" if of_rsa else f" ({similarity.short})"),
    )

"""The numbers of the first paper beside those found here."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.methods import beside_published
from mlem_core.base.typing import parse_layer
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import layer_titles
from mlem_core.figures.style import LINE, PALETTE, TITLE, as_number, names_along, quiet, scatter

_ROW = 64  # px; of a number that was published
_MARKS = (("published", "published", "circle-open", 0), ("here", "here", "circle", 1))


def published_values(table: pd.DataFrame) -> go.Figure:
    """A row a number: the published one and the one found here.

    Parameters
    ----------
    table : quantity, layer_a, layer_b, published, here, see
        `mlem_core.analysis.published.beside_published`; a number that is missing is not drawn
    """
    labels = [_label(*row) for row in table[["layer_a", "layer_b"]].itertuples(index=False)]
    figure = go.Figure()
    for at, (one, other) in enumerate(table[["published", "here"]].to_numpy().tolist()):
        if not math.isnan(other):
            look = {"line": {"color": LINE, "width": 2}, "showlegend": False}
            figure.add_trace(scatter([one, other], [at, at], mode="lines", **look))
    for column, name, symbol, place in _MARKS:
        color = PALETTE[place]
        look = {"symbol": symbol, "size": 11, "color": color, "line": {"width": 2, "color": color}}
        hover = [
            f"{label.replace('<br>', ' ')}<br>{name}: {as_number(value)}"
            for label, value in zip(labels, table[column], strict=True)
        ]
        rows = list(range(len(table)))
        figure.add_trace(scatter(table[column], rows, hover, marker=look, name=name))
    quiet(figure, height=_ROW * len(table) + 110)
    figure.update_xaxes(
        title_text="weighted Kendall τ, or ρ of the two similarities", zeroline=True, nticks=6
    )
    figure.update_yaxes(names_along(labels, range=[len(table) - 0.5, -0.5], automargin=True))
    return figure


def _label(a: str, b: str) -> str:
    """What a row is of: two layers, or all of them."""
    if not a:
        return "agreement<br>of τ and RSA"
    return "<br>".join(layer_titles([parse_layer(a), parse_layer(b)], TITLE))


@figure(
    "published",
    "Beside the first paper",
    "What the first paper found in these models, and what is found here.",
)
def draw_published(context: FigureContext) -> RenderedFigure | None:
    """What Salle et al. (2024) found, beside these numbers; None where the models are others."""
    table = beside_published(context.results)
    if table is None:
        return None
    called = {"agreement": "agreement (Spearman ρ)", "weighted_tau": "weighted τ"}
    return RenderedFigure(
        published_values(table),
        "Beside the first paper",
        "Open: figures 2 and 4 of Salle et al. (2024), which names no checkpoints and has "
        "sentences of its own: how far the two similarities of all layers agree (Spearman ρ of the "
        "upper triangles), and the weighted Kendall τ of the profiles of the two layers that it "
        "finds most and least alike. Filled: the same here; missing where a layer is not shown. "
        f"{context.basis}",
        table,
        table.assign(quantity=table["quantity"].map(called)),
    )

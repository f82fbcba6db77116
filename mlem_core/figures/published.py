"""The numbers of the first paper beside those found here."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.methods import beside_published
from mlem_core.base.typing import parse_layer
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import layer_titles
from mlem_core.figures.style import LINE, PALETTE, TITLE, as_number, quiet

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
            figure.add_scatter(
                x=[one, other], y=[at, at], mode="lines", line={"color": LINE, "width": 2},
                showlegend=False, hoverinfo="skip",
            )  # fmt: skip
    for column, name, symbol, place in _MARKS:
        color = PALETTE[place]
        figure.add_scatter(
            x=table[column],
            y=list(range(len(table))),
            mode="markers",
            marker={
                "symbol": symbol,
                "size": 11,
                "color": color,
                "line": {"width": 2, "color": color},
            },
            name=name,
            hovertext=[
                f"{label.replace('<br>', ' ')}<br>{name}: {as_number(value)}"
                for label, value in zip(labels, table[column], strict=True)
            ],
            hoverinfo="text",
        )
    quiet(figure, height=_ROW * len(table) + 110)
    figure.update_xaxes(
        title_text="weighted Kendall τ, or ρ of the two similarities", zeroline=True, nticks=6
    )
    figure.update_yaxes(
        tickvals=list(range(len(table))),
        ticktext=labels,
        range=[len(table) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    return figure


def _label(a: str, b: str) -> str:
    """What a row is of: two layers, or all of them."""
    if not a:
        return "agreement<br>of τ and RSA"
    return "<br>".join(layer_titles([parse_layer(a), parse_layer(b)], TITLE))


@figure(
    "published",
    "Beside the first paper",
    "The results of the first paper for these models, and of this analysis.",
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
        "Agreement of the two similarities (Spearman's ρ), and weighted Kendall τ of the most and "
        "least similar layers. Open: Salle et al. (2024; figures 2 and 4, other sentences). "
        f"Filled: this analysis. {context.basis}",
        table,
        table.assign(quantity=table["quantity"].map(called)),
    )

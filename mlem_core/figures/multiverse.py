"""In how many analysis variants a claim holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.analysis.in_words import computed_on
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.style import (
    GREY,
    LINE,
    PALETTE,
    SIZE,
    as_number,
    plain,
    quiet,
    short_names,
    wrapped,
)
from mlem_core.robustness import multiverse
from mlem_core.robustness.claims import Claim, by_choice, curve, of_chance, verdict

_LABELS = 200  # px; to the left of a curve
HOLDS, FAILS = PALETTE[0], PALETTE[1]


def specification_curve(curve: pd.DataFrame, dimensions: Sequence[str], claim: str) -> go.Figure:
    """The margin of a claim in every universe, and below it the choices that each is made of.

    Parameters
    ----------
    curve : of `mlem_core.robustness.claims.curve`
    dimensions : the columns of choices
    claim : in words
    """
    by_universe = curve.sort_values("universe")
    rows = [(name, value) for name in dimensions for value in by_universe[name].unique()]
    dots = max(0.25, min(0.7, 0.05 * len(rows)))
    figure = make_subplots(
        2, 1, shared_xaxes=True, row_heights=[1 - dots, dots], vertical_spacing=0.04
    )
    figure.add_traces(_margins(curve, dimensions), rows=1, cols=1)
    figure.add_traces([_choice(curve, y, *row) for y, row in enumerate(rows)], rows=2, cols=1)
    quiet(figure, height=240 + 20 * len(rows) + 60)
    said = wrapped(f"{claim}: {int(curve['holds'].sum())} of {len(curve)}", 58)
    figure.add_hline(y=0, line={"color": LINE, "width": 1.5}, row=1, col=1)
    figure.update_xaxes(showticklabels=False, showgrid=False)
    figure.update_xaxes(title_text="analysis variants, by margin", row=2, col=1)
    figure.update_yaxes(title_text="margin", row=1, col=1)
    firsts = dict(reversed(rows))
    values = short_names([value for _, value in rows], 18)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[
            f"{_name(name)}  {label}" if firsts[name] == value else label
            for (name, value), label in zip(rows, values, strict=True)
        ],
        tickfont={"size": SIZE - 1},
        range=[len(rows) - 0.4, -0.6],
        zeroline=False,
        row=2,
        col=1,
    )
    figure.update_layout(
        # Over the whole figure: the panel alone is too narrow for it.
        title={"text": said, "x": 0.5, "xanchor": "center", "font": {"size": SIZE + 1}},
        title_y=1,
        title_yref="container",
        title_yanchor="top",
        title_pad={"t": 12},
        margin={"l": _LABELS, "r": 16, "t": 26 + 19 * (said.count("<br>") + 1), "b": 56},
        # The curve rises, so that this corner is free.
        legend={"x": 0.01, "xanchor": "left", "y": 1.0, "yanchor": "top"},
        legend_font_size=SIZE - 1,
    )
    return figure


def _margins(curve: pd.DataFrame, dimensions: Sequence[str]) -> list[go.Scatter]:
    """The universes in which the claim holds, those in which it does not, and a ring around the
    analysis as it is."""
    traces = []
    for holds, label, color in ((True, "holds", HOLDS), (False, "does not hold", FAILS)):
        shown = curve[curve["holds"] == holds]
        hover = []
        for _, universe in shown.iterrows():
            lines = [f"{_name(name)}: {plain(universe[name])}" for name in dimensions]
            head = f"<b>{label}</b>, margin {as_number(universe['margin'])}<br>"
            hover.append(head + "<br>".join(lines))
        traces.append(
            go.Scatter(
                x=shown["place"].to_numpy(),
                y=shown["margin"].to_numpy(),
                mode="markers",
                name=label,
                marker={"color": color, "size": 7},
                hovertext=hover,
                hoverinfo="text",
                showlegend=len(shown) > 0,
            )
        )
    as_it_is = curve[curve["own"].to_numpy(dtype=bool)]
    ring = go.Scatter(
        x=as_it_is["place"],
        y=as_it_is["margin"],
        mode="markers",
        name="this analysis",
        marker={"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": GREY, "width": 2}},
        hoverinfo="skip",
    )
    return [*traces, ring]


def _choice(curve: pd.DataFrame, y: int, name: str, value: str) -> go.Scatter:
    """A square for each universe with this choice."""
    shown = curve[curve[name] == value]
    return go.Scatter(
        x=shown["place"].to_numpy(),
        y=np.full(len(shown), y),
        mode="markers",
        name=f"{name}={value}",
        marker={
            "color": list(np.where(shown["holds"], HOLDS, FAILS)),
            "size": 5,
            "symbol": "square",
        },
        hovertext=[f"{_name(name)}: {plain(value)}"] * len(shown),
        hoverinfo="text",
        showlegend=False,
    )


def _name(dimension: str) -> str:
    return dimension.replace("_", " ")


@figure(
    "multiverse",
    "A claim in every analysis variant",
    "Whether the claim holds in every analysis variant; it does above 0.",
)
def draw_multiverse(context: FigureContext) -> RenderedFigure | None:
    """A claim in every universe; None where these have not been computed."""
    if not context.several:
        return None
    asked, found = claimed(context)
    if found is None:
        return None
    chance = context.importance_chance
    table, said = curve(asked, found, chance), verdict(asked, found, context.names, chance)
    return RenderedFigure(
        specification_curve(table, found.dimensions, asked.named(context.names)),
        said.partition(";")[0],
        f"Margin of the claim in each of {len(table)} analysis variants, in ascending order; the "
        "claim holds above 0. Below: the choices of each variant. "
        + (f"{of_chance(asked, chance, context.names)} " if asked.features else "")
        + computed_on(len(context.analysis.stimuli), 0, context.analysis.spec.folds),
        table,
        by_choice(asked, found, chance),
    )


def claimed(context: FigureContext) -> tuple[Claim, multiverse.Multiverse | None]:
    """The chosen claim, and the universes of its layers where they have been computed.

    Without one it is that the most important feature of the first layer is that in every universe.
    """
    a, b = context.pair
    means = context.results.importance.groupby(["model", "layer", "feature"])["importance"].mean()
    profile = means.loc[a][lambda one: one.index.isin(context.all_features)]
    asked = Claim("top", (a,), (str(profile.idxmax()),))
    if text := context.drawing.options.get("claim", ""):
        asked = Claim.parse(text)
    store = context.drawing.store
    if store is None:
        return asked, None
    # The page computes them for the two layers that it shows, and for a third of a claim.
    layers = [a, b, *(layer for layer in asked.layers if layer not in (a, b))]
    varied = multiverse.choices_of(context.analysis)
    pooled = {"pooling": multiverse.analysis_poolings(context.analysis)}
    for choices in (varied, varied | pooled):
        varying = context.analysis, layers, store, choices, asked.similarities
        found = multiverse.find_multiverse(*varying)
        if found is not None:
            return asked, found
    return asked, None

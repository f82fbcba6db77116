"""The methods of both papers on the same layers, and the first paper's numbers beside ours.

Source: figures S7 to S9 of Jalouzot et al. (2024); figures 2 and 4 of Salle et al. (2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis import baselines, methods
from mlem_core.analysis.methods import beside_published
from mlem_core.base.typing import layer_name, parse_layer
from mlem_core.figures.captions import FOLDS
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import layer_title, layer_titles, model_colors, model_labels
from mlem_core.figures.profiles import line_with_band, profiles
from mlem_core.figures.style import (
    LEGEND,
    LINE,
    PALETTE,
    SYMBOLS,
    TITLE,
    Trace,
    as_number,
    in_panel,
    names_along,
    once_in_legend,
    panel_layout,
    panel_ref,
    quiet,
    scatter,
    whole_layers,
)

RHO = "held-out ρ"
_MEASURES = (
    ("frobenius", "distance of weights", "Frobenius distance"),
    ("tau", "similarity of profiles", "weighted Kendall τ"),
)


def method_scores(
    scores: pd.DataFrame, ceilings: pd.DataFrame, called: Mapping[str, str], across: int = 3
) -> go.Figure:
    """The held-out ρ of each method over the layers, a panel a model (figure S9).

    Parameters
    ----------
    scores : method, model, layer, fold, rho
    ceilings : model, layer, fold, ceiling: what a function of the features could reach
    called : what each method is called; its order decides the colours, others follow
    across : panels beside each other
    """
    order = [*called, *(name for name in scores["method"].unique() if name not in called)]
    names = {name: called.get(name, name) for name in order}
    table = scores.assign(feature=scores["method"].map(names), importance=scores["rho"])
    return profiles(
        table.drop(columns=["rho", "method"]),
        ceilings[["model", "layer", "fold", "ceiling"]],
        [names[name] for name in order],
        across,
        RHO,
    )


def method_agreement(agreement: pd.DataFrame, across: int = 2) -> go.Figure:
    """Line chart of the agreement of two methods over the layers, a line a model (figure S7).

    Parameters
    ----------
    agreement : model, layer, fold, frobenius, tau, see
        `mlem_core.analysis.methods.agreement_by_layer`
    across : 2 beside each other, 1 below each other
    """
    models = list(dict.fromkeys(agreement["model"]))
    called = list(zip(models, model_labels(models, LEGEND), model_colors(models), strict=True))
    layout, traces = _panels("layer", across), list[Trace]()
    for place, (measure, *_) in enumerate(_MEASURES):
        for at, (model, label, color) in enumerate(called):
            own = agreement[agreement["model"] == model]
            marker = {"symbol": SYMBOLS[at % len(SYMBOLS)], "size": 7}
            look: dict[str, Any] = {"marker": marker, "name": label, "legendgroup": model}
            traces += in_panel(
                panel_ref(place), line_over_folds(own, measure, model, color, **look)
            )
        layout[f"xaxis{panel_ref(place)}"] |= whole_layers(agreement["layer"])
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(once_in_legend(traces), layout, _validate=False)


def noise_agreement(agreement: pd.DataFrame, across: int = 2) -> go.Figure:
    """Line chart of the agreement of two methods as noise is added to a layer (figure S8).

    Parameters
    ----------
    agreement : noise, fold, frobenius, tau, see `mlem_core.analysis.methods.agreement_of_methods`
    across : 2 beside each other, 1 below each other
    """
    layout, traces = _panels("noise (sd of each unit)", across), list[Trace]()
    for place, (measure, _, unit) in enumerate(_MEASURES):
        look: dict[str, Any] = {"name": unit, "showlegend": False}
        look["marker"] = {"symbol": SYMBOLS[0], "size": 7}
        line = line_over_folds(agreement, measure, None, PALETTE[place], **look)
        traces += in_panel(panel_ref(place), line)
    return go.Figure(traces, layout, _validate=False)


def _panels(over: str, across: int) -> dict[str, Any]:
    """The layout of a panel for each of `_MEASURES`, each with numbers of its own."""
    titles = [title for _, title, _ in _MEASURES]
    layout, _ = panel_layout(titles, height=320, across=across, apart=0.1)
    for place, (_, _, unit) in enumerate(_MEASURES):
        ref = panel_ref(place)
        layout[f"xaxis{ref}"]["title"]["text"] = over
        layout[f"yaxis{ref}"]["title"]["text"] = unit
        layout[f"yaxis{ref}"]["rangemode"] = "tozero"
    return layout


def line_over_folds(
    table: pd.DataFrame, value: str, model: str | None, color: str, before: str = "", **more: Any
) -> list[Trace]:
    """The band of ± 1 standard deviation over folds, and the line of means, over the layers.

    Parameters
    ----------
    model : whose layers they are; None: over the noise
    before : what hovering says before the number
    more : of `line_with_band`
    """
    stats = table.groupby("noise" if model is None else "layer")[value].agg(["mean", "std"])
    mean, sd = stats["mean"], stats["std"].fillna(0.0)
    titles = [
        f"noise {as_number(at)}" if model is None else layer_title((model, int(at)))
        for at in stats.index
    ]
    hover = [
        f"<b>{title}</b><br>{before}{as_number(m)} ± {as_number(s)} (sd)"
        for title, m, s in zip(titles, mean, sd, strict=True)
    ]
    return line_with_band(stats.index, mean, (mean - sd, mean + sd), hover, color, **more)


# What is seen where MLEM and FR-RSA are compared.
_AGREEMENT = (
    "Left: Frobenius distance of their weights (norm 1). Right: weighted Kendall τ of their "
    f"importance profiles. Mean over folds, bands are {FOLDS}."
)


@figure(
    "methods",
    "Prediction accuracy by method",
    "How well each method predicts the distances of unseen stimuli, and the feature ceiling.",
)
def draw_methods(context: FigureContext) -> RenderedFigure | None:
    """Figure S9 of Jalouzot et al. (2024); None where none that takes long has been computed."""
    store = context.drawing.store
    if store is None:
        return None
    of = context.analysis, store, context.selection
    found, others = methods.results_by_method(*of), baselines.with_rho(*of)
    # Like every figure of what takes long it is not in a capsule of which nothing was asked.
    asked = context.drawing.screen or others
    if not asked and not set(found) & set(methods.slow(context.analysis, context.selection)):
        return None
    table = methods.scores_by_method(found, others)
    return RenderedFigure(
        method_scores(table, context.results.scores, methods.NAMES, context.across),
        "Prediction accuracy by method",
        f"Held-out ρ by method: mean over folds, bands are {FOLDS}. Random forest: ρ of the "
        "distances of its predicted representations; single units: mean over metric models of one "
        f"unit each. Dotted: the feature ceiling. {context.computed_on}",
        table,
        table.groupby(["model", "layer", "method"], sort=False)["rho"]
        .mean()
        .unstack()
        .reset_index()
        .rename(columns=methods.NAMES),
    )


@figure(
    "method_agreement",
    "MLEM and FR-RSA, layer by layer",
    "Whether both fit the same weights, and whether they order the features alike.",
)
def draw_method_agreement(context: FigureContext) -> RenderedFigure | None:
    """Figure S7 of Jalouzot et al. (2024); None where one of the two has not been computed."""
    store = context.drawing.store
    if store is None:
        return None
    found = methods.results_by_method(context.analysis, store, context.selection)
    if not set(methods.COMPARED) <= set(found):
        return None
    table = methods.agreement_by_layer(*(found[name] for name in methods.COMPARED))
    means = table.groupby(["model", "layer"], sort=False)[["frobenius", "tau"]].mean()
    return RenderedFigure(
        method_agreement(table, 1 if context.drawing.narrow else 2),
        "MLEM and FR-RSA, layer by layer",
        f"MLEM (estimator spearman) and FR-RSA on each layer. {_AGREEMENT} {context.computed_on}",
        table,
        means.reset_index(),
    )


@figure(
    "noise_agreement",
    "MLEM and FR-RSA under noise",
    "Whether both fit the same weights, and order the features in the same way, in a noisy layer.",
)
def draw_noise_agreement(context: FigureContext) -> RenderedFigure | None:
    """Figure S8 of Jalouzot et al. (2024); None where it has been computed for no layer.

    Of the chosen layer, else of the first shown layer for which it has been computed.
    """
    store, analysis = context.drawing.store, context.analysis
    chosen = context.drawing.options.get("noisy", "")
    layers = [one for one in context.selection.layers if layer_name(one) == chosen]
    if store is None:
        return None
    for layer in layers or context.selection.layers:
        table = methods.find_noise(analysis, store, context.selection, layer)
        if table is None:
            continue
        means = table.groupby("noise")[["frobenius", "tau"]].mean()
        title = context.names.layer_title(layer)
        return RenderedFigure(
            noise_agreement(table, 1 if context.drawing.narrow else 2),
            f"MLEM and FR-RSA with noise in {title}",
            f"MLEM (estimator spearman) and FR-RSA on {title} with Gaussian noise, in standard "
            f"deviations of each unit. {_AGREEMENT} {context.computed_on}",
            table,
            means.reset_index(),
        )
    return None


_ROW = 64  # px; of a number that was published
_MARKS = (("published", "published", "circle-open", 0), ("here", "here", "circle", 1))


def published_values(table: pd.DataFrame) -> go.Figure:
    """A row a number: the published one and the one found here.

    Parameters
    ----------
    table : quantity, layer_a, layer_b, published, here, see
        `mlem_core.analysis.methods.beside_published`; a number that is missing is not drawn
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
    """Label of a row: two layers, or the agreement over all of them."""
    if not a:
        return "agreement<br>of τ and RSA"
    return "<br>".join(layer_titles([parse_layer(a), parse_layer(b)], TITLE))


@figure(
    "published",
    "Beside the first paper",
    "The results of the first paper for these models, and of this analysis.",
)
def draw_published(context: FigureContext) -> RenderedFigure | None:
    """Figure of Salle et al.'s (2024) values beside these; None where the models are others."""
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

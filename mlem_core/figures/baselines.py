"""Figures of other methods on the layers, and of importance where features correlate.

Decoding, random forests, and a metric model of each unit alone (figure S12 of Jalouzot et al.,
2024); importance that is conditional, of features left out, or of a group of features.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis import baselines, methods
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.captions import FOLDS, computed_on
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.importances import drawn_profiles
from mlem_core.figures.methods import RHO, line_over_folds
from mlem_core.figures.naming import layer_title, model_labels
from mlem_core.figures.profiles import layer_axes
from mlem_core.figures.style import (
    PALETTE,
    TITLE,
    Trace,
    as_number,
    faded,
    in_panel,
    once_in_legend,
    panel_layout,
    scatter,
)
from mlem_core.measures import importance
from mlem_core.measures.importance import fitted


def unit_scores(units: pd.DataFrame, scores: pd.DataFrame, across: int = 3) -> go.Figure:
    """The held-out ρ of every unit alone, layer by layer, and of the whole layer (figure S12).

    Parameters
    ----------
    units : model, layer, unit, fold, rho
    scores : model, layer, fold, rho of the metric model of the whole layer
    across : panels beside each other
    """
    models = list(dict.fromkeys(units["model"]))
    layout, places = panel_layout(model_labels(models, TITLE), height=320, across=across)
    means = units.groupby(["model", "layer", "unit"], sort=False)["rho"].mean().reset_index()
    traces: list[Trace] = []
    for model, (ref, first) in zip(models, places, strict=True):
        own = means[means["model"] == model]
        whole = scores[(scores["model"] == model) & scores["layer"].isin(own["layer"])]
        drawn = [*_shapes(model, own), _best(model, own), *_whole(model, whole)]
        traces += in_panel(ref, drawn)
        layer_axes(layout, ref, (model, own["layer"]), RHO if first else None)
    return go.Figure(once_in_legend(traces), layout, _validate=False)


def _shapes(model: str, own: pd.DataFrame) -> list[Trace]:
    """A violin a layer: how the scores of its units are spread."""
    layers = np.sort(own["layer"].unique())
    wide = 0.85 * float(np.diff(layers).min()) if len(layers) > 1 else 0.8
    shapes = []
    for n in layers:
        rho = own.loc[own["layer"] == n, "rho"].to_numpy(dtype=np.float64)
        said = f"median {as_number(np.median(rho))}, best {as_number(rho.max())}"
        shapes.append(
            {
                "type": "violin",
                "x0": n,
                "y": rho,
                "width": wide,
                # The shape ends where the units do.
                "spanmode": "hard",
                "points": False,
                "line": {"color": PALETTE[4], "width": 1},
                "fillcolor": faded(PALETTE[4], 0.35),
                "meanline": {"visible": False},
                "box": {"visible": True, "width": 0.12, "fillcolor": "rgba(0,0,0,0)"},
                "name": "single units",
                "legendgroup": "units",
                "hoveron": "violins",
                "text": f"<b>{layer_title((model, int(n)))}</b><br>{len(rho):,} units: {said}",
                "hoverinfo": "text",
            }
        )
    return shapes


def _best(model: str, own: pd.DataFrame) -> Trace:
    """The unit with the highest score of each layer."""
    best = own.loc[own.groupby("layer")["rho"].idxmax()]
    texts = [
        f"<b>{layer_title((model, int(n)))}</b><br>unit {unit}: ρ = {as_number(rho)}"
        for n, unit, rho in best[["layer", "unit", "rho"]].itertuples(index=False)
    ]
    marker = {"color": PALETTE[0], "size": 6}
    return scatter(best["layer"], best["rho"], texts, marker=marker, name="best unit")


def _whole(model: str, scores: pd.DataFrame) -> list[Trace]:
    """The metric model of all units together."""
    marker = {"symbol": "diamond", "size": 7}
    look = {"dash": "dash", "marker": marker, "name": "whole layer"}
    return line_over_folds(scores, "rho", model, PALETTE[1], before="whole layer: ρ = ", **look)[
        -1:
    ]


def _kept(context: FigureContext, name: str) -> pd.DataFrame | None:
    """Table of a baseline, where it has been computed."""
    if (store := context.drawing.store) is None:
        return None
    return baselines.kept_baseline(context.analysis, name, store, context.selection.layers)


@figure(
    "unit_scores",
    "Single units and the whole layer",
    "How well single units are predicted, and how well the whole layer.",
)
def draw_unit_scores(context: FigureContext) -> RenderedFigure | None:
    """Figure S12 of Jalouzot et al. (2024); None where the units have not been fitted."""
    table = _kept(context, "univariate")
    if table is None:
        return None
    return RenderedFigure(
        unit_scores(table, context.results.scores, context.across),
        "Metric models of single units, and of the whole layer",
        "Held-out ρ of a metric model fitted to each neuron or unit of a layer alone (mean over "
        "folds): distribution over units, median (line) and best unit (dot). Dashed: the metric "
        f"model of the whole layer. {context.computed_on}",
        table,
        methods.units(table, context.results),
    )


# Of each baseline: what its axis is called, its title, and what is seen.
_BASELINES = {
    "decoding": (
        "accuracy above chance (Δ)",
        "Decoding of each feature",
        "Accuracy of a linear classifier for each feature on held-out stimuli, above that of the "
        "most frequent value.",
    ),
    "random-forest": (
        "permutation importance (PI)",
        "Random forests that predict the units",
        "Importance of each feature in a random forest that predicts the representations; dashed: "
        "its held-out score.",
    ),
    "univariate": (
        RHO,
        "Metric models of single units",
        "Held-out ρ of a metric model fitted to each unit alone, the mean over the units.",
    ),
}


def draw_baseline(context: FigureContext, name: str) -> RenderedFigure | None:
    """Figure of the layers by another method; None where it has not been computed."""
    table, names = _kept(context, name), context.all_features
    if table is None:
        return None
    if name == "univariate":
        names = ["mean over units"]
        means = table.groupby(["model", "layer", "fold"], sort=False)["rho"].mean()
        drawn = means.rename("importance").reset_index().assign(feature=names[0])
        scores = drawn[["model", "layer", "fold"]]
    else:
        drawn = table[table["feature"].isin(context.selection.features)]
        if name == "decoding":
            drawn = drawn.assign(importance=drawn["accuracy"] - drawn["majority"])
        scores = drawn.drop_duplicates(["model", "layer", "fold"])
    value, title, seen = _BASELINES[name]
    on = computed_on(context.results.n_stimuli, 0, context.results.n_folds)
    return RenderedFigure(
        drawn_profiles(context, drawn, scores, names, value=value),
        title,
        f"{seen} Mean over folds, bands are {FOLDS}. {on}",
        table,
    )


for _name in _BASELINES:
    figure(
        f"baseline_{_name.replace('-', '_')}",
        "The layers by another method",
        "The same layers by another method.",
    )(partial(draw_baseline, name=_name))


# Of each way: what its axis is called, what it is, and the line on a screen.
_IMPORTANCES = {
    "conditional": (
        "conditional importance (drop in ρ)",
        "Drop in held-out ρ when the feature is permuted among pairs that agree on all others; 0 "
        "for a feature that the others determine.",
        "The same question with the other features held fixed.",
    ),
    "left_out": (
        "importance when left out (drop in ρ)",
        "Drop in held-out ρ when the model is refitted without the feature; it can be negative.",
        "What is lost when the model has to do without the feature.",
    ),
    "group": (
        "importance of the group (drop in ρ)",
        "Drop in held-out ρ when these features are permuted together.",
        "What is lost when these features are permuted together.",
    ),
}


def _importances(context: FigureContext, group: tuple[str, ...]) -> pd.DataFrame:
    """`importance.importances`; of a group: model, layer, fold, feature, importance."""
    own, _ = context.analysis.subset(context.selection)
    fits, _ = fitted(own, context.selection.estimator)
    layers = list(context.selection.layers)
    if not group:
        return importance.importances(own, layers, fits, context.selection.estimator)
    by_layer = importance.grouped_importance(own, fits.weights, group)
    rows = [
        (*layer, fold, " + ".join(group), value)
        for layer, values in zip(layers, by_layer, strict=True)
        for fold, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])


def draw_importance(context: FigureContext, way: str) -> RenderedFigure | None:
    """Importance where features correlate; None with an estimator that is slow to fit again.

    That of a group is there where one is chosen.
    """
    group = tuple(context.drawing.options.get("group", "").splitlines()) if way == "group" else ()
    few = not group if way == "group" else len(context.selection.features) < 2
    if estimator_named(context.selection.estimator).slow or few:
        return None
    table = context.once(("importances", group), lambda: _importances(context, group))
    names, drawn = list(dict.fromkeys(table["feature"])), table
    (value, meaning, _), results = _IMPORTANCES[way], context.results
    if not group:
        names = context.all_features
        drawn = table.rename(columns={way: "importance"}).assign(fold=0)
    folds = drawn[["model", "layer", "fold"]].drop_duplicates()
    return RenderedFigure(
        drawn_profiles(context, drawn, folds, names, value=value),
        f"{value.partition(' (')[0].capitalize()}" + " of each feature" * (not group),
        f"{meaning} Mean over folds. {computed_on(results.n_stimuli, 0, results.n_folds)}",
        table,
    )


for _way, (*_, _line) in _IMPORTANCES.items():
    figure(f"importance_{_way}", "Importance where features correlate", _line)(
        partial(draw_importance, way=_way)
    )

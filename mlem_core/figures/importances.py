"""Importance where features correlate: conditional, left out, or of a group of features."""

from __future__ import annotations

from functools import partial

import pandas as pd

from mlem_core.analysis.in_words import computed_on
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.profiles import profiles
from mlem_core.measures import correlated
from mlem_core.measures.importance import fitted

# Of each way: what its axis is called, and what it is.
_IMPORTANCES = {
    "conditional": (
        "conditional importance (FI)",
        "Drop in held-out ρ when the feature is permuted among pairs that agree on all others; 0 "
        "for a feature that the others determine.",
    ),
    "left_out": (
        "importance when left out (FI)",
        "Drop in held-out ρ when the model is refitted without the feature; it can be negative.",
    ),
    "group": (
        "importance of the group (FI)",
        "Drop in held-out ρ when these features are permuted together.",
    ),
}


def _importances(context: FigureContext, group: tuple[str, ...]) -> pd.DataFrame:
    """`correlated.importances`; of a group: model, layer, fold, feature, importance."""
    own, _ = context.analysis.subset(context.selection)
    fits, _ = fitted(own, context.selection.estimator)
    layers = list(context.selection.layers)
    if not group:
        return correlated.importances(own, layers, fits, context.selection.estimator)
    by_layer = correlated.grouped_importance(own, fits.weights, group)
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
    (value, meaning), results = _IMPORTANCES[way], context.results
    if not group:
        names, drawn = (
            context.all_features,
            table.rename(columns={way: "importance"}).assign(fold=0),
        )
    return RenderedFigure(
        profiles(
            drawn,
            drawn[["model", "layer", "fold"]].drop_duplicates(),
            names,
            across=context.across,
            value=value,
        ),
        f"{value.partition(' (')[0].capitalize()}" + " of each feature" * (not group),
        f"{meaning} Mean over folds. {computed_on(results.n_stimuli, 0, results.n_folds)}",
        table,
    )


for _way, _line in (
    ("conditional", "The same question with the other features held fixed."),
    ("left_out", "What is lost when the model has to do without the feature."),
    ("group", "What is lost when these features are permuted together."),
):
    figure(f"importance_{_way}", "Importance where features correlate", _line)(
        partial(draw_importance, way=_way)
    )

"""Figure of decoding: how well each feature can be read out of the layers."""

from __future__ import annotations

from mlem_core.analysis.decoding import cached_decoding
from mlem_core.figures.captions import FOLDS, computed_on
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.importances import drawn_profiles


@figure(
    "baseline_decoding",
    "Decoding of each feature",
    "How well each feature can be decoded from the same layers.",
)
def draw_decoding(context: FigureContext) -> RenderedFigure | None:
    """Figure S10 of Jalouzot et al. (2024); None where it has not been computed."""
    if context.drawing.store is None:
        return None
    table = cached_decoding(context.analysis, context.drawing.store, context.selection.layers)
    if table is None:
        return None
    drawn = table[table["feature"].isin(context.selection.features)]
    drawn = drawn.assign(importance=drawn["accuracy"] - drawn["majority"])
    folds = drawn.drop_duplicates(["model", "layer", "fold"])
    on = computed_on(context.results.n_stimuli, 0, context.results.n_folds)
    return RenderedFigure(
        drawn_profiles(
            context, drawn, folds, context.all_features, value="accuracy above chance (Δ)"
        ),
        "Decoding of each feature",
        "Accuracy of a linear classifier for each feature on held-out stimuli, above that of the "
        f"most frequent value. Mean over folds, bands are {FOLDS}. {on}",
        table,
    )

"""Decoding of each feature over the layers, a panel a model."""

from __future__ import annotations

from mlem_core.extensions.decoding.stage import DECODING
from mlem_core.figures.captions import FOLDS, basis_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.profiles import profiles


def _line(context: FigureContext) -> str:
    decoded = DECODING.find(context)
    notices = () if decoded is None else decoded.notices
    return " ".join(("How well each feature can be decoded from the same layers.", *notices))


@figure("baseline_decoding", "Decoding of each feature", _line)
def draw_decoding(context: FigureContext) -> RenderedFigure | None:
    """Figure S10 of Jalouzot et al. (2024); None where it has not been computed."""
    decoded = DECODING.find(context)
    if decoded is None:
        return None
    table = decoded.table
    drawn = table[table["feature"].isin(context.selection.features)]
    drawn = drawn.assign(importance=drawn["accuracy"] - drawn["majority"])
    folds = drawn.drop_duplicates(["model", "layer", "fold"])
    on = basis_sentence(context.results.n_stimuli, 0, context.results.n_folds)
    return RenderedFigure(
        profiles(drawn, folds, context.all_features, context.across, "accuracy above chance (Δ)"),
        "Accuracy of a linear classifier for each feature on held-out stimuli, above that of the "
        f"most frequent value. Mean over folds, bands are {FOLDS}. {on}",
        table,
    )

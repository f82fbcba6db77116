"""Cached fits of a selection, and its results from them.

Ridge is fitted again whenever a choice changes. An estimator that searches for the highest rank
correlation takes about a second a layer, which is worth a cache; the cached fit of a layer holds
whichever other layers are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.layer_sources import representations_of
from mlem_core.analysis.layer_statistics import training_pairs
from mlem_core.analysis.results import Results
from mlem_core.base.typing import Report, counted, counting
from mlem_core.estimators.registry import FoldFits, estimator_named
from mlem_core.measures.importance import Fits, fitted
from mlem_core.storage.store import Stage, Store

STAGE = Stage("fits", 4, Fits)
# Layers that are fitted together where it is reported how many are done.
LAYERS = 2


def kept_results(analysis: Analysis, store: Store, selection: Selection) -> Results | None:
    """The results of a selection if its fits, or those of each layer, are cached; else None."""
    whole = analysis.kept(STAGE, store, selection)
    if whole is not None:
        return analysis.results_of(selection, whole)
    cached = [analysis.kept(STAGE, store, own) for own in _each(selection)]
    there = [fits for fits in cached if fits is not None]
    return None if len(there) < len(cached) else analysis.results_of(selection, _joined(there))


def fitted_results(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> Results:
    """The results of a selection, from `kept_fits`, which has the parameters too."""
    return analysis.results_of(selection, kept_fits(analysis, store, selection, report))


def kept_fits(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> Fits:
    """The fits of a selection; what is not cached yet is computed.

    `report` is called as the layers are done, where they take long. Raises as `Analysis.results`.
    """
    if not estimator_named(selection.estimator).slow:
        return _fits(analysis, store, selection, report)
    count, total = counting(report or (lambda _: None), "fits", "layers"), len(selection.layers)
    count(0, total)
    layers = counted(_each(selection), total, count)
    return _joined([_fits(analysis, store, layer) for layer in layers])


def _each(selection: Selection) -> list[Selection]:
    """The same selection of each of its layers."""
    return [replace(selection, layers=(layer,)) for layer in selection.layers]


def _fits(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> Fits:
    """Fits of a selection, from the store or computed and kept.

    `report` is called as the layers are done; some of them are then fitted at a time.
    """
    pairs, estimator = analysis.pairs_of(selection), selection.estimator

    def make() -> Fits:
        if estimator_named(estimator).of_pairs:
            layers = selection.layers
            sources = {m: representations_of(analysis, m, store) for m, _ in layers}
            training = training_pairs(
                pairs,
                analysis.design,
                analysis.spec,
                [(layer, sources[layer[0]]) for layer in layers],
            )
            return fitted(pairs, estimator, training_pairs=training)
        if report is None:
            return analysis.fits_of(selection)
        count, total = counting(report, "fits", "layers"), pairs.moments.n_layers
        parts = []
        for start in range(0, total, LAYERS):
            count(start, total)
            some = selection.layers[start : start + LAYERS]
            parts.append(analysis.fits_of(replace(selection, layers=some)))
        count(total, total)
        return _joined(parts)

    return STAGE.get(store, analysis.key(selection), make)


def _joined(by_layer: Sequence[Fits]) -> Fits:
    """The fits of n_layers layers as one, from those of each."""
    fits, importance = zip(*by_layer, strict=True)
    names = [part.name for part in fields(FoldFits)]
    joined = {name: np.concatenate([getattr(one, name) for one in fits]) for name in names}
    return Fits(FoldFits(**joined), np.concatenate(importance))

"""Cached fits: those of slow estimators, in the store a layer at a time.

Ridge is fitted again whenever a choice changes. An estimator that searches for the highest rank
correlation takes about a second a layer, which is worth a cache; the cached fit of a layer holds
whichever other layers are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Fits, Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.typing import FloatArray, Progress, Report
from mlem_core.estimators.solver import FoldFits
from mlem_core.measures.importance import fitted
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store


class _Fits(NamedTuple):
    """As `mlem_core.measures.importance.fitted` gives them."""

    fits: FoldFits
    importance: FloatArray


STAGE = Stage("fits", 3, _Fits)


def kept_results(analysis: Analysis, store: Store, selection: Selection) -> Results | None:
    """The results of a selection if the fits of all of its layers are cached; else None."""
    cached = []
    for layer in selection.layers:
        fits = analysis.kept(STAGE, store, replace(selection, layers=(layer,)))
        if fits is None:
            return None
        cached.append(fits)
    return analysis.results_of(selection, _joined(cached))


def fitted_results(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> Results:
    """The results of a selection; fits that are not cached yet are computed first.

    `report` is called as the layers are done. Raises as `Analysis.results`.
    """
    cached, total = [], len(selection.layers)
    report = report or (lambda _: None)
    for done, layer in enumerate(selection.layers):
        report(Progress("fits", None, done, total, "layers"))
        own = replace(selection, layers=(layer,))
        tables, _ = analysis.subset(own)
        cached.append(
            STAGE.get(
                store,
                analysis.key(own),
                lambda tables=tables: _Fits(*fitted(tables, selection.estimator)),  # type: ignore[misc]
            )
        )
    report(Progress("fits", None, total, total, "layers"))
    return analysis.results_of(selection, _joined(cached))


def _joined(by_layer: Sequence[Fits]) -> Fits:
    """The fits of n_layers layers as one, from those of each."""
    fits, importance = zip(*by_layer, strict=True)
    names = [part.name for part in fields(FoldFits)]
    joined = {name: np.concatenate([getattr(one, name) for one in fits]) for name in names}
    return FoldFits(**joined), np.concatenate(importance)

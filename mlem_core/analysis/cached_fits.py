"""Cached fits: those of slow estimators, in the store a layer at a time.

Ridge is fitted again whenever a choice changes. An estimator that searches for the highest rank
correlation takes about a second a layer, which is worth a cache; the cached fit of a layer holds
whichever other layers are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Fits, Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.typing import Layer, Progress, Report
from mlem_core.estimators.solver import FoldFits
from mlem_core.measures.importance import fitted
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

_PARTS = ("weights", "alpha", "rho", "rho_a", "ceiling")
# Parameters of an analysis that change none of its pair tables, or that the layer stands for.
_NOT_IN_KEY = (
    "estimator",
    "interactions",
    "features",
    "device",
    "models",
    "representations",
    "layers",
)


def _save(layer_fits: Fits, folder: Path) -> None:
    fits, importance = layer_fits
    parts = {name: getattr(fits, name) for name in _PARTS}
    np.savez(folder / "fits.npz", importance=importance, **parts)


def _load(folder: Path) -> Fits:
    with np.load(folder / "fits.npz", allow_pickle=False) as arrays:
        return FoldFits(*(arrays[name] for name in _PARTS)), arrays["importance"]


STAGE = Stage("fits", 2, _save, _load)


def find(analysis: Analysis, store: Store, selection: Selection) -> Results | None:
    """The results of a selection if the fits of all of its layers are cached; else None."""
    cached = []
    for layer in selection.layers:
        fits = STAGE.find(store, depends_on(analysis, layer, selection))
        if fits is None:
            return None
        cached.append(fits)
    return analysis.results_of(selection, _joined(cached))


def make(
    analysis: Analysis, store: Store, selection: Selection, report: Report | None = None
) -> Results:
    """The results of a selection; fits that are not cached yet are computed first.

    `report` is called as the layers are done. Raises as `Analysis.results`.
    """
    cached, total = [], len(selection.layers)
    report = report or (lambda _: None)
    for done, layer in enumerate(selection.layers):
        report(Progress("fits", None, done, total, "layers"))
        tables, _ = analysis.subset(replace(selection, layers=(layer,)))
        cached.append(
            STAGE.get(
                store,
                depends_on(analysis, layer, selection),
                lambda tables=tables: fitted(tables, selection.estimator),  # type: ignore[misc]
            )
        )
    report(Progress("fits", None, total, total, "layers"))
    return analysis.results_of(selection, _joined(cached))


def depends_on(analysis: Analysis, layer: Layer, selection: Selection) -> dict[str, Any]:
    """What the fit of a layer depends on, for its key in the store."""
    model, number = layer
    parameters = analysis.manifest["parameters"]
    stimuli = analysis.manifest["stimuli"]
    return {
        "asked": {name: value for name, value in parameters.items() if name not in _NOT_IN_KEY},
        "stimuli": [stimuli["digest"], stimuli["features"]],
        "representations": analysis.manifest["models"][model]["identity"],
        "layer": number,
        # In this order, which the columns of the fits have.
        "features": list(selection.features),
        "estimator": selection.estimator,
        "interactions": selection.interactions,
    }


def _joined(by_layer: Sequence[Fits]) -> Fits:
    """The fits of n_layers layers as one, from those of each."""
    fits, importance = zip(*by_layer, strict=True)
    joined = {name: np.concatenate([getattr(one, name) for one in fits]) for name in _PARTS}
    return FoldFits(**joined), np.concatenate(importance)

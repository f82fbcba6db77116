"""Fits that take long, kept in the store a layer at a time.

Ridge is fitted again whenever a choice changes. An estimator that searches for the highest rank
correlation takes about a second a layer: it is worth keeping, and what is kept for a layer holds
whichever other layers are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.analysis import Analysis, Progress, Report
from mlem_core.metric import FoldFits
from mlem_core.patterns import FloatArray
from mlem_core.results import ESTIMATORS, Layer, Results, fitted
from mlem_core.store import Store

VERSION = 1
STAGE = "fits"
SLOW = tuple(name for name in ESTIMATORS if not name.startswith("ridge"))

_PARTS = ("weights", "alpha", "rho", "rho_a", "ceiling")
# What an analysis was asked that changes none of its pair tables, or is said by the layer.
_APART = ("estimator", "interactions", "features", "device", "models", "representations", "layers")


def find(
    analysis: Analysis,
    store: Store,
    *,
    features: Sequence[str],
    layers: Sequence[Layer],
    estimator: str,
    interactions: bool,
) -> Results | None:
    """The results of an analysis if the fits of all of these layers are kept; else None."""
    folders = []
    for layer in layers:
        key = _key(analysis, layer, features, estimator, interactions)
        folder = store.find(STAGE, VERSION, **key)
        if folder is None:
            return None
        folders.append(folder)
    return analysis.results(features, layers, estimator, interactions, fits=_read(folders))


def make(
    analysis: Analysis,
    store: Store,
    report: Report | None = None,
    *,
    features: Sequence[str],
    layers: Sequence[Layer],
    estimator: str,
    interactions: bool,
) -> Results:
    """The results of an analysis; fits that are not kept yet are computed and kept.

    Parameters
    ----------
    features, layers, estimator, interactions : as in `Analysis.results`
    report : called as the layers are done

    Raises
    ------
    InputError
        As `Analysis.results`.
    """
    folders = []
    for done, layer in enumerate(layers):
        if report is not None:
            report(Progress("fits", None, done, len(layers), "layers"))
        tables, _, _ = analysis.chosen(features, [layer], interactions)

        def fit(folder: Path, tables: Any = tables) -> None:
            fits, importance = fitted(tables, estimator)
            parts = {name: getattr(fits, name) for name in _PARTS}
            np.savez(folder / "fits.npz", importance=importance, **parts)

        key = _key(analysis, layer, features, estimator, interactions)
        folders.append(store.entry(STAGE, VERSION, fit, **key))
    if report is not None:
        report(Progress("fits", None, len(layers), len(layers), "layers"))
    return analysis.results(features, layers, estimator, interactions, fits=_read(folders))


def _key(
    analysis: Analysis, layer: Layer, features: Sequence[str], estimator: str, interactions: bool
) -> dict[str, Any]:
    model, number = layer
    asked = analysis.manifest["parameters"]
    stimuli = analysis.manifest["stimuli"]
    return {
        "asked": {name: value for name, value in asked.items() if name not in _APART},
        "stimuli": [stimuli["digest"], stimuli["features"]],
        "representations": analysis.manifest["models"][model]["identity"],
        "layer": number,
        # In this order, which the columns of the fits have.
        "features": list(features),
        "estimator": estimator,
        "interactions": interactions,
    }


def _read(folders: Sequence[Path]) -> tuple[FoldFits, FloatArray]:
    """The fits of layers (n_layers, ...) from one folder a layer."""
    kept = []
    for folder in folders:
        with np.load(folder / "fits.npz", allow_pickle=False) as arrays:
            kept.append({name: arrays[name] for name in (*_PARTS, "importance")})
    whole = {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}
    importance = whole.pop("importance")
    return FoldFits(**whole), importance

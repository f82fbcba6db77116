"""How far two methods agree as noise is added to a layer (Jalouzot et al. 2024, figure S8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis import methods
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.results import results_from_tables
from mlem_core.analysis.selection import Selection, check_layers
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, Report, counting
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.pairs.patterns import PairIndex
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

# Standard deviations of the noise, in those of each unit.
LEVELS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)


STAGE = Stage("noise-agreement", 2, pd.DataFrame)


def can_be_made(analysis: Analysis, selection: Selection, layer: Layer) -> bool:
    """Whether both methods can fit what is selected, and the layer has units that can be noisy."""
    both = set(methods.COMPARED) <= set(methods.estimators(analysis, selection))
    return both and analysis.spec.distance_of(layer[0]) != PRECOMPUTED


def find_noise(
    analysis: Analysis, store: Store, selection: Selection, layer: Layer
) -> pd.DataFrame | None:
    """What `make_noise` has kept for a layer; None where there is nothing."""
    return STAGE.find(store, _key(analysis, selection, layer))


def make_noise(
    analysis: Analysis,
    store: Store,
    selection: Selection,
    layer: Layer,
    report: Report | None = None,
) -> pd.DataFrame:
    """How far MLEM and FR-RSA agree on a layer with noise: noise, fold, frobenius, tau.

    To each unit Gaussian noise is added, of `LEVELS` times its standard deviation; the same numbers
    at every level, drawn once by the seed of the analysis. It is kept in the store.

    Parameters
    ----------
    selection : its features and interactions
    layer : of the analysis
    report : called as the fits go on

    Raises
    ------
    InputError
        The layer is not in the analysis, holds distances, or is no longer in the store; a method
        cannot fit what is selected.
    """
    check_layers([layer], analysis.layers)
    if not can_be_made(analysis, selection, layer):
        raise InputError(
            f"noise cannot be added to {layer[0]} layer {layer[1]}: it needs units (found the "
            f"distance {analysis.spec.distance_of(layer[0])}), and features that are not resolved "
            "by value."
        )
    said = report or (lambda _: None)
    key = _key(analysis, selection, layer)
    return STAGE.get(store, key, lambda: _made(analysis, store, selection, layer, said))


def _made(
    analysis: Analysis, store: Store, selection: Selection, layer: Layer, report: Report
) -> pd.DataFrame:
    model, number = layer
    spec, folds = analysis.spec, analysis.folds
    rows = np.asarray(representations_of(analysis, model, store)[number], dtype=np.float64)
    noise = np.random.default_rng(spec.seed).standard_normal(rows.shape) * rows.std(axis=0)
    chosen = analysis.stimuli.select(selection.features)
    index = PairIndex.build(feature_columns(chosen), folds, spec.missing, design=analysis.design)
    count = counting(report, "noise", "methods")
    count(0, len(methods.COMPARED))
    tables = pair_tables(
        index,
        [lambda level=level: rows + level * noise for level in LEVELS],  # type: ignore[misc]
        names=[f"{model} layer {number} with noise {level:g}" for level in LEVELS],
        distance=spec.distance_of(model),
        train_ranks=True,
    ).with_interactions(selection.interactions)
    # The levels stand in the place of layers.
    levels, found = [(model, at) for at in range(len(LEVELS))], []
    for done, name in enumerate(methods.COMPARED, 1):
        found.append(results_from_tables(tables, levels, np.eye(len(levels)), folds, name))
        count(done, len(methods.COMPARED))
    table = methods.agreement_by_layer(found[0], found[1])
    noises = np.array(LEVELS)[table["layer"].to_numpy()]
    return table.drop(columns=["model", "layer"]).assign(noise=noises)[
        ["noise", "fold", "frobenius", "tau"]
    ]


def _key(analysis: Analysis, selection: Selection, layer: Layer) -> dict[str, Any]:
    return analysis.key(replace(selection, layers=(layer,), estimator=""), levels=LEVELS)

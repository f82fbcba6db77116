"""Section `features`: planted continuous features by moments of pairs, pair tables, explicit pairs.

The weights of half of the features fall from 3 to .3, the others are 0; a layer is their metric in
random directions, with noise. ρ is held-out, by ridge of one strength on the same folds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks.timing import Table
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.ridge_of_moments import fit_ridge
from mlem_core.measures.contributions import contributions
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.moments import (
    PairMoments,
    blocks_of_folds,
    layer_moments,
    pair_moments,
    products_of_ranks,
)
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.scored_pairs import FoldPairsIndex, ScoredPairs

N_FOLDS = 5
ALPHA = 1e-4
# Features, stimuli and layers.
SIZES = ((8, 2_000, 2), (20, 2_000, 2), (49, 1_854, 4), (65, 800, 1), (300, 500, 1))
# Explicit pairs of more features than this do not fit into memory beside the rest.
MOST_EXPLICIT = 20


def planted(
    n_features: int, n_stimuli: int, n_layers: int
) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Features, and layers that represent half of them."""
    rng = np.random.default_rng(0)
    n_true = n_features // 2
    weights = np.append(np.linspace(3.0, 0.3, n_true), np.zeros(n_features - n_true))
    values = rng.standard_normal((n_stimuli, n_features))
    values = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    layers = []
    for _ in range(n_layers):
        directions = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
        layer = (values * np.sqrt(weights)) @ directions
        layers.append(layer + 0.05 * rng.standard_normal(layer.shape))
    names = [f"feature {number}" for number in range(n_features)]
    return pd.DataFrame(values, columns=names), layers


def moments_of(
    columns: PairColumns, folds: IntArray, layers: Sequence[FloatArray]
) -> tuple[PairMoments, ScoredPairs]:
    """Moments of the pairs of layers, and the pairs that test each fold."""
    design = PairDesign.complete(len(folds))
    distances = [squared_distances(layer) for layer in layers]
    doubled = [pair_ranks(own) for own in distances]
    parts = [
        layer_moments(columns, folds, own, ranks)
        for own, ranks in zip(distances, doubled, strict=True)
    ]
    products = products_of_ranks(
        blocks_of_folds(folds), len(layers), lambda layer, first, last: doubled[layer][first:last]
    )
    scored = []
    for fold in range(N_FOLDS):
        index = FoldPairsIndex.of(columns, np.flatnonzero(folds == fold), design)
        sums, squares = zip(*(index.rank_sums(own[index.places]) for own in distances), strict=True)
        scored.append(index.with_layers(np.stack(sums), np.array(squares)))
    return pair_moments(columns, folds, parts, products), ScoredPairs(tuple(scored))


def by_moments(
    features: pd.DataFrame, layers: Sequence[FloatArray], folds: IntArray
) -> tuple[float, float]:
    """Held-out ρ of the first layer; the largest difference of its weights from explicit pairs."""
    columns = PairColumns.of(feature_columns(features))
    moments, scored = moments_of(columns, folds, layers)
    fit = fit_ridge(moments, scored, range(N_FOLDS), alphas=[ALPHA])
    scores = [own.scores(fit.coef[:, [fold]]).rho for fold, own in enumerate(scored.folds)]
    permutation_importance(scored, fit.coef)
    contributions(moments)
    difference = np.nan
    if len(columns) <= MOST_EXPLICIT:
        difference = float(
            np.abs(explicit_weights(columns, layers[0], folds) - fit.coef[0, 0]).max()
        )
    return float(np.mean([rho[0, 0] for rho in scores])), difference


def explicit_weights(columns: PairColumns, layer: FloatArray, folds: IntArray) -> FloatArray:
    """Weights of the first fold by scikit-learn on explicit pairs."""
    from sklearn.linear_model import Ridge

    train = np.flatnonzero(folds != 0)
    i, j = (train[side] for side in np.triu_indices(len(train), 1))
    distances = squared_distances(layer[train])
    target = (distances - distances.min()) / np.ptp(distances)
    fitted = Ridge(alpha=ALPHA, positive=True, tol=1e-12, max_iter=100_000)
    return np.asarray(fitted.fit(columns.of_pairs(i, j), target).coef_)


def by_tables(features: pd.DataFrame, layers: Sequence[FloatArray], folds: IntArray) -> str:
    """Held-out ρ of the first layer by pair tables, or that they refuse."""
    from mlem_core.estimators.ridge_solver import RidgeSolver

    try:
        index = PairIndex.build(feature_columns(features), folds)
        tables = pair_tables(index, [lambda: layers[0]])
    except InputError:
        return "refused"
    solver = RidgeSolver()
    solver.alphas = [ALPHA]
    return f"ρ {solver.cross_validate(tables).rho.mean():.3f}"


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    for n_features, n_stimuli, n_layers in SIZES:
        features, layers = planted(n_features, n_stimuli, n_layers)
        folds = np.arange(n_stimuli) % N_FOLDS
        start = time.process_time()
        rho, difference = by_moments(features, layers, folds)
        took = time.process_time() - start
        beside = "" if np.isnan(difference) else f", weights {difference:.0e} from explicit pairs"
        other = by_tables(features, layers, folds) if n_features <= MOST_EXPLICIT else ""
        what = f"{n_features} continuous features, {n_stimuli:,} stimuli"
        table.add(what, f"ρ {rho:.3f}{beside}", other)
        table.add(f"{what}, {n_layers} layers: fits, importances, contributions", f"{took:.1f} s")
    return "processor time; ours are moments of pairs, compared with pair tables"

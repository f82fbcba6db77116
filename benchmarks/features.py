"""Section `features`: planted features of many kinds, and the same over explicit pairs.

The weights of half of the features fall from 3 to .3, the others are 0; a layer is their metric in
random directions, with noise. ρ is held-out, by nested ridge. A process each:
`python -m benchmarks.features NUMBER` prints what one row of the table has.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from benchmarks.memory import peak_megabytes
from benchmarks.timing import Table, printed_numbers
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics, pair_statistics

N_FOLDS = 5
# Explicit pairs of more columns than this do not fit into memory beside the rest.
MOST_EXPLICIT = 20


class Size(NamedTuple):
    """Features of one kind, of so many stimuli in so many layers, and what they may take."""

    n_features: int
    kind: str
    n_stimuli: int
    n_layers: int
    most_seconds: int = 0
    most_megabytes: int = 0


SIZES = (
    Size(8, "numeric", 2_000, 2),
    Size(12, "numeric", 2_000, 2),
    Size(16, "numeric", 1_000, 2),
    Size(20, "numeric", 2_000, 2, 10),
    Size(20, "binary", 2_000, 2),
    Size(24, "numeric", 1_500, 1),
    Size(65, "numeric", 800, 1),
    Size(49, "numeric", 1_854, 4, 60, 1_500),
    Size(300, "numeric", 500, 1, 60),
)


def planted(size: Size) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Features, and layers that represent half of them."""
    n_features, rng = size.n_features, np.random.default_rng(0)
    n_true = n_features // 2
    weights = np.append(np.linspace(3.0, 0.3, n_true), np.zeros(n_features - n_true))
    if size.kind == "binary":
        values = rng.integers(0, 2, (size.n_stimuli, n_features)).astype(np.float64)
    else:
        values = rng.standard_normal((size.n_stimuli, n_features))
        values = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    layers = []
    for _ in range(size.n_layers):
        directions = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
        layer = (values * np.sqrt(weights)) @ directions
        layers.append(layer + 0.05 * rng.standard_normal(layer.shape))
    names = [f"feature {number}" for number in range(n_features)]
    return pd.DataFrame(values, columns=names), layers


def explicit_difference(
    columns: PairColumns, pairs: PairStatistics, layer: FloatArray, folds: IntArray
) -> float:
    """Largest difference of the weights and of ρ in the first fold from explicit pairs.

    Weights are those of SciPy's non-negative least squares with the α that was chosen.
    """
    from scipy.optimize import nnls

    solution = RidgeSolver().solve(pairs, [0])
    assert solution.alpha is not None
    train, test = np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)
    i, j = (train[side] for side in np.triu_indices(len(train), 1))
    distances = squared_distances(layer[train])
    target = (distances - distances.min()) / np.ptp(distances)
    x = columns.pair_values(i, j)
    penalty = np.sqrt(float(solution.alpha[0, 0])) * np.eye(x.shape[1])
    expected, _ = nnls(
        np.concatenate((x - x.mean(axis=0), penalty)),
        np.concatenate((target - target.mean(), np.zeros(len(penalty)))),
    )
    k, m = (test[side] for side in np.triu_indices(len(test), 1))
    weights = solution.coef[0, 0]
    rho = spearmanr(columns.pair_values(k, m) @ weights, squared_distances(layer[test])).statistic
    own = pairs.tests.folds[0].scores(solution.coef[:, :1]).rho[0, 0]
    return float(max(np.abs(expected - weights).max(), abs(rho - own)))


def main(number: int) -> None:
    """Print ρ, the correlation of importances with true weights, and what it took."""
    size = SIZES[number]
    features, layers = planted(size)
    folds = np.arange(size.n_stimuli) % N_FOLDS
    start = time.process_time()
    compared = ComparedPairs.from_features(feature_columns(features), folds)
    pairs = pair_statistics(compared, [lambda layer=layer: layer for layer in layers])
    fits, importance = fitted(pairs)
    decompose(pairs.moments)
    took, peak = time.process_time() - start, peak_megabytes()
    n_true = size.n_features // 2
    order = spearmanr(importance[0].mean(axis=0)[:n_true], -np.arange(n_true)).statistic
    difference = np.nan
    if len(compared.columns) <= MOST_EXPLICIT:
        difference = explicit_difference(compared.columns, pairs, layers[0], folds)
    print(fits.rho[0].mean(), order, difference, took, peak)


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    for number, size in enumerate(SIZES):
        rho, order, difference, took, peak = printed_numbers("benchmarks.features", number)
        what = f"{size.n_features} {size.kind} features, {size.n_stimuli:,} stimuli"
        explicit = "" if np.isnan(difference) else f"{difference:.0e} from explicit pairs"
        table.add(f"{what}: held-out ρ", f"{rho:.3f}", explicit)
        table.add(f"{what}: order of the true features (Spearman ρ)", f"{order:.2f}")
        limits = [f"{size.most_seconds} s"] * bool(size.most_seconds)
        limits += [f"{size.most_megabytes:,} MB"] * bool(size.most_megabytes)
        table.add(
            f"{what}, {size.n_layers} layers: nested fits, importances, contributions",
            f"{took:.1f} s, {peak:.0f} MB",
            target=f"at most {' and '.join(limits)}" if limits else "",
        )
    return "processor time and peak memory of a process each"


if __name__ == "__main__":
    main(int(sys.argv[1]))

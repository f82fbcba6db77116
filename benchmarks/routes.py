"""The routes from representations to results: ours, its floor, and those one would write."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from benchmarks.data import Case
from mlem_core.analysis.results import Results, results_from_statistics
from mlem_core.base.parallel import cores
from mlem_core.estimators.ridge_solver import ALPHAS
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import PairRanks, pair_ranks
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics, pair_statistics
from mlem_core.representations.extraction import extract
from mlem_core.representations.forward import LoadedModel
from mlem_core.stimuli.stimulus_set import StimulusSet

if TYPE_CHECKING:
    import torch

Rows = list[NDArray[np.float32]]


def forward(loaded: LoadedModel, inputs: Sequence[torch.Tensor]) -> None:
    """The bare forward passes over the batches that the extraction makes."""
    import torch

    with torch.inference_mode():
        for ids in inputs:
            loaded.model(input_ids=ids)


def extraction(stimuli: StimulusSet, loaded: LoadedModel) -> None:
    """All layers' representations of the stimuli, written as they are for an analysis."""
    with tempfile.TemporaryDirectory() as folder:
        extract(stimuli, loaded, Path(folder))


def engine(case: Case) -> tuple[PairStatistics, Results]:
    """Pair statistics, nested cross-validation, importances, both matrices, both maps."""
    pairs = ComparedPairs.from_features(feature_columns(case.stimuli), case.folds)
    statistics = pair_statistics(pairs, [lambda rows=rows: rows for rows in case.rows])
    return statistics, results_from_statistics(statistics, case.layers, case.folds)


def floor(rows: Rows) -> None:
    """All pairwise distances by one matrix product and one argsort of them, a layer a thread."""
    upper = np.triu_indices(len(rows[0]), 1)

    def one(layer: NDArray[np.float32]) -> None:
        exact = layer.astype(np.float64)
        squares = np.einsum("ij,ij->i", exact, exact)
        distances = exact @ exact.T
        distances *= -2
        distances += squares[:, None]
        distances += squares
        np.argsort(distances[upper])

    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:
        list(pool.map(one, rows))


def physical_floor(rows: Rows) -> None:
    """A float32 matrix product, and 8 bytes a pair read and written twice, a layer a thread."""
    n = n_pairs(len(rows[0]))

    def one(layer: NDArray[np.float32]) -> None:
        _ = layer @ layer.T
        first, second = np.zeros((2, n))
        np.copyto(second, first)
        np.copyto(first, second)

    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:
        list(pool.map(one, rows))


def our_rsa(rows: Rows) -> NDArray[np.float64]:
    """The RSA matrix alone: distances, ranks, and their products."""
    ranks = PairRanks(len(rows), n_pairs(len(rows[0])))

    def one(layer: int) -> None:
        ranks.put(layer, pair_ranks(squared_distances(rows[layer]), overwrite=True))

    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:
        list(pool.map(one, range(len(rows))))
    return ranks.rsa()


def rsatoolbox_rsa(rows: Rows) -> NDArray[np.float64]:
    """The RSA matrix as rsatoolbox's documentation computes it."""
    from rsatoolbox.data import Dataset
    from rsatoolbox.rdm import calc_rdm, compare, concat

    rdms = concat([calc_rdm(Dataset(layer), method="euclidean") for layer in rows])
    matrix: NDArray[np.float64] = compare(rdms, rdms, method="spearman")
    return matrix


def scikit_learn(case: Case, layer: int, fold: int) -> tuple[float, NDArray[np.float64]]:
    """One layer and fold over explicit pairs: ρ and the importances by permutation."""
    from scipy.spatial.distance import pdist
    from sklearn.inspection import permutation_importance
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    i, j = np.triu_indices(len(case.stimuli), 1)
    columns = []
    for column in feature_columns(case.stimuli):
        a, b = column.values[i], column.values[j]
        if column.kind == "ordered":
            low, high = column.span
            columns.append(np.nan_to_num(np.abs(a - b) / (high - low)) ** 2)
        else:
            missing = (a == None) | (b == None)  # noqa: E711  (element by element)
            columns.append(np.where(missing, 0.0, a != b).astype(float))
    x = np.stack(columns, axis=1)
    y = pdist(case.rows[layer]) ** 2
    train = (case.folds[i] != fold) & (case.folds[j] != fold)
    test = (case.folds[i] == fold) & (case.folds[j] == fold)
    own, other = case.folds[i][train], case.folds[j][train]
    inner = [
        (np.flatnonzero((own != k) & (other != k)), np.flatnonzero((own == k) & (other == k)))
        for k in range(case.folds.max() + 1)
        if k != fold
    ]
    y_train = (y[train] - y[train].min()) / np.ptp(y[train])

    def score(model: Ridge, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        return float(spearmanr(model.predict(x), y).statistic)

    search = GridSearchCV(
        Ridge(positive=True), {"alpha": list(ALPHAS)}, scoring=score, cv=inner, n_jobs=cores()
    ).fit(x[train], y_train)
    found = permutation_importance(
        search, x[test], y[test], scoring=score, n_repeats=10, random_state=0
    )
    return score(search, x[test], y[test]), found.importances_mean

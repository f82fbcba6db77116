"""Simulations with a planted metric (Jalouzot et al. 2024, section 2.5.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray
from mlem_core.estimators.base import RidgeMLEM, TableModel
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.extensions.rank_estimators.estimators import FRRSA, Cells, SoftRankMLEM, SpearmanMLEM
from mlem_core.pairs.column_builder import metric_matrix, metric_terms
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from validation.work import Row, Task

N_STIMULI, N_FEATURES, TRAIN = 300, 6, 240
N_DIMENSIONS = 100
NOISE = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
PUBLISHED_NOISE = (0.0, 0.5, 1.0, 2.0)
TRUTHS = ("make_spd_matrix", "Euclidean")
SEEDS = range(5)


def pair_cells(
    columns: PairColumns,
    representations: NDArray[np.floating],
    distance: str = "euclidean",
    *,
    ranked: bool = False,
) -> Cells:
    """Every pair of the stimuli as a cell of its own.

    Parameters
    ----------
    columns : of the pairs of n_stimuli stimuli
    representations : (n_stimuli, n_units), or distances (n_stimuli, n_stimuli) if "precomputed"
    ranked : whether the ranks of the distances are to be predicted, or their squares
    """
    from scipy.stats import rankdata

    one_fold = np.zeros(len(representations), dtype=np.int64)
    pairs = TrainingPairs.from_columns(
        columns, one_fold, 1, lambda _: squared_distances(representations, distance)
    )
    target = pairs.distances(0)
    target = rankdata(target) if ranked else target
    return Cells(pairs.values, pairs.group, np.ones(len(target)), target)


class PublishedMLEM(SoftRankMLEM):
    """The published recipe as it stands: pairs are drawn, not cells of the pair table."""

    def fit(self, X: Any, y: FloatArray, groups: Any = None) -> Self:
        """Fit the metric on all pairs; n_steps_ is the number of steps taken."""
        columns, rows = self._given(X, y)
        pairs = PairColumns.from_features(columns, self.missing, self.interactions)
        cells = pair_cells(pairs, rows, self.distance, ranked=self.strength is None)
        ascent = self.ascent(cells, len(columns), self.interactions)
        self._keep(columns, pairs, ascent.weights, 0.0)
        self.n_steps_ = ascent.n_steps
        return self


FAST: dict[str, Callable[[], TableModel]] = {
    "spearman-I": lambda: SpearmanMLEM(interactions=True),
    "FR-RSA-I": lambda: FRRSA(interactions=True),
    "ridge-I": lambda: RidgeMLEM(interactions=True),
    "ridge-I on ranks": lambda: RidgeMLEM(interactions=True, target="rank"),
}
SLOW: dict[str, Callable[[int], TableModel]] = {
    "spearman-I, published": lambda seed: PublishedMLEM(
        interactions=True, strength=1.0, random_state=seed
    ),
    "FR-RSA-I, published": lambda seed: PublishedMLEM(
        interactions=True, constraint="none", strength=1.0, random_state=seed
    ),
    "spearman-I, published, true ranks": lambda seed: PublishedMLEM(
        interactions=True, random_state=seed
    ),
    "FR-RSA-I, published, true ranks": lambda seed: PublishedMLEM(
        interactions=True, constraint="none", random_state=seed
    ),
}
PLANTED = "planted W"


def planted(kind: str, seed: int) -> FloatArray:
    """A positive definite W (n_features, n_features) of Frobenius norm 1.

    "make_spd_matrix" is the paper's. With its positive entries beside the diagonal the distances
    √(Δᵀ W Δ) of binary features are in general those of no points in any Euclidean space. They are
    those of points exactly if no such entry is positive and no row's sum is negative, which
    "Euclidean" brings about.
    """
    from sklearn.datasets import make_spd_matrix

    found = np.asarray(make_spd_matrix(N_FEATURES, random_state=seed))
    if kind == "Euclidean":
        beside = -np.abs(found - np.diag(np.diag(found)))
        found = beside + np.diag(np.diag(found) - beside.sum(axis=1))
    return found / np.linalg.norm(found)


@lru_cache(maxsize=2)
def stimuli(kind: str, seed: int) -> tuple[pd.DataFrame, FloatArray, FloatArray]:
    """Binary features, W, and representations (n_stimuli, n_dimensions) without noise.

    Metric MDS (SMACOF): where the modelled distances are Euclidean it starts at the exact solution,
    classical MDS; else at random, which uses all dimensions.
    """
    from sklearn.manifold import MDS

    rng = np.random.default_rng(seed)
    binary = rng.integers(0, 2, (N_STIMULI, N_FEATURES))
    features = pd.DataFrame(
        {f"feature {f}": np.where(binary[:, f], "A", "B") for f in range(N_FEATURES)}
    )
    matrix = planted(kind, seed)
    apart = (binary[:, None] != binary[None]).astype(float)
    distances = np.sqrt(np.maximum(np.einsum("ijf,fg,ijg->ij", apart, matrix, apart), 0.0))
    scaling = MDS(
        n_components=N_DIMENSIONS,
        metric="precomputed",
        init="classical_mds" if kind == "Euclidean" else "random",
        n_init=1,
        max_iter=1000,
        eps=1e-9,
        random_state=seed,
    )
    return features, matrix, scaling.fit_transform(distances)


def simulate(kind: str, seed: int, noise: float, names: tuple[str, ...]) -> list[Row]:
    """Fit the estimators to one simulated data set."""
    features, matrix, clean = stimuli(kind, seed)
    rng = np.random.default_rng([seed, 1])
    rows = clean + noise * clean.std(axis=0) * rng.standard_normal(clean.shape)
    n_features = features.shape[1]
    train, test = features.iloc[:TRAIN], features.iloc[TRAIN:].reset_index(drop=True)
    found = []
    for name in names:
        if name == PLANTED:
            model: TableModel = RidgeMLEM((1.0,), interactions=True).fit(train, rows[:TRAIN])
            model.coef_ = matrix[metric_terms(n_features)]
        else:
            model = FAST[name]() if name in FAST else SLOW[name](seed)
            model.fit(train, rows[:TRAIN])
        fitted = metric_matrix(model.coef_, n_features)
        fitted /= max(np.linalg.norm(fitted), 1e-12)
        found.append(
            {
                "truth": kind,
                "noise": noise,
                "seed": seed,
                "estimator": name,
                "frobenius": float(np.linalg.norm(fitted - matrix)),
                "rho": model.score(test, rows[TRAIN:]),
                "steps": getattr(model, "n_steps_", 0) or np.nan,
            }
        )
    return found


def tasks(quick: bool) -> list[Task]:
    """A task a data set for the fast estimators, one a data set and fit for the slow ones."""
    made = []
    seeds = SEEDS[:2] if quick else SEEDS
    for kind in TRUTHS:
        for seed in seeds:
            for noise in NOISE[::3] if quick else NOISE:
                names = (PLANTED, *FAST)
                made.append(
                    Task(f"{kind} {seed} {noise}", simulate, (kind, seed, noise, names))
                )  # fmt: skip
    for name in [] if quick else SLOW:
        for seed in seeds:
            for noise in PUBLISHED_NOISE:
                at = (TRUTHS[0], seed, noise, (name,))
                made.append(Task(f"{TRUTHS[0]} {seed} {noise} {name}", simulate, at))
    return made

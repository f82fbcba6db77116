"""Studies on layers of real models: noise, regularisation strength, stability, permutations."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.base import RidgeMLEM, TableModel
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.extensions.rank_estimators.estimators import FRRSA, Ascent, SpearmanMLEM, ascend
from mlem_core.extensions.rank_estimators.rank_optimizer import WeightForm
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.column_builder import metric_matrix
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.representations.layers import from_model
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import group_folds
from mlem_core.storage.store import Store
from validation.made_pairs import statistics_of
from validation.simulations import pair_cells
from validation.work import Row, Task

STIMULI = "probing"
MIDDLE = ("minilm", 3)
FOLDS = 5
# Jalouzot et al. 2024, section 2.5.2: pairs in a batch for 12 features with interactions. The rule
# of appendix C asks for 285,000 here, some minutes a fit.
BATCH_WITH_INTERACTIONS = 20_000

NOISE = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
NOISE_SEEDS = range(3)
PUBLISHED_NOISE = (0.5, 1.0, 2.0)

STRENGTHS = (1.0, 1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
LAYERS = (("minilm", 1), ("minilm", 3), ("minilm", 6))
LAYERS += (("smollm2", 5), ("smollm2", 15), ("smollm2", 30))

SEEDS = range(10)
PERMUTATIONS = (5, 10, 100, 1000)

# Estimators on all pairs, with interactions or not.
FITS: dict[str, tuple[bool, TableModel]] = {
    "ridge": (False, RidgeMLEM()),
    "ridge on ranks": (False, RidgeMLEM(target="rank")),
    "spearman": (False, SpearmanMLEM()),
    "FR-RSA": (False, FRRSA()),
    "ridge-I": (True, RidgeMLEM()),
    "ridge-I on ranks": (True, RidgeMLEM(target="rank")),
    "spearman-I": (True, SpearmanMLEM()),
    "FR-RSA-I": (True, FRRSA()),
}
# The published recipe: with interactions or not, constraint, strength (None: true ranks), batch.
PUBLISHED: dict[str, tuple[bool, str, float | None, int | None]] = {
    "spearman, published": (False, "metric", 1.0, None),
    "spearman, published, true ranks": (False, "metric", None, None),
    "spearman-I, published": (True, "metric", 1.0, BATCH_WITH_INTERACTIONS),
    "FR-RSA-I, published": (True, "none", 1.0, BATCH_WITH_INTERACTIONS),
}


@lru_cache(maxsize=4)
def rows_of(model: str, layer: int) -> NDArray[np.floating]:
    """(n_stimuli, n_units)"""
    return np.array(from_model(datasets.load(STIMULI), model, Store())[layer])


class LayerData(NamedTuple):
    """One layer: its rows, statistics of its pairs, and the pairs for rank estimators."""

    rows: NDArray[np.floating]
    pairs: PairStatistics
    training_pairs: TrainingPairs


def folds_of(seed: int) -> IntArray:
    """(n_stimuli,)"""
    return group_folds(np.asarray(datasets.load(STIMULI).groups), FOLDS, seed)


def data_of(rows: NDArray[np.floating], interactions: bool = False, seed: int = 0) -> LayerData:
    """A layer (n_stimuli, n_units), with folds that depend on the seed."""
    folds = folds_of(seed)
    pairs = statistics_of(datasets.load(STIMULI), [rows], folds, interactions=interactions)
    training = TrainingPairs.from_columns(
        pairs.columns, folds, 1, lambda _: squared_distances(rows)
    )
    return LayerData(rows, pairs, training)


@lru_cache(maxsize=4)
def clean_data(model: str, layer: int, interactions: bool = False) -> LayerData:
    """A layer as it is."""
    return data_of(rows_of(model, layer), interactions)


def unit_metrics(weights: FloatArray, n_features: int) -> FloatArray:
    """(n_folds, n_features, n_features) W of Frobenius norm 1; zeros stay."""
    matrices = metric_matrix(weights, n_features)
    norms = np.linalg.norm(matrices, axis=(1, 2), keepdims=True)
    return matrices / np.where(norms > 0, norms, 1.0)


def with_noise(level: float, seed: int) -> FloatArray:
    """The middle layer with Gaussian noise scaled by the standard deviation of each unit."""
    rows = rows_of(*MIDDLE).astype(np.float64)
    rng = np.random.default_rng([seed, 2])
    return rows + level * rows.std(axis=0) * rng.standard_normal(rows.shape)


def published(name: str, rows: NDArray[np.floating], **more: Any) -> Ascent:
    """Train on the stimuli outside fold 0 by the published recipe."""
    interactions, constraint, strength, batch = PUBLISHED[name]
    train = folds_of(0) != 0
    columns = [
        FeatureColumn(column.name, column.kind, column.values[train], column.span)
        for column in feature_columns(datasets.load(STIMULI))
    ]
    given: dict[str, Any] = {"strength": strength, "batch_size": batch} | more
    shape = WeightForm(len(columns), interactions, constraint)
    pairs = PairColumns.from_features(columns, interactions=interactions)
    cells = pair_cells(pairs, rows[train], ranked=given["strength"] is None)
    return ascend(cells, shape, **given)


class Profiles(NamedTuple):
    """Weights and importances (n_folds, n_columns) of a layer; of the published recipe fold 0."""

    pairs: PairStatistics
    weights: FloatArray
    importance: FloatArray


def has_interactions(name: str) -> bool:
    """Whether an estimator or recipe has them."""
    return (FITS if name in FITS else PUBLISHED)[name][0]


def profiles(name: str, data: LayerData, seed: int = 0) -> Profiles:
    """Profiles by an estimator, or by the published recipe with a seed."""
    pairs = data.pairs
    if name in FITS:
        weights = FITS[name][1].cross_validate(pairs, data.training_pairs).weights
    else:
        weights = np.zeros((1, FOLDS, len(pairs.columns)))
        weights[0, 0] = published(name, data.rows, seed=seed).weights
    importance = permutation_importance(pairs.tests, weights).drop[0]
    folds = FOLDS if name in FITS else 1
    return Profiles(pairs, weights[0, :folds], importance[:folds])


@lru_cache(maxsize=16)
def clean_profiles(name: str) -> Profiles:
    """Those of the middle layer as it is."""
    return profiles(name, clean_data(*MIDDLE, has_interactions(name)))


def noise(names: tuple[str, ...], level: float, seed: int) -> list[Row]:
    """How close to the noiseless profile the profile with noise is."""
    from scipy.stats import weightedtau

    rows = with_noise(level, seed)
    data = {which: data_of(rows, which) for which in {has_interactions(name) for name in names}}
    found = []
    for name in names:
        clean, noisy = clean_profiles(name), profiles(name, data[has_interactions(name)])
        n = len(clean.pairs.features)
        moved = unit_metrics(noisy.weights, n) - unit_metrics(clean.weights, n)
        for fold, importance in enumerate(noisy.importance):
            true = clean.importance[fold]
            score = noisy.pairs.tests.folds[fold].scores(noisy.weights[None, [fold]])
            found.append(
                {
                    "estimator": name,
                    "noise": level,
                    "seed": seed,
                    "fold": fold,
                    "tau": float(weightedtau(true, importance).statistic),
                    "tau_features": float(weightedtau(true[:n], importance[:n]).statistic),
                    "frobenius": float(np.linalg.norm(moved[fold])),
                    "rho": float(score.rho[0, 0]),
                }
            )
    return found


def noise_tasks(quick: bool) -> list[Task]:
    """A task a noise level and seed; one a level for each published recipe (seed 0, fold 0)."""
    made = []
    for level in NOISE[1:4:2] if quick else NOISE:
        for seed in NOISE_SEEDS[:1] if quick else NOISE_SEEDS:
            made.append(Task(f"{level} {seed}", noise, (tuple(FITS), level, seed)))
    for name in [] if quick else PUBLISHED:
        for level in PUBLISHED_NOISE:
            made.append(Task(f"{level} 0 {name}", noise, ((name,), level, 0)))
    return made


def scored(pairs: PairStatistics, weights: FloatArray) -> Row:
    """Held-out scores of weights (n_columns,) on fold 0."""
    score = pairs.tests.folds[0].scores(weights[None, None])
    return {"rho": float(score.rho[0, 0]), "rho_a": float(score.rho_a[0, 0])}


def lines(model: str, layer: int) -> list[Row]:
    """Held-out scores of the estimators on all pairs, fold 0."""
    data = clean_data(model, layer)
    found = []
    for name in ("ridge", "ridge on ranks", "spearman"):
        weights = FITS[name][1].cross_validate(data.pairs, data.training_pairs).weights[0, 0]
        found.append({"model": model, "layer": layer, "estimator": name})
        found[-1] |= scored(data.pairs, weights)
    return found


def strength(model: str, layer: int, value: float | None) -> list[Row]:
    """Held-out scores of the published recipe at a strength of the soft rank, fold 0."""
    name = "spearman, published"
    ascent = published(name, rows_of(model, layer), strength=value)
    label = name if value is not None else "spearman, published, true ranks"
    row = {"model": model, "layer": layer, "estimator": label, "strength": value}
    scores = scored(clean_data(model, layer).pairs, ascent.weights)
    return [row | {"steps": ascent.n_steps} | scores]


def strength_tasks(quick: bool) -> list[Task]:
    """A task a layer and strength."""
    layers = LAYERS[1:2] if quick else LAYERS
    made = [Task(f"{model} {layer} lines", lines, (model, layer)) for model, layer in layers]
    for value in (*STRENGTHS[::3], None) if quick else (*STRENGTHS, None):
        for model, layer in layers:
            made.append(Task(f"{model} {layer} {value}", strength, (model, layer, value)))
    return made


def by_feature(found: Profiles, importance: FloatArray, about: Row) -> list[Row]:
    """A row an importance (n_columns,)."""
    return [
        about | {"feature": feature, "importance": value}
        for feature, value in zip(found.pairs.columns.names, importance, strict=True)
    ]


def over_folds(seed: int) -> list[Row]:
    """Importances (means over folds) when the stimuli are divided anew."""
    data = {which: data_of(rows_of(*MIDDLE), which, seed) for which in (False, True)}
    rows: list[Row] = []
    for name in FITS:
        found = profiles(name, data[has_interactions(name)])
        about = {"varies": "folds", "estimator": name, "seed": seed}
        rows += by_feature(found, found.importance.mean(axis=0), about)
    return rows


def over_samples(name: str, seed: int) -> list[Row]:
    """Importances on fold 0 when the published recipe draws other pairs."""
    found = profiles(name, clean_data(*MIDDLE, has_interactions(name)), seed)
    about = {"varies": "pairs", "estimator": name, "seed": seed}
    return by_feature(found, found.importance[0], about)


def stability_tasks(quick: bool) -> list[Task]:
    """A task a seed."""
    seeds = SEEDS[:3] if quick else SEEDS
    made = [Task(f"folds {seed}", over_folds, (seed,)) for seed in seeds]
    for name in [] if quick else PUBLISHED:
        made += [Task(f"pairs {seed} {name}", over_samples, (name, seed)) for seed in seeds]
    return made


def permutations(counts: tuple[int, ...]) -> list[Row]:
    """Exact importances of ridge on fold 0 beside those of permuted explicit pairs."""
    from scipy.spatial.distance import pdist
    from scipy.stats import rankdata

    pairs, weights, exact = clean_profiles("ridge")
    inside = np.flatnonzero(folds_of(0) == 0)
    first, second = np.triu_indices(len(inside), 1)
    terms = pairs.columns.pair_values(inside[first], inside[second])
    true = rankdata(pdist(rows_of(*MIDDLE)[inside].astype(np.float64)))
    true -= true.mean()

    def rho(prediction: FloatArray) -> float:
        # Predictions are sums of few values: equal ones differ in their last bits at most.
        _, value, n = np.unique(np.round(prediction, 12), return_inverse=True, return_counts=True)
        ranks = np.cumsum(n) - n / 2 - len(value) / 2
        covariance = np.bincount(value, true) @ ranks
        return float(covariance / np.sqrt((true @ true) * (ranks**2 @ n)))

    rng = np.random.default_rng(0)
    whole = rho(terms @ weights[0])
    found = []
    for f, feature in enumerate(pairs.features):
        rest = terms @ weights[0] - terms[:, f] * weights[0, f]
        drops = np.array(
            [
                whole - rho(rest + weights[0, f] * rng.permutation(terms[:, f]))
                for _ in range(max(counts))
            ]
        )
        for n in counts:
            # The scatter of single permutations says that of their means, with no more of them.
            found.append(
                {
                    "feature": feature,
                    "permutations": n,
                    "exact": exact[0, f],
                    "monte_carlo": drops[:n].mean(),
                    "standard_error": drops.std(ddof=1) / np.sqrt(n),
                }
            )
    return found


def permutation_tasks(quick: bool) -> list[Task]:
    """One task."""
    return [Task("all", permutations, (PERMUTATIONS[:2] if quick else PERMUTATIONS,))]

"""Sections `estimators` and `fits`: spearman beside ridge and the published recipe; its time."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.data import FOLDS, SEED, Case, probing
from benchmarks.timing import Table
from mlem_core.base.typing import FloatArray, layer_name
from mlem_core.estimators.base import RidgeMLEM
from mlem_core.estimators.registry import tested_fits
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.extensions.rank_estimators.estimators import Cells, SpearmanMLEM, ascend
from mlem_core.extensions.rank_estimators.rank_optimizer import WeightForm
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.stimuli.folds import group_folds
from validation.made_pairs import statistics_of
from validation.simulations import pair_cells

# Jalouzot et al. 2024, appendix C: the size that its rule gives here; five permutations.
BATCH, PERMUTATIONS = 50_000, 5
# Layers whose importances are computed for other divisions into folds, and their seeds.
STABILITY_SEEDS = range(1, 10)


@contextmanager
def _one_core() -> Iterator[None]:
    """Both routes would share layers out among the cores; a fit is timed on one."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _cells(
    case: Case, interactions: bool, layer: int, chosen: np.ndarray, *, ranked: bool = False
) -> Cells:
    """Every pair of the chosen stimuli."""
    columns = [
        FeatureColumn(c.name, c.kind, c.values[chosen], c.span)
        for c in feature_columns(case.stimuli)
    ]
    pairs = PairColumns.from_features(columns, interactions=interactions)
    return pair_cells(pairs, case.rows[layer][chosen], ranked=ranked)


def _published(
    case: Case, interactions: bool, layer: int, fold: int, strength: float | None
) -> FloatArray:
    """Weights of one layer and fold by the published recipe."""
    cells = _cells(case, interactions, layer, case.folds != fold, ranked=strength is None)
    shape = WeightForm(len(case.stimuli.features), interactions, "metric")
    return ascend(cells, shape, strength, BATCH, SEED).weights


def _permuted(
    case: Case, interactions: bool, layer: int, fold: int, weights: FloatArray
) -> FloatArray:
    """Importances (n_permutations, n_features) as published, on batches of held-out pairs."""
    from scipy.stats import spearmanr

    cells = _cells(case, False, layer, case.folds == fold)
    shape = WeightForm(len(case.stimuli.features), interactions, "metric")
    rng = np.random.default_rng(SEED)
    drops = np.zeros((PERMUTATIONS, shape.n_features))

    def rho(distances: FloatArray, target: FloatArray) -> float:
        terms = shape.times * distances[:, shape.first] * distances[:, shape.second]
        return float(spearmanr(terms @ weights, target).statistic)

    for repeat in range(PERMUTATIONS):
        drawn = cells.draw(BATCH, rng)
        target, distances = cells.target[drawn], np.sqrt(cells.terms[cells.pattern[drawn]])
        score = rho(distances, target)
        for feature in range(shape.n_features):
            permuted = distances.copy()
            permuted[:, feature] = rng.permutation(permuted[:, feature])
            drops[repeat, feature] = score - rho(permuted, target)
    return drops


def _statistics(case: Case, layers: Sequence[int], interactions: bool = False) -> PairStatistics:
    rows = [case.rows[layer] for layer in layers]
    return statistics_of(case.stimuli, rows, case.folds, interactions=interactions)


def _spearman(case: Case, pairs: PairStatistics, layers: Sequence[int]) -> FloatArray:
    """Weights (n_layers, n_folds, n_columns) of the highest ρ_a."""
    training = TrainingPairs.from_columns(
        pairs.columns,
        case.folds,
        len(layers),
        lambda position: squared_distances(case.rows[layers[position]]),
    )
    return SpearmanMLEM().cross_validate(pairs, training).weights


def fits(table: Table, runs: int) -> str:
    """Time of a fit with importances, ours and the published recipe's in turn, on one core."""
    case = probing()
    chosen = np.linspace(1, len(case.layers) - 1, max(2, runs)).astype(int).tolist()
    for interactions in (False, True):
        ratios, ours, theirs = [], [], []
        for layer in chosen:
            pairs = _statistics(case, [layer], interactions)
            with _one_core():
                start = time.perf_counter()
                permutation_importance(pairs.tests, _spearman(case, pairs, [layer]))
                ours.append((time.perf_counter() - start) / FOLDS)
                start = time.perf_counter()
                weights = _published(case, interactions, layer, 0, 1.0)
                _permuted(case, interactions, layer, 0, weights)
                theirs.append(time.perf_counter() - start)
            ratios.append(theirs[-1] / ours[-1])
        table.add(
            "time a layer and fold with importances, published recipe over spearman"
            + (" with interactions" if interactions else ""),
            f"{1000 * statistics.median(ours):.0f} ms",
            f"{statistics.median(theirs):.1f} s",
            f"{statistics.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})",
            "at least 5" if interactions else "at least 20",
        )
    return (
        f"{len(chosen)} layers of the probing set ({len(case.stimuli):,} words), on one core; the "
        f"published recipe with batches of {BATCH:,} pairs, at most 1,000 steps, patience 50, "
        f"importances by {PERMUTATIONS} permutations; medians, and the range of the ratios"
    )


def _scores(pairs: PairStatistics, weights: FloatArray) -> FloatArray:
    """(2, n_layers, n_folds) held-out ρ and ρ_a."""
    fits = tested_fits(pairs, weights)
    return np.stack([fits.rho, fits.rho_a])


def _spread(case: Case, layers: list[int]) -> tuple[FloatArray, FloatArray]:
    """Standard deviations of importances over folds, and of their means over seeds of the folds.

    Each (2,): of ridge and of spearman, averaged over layers and features.
    """
    over_folds, means = [], []
    for seed in STABILITY_SEEDS:
        divided = replace(case, folds=group_folds(case.stimuli.groups, FOLDS, seed))
        pairs = _statistics(divided, layers)
        ridge = RidgeMLEM().cross_validate(pairs).weights
        importances = np.stack(
            [
                permutation_importance(pairs.tests, weights).drop
                for weights in (ridge, _spearman(divided, pairs, layers))
            ]
        )
        over_folds.append(importances.std(axis=2, ddof=1).mean(axis=(1, 2)))
        means.append(importances.mean(axis=2))
    return np.mean(over_folds, axis=0), np.std(means, axis=0, ddof=1).mean(axis=(1, 2))


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    case = probing()
    everything = range(len(case.layers))
    plain = _statistics(case, everything)
    ridge = _scores(plain, RidgeMLEM().cross_validate(plain).weights)
    layer_names = pd.Index([layer_name(layer) for layer in case.layers])
    # The recipe takes seconds a fit: one fold a layer, another one in the next layer.
    folds = np.arange(len(case.layers)) % FOLDS
    for interactions in (False, True):
        pairs = _statistics(case, everything, interactions)
        title = "spearman with interactions" if interactions else "spearman"
        own = _scores(pairs, _spearman(case, pairs, everything))
        gain = (own - ridge).mean(axis=2)
        for name, values in zip(("ρ", "ρ_a"), gain, strict=True):
            table.add(
                f"mean held-out {name}, {title} over ridge",
                f"{own[0 if name == 'ρ' else 1].mean():.4f}",
                f"{ridge[0 if name == 'ρ' else 1].mean():.4f}",
                f"{values.mean():+.4f}",
                "at least +0.02",
            )
            at = int(values.argmin())
            table.add(
                f"the same, the layer where it is least ({layer_names[at]})",
                "",
                "",
                f"{values[at]:+.4f}",
                "no less than -0.005",
            )
        every = np.arange(len(case.layers)) if not interactions else np.arange(3, 38, 5)
        for label, strength in (("published, strength 1", 1.0), ("published, true ranks", None)):
            differences = []
            for layer in every:
                fold = int(folds[layer])
                theirs = _published(case, interactions, int(layer), fold, strength)
                score = (
                    pairs.select_layers([int(layer)]).tests.folds[fold].scores(theirs[None, None])
                )
                both = np.array([score.rho[0, 0], score.rho_a[0, 0]])
                differences.append(own[:, layer, fold] - both)
            found = np.array(differences)
            for name, values in zip(("ρ", "ρ_a"), found.T, strict=True):
                at = int(values.argmin())
                table.add(
                    f"held-out {name} of {title} over the recipe ({label}), {len(every)} layers, "
                    f"a fold each: mean, and least ({layer_names[every[at]]})",
                    f"{values.mean():+.4f}",
                    "",
                    f"{values.min():+.4f}",
                    "no less than -0.005",
                )
    over_folds, over_seeds = _spread(case, list(range(1, len(case.layers), 6)))
    for what, (ridge_sd, own_sd) in (
        ("folds", over_folds),
        (f"{len(STABILITY_SEEDS)} divisions into folds", over_seeds),
    ):
        table.add(
            f"standard deviation of an importance over {what}, spearman over ridge",
            f"{own_sd:.4f}",
            f"{ridge_sd:.4f}",
            f"{own_sd / ridge_sd:.2f}",
            "at most 1",
        )
    n = len(case.stimuli)
    return (
        f"the probing set ({n:,} words) in {len(case.layers)} layers, {FOLDS} folds; the published "
        f"recipe with batches of {BATCH:,} pairs, at most 1,000 steps, patience 50"
    )

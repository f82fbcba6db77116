"""Sections `estimators` and `fits`: spearman beside ridge and the published recipe; its time."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd

from benchmarks import routes
from benchmarks.data import FOLDS, SEED, Case, probing
from benchmarks.timing import Table
from mlem_core.base.typing import FloatArray, layer_name
from mlem_core.data.folds import group_folds
from mlem_core.estimators.ascent import WeightForm
from mlem_core.estimators.base import RidgeMLEM, held_out_scores
from mlem_core.estimators.spearman import Cells, SpearmanMLEM, ascend
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables
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
    pairs = PairColumns.of(columns, interactions=interactions)
    return pair_cells(pairs, case.rows[layer][chosen], ranked=ranked)


def _published(
    case: Case, tables: PairTables, layer: int, fold: int, strength: float | None
) -> FloatArray:
    """Weights of one layer and fold by the published recipe."""
    chosen, interactions = case.folds != fold, tables.interactions
    cells = _cells(case, interactions, layer, chosen, ranked=strength is None)
    shape = WeightForm(len(tables.features), interactions, "metric")
    return ascend(cells, shape, strength, BATCH, SEED).weights


def _permuted(case: Case, tables: PairTables, layer: int, fold: int, weights: FloatArray) -> None:
    """Importances as published: permutations on batches of held-out pairs."""
    from scipy.stats import spearmanr

    cells = _cells(case, False, layer, case.folds == fold)
    rng = np.random.default_rng(SEED)
    drops = np.zeros((PERMUTATIONS, len(tables.features)))
    for repeat in range(PERMUTATIONS):
        drawn = cells.draw(BATCH, rng)
        target, features = cells.target[drawn], np.sqrt(cells.terms[cells.pattern[drawn]])
        whole = spearmanr(tables.columns.values(features) @ weights, target).statistic
        for f in range(len(tables.features)):
            permuted = features.copy()
            permuted[:, f] = rng.permutation(permuted[:, f])
            rho = spearmanr(tables.columns.values(permuted) @ weights, target).statistic
            drops[repeat, f] = whole - rho


def fits(table: Table, runs: int) -> str:
    """Time of a fit with importances, ours and the published recipe's in turn, on one core."""
    case = probing()
    plain, _, _ = routes.engine(case)
    permutation_importance(plain, SpearmanMLEM().cross_validate(plain.of_layers([0])).weights)
    chosen = np.linspace(1, len(case.layers) - 1, max(2, runs)).astype(int)
    for interactions in (False, True):
        tables = plain.with_interactions(interactions)
        ratios, ours, theirs = [], [], []
        for layer in (int(one) for one in chosen):
            one = tables.of_layers([layer])
            with _one_core():
                start = time.perf_counter()
                permutation_importance(one, SpearmanMLEM().cross_validate(one).weights)
                ours.append((time.perf_counter() - start) / FOLDS)
                start = time.perf_counter()
                _permuted(case, tables, layer, 0, _published(case, tables, layer, 0, 1.0))
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


def _scores(tables: PairTables, weights: FloatArray) -> FloatArray:
    """(2, n_layers, n_folds) held-out ρ and ρ_a."""
    found = [held_out_scores(tables, weights[:, k, None], k) for k in range(FOLDS)]
    rho = np.concatenate([score.rho for score in found], axis=1)
    return np.stack([rho, np.concatenate([score.rho_a for score in found], axis=1)])


def _spread(case: Case, layers: list[int]) -> tuple[FloatArray, FloatArray]:
    """Standard deviations of importances over folds, and of their means over seeds of the folds.

    Each (2,): of ridge and of spearman, averaged over layers and features.
    """
    columns = feature_columns(case.stimuli)
    over_folds, means = [], []
    for seed in STABILITY_SEEDS:
        index = PairIndex.build(columns, group_folds(case.stimuli.groups, FOLDS, seed))
        sources = [lambda layer=layer: case.rows[layer] for layer in layers]
        tables = pair_tables(index, sources, train_ranks=True)
        found = np.stack(
            [
                permutation_importance(tables, fit(tables).weights)
                for fit in (RidgeMLEM().cross_validate, SpearmanMLEM().cross_validate)
            ]
        )
        over_folds.append(found.std(axis=2, ddof=1).mean(axis=(1, 2)))
        means.append(found.mean(axis=2))
    return np.mean(over_folds, axis=0), np.std(means, axis=0, ddof=1).mean(axis=(1, 2))


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    case = probing()
    plain, _, _ = routes.engine(case)
    layer_names = pd.Index([layer_name(layer) for layer in case.layers])
    # The recipe takes seconds a fit: one fold a layer, another one in the next layer.
    folds = np.arange(len(case.layers)) % FOLDS
    for interactions in (False, True):
        tables = plain.with_interactions(interactions)
        title = "spearman with interactions" if interactions else "spearman"
        weights = SpearmanMLEM().cross_validate(tables).weights
        own = _scores(tables, weights)
        ridge = _scores(plain, RidgeMLEM().cross_validate(plain).weights)
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
                theirs = _published(case, tables, int(layer), fold, strength)
                score = held_out_scores(tables.of_layers([int(layer)]), theirs[None, None], fold)
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

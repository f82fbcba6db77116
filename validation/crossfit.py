"""What features of pure noise do to terms and ceilings, and what rare patterns cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.data.folds import group_folds
from mlem_core.measures.decomposition import by_pattern, decompose
from mlem_core.measures.shapley import sampled_orders, shapley
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.crossfit import FeatureSet, fold_ceilings, share_alone
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import PairRanks
from mlem_core.pairs.tables import PairTables
from validation.work import Row, Task

# Stimuli, and how many data sets of so many.
SIZES = {60: 40, 300: 10}
# How many columns of noise are added: values of three kinds, or numbers with three decimals.
NOMINAL, NUMBERS = (0, 1, 2, 5, 10, 20, 40), (1, 2, 5)
PART_SIZE = 5
# Orders of more than 12 features, each with its reverse.
ORDERS = 3
# Into how many equal steps the range of an ordered feature is divided.
STEPS = (4, 10, 30, 100, 1000)


def tables_of(features: pd.DataFrame, layers: list[FloatArray]) -> tuple[PairTables, FloatArray]:
    """Pair tables in five folds, and RSA."""
    folds = group_folds(np.arange(len(features)), 5, 0)
    index = PairIndex.build(feature_columns(features), folds)
    ranks = PairRanks(len(layers), index.design.n_pairs)
    tables = pair_tables(
        index,
        [lambda rows=rows: rows for rows in layers],
        keep_ranks=ranks.put,
    )
    return tables, ranks.rsa()


def in_sample_terms(tables: PairTables, n_exact: int = 12) -> FloatArray:
    """(n_features,) terms of two layers when means meet the ranks that they are made of."""
    counts, sums = by_pattern(tables)
    scale = np.sqrt(tables.rank_squares.prod())

    def explained(chosen: FeatureSet) -> FloatArray:
        n, a, b = chosen.sums.T
        return np.asarray((a * b / np.maximum(n, 1.0)).sum() / scale)

    stacked = np.column_stack((counts, sums))
    orders = sampled_orders(tables.codes, ORDERS, n_exact)
    return shapley(FeatureSet.of(tables.codes, stacked), explained, orders=orders).terms


def in_sample_bound(tables: PairTables) -> float:
    """√ of the share of the rank variance that lies between patterns, the mean over layers.

    It is in-sample, and grows with the number of patterns, whatever makes them.
    """
    counts, sums = by_pattern(tables)
    between = (sums**2 / np.maximum(counts, 1.0)[:, None]).sum(axis=0)
    return float(np.sqrt(between / tables.rank_squares).mean())


def with_noise(n: int, kind: str, n_noise: int, seed: int) -> list[Row]:
    """Terms of two layers that share one feature, beside columns that mean nothing."""
    rng = np.random.default_rng([n, seed])
    features = pd.DataFrame({"true": np.array(list("xy"))[np.arange(n) % 2]})
    shared = 2.5 * (features[["true"]] == "x").to_numpy()
    layers = [np.hstack((shared, rng.standard_normal((n, 3)))) for _ in range(2)]
    for k in range(n_noise):
        nominal = kind == "nominal"
        values = rng.choice(list("abc"), n) if nominal else rng.normal(size=n).round(3)
        features[f"noise {k}"] = values
    tables, rsa = tables_of(features, layers)
    found = decompose(tables, rsa, orders=ORDERS)
    own = in_sample_terms(tables)
    row = {"study": "noise", "stimuli": n, "noise": kind, "columns": n_noise, "seed": seed}
    return [
        row
        | {
            "rsa": rsa[0, 1],
            "true": found.terms[0, 0, 1],
            "noise_terms": found.terms[1:, 0, 1].sum(),
            "unexplained": found.unexplained[0, 1],
            "ceiling": fold_ceilings(tables).mean(),
            "true_in_sample": own[0],
            "noise_in_sample": own[1:].sum(),
            "unexplained_in_sample": rsa[0, 1] - own.sum(),
            "bound": in_sample_bound(tables),
        }
    ]


def with_steps(n: int, steps: int, seed: int) -> list[Row]:
    """What is explained of a layer by a feature in so many steps, beside two others."""
    rng = np.random.default_rng([n, seed, 1])
    size = rng.random(n)
    features = pd.DataFrame(
        {
            "kind": rng.choice(list("abc"), n),
            "sign": rng.choice(list("xy"), n),
            "size": np.round(size * steps) / steps,
        }
    )
    layer = np.column_stack(
        (
            2.0 * (features["kind"] == "a"),
            1.5 * (features["sign"] == "x"),
            4.0 * size,
            rng.standard_normal((n, 2)),
        )
    )
    tables, _ = tables_of(features, [layer])
    row = {"study": "steps", "stimuli": n, "columns": steps, "seed": seed}
    return [
        row
        | {
            "patterns": len(tables.codes),
            "alone": share_alone(tables),
            "ceiling": fold_ceilings(tables).mean(),
            "bound": in_sample_bound(tables),
        }
    ]


def noise_part(n: int, kind: str, first: int, size: int) -> list[Row]:
    """Some data sets of one size with each number of columns of noise."""
    return [
        row
        for seed in range(first, first + size)
        for columns in (NOMINAL if kind == "nominal" else NUMBERS)
        for row in with_noise(n, kind, columns, seed)
    ]


def steps_part(n: int, first: int, size: int) -> list[Row]:
    """Some data sets of one size with each number of steps."""
    return [
        row
        for seed in range(first, first + size)
        for steps in STEPS
        for row in with_steps(n, steps, seed)
    ]


def tasks(quick: bool) -> list[Task]:
    """A task some data sets of one size and kind of noise."""
    sizes = {60: PART_SIZE} if quick else SIZES
    noise = [
        Task(f"{size} {kind} {first}", noise_part, (size, kind, first, PART_SIZE))
        for size, n in sizes.items()
        for kind in ("nominal", "numbers")
        for first in range(0, n, PART_SIZE)
    ]
    return noise + [
        Task(f"steps {size} {first}", steps_part, (size, first, PART_SIZE))
        for size in (*sizes, 150, 1000)
        for first in range(0, 2 * PART_SIZE, PART_SIZE)
    ]

"""S_feat, S_rest and transfer: how often there is a number of nothing, what intervals hold."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.data.folds import group_folds
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.partial import parts, parts_of
from mlem_core.inference.replicates import resampled_terms, resampled_transfers
from mlem_core.inference.resample import Replicates
from mlem_core.measures.partial import TRANSFERS, above_zero, explained_parts, feature_similarity
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.tables import PairTables
from validation.work import Row, Task

FOLDS, PART_SIZE = 5, 10
# Stimuli and columns of features that say nothing of either layer; data sets of each.
SIZES, NOTHING = ((60, 40), (60, 5), (300, 4)), 200
KINDS = ("layers of noise", "layers with a part in common", "labels of other stimuli")
# Weights of four features in two layers; and how many sentences, in how many data sets.
TRUTHS = {"same": ([2, 1.5, 0, 0], [2, 1.5, 0, 0]), "part": ([2.5, 1, 0, 0], [1, 2.5, 1, 0])}
SENTENCES, DATA_SETS = (80, 160), 60
# The truth of S_feat and S_rest is that of so many sets of so many sentences.
POPULATIONS, POPULATION = 8, 1500
QUANTITIES = ("s_feat", "s_rest", *TRANSFERS)


def indexed(features: pd.DataFrame) -> PairIndex:
    """The pairs of stimuli that are sentences of their own, in folds."""
    folds = group_folds(np.arange(len(features)), FOLDS, 0)
    return PairIndex.build(feature_columns(features), folds)


def tables_of(features: pd.DataFrame, layers: list[FloatArray]) -> PairTables:
    """The pair tables of layers of such stimuli."""
    return pair_tables(indexed(features), [lambda rows=rows: rows for rows in layers])


def without_features(kind: str, n: int, columns: int, seed: int) -> list[Row]:
    """Two layers of which the features say nothing: whether there would be a number."""
    rng = np.random.default_rng([n, columns, KINDS.index(kind), seed])
    features = pd.DataFrame({f"f{k}": rng.choice(list("abc"), n) for k in range(columns)})
    shared = rng.standard_normal((n, 0 if kind == KINDS[0] else 3))
    if kind == KINDS[2]:
        shared = np.hstack((shared, 3.0 * (features[["f0", "f1"]] == "a").to_numpy()))
        features = features.iloc[rng.permutation(n)].reset_index(drop=True)
    layers = [np.hstack((shared, rng.standard_normal((n, 3)))) for _ in range(2)]
    whole, by_fold = explained_parts(tables_of(features, layers))
    one, other = above_zero(by_fold)
    v = whole[0, 1], *np.diagonal(whole)
    row = {"study": "nothing", "kind": kind, "stimuli": n, "columns": columns, "seed": seed}
    return [
        row
        | {
            "one": (float(one) + float(other)) / 2,
            "both": float(one and other),
            "s_feat": float(feature_similarity(*map(np.asarray, v))),
        }
    ]


def planted(kind: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Four features, and two layers that weigh them and share two dimensions beside them."""
    features = pd.DataFrame({name: rng.choice(["x", "y"], n) for name in "abcd"})
    values, shared = (features == "x").to_numpy(dtype=float), rng.standard_normal((n, 2))
    return features, [
        np.hstack((values * weights, shared, rng.standard_normal((n, 2))))
        for weights in TRUTHS[kind]
    ]


def resampled(features: pd.DataFrame, layers: list[FloatArray]) -> list[Replicates]:
    """S_feat and S_rest, and transfer, in replicates of the sentences."""
    index, n = indexed(features), len(features)
    squared = [squared_distances(rows) for rows in layers]
    pairs = LayerPairs(
        layers=(("A", 0), ("B", 0)),
        tables=pair_tables(index, [lambda rows=rows: rows for rows in layers]),
        ranks=tuple(pair_ranks(one) for one in squared),
        squared=tuple(one.astype(np.float32) for one in squared),
        design=index.design,
        cells=index.cell,
        groups=np.arange(n),
        folds=group_folds(np.arange(n), FOLDS, 0),
    )
    terms, n = resampled_terms(pairs), features.shape[1]
    draws = parts_of(np.concatenate((terms.value[None], terms.left_out)), n, drawn=True)
    both = Replicates(draws[0], draws[:0], draws[1:], terms.sizes)
    return [both, resampled_transfers(pairs, "ridge")]


def with_truth(kind: str, n: int, seed: int) -> list[Row]:
    """The numbers of one data set, with their intervals."""
    rng = np.random.default_rng([n, list(TRUTHS).index(kind), seed])
    both, moved = resampled(*planted(kind, n, rng))
    ends = zip(both.estimate()[:3], moved.estimate()[:3], strict=True)
    found = zip(QUANTITIES, *map(np.concatenate, ends), strict=True)
    row = {"study": "truth", "kind": kind, "stimuli": n, "seed": seed}
    return [
        row | {"quantity": name, "value": value, "lower": low, "upper": high}
        for name, value, low, high in found
    ]


def population(kind: str, seed: int) -> list[Row]:
    """S_feat and S_rest of many sentences."""
    rng = np.random.default_rng([POPULATION, list(TRUTHS).index(kind), seed])
    features, layers = planted(kind, POPULATION, rng)
    ranks = [pair_ranks(squared_distances(rows)).astype(np.float64) for rows in layers]
    table = parts(tables_of(features, layers), float(np.corrcoef(ranks)[0, 1]))
    row = {"study": "population", "kind": kind, "stimuli": POPULATION, "seed": seed}
    return [row | one for one in table.to_dict("records")]


def nothing_part(kind: str, n: int, columns: int, first: int) -> list[Row]:
    """Some data sets of which the features say nothing."""
    seeds = range(first, first + PART_SIZE)
    return [row for seed in seeds for row in without_features(kind, n, columns, seed)]


def truth_part(kind: str, n: int, first: int) -> list[Row]:
    """Some data sets with a truth."""
    seeds = range(first, first + PART_SIZE)
    return [row for seed in seeds for row in with_truth(kind, n, seed)]


def tasks(quick: bool) -> list[Task]:
    """A task some data sets of one kind and size."""
    most, sets = (PART_SIZE, PART_SIZE) if quick else (NOTHING, DATA_SETS)
    sizes = SIZES[1:2] if quick else SIZES
    found = [
        Task(f"{kind} {n} {columns} {first}", nothing_part, (kind, n, columns, first))
        for kind in KINDS
        for n, columns in sizes
        for first in range(0, most, PART_SIZE)
    ]
    for kind in TRUTHS:
        found += [
            Task(f"{kind} {n} {first}", truth_part, (kind, n, first))
            for n in (SENTENCES[:1] if quick else SENTENCES)
            for first in range(0, sets, PART_SIZE)
        ]
        populations = range(1 if quick else POPULATIONS)
        found += [Task(f"{kind} population {s}", population, (kind, s)) for s in populations]
    return found


def of_partial(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often there would be a number of nothing; what intervals hold."""
    nothing = rows[rows["study"] == "nothing"]
    groups = nothing.groupby(["kind", "stimuli", "columns"], sort=False)
    table = pd.DataFrame(
        {
            "data sets": groups.size().map(str),
            "a layer passes": groups["one"].mean().map("{:.1%}".format),
            "both pass": groups["both"].mean().map("{:.1%}".format),
            "S_feat without the rule": groups["s_feat"].count().map(str),
            "largest": groups["s_feat"].agg(lambda values: values.abs().max()).map("{:.1f}".format),
        }
    )
    table.index = pd.Index(
        [f"{kind}, {n} stimuli, {columns:.0f} features" for kind, n, columns in table.index],
        name="features that say nothing",
    )
    own, whole = (rows[rows["study"] == study] for study in ("truth", "population"))
    own = own[~own["quantity"].str.startswith("score")]
    known = whole.groupby(["kind", "quantity"])["value"].mean()
    found = []
    for (kind, n, quantity), one in own.groupby(["kind", "stimuli", "quantity"], sort=False):
        mean = one["value"].mean()
        truth = known.get((kind, quantity), mean)
        held = (one["lower"] <= truth) & (truth <= one["upper"])
        found.append(
            {
                "quantity": f"{quantity}, {kind}, {n} sentences",
                "data sets": len(one),
                "truth": f"{truth:.3f}",
                "mean": f"{mean:.3f}",
                "sd": f"{one['value'].std():.3f}",
                "held": f"{held.mean():.1%}",
            }
        )
    return {
        "partial nothing": table,
        "partial intervals": pd.DataFrame(found).set_index("quantity"),
    }

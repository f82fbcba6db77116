"""How often intervals hold the truth, and tests reject what is true, over simulated data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.data.folds import group_folds
from mlem_core.estimators.base import RidgeMLEM, held_out_scores
from mlem_core.inference.importance_chance import score_above_chance
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.replicates import resampled_scores, resampled_terms
from mlem_core.inference.resample import Replicates
from mlem_core.measures.decomposition import UNEXPLAINED, ceilings_of, decompose
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import PairRanks, pair_ranks
from mlem_core.pairs.tables import PairTables
from validation.work import Row, Task

SIZES = (40, 80, 160)
DATA_SETS, PART_SIZE = 200, 10
WORDS = 2
REPLICATES, PERMUTATIONS = 200, 39
# Fitted models are tested on so many sets of so many sentences.
POPULATIONS, POPULATION = 4, 1500
# The truth of terms is the mean of more such sets: of four it is off by a sixth of the standard
# error of 160 sentences. A part does so many.
TRUTH_PARTS, TRUTH_PART = 16, 4
LAYERS = ("A", "A again", "B", "B again")
# Of intervals with feature a coded by value.
BY_VALUE, VALUES = ", a by value", {"a": ("x", "y", "z")}
SPANS = {"c": (1.0, 5.0)}


def simulated(n_sentences: int, seed: int | list[int]) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Words of sentences with four features, and four layers and one without any of them.

    Feature a is in all four, b in A only, c (of the whole sentence) in A and B, d in none. The
    words of a sentence share a part of every layer, and all layers share a part of every word
    that no feature describes. "A again" is made as A, "B again" as B.
    """
    rng = np.random.default_rng(seed)
    n = n_sentences * WORDS
    sentence = np.repeat(np.arange(n_sentences), WORDS)
    features = pd.DataFrame(
        {
            "a": rng.choice(list("xyz"), n),
            "b": rng.choice(list("xy"), n),
            "c": rng.integers(1, 6, n_sentences)[sentence].astype(float),
            "d": rng.choice(list("xy"), n),
        }
    )
    common = rng.standard_normal((n, 3))
    layers = []
    for name in (*LAYERS, "noise"):
        rows = rng.standard_normal((n, 6))
        rows[:, :3] += 0.7 * rng.standard_normal((n_sentences, 3))[sentence]
        if name != "noise":
            rows[:, 0] += 4.0 * (features["a"] == "x") + 2.0 * (features["a"] == "y")
            rows[:, 1] += features["c"] * (1.0 if name[0] == "A" else 0.8)
            rows[:, 2] += 3.0 * (features["b"] == "x") * (name[0] == "A")
            rows[:, 3:] += 0.7 * common
        layers.append(rows)
    return features, layers


def tables_of(
    features: pd.DataFrame,
    layers: list[FloatArray],
    folds: FloatArray,
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> tuple[PairTables, FloatArray, PairIndex]:
    """Pair tables, RSA and the pairs' patterns."""
    index = PairIndex.build(feature_columns(features, SPANS, values), folds.astype(np.int64))
    ranks = PairRanks(len(layers), index.design.n_pairs)
    tables = pair_tables(
        index,
        [lambda rows=rows: rows for rows in layers],
        keep_ranks=ranks.put,
    )
    return tables, ranks.rsa(), index


@lru_cache(maxsize=1)
def populations() -> list[tuple[PairTables, FloatArray]]:
    """Large sets from the same source: what a small one is a sample of."""
    found = []
    for seed in range(POPULATIONS):
        features, layers = simulated(POPULATION, [2, seed])
        found.append(tables_of(features, layers[:4], np.zeros(len(features)))[:2])
    return found


def terms_of(tables: PairTables, rsa: FloatArray) -> FloatArray:
    """(n_features + 3,): terms, "unexplained", RSA and ceiling of the first layer, of A and B."""
    whole = decompose(tables, rsa)
    b = LAYERS.index("B")
    ceiling = ceilings_of(whole.terms.sum(axis=0))[0]
    return np.array([*whole.values[:, 0, b], rsa[0, b], ceiling])


def term_names(features: Sequence[str]) -> list[str]:
    """What `terms_of` has."""
    names = [f"term {name}" for name in (*features, UNEXPLAINED)]
    return [*names, "RSA", "ceiling of all pairs"]


def truth(first: int, n: int, end: str = "") -> list[Row]:
    """The terms of some large sets from the same source; `end` is "" or `BY_VALUE`."""
    found: list[Row] = []
    for seed in range(first, first + n):
        features, layers = simulated(POPULATION, [2, seed])
        folds = group_folds(np.repeat(np.arange(POPULATION), WORDS), 5, seed)
        tables, rsa, _ = tables_of(features, layers[:4], folds, VALUES if end else {})
        row = {"sentences": POPULATION, "seed": seed, "kind": "truth"}
        names = term_names(tables.features)
        values = terms_of(tables, rsa)
        found += [
            row | {"quantity": f"{name}{end}", "value": value}
            for name, value in zip(names, values, strict=True)
        ]
    return found


def true_scores(weights: FloatArray) -> FloatArray:
    """(n_layers, 1 + n_features): ρ and importances of fitted models on the populations."""
    found = []
    for tables, _ in populations():
        own = tables.of_layers(range(len(weights)))
        rho = held_out_scores(own, weights, 0).rho.mean(axis=1)
        drops = [
            permutation_importance(own, weights[:, [k]])[:, 0] for k in range(weights.shape[1])
        ]
        found.append(np.column_stack((rho, np.mean(drops, axis=0))))
    return np.mean(found, axis=0)


def difference(one: Replicates, other: Replicates) -> Replicates:
    """One statistic less another of the same replicates and blocks."""
    value, bootstrap, left_out = (a - b for a, b in zip(one[:3], other[:3], strict=True))
    return Replicates(value, bootstrap, left_out, one.sizes)


def data_set(n_sentences: int, seed: int) -> list[Row]:
    """Intervals and tests of one simulated set; the truth of scores beside them."""
    features, layers = simulated(n_sentences, [1, n_sentences, seed])
    groups = np.repeat(np.arange(n_sentences), WORDS)
    folds = group_folds(groups, 5, seed)
    tables, _, index = tables_of(features, layers, folds)
    squared = [squared_distances(rows) for rows in layers]
    ranks = tuple(pair_ranks(own) for own in squared)

    def chosen(at: list[int]) -> LayerPairs:
        return LayerPairs(
            tuple(("m", n) for n in at),
            tables.of_layers(at),
            tuple(ranks[n] for n in at),
            tuple(squared[n].astype(np.float32) for n in at),
            index.design,
            index.cell,
            groups,
            folds,
        )

    found: list[Row] = []

    def add(kind: str, name: str, p: float | None, values: tuple[float, ...] = ()) -> None:
        value, lower, upper, truth = values or (np.nan,) * 4
        row = {"sentences": n_sentences, "seed": seed, "kind": kind, "quantity": name, "p": p}
        found.append(row | {"value": value, "lower": lower, "upper": upper, "truth": truth})

    def covered(name: str, own: Replicates, at: tuple[int, ...], truth: float) -> None:
        bounds = own.estimate()
        add(
            "interval",
            name,
            None,
            (float(own.value[at]), float(bounds.lower[at]), float(bounds.upper[at]), truth),
        )

    # Terms of A and B.
    terms = resampled_terms(chosen([0, 2]))
    for k, name in enumerate(term_names(tables.features)):
        covered(name, terms, (k,), np.nan)
    again = resampled_terms(chosen([0, 3]))
    p = difference(terms, again).estimate().p
    for k, name in ((5, "two RSA correlations"), (0, "two terms a")):
        add("test", f"difference of {name}", float(p[k]))

    # Scores of A, A again and B.
    pairs = chosen([0, 1, 2])
    fits = RidgeMLEM().cross_validate(pairs.tables)
    scores = resampled_scores(pairs, "ridge", REPLICATES, seed)
    true = true_scores(fits.weights)
    covered("held-out ρ", scores, (0, 0), float(true[0, 0]))
    for f, name in enumerate(tables.features):
        covered(f"importance {name}", scores, (0, 2 + f), float(true[0, 1 + f]))
    less = scores.made_into(lambda values: values[..., 0, :] - values[..., 2, :])
    true = true[0] - true[2]
    covered("difference of importance b, A less B", less, (3,), float(true[2]))
    p = scores.estimate(above=True).p
    add("test", "importance d above 0", float(p[0, 5]))
    add("test", "importance b of B above 0", float(p[2, 3]))
    less = scores.made_into(lambda values: values[..., 0, :] - values[..., 1, :])
    p = less.estimate().p
    for f in (0, 2):
        add("test", f"difference of importance {tables.features[f]}", float(p[2 + f]))

    # A layer that has nothing to do with the features.
    chance = score_above_chance(
        chosen([4]), RidgeMLEM().cross_validate, n_permutations=PERMUTATIONS, seed=seed
    )
    add("test", "score above chance", float(chance["p"].iloc[0]))
    return found


def by_value(n_sentences: int, first: int, n: int) -> list[Row]:
    """Intervals of RSA and its terms of some data sets, with feature a coded by value."""
    found: list[Row] = []
    for seed in range(first, first + n):
        features, layers = simulated(n_sentences, [1, n_sentences, seed])
        layers = [layers[LAYERS.index(name)] for name in ("A", "B")]
        groups = np.repeat(np.arange(n_sentences), WORDS)
        folds = group_folds(groups, 5, seed)
        tables, _, index = tables_of(features, layers, folds, VALUES)
        ranks = tuple(pair_ranks(squared_distances(rows), overwrite=True) for rows in layers)
        of = (("m", 0), ("m", 1)), tables, ranks, (), index.design, index.cell, groups, folds
        terms = resampled_terms(LayerPairs(*of))
        bounds = terms.estimate()
        row = {"sentences": n_sentences, "seed": seed, "kind": "interval", "truth": np.nan}
        found += [
            row | {"quantity": f"{name}{BY_VALUE}", "value": value, "lower": lower, "upper": upper}
            for name, value, lower, upper in zip(
                term_names(tables.features), *(part[:7] for part in bounds[:3]), strict=True
            )
        ]
    return found


def part(n_sentences: int, first: int, n: int) -> list[Row]:
    """The rows of some data sets."""
    return [row for seed in range(first, first + n) for row in data_set(n_sentences, seed)]


def tasks(quick: bool) -> list[Task]:
    """A task some data sets of one size, or some large sets for the truth."""
    n = PART_SIZE if quick else DATA_SETS
    large = [
        Task(f"truth {first}{end}", truth, (first, TRUTH_PART, end))
        for end, parts in (("", TRUTH_PARTS), (BY_VALUE, TRUTH_PARTS // 4))
        for first in range(0, TRUTH_PART * (1 if quick else parts), TRUTH_PART)
    ]
    return large + [
        Task(f"{size} {first}{name}", rows, (size, first, PART_SIZE))
        for first in range(0, n, PART_SIZE)
        for size in (SIZES[:1] if quick else SIZES)
        for name, rows in ((BY_VALUE, by_value), ("", part))
    ]

"""How often intervals hold the truth where words recur: over sentences alone, and over words too.

A data set has sentences of two words from a lexicon. What is the truth depends on what an interval
speaks of: other sentences made of these words (the mean of the same quantity over data sets with
the same lexicon), the same sentences with other words, or other sentences and other words. All
three are asked of the same intervals. The truth is what data sets of this size give on average, so
that a bias that all of them share is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.folds import group_folds
from mlem_core.estimators.base import RidgeMLEM
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.replicates import resampled_scores, resampled_terms
from mlem_core.inference.resample import CONFIDENCE, Replicates, jackknife
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.measures.importance import permutation_importance
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import pair_ranks
from validation.intervals import difference, tables_of
from validation.work import Row, Task

# Data sets by number of sentences, how many a part does, and others that give the truth of each.
DATA_SETS = {60: 120, 200: 100, 600: 40}
PART = {60: 5, 200: 3, 600: 1}
OTHERS = {60: 20, 200: 20, 600: 10}
WORDS = 2
# Stimuli for each word of the lexicon, on average.
TIMES = 6
REPLICATES = 200
LAYERS = ("A", "A again", "B", "B again")
FEATURES = ("a", "b", "c", "d")
WAYS = ("one", "two")
# Whose truth, over other sentences and other words, is exactly 0, or not above it.
NULLS = (
    "difference of two RSA correlations",
    "difference of two terms a",
    "importance d",
    "importance b of B",
    "difference of importance a",
    "difference of importance c",
)


class Lexicon(NamedTuple):
    """Words: their features (n_words,), what all layers share of them and what each has alone."""

    a: IntArray
    b: IntArray
    d: IntArray
    common: FloatArray
    own: FloatArray


class Sentences(NamedTuple):
    """Which words sentences are made of (n_stimuli,), their feature c, and their own part."""

    words: IntArray
    c: IntArray
    own: FloatArray


def lexicon(n_words: int, rng: np.random.Generator) -> Lexicon:
    """Words drawn at random."""
    return Lexicon(
        rng.integers(0, 3, n_words),
        rng.integers(0, 2, n_words),
        rng.integers(0, 2, n_words),
        rng.standard_normal((n_words, 3)),
        rng.standard_normal((len(LAYERS), n_words, 6)),
    )


def sentences(n_sentences: int, n_words: int, rng: np.random.Generator) -> Sentences:
    """Sentences drawn at random."""
    return Sentences(
        rng.integers(0, n_words, n_sentences * WORDS),
        rng.integers(1, 6, n_sentences),
        rng.standard_normal((len(LAYERS), n_sentences, 3)),
    )


def made(
    words: Lexicon, frames: Sentences, rng: np.random.Generator
) -> tuple[pd.DataFrame, list[FloatArray]]:
    """The stimuli and four layers: a in all of them, b in A only, c (of the sentence), d in none.

    The stimuli of a sentence share a part of every layer, those of a word another, and all layers
    share a part of every word that no feature describes. "A again" is made as A, "B again" as B.
    """
    at, sentence = frames.words, np.repeat(np.arange(len(frames.c)), WORDS)
    features = pd.DataFrame(
        {
            "a": np.array(list("xyz"))[words.a[at]],
            "b": np.array(list("xy"))[words.b[at]],
            "c": frames.c[sentence].astype(float),
            "d": np.array(list("xy"))[words.d[at]],
        }
    )
    layers = []
    for k, name in enumerate(LAYERS):
        rows = rng.standard_normal((len(at), 6)) + 0.7 * words.own[k][at]
        rows[:, :3] += 0.7 * frames.own[k][sentence]
        rows[:, 0] += np.array([4.0, 2.0, 0.0])[words.a[at]]
        rows[:, 1] += features["c"] * (1.0 if name[0] == "A" else 0.8)
        rows[:, 2] += 3.0 * words.b[at] * (name[0] == "A")
        rows[:, 3:] += 0.7 * words.common[at]
        layers.append(rows)
    return features, layers


def values_of(features: pd.DataFrame, layers: list[FloatArray], folds: IntArray) -> FloatArray:
    """What a data set says of each of `quantities`."""
    tables, rsa, _ = tables_of(features, layers, folds)
    split = decompose(tables.of_layers([0, 2]), rsa[np.ix_([0, 2], [0, 2])])
    again = decompose(tables.of_layers([0, 3]), rsa[np.ix_([0, 3], [0, 3])])
    terms = [*split.values[:, 0, 1], rsa[0, 2], np.sqrt(split.terms[:, 0, 0].sum())]
    fits = RidgeMLEM().cross_validate(tables)
    importance = permutation_importance(tables, fits.weights).mean(axis=1)
    return np.array(
        [
            *terms,
            rsa[0, 2] - rsa[0, 3],
            split.values[0, 0, 1] - again.values[0, 0, 1],
            fits.rho[0].mean(),
            *importance[0],
            importance[2, 1],
            importance[0, 1] - importance[2, 1],
            *(importance[0, f] - importance[1, f] for f in (0, 2)),
            weighted_tau(importance[[0, 2]])[0, 1],
        ]
    )


def quantities() -> list[str]:
    """What `values_of` has."""
    return [
        *(f"term {name}" for name in (*FEATURES, UNEXPLAINED)),
        "RSA",
        "ceiling of all pairs",
        "difference of two RSA correlations",
        "difference of two terms a",
        "held-out ρ",
        *(f"importance {name}" for name in FEATURES),
        "importance b of B",
        "difference of importance b, A less B",
        "difference of importance a",
        "difference of importance c",
        "τ",
    ]


def _pairs(features: pd.DataFrame, layers: list[FloatArray], folds: IntArray) -> LayerPairs:
    tables, _, index = tables_of(features, layers, folds)
    squared = [squared_distances(rows) for rows in layers]
    return LayerPairs(
        tuple(("m", n) for n in range(len(layers))),
        tables,
        tuple(pair_ranks(own) for own in squared),
        tuple(own.astype(np.float32) for own in squared),
        index.design,
        index.cell,
        np.repeat(np.arange(len(folds) // WORDS), WORDS),
        folds,
    )


def _of_layers(pairs: LayerPairs, at: Sequence[int]) -> LayerPairs:
    return replace(
        pairs,
        layers=tuple(pairs.layers[n] for n in at),
        tables=pairs.tables.of_layers(at),
        ranks=tuple(pairs.ranks[n] for n in at),
        squared=tuple(pairs.squared[n] for n in at),
    )


Found = dict[str, tuple[Replicates, tuple[int, ...]]]


def _terms(pairs: LayerPairs) -> Found:
    """Terms, RSA, ceiling and differences."""
    first, again = (resampled_terms(_of_layers(pairs, at)) for at in ((0, 2), (0, 3)))
    less = difference(first, again)
    names = quantities()[: len(FEATURES) + 3]
    found = {name: (first, (k,)) for k, name in enumerate(names)}
    rsa = len(FEATURES) + 1
    found["difference of two RSA correlations"] = (less, (rsa,))
    found["difference of two terms a"] = (less, (0,))
    return found


def _scores(pairs: LayerPairs, seed: int) -> tuple[Found, Replicates]:
    """Scores, importances and differences; and the replicates of A, "A again" and B."""
    scores = resampled_scores(_of_layers(pairs, [0, 1, 2]), "ridge", REPLICATES, seed)

    def less(k: int) -> Replicates:
        return scores.made_into(lambda values: values[..., 0, :] - values[..., k, :])

    found: Found = {"held-out ρ": (scores, (0, 0)), "importance b of B": (scores, (2, 3))}
    found |= {f"importance {name}": (scores, (0, 2 + f)) for f, name in enumerate(FEATURES)}
    found["difference of importance b, A less B"] = (less(2), (3,))
    found |= {f"difference of importance {FEATURES[f]}": (less(1), (2 + f,)) for f in (0, 2)}
    return found, scores


def data_set(n_sentences: int, seed: int) -> list[Row]:
    """Intervals and p-values of one data set, and what others of its words or sentences give."""
    rng = np.random.default_rng([3, n_sentences, seed])
    n_words = n_sentences * WORDS // TIMES
    words, frames = lexicon(n_words, rng), sentences(n_sentences, n_words, rng)
    groups = np.repeat(np.arange(n_sentences), WORDS)
    folds = group_folds(groups, 5, seed)
    features, layers = made(words, frames, rng)
    value = values_of(features, layers, folds)
    others = range(OTHERS[n_sentences])

    def mean(draw: Callable[[], tuple[Lexicon, Sentences]]) -> FloatArray:
        found = [values_of(*made(*draw(), rng), folds) for _ in others]
        return np.mean(np.stack(found), axis=0)

    truths = {
        "same_words": mean(lambda: (words, sentences(n_sentences, n_words, rng))),
        "same_sentences": mean(lambda: (lexicon(n_words, rng), frames)),
    }
    pairs = replace(_pairs(features, layers, folds), items=frames.words)
    of_scores, scores = _scores(pairs, seed)
    rows: list[Row] = []

    def add(name: str, of: str, ways: dict[str, tuple[float, float, float]]) -> None:
        k = quantities().index(of)
        row = {"sentences": n_sentences, "seed": seed, "quantity": name, "value": value[k]}
        row |= {f"mean_{what}": mean[k] for what, mean in truths.items()}
        for way, numbers in ways.items():
            keys = (f"{way}_{key}" for key in ("lower", "upper", "p"))
            row |= dict(zip(keys, numbers, strict=True))
        rows.append(row)

    for name, (own, at) in (_terms(pairs) | of_scores).items():
        ways, above = {}, name in ("importance d", "importance b of B")
        for way, one in _ways(own).items():
            _, low, high, p, _ = one.estimate(above=above)
            ways[way] = (float(low[at]), float(high[at]), float(p[at]))
        add(name, name, ways)
    for name, ways in _tau(scores).items():
        add(name, "τ", ways)
    return rows


def _ways(found: Replicates) -> dict[str, Replicates]:
    """The same replicates with blocks of sentences alone, and of words too."""
    assert found.sizes is not None
    n = found.sizes[0]
    return {"one": found._replace(left_out=found.left_out[:n], sizes=None), "two": found}


def _tau(scores: Replicates) -> dict[str, dict[str, tuple[float, float, float]]]:
    """τ of A and B: by profiles drawn with the errors of their importances, and by t."""
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    tail = (1 - CONFIDENCE) / 2

    def tau(profiles: FloatArray) -> float:
        return float(weighted_tau(profiles[[0, 2], 2:])[0, 1])

    value = tau(scores.value)
    for way, own in _ways(scores).items():
        drawn = [tau(profiles) for profiles in own.rescaled()]
        low, high = np.quantile(drawn, [tail, 1 - tail])
        row = (min(float(low), value), max(float(high), value), np.nan)
        found.setdefault("τ, drawn profiles", {})[way] = row
        without = np.array([tau(profiles) for profiles in own.left_out])
        bounds = jackknife(np.float64(value), without, own.sizes, (-1.0, 1.0))
        row = (float(bounds.lower), float(bounds.upper), float(bounds.p))
        found.setdefault("τ, blocks alone", {})[way] = row
    return found


def part(n_sentences: int, first: int, n: int) -> list[Row]:
    """The rows of some data sets."""
    return [row for seed in range(first, first + n) for row in data_set(n_sentences, seed)]


def of_words(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often intervals hold what they speak of and tests reject what is true, both ways.

    A cell has sentences alone before the arrow, and sentences and words after it.
    """
    sets = rows.groupby("sentences")["seed"].nunique()
    held: dict[str, dict[str, str]] = {}
    rejected: dict[str, dict[str, str]] = {}
    for (n, name), own in rows.groupby(["sentences", "quantity"], sort=False):
        both = np.nanmean(own[["mean_same_words", "mean_same_sentences"]].to_numpy())
        truths = {
            "other sentences": own["mean_same_words"],
            "other words": own["mean_same_sentences"],
            "both": pd.Series(both, own.index),
        }
        columns = held.setdefault(str(name), {})
        for what, truth in truths.items():
            shares = [
                100 * ((own[f"{way}_lower"] <= truth) & (truth <= own[f"{way}_upper"])).mean()
                for way in WAYS
            ]
            columns[f"{n} ({sets[n]} sets): {what}"] = " → ".join(f"{x:.0f}" for x in shares)
        if name in NULLS:
            shares = [100 * (own[f"{way}_p"] <= 0.05).mean() for way in WAYS]
            text = " → ".join(f"{x:.0f}" for x in shares)
            rejected.setdefault(str(name), {})[f"{n} sentences ({sets[n]} sets)"] = text
        if n == rows["sentences"].max():
            columns["mean"] = f"{round(both, 3) + 0.0:.3f}"
    return {
        name: pd.DataFrame(table).T.rename_axis("quantity, %")
        for name, table in (("words-coverage", held), ("words-rejections", rejected))
    }


def tasks(quick: bool) -> list[Task]:
    """A task some data sets of one size; the sizes take turns."""
    found = [
        (first / n, Task(f"{size} {first}", part, (size, first, PART[size])))
        for size, n in DATA_SETS.items()
        for first in range(0, n, PART[size])
    ]
    ordered = [task for _, task in sorted(found, key=lambda one: one[0])]
    return ordered[:1] if quick else ordered

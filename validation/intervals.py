"""How often intervals hold the truth, and tests reject what is true, over simulated data sets.

Every data set has other sentences, and words of its own: each once (study `intervals`), or words
of a small lexicon, which recur (study `words`). The truth is what data sets of this size give on
average, so that a bias that all of them share is not counted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.inference.block_influence import BlockSums
from mlem_core.inference.importance_null import score_above_chance
from mlem_core.inference.intervals import (
    LayerIntervals,
    importance_difference_table,
    score_table,
    similarity_table,
    terms_and_whole,
)
from mlem_core.inference.layer_intervals import intervals_from_sums
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import estimate_from_error, jackknife
from mlem_core.measures.importance import fitted
from mlem_core.pairs.resampling_units import Units
from mlem_core.stimuli.folds import group_folds
from validation.made_pairs import layer_pairs_of, of_layers
from validation.work import Row, Task

# Sentences of three words, and data sets of so many: where no word recurs, and where words do.
SIZES = {40: 120, 80: 60}
RECURRING_SIZES = {40: 160, 80: 80}
PART = 5
WORDS = 3
# Stimuli for each word of a lexicon, on average.
TIMES = 4
PERMUTATIONS = 39
FEATURES = ("binary", "class", "number", "null", "of_sentence")
BY_VALUE = ("class",)
LAYERS = ("A", "A again", "B", "noise")
# Coordinates of the values of "class" in two units of a layer.
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
# Features that are not in a layer: their importance and contribution are 0 in truth.
ABSENT = ("contribution binary", "contribution null", "importance null", "importance binary in B")
QUANTITIES = {
    **{"RSA": "RSA of A and B", "unexplained": "unexplained"},
    **{f"contribution {name}": f"contribution of {name}" for name in FEATURES},
    "rho": "held-out ρ of A",
    **{f"importance {name}": f"importance of {name} in A" for name in FEATURES},
    "importance binary in B": "importance of binary in B",
    "tau": "τ of A and B",
}


def simulated(
    n_sentences: int, seed: int, recurring: bool
) -> tuple[pd.DataFrame, list[FloatArray], IntArray]:
    """Features of stimuli, the layers (n_stimuli, 6), and the word of each stimulus.

    Class, number (of words) and a number of the sentence are in all layers but "noise", binary is
    not in B, null is in none. Layers share a part of every word that no feature describes, and each
    has parts of words and of sentences of its own. "A again" is made as A.
    """
    rng = np.random.default_rng([51, n_sentences, seed, recurring])
    n = n_sentences * WORDS
    sentence = np.repeat(np.arange(n_sentences), WORDS)
    words = rng.integers(0, n // TIMES, n) if recurring else np.arange(n)
    n_words = int(words.max()) + 1
    binary, kind = rng.integers(0, 2, n_words), rng.integers(0, 4, n_words)
    number, null = rng.uniform(size=n_words), rng.integers(0, 3, n_words)
    of_sentence = rng.uniform(size=n_sentences)[sentence]
    features = pd.DataFrame(
        {
            "binary": np.array(["x", "y"])[binary[words]],
            "class": np.array(list("abcd"))[kind[words]],
            "number": number[words],
            "null": np.array(list("pqr"))[null[words]],
            "of_sentence": of_sentence,
        }
    )
    common = rng.standard_normal((n_words, 2))
    layers = []
    for name in LAYERS:
        rows = rng.standard_normal((n, 6))
        rows += 0.5 * rng.standard_normal((n_words, 6))[words]
        rows[:, :3] += 0.5 * rng.standard_normal((n_sentences, 3))[sentence]
        if name != "noise":
            rows[:, 0] += 2.0 * binary[words] * (name != "B")
            rows[:, 1:3] += PLACES[kind[words]]
            rows[:, 3] += 3.0 * number[words]
            rows[:, 4] += 2.0 * of_sentence
            rows[:, 4:] += 0.7 * common[words]
        layers.append(rows)
    return features, layers, words


def find_intervals(pairs: LayerPairs) -> LayerIntervals:
    """Intervals of all layers."""
    blocks = BlockSums.from_pairs(pairs, with_distances=True)
    items = pairs.items
    units = Units(pairs.n_groups, 0 if items is None else len(np.unique(items)))
    return intervals_from_sums(
        pairs.statistics,
        fitted(pairs.statistics, "ridge"),
        blocks,
        layers=pairs.layers,
        estimator="ridge",
        units=units,
        report=lambda _: None,
    )


def bounds_of(intervals: LayerIntervals) -> pd.DataFrame:
    """value, lower, upper of each of `QUANTITIES`."""
    a, b = intervals.layers[0], intervals.layers[2]
    terms, _ = terms_and_whole(intervals, a, b)
    similarity = similarity_table(intervals, (a, b)).table.iloc[0]
    scores = score_table(intervals).table.set_index(["layer", "quantity", "feature"])
    ends = ["value", "lower", "upper"]
    rows = {"RSA": [similarity[f"rsa{end}"] for end in ("", "_lower", "_upper")]}
    for _, row in terms.iterrows():
        name = row["term"] if row["term"] == "unexplained" else f"contribution {row['term']}"
        rows[name] = row[ends].tolist()
    rows["rho"] = scores.loc[(0, "rho", ""), ends].tolist()
    for feature in FEATURES:
        rows[f"importance {feature}"] = scores.loc[(0, "importance", feature), ends].tolist()
    rows["importance binary in B"] = scores.loc[(2, "importance", "binary"), ends].tolist()
    rows["tau"] = [similarity[f"weighted_tau{end}"] for end in ("", "_lower", "_upper")]
    return pd.DataFrame.from_dict(rows, orient="index", columns=ends)


def tests_of(intervals: LayerIntervals) -> dict[str, float]:
    """p of hypotheses that are true."""
    a, again = intervals.layers[:2]
    scores = score_table(intervals).table.set_index(["layer", "quantity", "feature"])["p"]
    differences = importance_difference_table(intervals, a, again).table.set_index("feature")["p"]
    rsa, without = intervals.values, intervals.values_without
    of_rsa = jackknife(rsa[0, 2] - rsa[1, 2], without[:, 0, 2] - without[:, 1, 2], intervals.sizes)
    null = FEATURES.index("null")
    of_null = estimate_from_error(
        intervals.terms[null, 0, 2], intervals.terms_error[null, 0, 2], intervals.sizes
    )
    return {
        "contribution of null is 0": float(of_null.p),
        "importance of null in A is 0": scores[(0, "importance", "null")],
        "importance of binary in B is 0": scores[(2, "importance", "binary")],
        "RSA with B is the same of A and A again": float(of_rsa.p),
        **{
            f'importance of "{name}" is the same in A and A again': differences[name]
            for name in ("class", "of_sentence")
        },
    }


def data_set(n_sentences: int, seed: int, recurring: bool) -> list[Row]:
    """Intervals and tests of one simulated set; over sentences alone too where words recur."""
    features, layers, words = simulated(n_sentences, seed, recurring)
    sentences = np.repeat(np.arange(n_sentences), WORDS)
    folds = group_folds(sentences, 5, seed)
    items = words if recurring else None
    pairs = layer_pairs_of(features, layers, folds, sentences, items, BY_VALUE)
    with_features = of_layers(pairs, range(LAYERS.index("noise")))
    intervals = find_intervals(with_features)
    bounds, p_values = bounds_of(intervals), tests_of(intervals)
    if recurring:
        alone = bounds_of(find_intervals(replace(with_features, items=None)))
        bounds = bounds.join(alone[["lower", "upper"]].add_suffix("_alone"))
    else:
        noise = of_layers(pairs, [LAYERS.index("noise")])
        above = score_above_chance(noise, RidgeSolver(), n_permutations=PERMUTATIONS, seed=seed)
        p_values["ρ of noise is that of permuted labels"] = float(above["p"].iloc[0])
    about = {"sentences": n_sentences, "seed": seed}
    rows: list[Row] = [
        about | {"kind": "interval", "quantity": name} | row.to_dict()
        for name, row in bounds.iterrows()
    ]
    rows += [about | {"kind": "test", "quantity": name, "p": p} for name, p in p_values.items()]
    return rows


def part(n_sentences: int, first: int, recurring: bool) -> list[Row]:
    """The rows of some data sets."""
    seeds = range(first, first + PART)
    return [row for seed in seeds for row in data_set(n_sentences, seed, recurring)]


def tasks(quick: bool, recurring: bool = False) -> list[Task]:
    """A task some data sets of one size; the sizes take turns."""
    sizes = RECURRING_SIZES if recurring else SIZES
    parts = [
        (first / n_sets, Task(f"{size} {first}", part, (size, first, recurring)))
        for size, n_sets in sizes.items()
        for first in range(0, n_sets, PART)
    ]
    ordered = [task for _, task in sorted(parts, key=lambda pair: pair[0])]
    return ordered[:1] if quick else ordered


def recurring_tasks(quick: bool) -> list[Task]:
    """The same with words that recur."""
    return tasks(quick, recurring=True)


def share(hits: pd.Series) -> str:
    """Share of the data sets in percent, with its Monte-Carlo error."""
    mean = hits.mean()
    return f"{100 * mean:.1f} ± {100 * np.sqrt(mean * (1 - mean) / len(hits)):.1f} %"


def tables_from(rows: pd.DataFrame, name: str = "") -> dict[str, pd.DataFrame]:
    """How often intervals hold the truth, how wide they are, and how often tests reject it."""
    coverage: dict[str, dict[str, str]] = {}
    rejections: dict[str, dict[str, str]] = {}
    n_sets = rows.groupby("sentences")["seed"].nunique()
    for (size, kind, quantity), sets in rows.groupby(["sentences", "kind", "quantity"], sort=False):
        of_size = f"{size} sentences ({n_sets[size]} data sets)"
        if kind == "test":
            cells = rejections.setdefault(str(quantity), {})
            cells[of_size] = share(sets["p"] <= 0.05)
            continue
        cells = coverage.setdefault(QUANTITIES[str(quantity)], {})
        mean = sets["value"].mean()
        truth = 0.0 if quantity in ABSENT else mean
        cells[f"mean, {size} sentences"] = f"{round(mean, 3) + 0.0:.3f}"
        cells[of_size] = share((sets["lower"] <= truth) & (truth <= sets["upper"]))
        width = (sets["upper"] - sets["lower"]).mean() / (2 * 1.96 * sets["value"].std())
        cells[f"width, {size} sentences"] = f"{width:.2f}"
        if "lower_alone" in sets:
            held = (sets["lower_alone"] <= truth) & (truth <= sets["upper_alone"])
            cells[f"over sentences alone, {size} sentences"] = share(held)
    titles = {f"{name}coverage": coverage, f"{name}rejections": rejections}
    return {
        title: pd.DataFrame(cells).T.rename_axis("quantity").fillna("")
        for title, cells in titles.items()
    }


def recurring_tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The same tables where words recur."""
    return tables_from(rows, "words-")

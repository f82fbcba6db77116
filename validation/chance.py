"""How often a feature that means nothing is named, and what a true one keeps beyond chance.

Words recur: sentences of four words from a lexicon, uniform or by Zipf's law, or the words of the
probing set in two layers of MiniLM. Labels are drawn at random for each word, sentence or token:
classes or numbers, alone or beside a true feature of words. A contribution that is not corrected
takes them for features.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data import datasets
from mlem_core.data.folds import group_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.inference.block_influence import BlockSums, identity_reach, rsa_without
from mlem_core.inference.chance import chance_at_level
from mlem_core.inference.intervals import PERMUTATIONS, SIGNIFICANT, term_estimate
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import Estimate, standard_error
from mlem_core.measures.decomposition import decompose
from mlem_core.models.representations import from_model
from mlem_core.storage.store import Store
from validation.made_pairs import layer_pairs_of
from validation.work import Row, Task

WORDS = 4
# Stimuli, and data sets of so many for each kind of label.
SIZES = {60: 40, 300: 20}
LEVELS = ("word", "sentence", "stimulus")
VALUES = (2, 8, 40, 0)  # 0: a number each
TEXTS = ("uniform", "zipf", "probing")
PART = 20
# Data sets of so many stimuli for the coverage of intervals.
COVERED, SETS = 120, 160
MODEL, LAYERS = "minilm", (3, 6)


def made_text(text: str, n: int, rng: np.random.Generator) -> tuple[list[str], IntArray]:
    """Sentences of words from a lexicon: the sentence and the word of each of n stimuli."""
    n_words = max(12, n // 6)
    weights = np.ones(n_words) if text == "uniform" else 1.0 / np.arange(1, n_words + 1)
    weights /= weights.sum()
    rows = [rng.choice(n_words, WORDS, False, weights) for _ in range(n // WORDS)]
    sentences = [" ".join(f"w{word}" for word in row) + f" {at}" for at, row in enumerate(rows)]
    return [text for text in sentences for _ in range(WORDS)], np.concatenate(rows)


def simulated(text: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Stimuli with a true feature of words, and two layers that share words and sentences."""
    sentences, words = made_text(text, n, rng)
    n_words, sentence = int(words.max()) + 1, np.arange(len(words)) // WORDS
    true = rng.integers(0, 3, n_words)
    common = rng.standard_normal((n_words, 4))
    common[:, 0] += 3.0 * (true == 0)
    common[:, 1] += 3.0 * (true == 1)
    of_sentence = 0.7 * rng.standard_normal((sentence.max() + 1, 4))
    rows = common[words] + of_sentence[sentence]
    layers = [rows + 0.7 * rng.standard_normal(rows.shape) for _ in range(2)]
    frame = pd.DataFrame(
        {
            "sentence": sentences,
            "word_index": np.arange(len(words)) % WORDS,
            "true": np.array(list("abc"))[true[words]],
        }
    )
    return frame, layers


@lru_cache(maxsize=1)
def probing() -> tuple[StimulusSet, list[FloatArray]]:
    """The probing words, and two layers of MiniLM."""
    stimuli = datasets.load("probing")
    found = from_model(stimuli, MODEL, Store())
    return stimuli, [np.asarray(found[layer], dtype=np.float64) for layer in LAYERS]


def of_probing(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, list[FloatArray]]:
    """About n of the probing words, in whole sentences; the true feature is part of speech."""
    stimuli, layers = probing()
    order = rng.permutation(int(stimuli.groups.max()) + 1)
    sizes = np.bincount(stimuli.groups)[order]
    chosen = order[np.cumsum(sizes) <= n]
    rows = np.flatnonzero(np.isin(stimuli.groups, chosen))
    table = stimuli.table.iloc[rows].reset_index(drop=True)
    frame = table[["sentence", "word_index"]].assign(true=table["part_of_speech"])
    return frame, [layer[rows] for layer in layers]


def labels(
    frame: pd.DataFrame, level: str, n_values: int, rng: np.random.Generator
) -> FloatArray | np.ndarray:
    """Labels that mean nothing: (n_stimuli,), one for each word, sentence or stimulus."""
    sentence = pd.factorize(frame["sentence"])[0]
    words = [
        text.split()[int(at)]
        for text, at in zip(frame["sentence"], frame["word_index"], strict=True)
    ]
    units = {"sentence": sentence, "stimulus": np.arange(len(frame))}
    unit = units[level] if level in units else pd.factorize(np.array(words, dtype=object))[0]
    n_units = int(unit.max()) + 1
    if not n_values:
        return rng.random(n_units).round(3)[unit]
    names = np.array([f"v{k}" for k in range(n_values)])
    return names[rng.integers(0, n_values, n_units)[unit]]


def part(text: str, n: int, level: str, n_values: int, first: int, count: int) -> list[Row]:
    """Contributions and their tests in some data sets."""
    found: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([n, n_values, LEVELS.index(level), seed])
        frame, layers = of_probing(n, rng) if text == "probing" else simulated(text, n, rng)
        frame["noise"] = labels(frame, level, n_values, rng)
        for alone in (True, False):
            columns = frame.drop(columns=["true"]) if alone else frame
            stimuli = from_frame(columns, "study", ordered=() if n_values else ("noise",))
            found += [
                {"text": text, "n": n, "level": level, "values": n_values, "seed": seed}
                | {"beside": "" if alone else "true", **row}
                for row in tested(stimuli, layers, seed)
            ]
    return found


def tested(stimuli: StimulusSet, layers: list[FloatArray], seed: int) -> list[Row]:
    """Each feature: raw (contribution), excess, p."""
    pairs, table = pairs_and_terms(stimuli, layers, seed)
    terms = table["value"].to_numpy()[:-1, None, None]
    chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
    p, mean = chance.p(terms)[:, 0, 1], chance.mean[:, 0, 1]
    return [
        {"feature": name, "raw": raw, "excess": raw - mean[f], "p": p[f]}
        for f, (name, raw) in enumerate(zip(chance.features, terms.ravel(), strict=True))
    ]


def pairs_and_terms(
    stimuli: StimulusSet, layers: list[FloatArray], seed: int
) -> tuple[LayerPairs, pd.DataFrame]:
    """The pairs of two layers, and the terms of their RSA correlation."""
    folds = group_folds(stimuli.groups, 5, seed)
    pairs = layer_pairs_of(stimuli, layers, folds, stimuli.groups, stimuli.items)
    return pairs, decompose(pairs.statistics.moments).pair(0, 1)


def covered(text: str, first: int, count: int) -> list[Row]:
    """Terms with their intervals in some data sets: a true feature of words and one of noise."""
    found: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([COVERED, TEXTS.index(text), seed])
        frame, layers = simulated(text, COVERED, rng)
        frame["noise"] = labels(frame, "word", 8, rng)
        stimuli = from_frame(frame, "study", ordered=())
        pairs, terms = pairs_and_terms(stimuli, layers, seed)
        chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
        chance = chance._replace(reach=identity_reach(pairs, chance, stimuli))
        compared = rsa_without(pairs.statistics, BlockSums.of(pairs))
        error = standard_error(compared.terms_without[:, :, 0, 1], compared.sizes)
        bounds = term_estimate(compared.terms[:, 0, 1], error, compared.sizes)
        beyond = Estimate(*(end + chance.shift() for end in bounds[:3]))
        table = chance.bounded(terms, beyond)
        own = {"text": text, "n": COVERED, "seed": seed, "known": bool(chance.known.all())}
        found += [own | row for row in table.to_dict("records")]
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    sizes = {60: 2} if quick else SIZES
    n_sets = 2 if quick else SETS
    intervals = [
        Task(f"intervals, {text}, from {first}", covered, (text, first, min(PART, n_sets)))
        for text in TEXTS[:2]
        for first in range(0, n_sets, PART)
    ]
    return intervals + [
        Task(
            f"{text}, {n}, {level}, {n_values}, from {first}",
            part,
            (text, n, level, n_values, first, min(PART, count)),
        )
        for n, count in sizes.items()
        for text in TEXTS
        for level in LEVELS
        for n_values in VALUES
        for first in range(0, count, PART)
    ]


def of_chance(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often noise is named, its mean excess, and what it would have without chance."""
    intervals, rows = rows[rows["term"].notna()], rows[rows["term"].isna()]
    noise = rows[(rows["feature"] == "noise") & rows["p"].notna()]
    noise = noise.assign(named=noise["p"] < SIGNIFICANT)
    cells = noise.groupby(["level", "n", "text"], sort=False)
    error = cells["excess"].std() / np.sqrt(cells.size())
    table = pd.DataFrame(
        {
            "named": cells["named"].mean().map("{:.1%}".format),
            "mean excess": cells["excess"].mean().map("{:+.4f}".format),
            "standard error": error.map("{:.4f}".format),
            "mean contribution": cells["raw"].mean().map("{:.3f}".format),
            "largest contribution": cells["raw"].max().map("{:.3f}".format),
            "data sets": cells.size(),
        }
    )
    table.index = pd.Index(
        [f"{level}, {n} stimuli, {text}" for level, n, text in table.index], name="labels by"
    )
    true = rows[(rows["feature"] == "true") & rows["p"].notna()]
    kept = true.assign(named=true["p"] < SIGNIFICANT).groupby(["n", "text"], sort=False)
    of_true = pd.DataFrame(
        {
            "named": kept["named"].mean().map("{:.1%}".format),
            "contribution": kept["raw"].mean().map("{:.3f}".format),
            "excess": kept["excess"].mean().map("{:.3f}".format),
        }
    )
    of_true.index = pd.Index([f"{n} stimuli, {text}" for n, text in of_true.index], name="true")
    return {
        "chance of labels that mean nothing": table,
        "chance of a true feature": of_true,
        "intervals beyond chance": of_intervals(intervals),
    }


def of_intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """How often intervals hold the mean over the data sets, and how wide they are."""
    rows = rows[rows["known"].astype(bool)].astype({"value": float, "lower": float, "upper": float})
    by = rows.groupby(["text", "term"], sort=False)
    truth = by["value"].transform("mean")
    rows = rows.assign(held=(rows["lower"] <= truth) & (truth <= rows["upper"]))
    by, normal = rows.groupby(["text", "term"], sort=False), 1.96
    held, n = by["held"].mean(), by.size()
    wide = (by["upper"].mean() - by["lower"].mean()) / (2 * normal * by["value"].std())
    table = pd.DataFrame(
        {
            "mean": by["value"].mean().map("{:+.4f}".format),
            "coverage": held.map("{:.1%}".format),
            "Monte-Carlo error": np.sqrt(held * (1 - held) / n).map("{:.1%}".format),
            "width over 2 · 1.96 sd": wide.map("{:.2f}".format),
            "data sets": n,
        }
    )
    table.index = pd.Index([f"{term}, {text}" for text, term in table.index], name="term")
    return table

"""How often labels without meaning are named, whatever recurs, and what true features keep.

Words of the probing set in two layers of MiniLM, or in mini-gpt2 and mini-mamba; sentences of words
from a lexicon, in documents, with layers that know words, places and documents. Labels are drawn
for each word, place, neighbour, frame, sentence, document or stimulus: classes, alone or beside a
true feature of words, or numbers. A contribution that is not corrected takes them for features.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.inference.block_influence import BlockSums, jackknife_rsa
from mlem_core.inference.explanation import subtract_chance_with_intervals
from mlem_core.inference.intervals import PERMUTATIONS, SIGNIFICANT
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import chance_at_level, permutation_null
from mlem_core.inference.permuted_contributions import PermutedContributions
from mlem_core.measures.decomposition import decompose
from mlem_core.representations.layers import from_model
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import group_folds
from mlem_core.stimuli.levels import STIMULUS, exchanges, recurring_units
from mlem_core.stimuli.stimulus_csv import from_frame
from mlem_core.stimuli.stimulus_set import UNIT, StimulusSet
from mlem_core.storage.store import Store
from validation.made_pairs import layer_pairs_of
from validation.work import Row, Task

WORDS = 4
STIMULI = 300
MODELS = {
    "minilm": (("minilm", 3), ("minilm", 6)),
    "mini-gpt2, mini-mamba": (("mini-gpt2", 6), ("mini-mamba", 11)),
}
MADE = "made"
UNITS = {
    **dict.fromkeys(MODELS, ("word", "place", "previous word", "next word", "frame", "sentence")),
    MADE: ("word", "place", "document", "sentence", STIMULUS),
}
# Data sets of each kind of label, in each text and for each unit. Beside a true feature p is
# corrected over both, and a label without meaning alone is named less often.
KINDS, PART = ("class", "class beside true", "number"), 20
SETS = {"class": 200, "class beside true": 60, "number": 200}
VALUES = 8
# Types and data sets for what a true feature of words keeps; places, strengths of a code of the
# position, and data sets for how often it is found.
TYPES, TRUE_SETS = 100, 60
PLACES, STRENGTHS, PLACE_SETS = 12, (0.0, 0.5, 1.0, 2.0), 60
# Data sets of so many stimuli for the coverage of intervals.
COVERED, COVERED_SETS, TEXTS = 120, 160, ("uniform", "zipf")


def made_text(
    text: str, n: int, rng: np.random.Generator, n_types: int = 0
) -> tuple[list[str], IntArray]:
    """Sentences of words from a lexicon: the sentence and the word of each of n stimuli."""
    n_types = n_types or max(12, n // 6)
    weights = np.ones(n_types) if text == "uniform" else 1.0 / np.arange(1, n_types + 1)
    weights /= weights.sum()
    rows = [rng.choice(n_types, WORDS, False, weights) for _ in range(n // WORDS)]
    sentences = [" ".join(f"w{word}" for word in row) + f" {at}" for at, row in enumerate(rows)]
    return [text for text in sentences for _ in range(WORDS)], np.concatenate(rows)


def simulated(
    text: str, n: int, rng: np.random.Generator, n_types: int = 0
) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Stimuli with a true feature of words, and two layers that share words and sentences."""
    sentences, words = made_text(text, n, rng, n_types)
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


def in_documents(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, list[FloatArray]]:
    """`simulated`, of three sentences a document; layers know places and documents too."""
    frame, layers = simulated("zipf", n, rng)
    place = frame["word_index"].to_numpy()
    document = np.arange(len(frame)) // (3 * WORDS)
    frame[f"{UNIT}document"] = np.char.add("d", document.astype(str))
    more = rng.standard_normal((WORDS, 4))[place]
    more += rng.standard_normal((int(document.max()) + 1, 4))[document]
    return frame, [rows + more for rows in layers]


@lru_cache(maxsize=2)
def of_models(text: str) -> tuple[StimulusSet, list[FloatArray]]:
    """The probing words, and two layers."""
    stimuli = datasets.load("probing")
    rows = [from_model(stimuli, model, Store())[layer] for model, layer in MODELS[text]]
    return stimuli, [np.asarray(layer, dtype=np.float64) for layer in rows]


def of_text(text: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, list[FloatArray]]:
    """About n words of a text, in whole sentences, and two layers; `true` is a feature of words."""
    if text == MADE:
        return in_documents(n, rng)
    stimuli, layers = of_models(text)
    order = rng.permutation(int(stimuli.groups.max()) + 1)
    sizes = np.bincount(stimuli.groups)[order]
    drawn = order[np.cumsum(sizes) <= n]
    rows = np.flatnonzero(np.isin(stimuli.groups, drawn))
    table = stimuli.table.iloc[rows].reset_index(drop=True)
    speech = table["part_of_speech"]
    frame = table[["sentence", "word_index"]].assign(_part_of_speech=speech, true=speech)
    return frame, [layer[rows] for layer in layers]


def labels(
    frame: pd.DataFrame, unit: str, n_values: int, rng: np.random.Generator
) -> FloatArray | np.ndarray:
    """Labels that mean nothing: (n_stimuli,), one for each unit; 0 values: a number each."""
    numbers = np.arange(len(frame))
    if unit != STIMULUS:
        numbers = recurring_units(from_frame(frame.assign(row=range(len(frame))), "study"))[unit]
    n_units = int(numbers.max()) + 1
    if not n_values:
        return rng.random(n_units).round(3)[numbers]
    names = np.array([f"v{k}" for k in range(n_values)])
    values = rng.integers(0, n_values, n_units)
    while np.all(values == values[0]):  # no feature
        values = rng.integers(0, n_values, n_units)
    return names[values[numbers]]


def dealt(text: str, unit: str, kind: str, first: int, count: int) -> list[Row]:
    """Contributions of labels that mean nothing and their tests in some data sets."""
    rows: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([KINDS.index(kind), UNITS[text].index(unit), seed])
        frame, layers = of_text(text, STIMULI, rng)
        frame["noise"] = labels(frame, unit, 0 if kind == "number" else VALUES, rng)
        if kind != "class beside true":
            frame = frame.drop(columns="true")
        ordered = ("noise",) if kind == "number" else ()
        stimuli = from_frame(frame, "study", ordered=ordered)
        pairs, table = pairs_and_terms(stimuli, layers, seed)
        chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
        at = chance.features.index("noise")
        raw, p = float(table["value"].iloc[at]), float(chance.p[at, 0, 1])
        reach = float(chance.controls[:, 0, 1].max(initial=0.0))
        rows.append(
            {"study": "dealt", "text": text, "unit": unit, "kind": kind, "seed": seed}
            | {"raw": raw, "excess": raw - chance.mean[at, 0, 1], "p": p}
            | {"permuted": chance.units[at], "named": p < SIGNIFICANT and raw > reach}
        )
    return rows


def pairs_and_terms(
    stimuli: StimulusSet, layers: list[FloatArray], seed: int
) -> tuple[LayerPairs, pd.DataFrame]:
    """The pairs of two layers, and the terms of their RSA correlation."""
    folds = group_folds(stimuli.groups, 5, seed)
    pairs = layer_pairs_of(stimuli, layers, folds, stimuli.groups, stimuli.items)
    return pairs, decompose(pairs.statistics.moments).pair(0, 1)


def true_features(first: int, count: int) -> list[Row]:
    """Excess of a true feature of words, by all units and by words alone."""
    rows: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([TYPES, seed])
        frame, layers = simulated("uniform", STIMULI, rng, TYPES)
        stimuli = from_frame(frame, "study")
        pairs, table = pairs_and_terms(stimuli, layers, seed)
        raw, at = float(table["value"].iloc[0]), pairs.statistics.features.index("true")
        chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
        permuted = PermutedContributions.from_moments(pairs.statistics.moments, pairs.ranks)
        of_words = permutation_null(
            [way for way in exchanges(stimuli, pairs.folds, "true") if way.unit == "word"],
            stimuli.values("true"),
            partial(permuted.feature_contributions, [at]),
            PERMUTATIONS,
            np.random.default_rng(seed),
            partial(permuted.feature_contributions, [at]),
        )
        by_words = raw - float(of_words.draws[1:, 0, 1].mean())
        rows.append(
            {"study": "true", "seed": seed, "raw": raw, "by_words": by_words}
            | {"excess": raw - chance.mean[at, 0, 1], "p": float(chance.p[at, 0, 1])}
        )
    return rows


def places(strength: float, first: int, count: int) -> list[Row]:
    """Whether a code of the position in the sentence is found, in some data sets."""
    rows: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([PLACES, seed])
        n_sentences = STIMULI // PLACES
        words = rng.integers(0, 50, (n_sentences, PLACES))
        sentences = [" ".join(f"w{word}" for word in row) + f" {n}" for n, row in enumerate(words)]
        place = np.tile(np.arange(PLACES), n_sentences)
        frame = pd.DataFrame(
            {"sentence": np.repeat(sentences, PLACES), "word_index": place, "position": place}
        )
        code = strength * np.outer(place / PLACES, rng.standard_normal(6))
        common = rng.standard_normal((50, 6))[words.ravel()] + code
        layers = [common + rng.standard_normal(common.shape) for _ in range(2)]
        stimuli = from_frame(frame, "study")
        pairs, table = pairs_and_terms(stimuli, layers, seed)
        chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
        rows.append(
            {"study": "places", "strength": strength, "seed": seed, "p": chance.p[0, 0, 1]}
            | {"raw": table["value"].iloc[0]}
        )
    return rows


def covered(text: str, first: int, count: int) -> list[Row]:
    """Terms with their intervals in some data sets: a true feature of words and one of noise."""
    rows: list[Row] = []
    for seed in range(first, first + count):
        rng = np.random.default_rng([COVERED, TEXTS.index(text), seed])
        frame, layers = simulated(text, COVERED, rng)
        frame["noise"] = labels(frame, "word", VALUES, rng)
        stimuli = from_frame(frame, "study", ordered=())
        pairs, terms = pairs_and_terms(stimuli, layers, seed)
        chance = chance_at_level(pairs, stimuli, PERMUTATIONS, seed)
        compared = jackknife_rsa(pairs.statistics, BlockSums.from_pairs(pairs))
        error, sizes = compared.residual_error, compared.sizes
        table = subtract_chance_with_intervals(terms, chance, error, sizes)
        table = table.drop(columns=["unit", "share_lower", "share_upper"])
        about = {"study": "covered", "text": text, "seed": seed, "known": bool(chance.known.all())}
        rows += [about | row for row in table.to_dict("records")]
    return rows


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    n_true, n_covered = (2, 2) if quick else (TRUE_SETS, COVERED_SETS)
    n_sets = dict.fromkeys(KINDS, 2) if quick else SETS
    parts = [
        Task(f"true features, from {first}", true_features, (first, min(PART, n_true)))
        for first in range(0, n_true, PART)
    ]
    parts += [
        Task(f"places, {strength}, from {first}", places, (strength, first, min(PART, n_true)))
        for strength in STRENGTHS
        for first in range(0, n_true, PART)
    ]
    parts += [
        Task(
            f"{text}, {unit}, {kind}, from {first}",
            dealt,
            (text, unit, kind, first, min(PART, n_sets[kind])),
        )
        for text, units in UNITS.items()
        for unit in units
        for kind in KINDS
        for first in range(0, n_sets[kind], PART)
    ]
    return parts + [
        Task(f"intervals, {text}, from {first}", covered, (text, first, min(PART, n_covered)))
        for text in TEXTS
        for first in range(0, n_covered, PART)
    ]


def of_units(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often labels without meaning are named; what true features keep; coverage."""
    of_labels = rows[rows["study"] == "dealt"]
    of_labels = of_labels.assign(
        known=of_labels["p"].notna(), below=of_labels["p"] < SIGNIFICANT
    ).astype({"named": bool})
    alone = of_labels["known"] & (of_labels["kind"] != "class beside true")
    cells = of_labels[alone].groupby(["text", "unit"], sort=False)
    share, n = cells["below"].mean(), cells.size()
    table = pd.DataFrame(
        {
            "p < .05": share.map("{:.1%}".format),
            "Monte-Carlo error": np.sqrt(share * (1 - share) / n).map("{:.1%}".format),
            "named": cells["named"].mean().map("{:.1%}".format),
            "mean contribution": cells["raw"].mean().map("{:.4f}".format),
            "mean excess": cells["excess"].mean().map("{:+.4f}".format),
            "± standard error": (cells["excess"].std() / np.sqrt(n)).map("{:.4f}".format),
            "data sets": n,
        }
    )
    for kind in KINDS:
        of_kind = of_labels[of_labels["known"] & (of_labels["kind"] == kind)]
        shares = of_kind.groupby(["text", "unit"], sort=False)["below"].mean()
        table[kind] = shares.map("{:.1%}".format)
    table.index = pd.Index([f"{unit}, {text}" for text, unit in table.index], name="a label a")
    true = rows[rows["study"] == "true"]
    kept = pd.DataFrame(
        {
            "contribution": [f"{true['raw'].mean():.3f}"],
            "excess over words": [f"{true['by_words'].mean():.3f}"],
            "excess over all units": [f"{true['excess'].mean():.3f}"],
            "kept": [f"{true['excess'].mean() / true['by_words'].mean():.0%}"],
            "p < .05": [f"{(true['p'] < SIGNIFICANT).mean():.0%}"],
            "data sets": [len(true)],
        },
        index=pd.Index([f"{TYPES} types"], name="true feature of words"),
    )
    of_places = rows[rows["study"] == "places"].groupby("strength")
    positions = pd.DataFrame(
        {
            "contribution": of_places["raw"].mean().map("{:.3f}".format),
            "p < .05": of_places["p"].agg(lambda p: f"{(p < SIGNIFICANT).mean():.0%}"),
            "data sets": of_places.size(),
        }
    )
    return {
        "labels that mean nothing": table,
        "what a true feature keeps": kept,
        "a code of the position": positions,
        "intervals beyond chance": of_intervals(rows[rows["study"] == "covered"]),
    }


def of_intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """How often intervals hold the mean over the data sets, and how wide they are."""
    rows = rows[rows["known"].astype(bool) & rows["lower"].notna()]
    rows = rows.astype({"value": float, "lower": float, "upper": float})
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

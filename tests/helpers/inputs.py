"""What an analysis is made from, for the tests: made-up stimuli and layers, in files and tables."""

import contextlib
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from helpers.explicit import squared
from mlem_core import Analysis, AnalysisSpec, InputError, Store, run, write_csv
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics, pair_statistics
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import group_folds
from mlem_core.stimuli.stimulus_set import StimulusSet

# What numbers are compared with, wherever nothing else is said.
RIDGE: dict[str, Any] = {"estimator": "ridge", "values": ()}
WORDS = ["dog", "cat", "sees", "runs", "old", "loud", "a", "the", "never", "here"]


def for_each(names, *rows, **more):
    """What tries a test with each row of values of these names."""
    return pytest.mark.parametrize(names, rows, **more)


@contextlib.contextmanager
def refused(*facts, by=InputError):
    """What stands in the block is refused in one line that has all these facts, in any order."""
    with pytest.raises(by) as caught:
        yield
    said = str(caught.value)
    assert "\n" not in said and not [fact for fact in facts if str(fact) not in said], said


def words(n_sentences=30):
    """Sentences of 3 to 5 words, each word a stimulus with three features."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(n_sentences):
        sentence = [*rng.choice(WORDS, rng.integers(2, 5)), f"end{number}"]
        for i, word in enumerate(sentence):
            rows.append((" ".join(sentence), i, word in WORDS[:3], len(word), i))
    return pd.DataFrame(rows, columns=["sentence", "word_index", "noun", "length", "position"])


def probing(n_sentences):
    """The words of the first sentences of the built-in set."""
    table = datasets.load("probing").table
    return table[table["sentence"].isin(table["sentence"].unique()[:n_sentences])]


def noise(n_stimuli, n_layers=2, units=5):
    """Layers 0, 1, ... that have nothing to do with any feature."""
    rng = np.random.default_rng(0)
    return {layer: rng.standard_normal((n_stimuli, units)) for layer in range(n_layers)}


def in_files(folder, table, made_up, **more):
    """Write words.csv and NAME.npz for each made-up model; their analysis, with `more` choices.

    Where these say nothing else it is fitted by ridge and coded as same or different.
    """
    write_csv(table, folder / "words.csv")
    for name, layers in made_up.items():
        arrays: dict[str, Any] = {f"layer_{n:02d}": rows for n, rows in layers.items()}
        np.savez(folder / f"{name}.npz", **arrays)
    files = tuple((name, str(folder / f"{name}.npz")) for name in made_up)
    return AnalysisSpec(stimuli=str(folder / "words.csv"), representations=files, **RIDGE | more)


def statistics_of(
    features,
    layers,
    folds=None,
    resolved=(),
    missing="ignore",
    *,
    interactions=False,
    items=None,
    **more,
) -> PairStatistics:
    """Pair statistics of arrays, with one fold where none are given.

    Two stimuli of one item test no fold; `more` goes to `pair_statistics`.
    """
    folds = np.zeros(len(features), dtype=np.int64) if folds is None else folds
    columns = feature_columns(features, resolved=resolved)
    design = PairDesign.complete(len(folds), items)
    pairs = ComparedPairs.from_features(
        columns, folds, missing, interactions=interactions, design=design
    )
    return pair_statistics(pairs, [lambda layer=layer: layer for layer in layers], **more)


def layer_pairs(features, layers, groups, folds, interactions=False, items=None, resolved=()):
    """What `LayerPairs.from_analysis` makes, from arrays; two of one item test no fold."""
    columns = PairColumns.from_features(
        feature_columns(features, resolved=resolved), interactions=interactions
    )
    names = [("m", number) for number in range(len(layers))]
    distances = [squared(layer) for layer in layers]
    return LayerPairs.from_distances(
        names, distances, columns, folds, groups, items, untested_items=items
    )


class Words(NamedTuple):
    """Made-up words with folds over both, their features, two layers, sentences and forms."""

    features: pd.DataFrame
    layers: list[Any]
    groups: Any
    items: Any
    folds: Any


def words_over_both(seed, n_sentences, n_forms, planted=0.0):
    """Words with folds over both; a feature of the word, of the sentence and of the stimulus."""
    rng = np.random.default_rng(seed)
    items = np.concatenate([rng.choice(n_forms, 3, replace=False) for _ in range(n_sentences)])
    groups = np.repeat(np.arange(n_sentences), 3)
    features = pd.DataFrame(
        {
            "word": np.array(list("abc"))[rng.integers(0, 3, n_forms)][items],
            "frame": np.array(list("xy"))[rng.integers(0, 2, n_sentences)][groups],
            "stimulus": rng.integers(0, 4, len(items)).astype(float),
        }
    )
    layers = []
    for _ in range(2):
        layer = rng.standard_normal((n_forms, 6))[items]
        layer += 0.6 * rng.standard_normal((n_sentences, 6))[groups]
        layer += 0.6 * rng.standard_normal(layer.shape)
        layer[:, 0] += planted * features["stimulus"]
        layers.append(layer)
    a, b = group_folds(groups, 3, seed), group_folds(items, 3, seed)
    low, high = np.minimum(a, b), np.maximum(a, b)
    folds = np.where(low == high, low, -1 - (high * (high - 1) // 2 + low))
    return Words(features, layers, groups, items, folds)


def over_both(*asked):
    """The features and layers of `words_over_both`, and their pairs."""
    made = words_over_both(*asked)
    pairs = layer_pairs(made.features, made.layers, made.groups, made.folds, items=made.items)
    return made.features, made.layers, pairs


def three_layers(folder):
    """An analysis of 120 sentences: two layers with much of a colour and some of a size, and noise.

    Returns what is asked, and the layers of the file that it names.
    """
    rng, n = np.random.default_rng(0), 120
    table = pd.DataFrame(
        {
            "sentence": [f"word {i} of {i}" for i in range(n)],
            "colour": rng.choice(["red", "blue"], n),
            "size": rng.integers(0, 5, n),
        }
    )
    table.to_csv(folder / "s.csv", index=False)
    shared = np.column_stack((4.0 * (table["colour"] == "red"), 0.5 * table["size"]))
    layers = {f"layer_{k:02d}": shared + rng.standard_normal((n, 2)) for k in range(2)}
    layers["layer_02"] = rng.standard_normal((n, 3))
    np.savez(folder / "m.npz", **layers)
    files = (("m", str(folder / "m.npz")),)
    return AnalysisSpec(stimuli=str(folder / "s.csv"), representations=files, **RIDGE), layers


class Finished(NamedTuple):
    """A finished analysis, what was asked, and the layers by system and layer name or number."""

    spec: AnalysisSpec
    analysis: Analysis
    store: Store
    layers: Mapping[str, Any]


def finished(folder, spec, layers):
    """The analysis, run into a store of its own below the folder."""
    store = Store(folder / "cache", overlays=())
    return Finished(spec, run(spec, store, progress=False), store, layers)


def two_systems(folder):
    """An analysis of some 140 words: two systems of three layers that turn from noun to position.

    In the first of `one` and of `two` nouns are apart, in the last places are, in the middle both.
    """
    table, rng = words(40), np.random.default_rng(0)
    features = table[["noun", "position"]].to_numpy(float)
    layers = {
        system: {
            k: features * (2.0 - k, 0.5 * k) + 0.5 * rng.standard_normal((len(table), 2))
            for k in range(3)
        }
        for system in ("one", "two")
    }
    return in_files(folder, table, layers, folds=3), layers


def arguments_of(spec):
    """The stimuli and the files of an analysis and `RIDGE`, as the command line is given them."""
    files = [f"--representations={name}={path}" for name, path in spec.representations]
    return ["--stimuli", spec.stimuli, *files, "--estimator=ridge", "--values=none"]


def as_csv(stimuli: StimulusSet) -> bytes:
    """Stimuli as the content of a stimulus CSV."""
    file = io.BytesIO()
    write_csv(stimuli, file)
    return file.getvalue()

"""The level of a feature, and labels that are permuted among its units."""

import itertools

import numpy as np
import pandas as pd
import pytest

from mlem_core.data.levels import Exchange, exchanges, level_of, strata_of, unit_agreement
from mlem_core.data.stimulus_csv import from_frame

RNG = np.random.default_rng(0)
WORDS = np.array(["cat", "dog", "sees", "is"])[RNG.integers(0, 4, (40, 3))]
SENTENCE, WORD = np.repeat(np.arange(40), 3), WORDS.ravel()
FRAME = pd.DataFrame(
    {
        "sentence": np.repeat([f"{' '.join(row)} {n}" for n, row in enumerate(WORDS)], 3),
        "word_index": np.tile([0, 1, 2], 40),
        "noun": np.isin(WORD, ["cat", "dog"]).astype(str),
        "length": [float(len(word)) for word in WORD],
        "clause": np.array(["main", "sub"])[SENTENCE % 2],
        "place": np.tile([0.0, 1.0, 2.0], 40),
        "nearly": np.where(RNG.random(120) < 0.1, "x", WORD),
    }
)
STIMULI = from_frame(FRAME, "words")
FOLDS = SENTENCE % 5


def by_pairs(values, units):
    """Krippendorff's α with the feature's own distance, a pair at a time."""
    apart = {True: [], False: []}
    for (x, u), (y, v) in itertools.combinations(list(zip(values, units, strict=True)), 2):
        apart[u == v].append(abs(x - y) if isinstance(x, float) else x != y)
    return 1 - np.mean(apart[True]) / np.mean(apart[True] + apart[False])


def test_a_feature_is_of_the_coarsest_unit_that_it_is_constant_on():
    levels = {name: level_of(STIMULI, name) for name in FRAME.columns[2:]}
    assert levels == {
        "noun": "word", "length": "word", "clause": "sentence", "place": "stimulus",
        "nearly": "stimulus",
    }  # fmt: skip
    assert [own.level for own in exchanges(STIMULI, FOLDS, "nearly")] == ["stimulus", "word"]


@pytest.mark.parametrize("name", ["noun", "place", "nearly", "length"])
def test_agreement_is_that_of_explicit_pairs(name):
    found = unit_agreement(STIMULI, name)
    for level, units in (("word", WORD), ("sentence", SENTENCE)):
        expected = by_pairs(FRAME[name].tolist(), units)
        assert found[level] == pytest.approx(expected, abs=1e-12)


def test_words_exchange_whole_lists_inside_their_stratum():
    (exchange,) = exchanges(STIMULI, FOLDS, "noun")
    assert exchange.moved(FRAME["noun"].to_numpy(object)) == pytest.approx(0.75)
    for givers in exchange.draw(20, np.random.default_rng(1)):
        giver = {unit: set(exchange.units[givers[exchange.units == unit]]) for unit in range(4)}
        assert sorted(map(len, giver.values())) == [1] * 4
        assert len({min(own) for own in giver.values()}) == 4
    many = Exchange("word", np.repeat(np.arange(40), np.arange(1, 41)), strata_of(np.arange(1, 41)))
    assert (np.bincount(many.strata) >= 12).all()
    labels = np.random.default_rng(4).random(40)[many.units]
    # What follows from the number of stimuli hardly moves among words of about the same number.
    assert many.moved(labels) > 0.9 > many.moved(np.bincount(many.units)[many.units] * 1.0)
    for givers in many.draw(5, np.random.default_rng(2)):
        taken = many.units[givers]
        assert (many.strata[taken] == many.strata[many.units]).all()
        # As many different stimuli as there are, where the giver has no fewer.
        for unit in range(40):
            own = givers[many.units == unit]
            assert len(set(own)) == min(len(own), 1 + int(many.units[own[0]]))


def test_single_stimuli_exchange_inside_their_fold():
    (exchange,) = exchanges(STIMULI, FOLDS, "place")
    for givers in exchange.draw(5, np.random.default_rng(3)):
        assert sorted(givers) == list(range(120)) and (FOLDS[givers] == FOLDS).all()

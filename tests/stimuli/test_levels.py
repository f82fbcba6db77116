"""The unit that a feature is of, units that recur, and labels that units exchange."""

import itertools

import numpy as np
import pandas as pd
import pytest

from mlem_core.stimuli.levels import (
    Exchange,
    constant_unit,
    exchanges,
    recurring_units,
    size_strata,
    stimulus_exchange,
    unit_agreement,
)
from mlem_core.stimuli.stimulus_csv import from_frame

RNG = np.random.default_rng(0)
FORMS = np.array(["cat", "dog", "sees", "is"])[RNG.integers(0, 4, (40, 3))]
SENTENCE, WORD = np.repeat(np.arange(40), 3), FORMS.ravel()
FRAME = pd.DataFrame(
    {
        "sentence": np.repeat([f"{' '.join(row)} {n}" for n, row in enumerate(FORMS)], 3),
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
    assert {name: constant_unit(STIMULI, name) for name in FRAME.columns[2:]} == {
        "noun": "word", "length": "word", "clause": "sentence", "place": "place",
        "nearly": "stimulus",
    }  # fmt: skip
    for name, units in {
        "nearly": ["stimulus", "word"], "place": ["place", "previous word", "next word"]
    }.items():  # fmt: skip
        assert [way.unit for way in exchanges(STIMULI, FOLDS, name)] == units


def test_units_that_recur_are_words_places_neighbours_frames_and_what_a_user_names():
    frame = pd.DataFrame(
        {
            "sentence": ["a dog barks", "a dog barks", "the cat sleeps", "the cat sleeps", "a dog"],
            "word_index": [1, 2, 2, 1, 1],
            "_word_class": ["noun", "verb", "verb", "noun", None],
            "plural": ["no", "no", "yes", "no", "no"],
            "_unit_document": ["x", "x", "x", "x", "y"],
        }
    )
    units = recurring_units(from_frame(frame, "words"))
    assert {name: numbers.tolist() for name, numbers in units.items()} == {
        "word": [0, 1, 2, 3, 0],
        "document": [0, 0, 0, 0, 1],
        "sentence": [0, 0, 1, 1, 2],
        "place": [0, 1, 1, 0, 0],
        "previous word": [0, 1, 2, 3, 0],
        "next word": [0, 1, 1, 2, 1],
        "frame": [0, 0, 0, 0, 1],
    }


@pytest.mark.parametrize("name", ["noun", "place", "nearly", "length"])
def test_agreement_is_that_of_explicit_pairs(name):
    found = unit_agreement(STIMULI, name)
    for level, units in (("word", WORD), ("sentence", SENTENCE)):
        assert found[level] == pytest.approx(by_pairs(FRAME[name].tolist(), units), abs=1e-12)


def test_words_exchange_whole_lists_inside_their_stratum():
    (exchange,) = exchanges(STIMULI, FOLDS, "noun")
    assert exchange.moved(FRAME["noun"].to_numpy(object)) == pytest.approx(1.0)
    for givers in exchange.draw(20, np.random.default_rng(1)):
        of = exchange.numbers
        giver = {unit: set(of[givers[of == unit]]) for unit in range(4)}
        assert sorted(map(len, giver.values())) == [1] * 4
        assert len({min(own) for own in giver.values()}) == 4
    many = Exchange(
        "word", np.repeat(np.arange(40), np.arange(1, 41)), size_strata(np.arange(1, 41))
    )
    assert (np.bincount(many.strata) >= 12).all()
    labels = np.random.default_rng(4).random(40)[many.numbers]
    # What follows from the number of stimuli hardly moves among words of about the same number.
    assert many.moved(labels) > 0.9 > many.moved(np.bincount(many.numbers)[many.numbers] * 1.0)
    for givers in many.draw(5, np.random.default_rng(2)):
        assert (many.strata[many.numbers[givers]] == many.strata[many.numbers]).all()
        # As many different stimuli as there are, where the giver has no fewer.
        for unit in range(40):
            own = givers[many.numbers == unit]
            assert len(set(own)) == min(len(own), 1 + int(many.numbers[own[0]]))


def test_labellings_of_few_units_are_counted_and_each_is_drawn():
    def of_units(labels, strata):
        numbers = np.repeat(np.arange(len(labels)), 3)
        exchange = Exchange("place", numbers, np.array(strata))
        different = set()
        for order in itertools.permutations(range(len(labels))):
            if all(strata[a] == strata[b] for a, b in enumerate(order)):
                different.add(tuple(labels[b] for b in order))
        values = np.array(labels, dtype=object)[numbers]
        assert exchange.n_labellings(values) == pytest.approx(len(different))
        drawn = {tuple(values[givers]) for givers in exchange.draw(200, np.random.default_rng(0))}
        assert len(drawn) == len(different)

    of_units(["a", "a", "b", "c"], [0, 0, 0, 0])
    of_units(["a", "b", "c", "d", "e"], [0, 0, 0, 0, 0])
    of_units(["a", "b", "a", "b", "c"], [0, 0, 1, 1, 1])
    # Lists of values: each unit has its own.
    numbers = np.repeat(np.arange(4), 2)
    exchange = Exchange("place", numbers, np.zeros(4, dtype=int))
    assert exchange.n_labellings(np.array(list("ababacac"), dtype=object)) == pytest.approx(24)


def test_single_stimuli_exchange_inside_their_fold():
    exchange = stimulus_exchange(FOLDS)
    for givers in exchange.draw(5, np.random.default_rng(3)):
        assert sorted(givers) == list(range(120)) and (FOLDS[givers] == FOLDS).all()

"""Sentences of findings that would mislead if they were wrong, and what each is made from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each

from mlem_core.base.text import whole_percents
from mlem_core.inference.explanation_text import Explanation
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.resampling_units import Units


def two_layers(rest, bounds=False, chance=None, **values):
    """Why two layers are alike, by these terms and what no feature explains."""
    values[UNEXPLAINED] = rest
    terms = pd.DataFrame({"term": list(values), "value": list(values.values())})
    whole = pd.DataFrame({"quantity": ["rsa"], "value": [sum(values.values())]})
    if bounds:
        terms, whole = (
            one.assign(lower=one["value"] - 0.01, upper=one["value"] + 0.02)
            for one in (terms, whole)
        )
    if chance is not None:
        chance = [*chance, np.nan]
        terms = terms.assign(chance=chance, p=np.where(terms["value"] > chance, 0.01, 0.5))
        terms["unit"] = ["word" if "identity" in term else "" for term in terms["term"]]
        if bounds:
            ends = {f"share_{end}": terms[end] / whole["value"][0] for end in ("lower", "upper")}
            terms = terms.assign(**ends)
    return Explanation((("one", 3), ("two", 20)), terms, whole)


PLAIN = two_layers(0.06, pos=0.2, place=0.1, tense=0.004, length=-0.05)
NEGATIVE = two_layers(-0.06, True, [0, 0, 0], pos=0.2, tense=0.001, length=0.002)
NOTHING = two_layers(0.5, chance=[0], pos=-0.1)
FEW = two_layers(0.3, True, [0] * 11, **{f"feature {n}": 0.02 for n in range(11)})
# 25.6, 11.8, 5.2 and 57.4 %.
ROUNDED = two_layers(
    0.574, chance=[0, 0, 0, np.nan], pos=0.256, a=0.06, b=0.058, **{"word identity": 0.052}
)
SURE = two_layers(0.06, bounds=True, chance=[0, 0, 0], pos=0.2, place=0.1, length=-0.05)
WORD = {"word identity": 0.1}
OF_WORDS = two_layers(0.06, bounds=True, chance=[0, 0, np.nan], pos=0.2, place=0.1, **WORD)
CONTROLS = pd.DataFrame(
    {"unit": ["word", "place"], "random_number": [0.03, 0.15], "together": [0.16, np.nan]}
)
WITH_CONTROLS = replace(two_layers(0.06, chance=[0, np.nan], pos=0.1, **WORD), controls=CONTROLS)
TESTED = two_layers(0.06, bounds=True, chance=[0.21, 0.03, 0.03], place=0.2, pos=0.1, length=-0.05)
BY_CHANCE = two_layers(
    0.06, bounds=True, chance=[0.21, 0.11, 0.03], place=0.2, pos=0.1, length=-0.05
)
VALUES = replace(SURE, coding="by value for pos, others as same or different")
WORDS = replace(SURE, others="sentences and words")
WHOLE = [
    (
        SURE.headline,
        "one layer 3 and two layer 20 are similar (RSA .31). Pos accounts for 65 % (61 % to "
        "71 %), one other feature for 32 %, length lowers it by 16 %; 19 % (16 % to 26 %) is "
        "unexplained.",
    ),
    (
        PLAIN.headline,
        "one layer 3 and two layer 20 are similar (RSA .31). What each feature accounts for is "
        "not compared with chance yet.",
    ),
    (
        NEGATIVE.headline,
        "one layer 3 and two layer 20 are weakly similar (RSA .14). Pos accounts for 140 % (133 % "
        "to 154 %), two other features for 2 %; what is unexplained lowers it by 42 %. Shares "
        "exceed 100 % where other terms lower the similarity.",
    ),
    (PLAIN.how_sure, ""),
    (
        SURE.how_sure,
        "95 % CI (over sentences): RSA .30 to .33, contribution of pos .19 to .22.",
    ),
]
PARTS = [
    (VALUES.text, "Features are coded by value for pos, others as same or different."),
    (WORDS.how_sure, "95 % CI (over sentences and words): RSA"),
    (NOTHING.headline, "gives. Pos lowers it by 25 %; 125 % is unexplained. Shares exceed 100 %"),
    (TESTED.headline, "Pos accounts for 32 % (29 % to 39 %), one other feature for 65 %, length"),
    (BY_CHANCE.headline, "more than chance gives. Two features together account for 97 %, length"),
    (OF_WORDS.headline, "one other feature for 22 %, word identity for 22 %; 13 % (11 % to"),
    (FEW.headline, "No single feature accounts for a tenth of it. Eleven features together"),
    (ROUNDED.headline, "26 %, two other features for 12 %, word identity for 5 %; 57 % is"),
    (
        WITH_CONTROLS.text,
        "would contribute at most .160 (all features of the word permuted together)",
    ),
    (WITH_CONTROLS.text, " and .150 (a random number for each place)."),
    (
        WITH_CONTROLS.headline,
        "No single feature accounts for more than chance gives. One feature accounts for",
    ),
    (two_layers(0.04, bounds=True, pos=0.05).headline, "are hardly similar (RSA .09)."),
]


@pytest.mark.parametrize(("sentence", "expected"), WHOLE)
def test_what_is_said(sentence, expected):
    assert sentence == expected


@pytest.mark.parametrize(("sentence", "part"), PARTS)
def test_what_is_said_among_others(sentence, part):
    assert part in sentence


@for_each(
    "sentence, part",
    (BY_CHANCE.headline.lower(), "pos"),
    (TESTED.headline.lower(), "place"),
)
def test_what_is_not_said(sentence, part):
    assert part not in sentence


BOTH = Units(40, 12)


@for_each(
    "said, expected",
    (BOTH.others, "sentences and words"),
    (Units(40, 9).others, "sentences made of these words"),
    (Units(40).others, "sentences"),
    (BOTH.held_out("sentences"), "unseen sentences made of these words"),
    (Units(40, 10, "item").held_out("both"), "unseen sentences with unseen items"),
    (BOTH.permuted("both"), "words of the same part of the folds and of as many stimuli"),
)
def test_of_what_an_interval_speaks(said, expected):
    assert said == expected


def test_percentages_add_up_to_100_and_each_is_a_neighbour_of_its_share():
    rng = np.random.default_rng(0)
    for n in range(1, 12):
        shares = rng.normal(0.2, 0.4, n)
        shares[-1] += 1 - shares.sum()
        found = whole_percents(shares)
        assert sum(found) == 100 and np.abs(found - 100 * shares).max() < 1
    assert whole_percents([1 / 3, 1 / 3, 1 / 3]) == [34, 33, 33]

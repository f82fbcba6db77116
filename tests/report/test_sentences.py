"""Sentences of a report that would mislead if they were wrong: what is said, and of what."""

import re
from functools import partial
from pathlib import Path

import pytest

from mlem_core.pairs.resampling_units import Units
from mlem_core.report import captions
from mlem_core.report.glossary import NAMES, glosses

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
WHETHER, HOW_MUCH = "whether they differ", "whether and by how much they differ"
OF_VALUES = "which values of pos differ (others: whether they differ)"
BASIS = captions.computed_on(1_200, 719_400, 5)
TESTED = partial(captions.profiles, BASIS, HOW_MUCH, "9 tests", "sentences and words", flagged=True)
UNITS = Units(n_sentences=600, n_items=40)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (BASIS, "Computed on 1,200 stimuli, 719,400 pairs, 5 folds."),
        (captions.computed_on(1_200, 719_400), "Computed on 1,200 stimuli and 719,400 pairs."),
        (captions.computed_on(1_200, held_out="unseen sentences"), "tested on unseen sentences."),
        (captions.fitted("ridge", False, None, WHETHER), "are coded by whether they differ."),
        (captions.fitted("x", True, "ignore", WHETHER), "with x with interactions"),
        (captions.fitted("x", True, "ignore", WHETHER), "at no distance to any value. Features"),
        (
            captions.fitted("ridge", False, "ignore", "which values of pos differ"),
            "to any value (a value of their own where values are told apart).",
        ),
        (captions.fitted("ridge", False, "ignore", OF_VALUES), f"are coded by {OF_VALUES}"),
        (captions.profiles(BASIS, HOW_MUCH), captions.FOLDS),
        (captions.profiles(BASIS, HOW_MUCH), f"coded by {HOW_MUCH}; it"),
        (TESTED(), "95 % confidence intervals over sentences and words;"),
        (TESTED(), "family of 9 tests"),
        (TESTED(), "Triangles"),
        (TESTED(warning="a and b correlate."), "a and b correlate. Computed on"),
        (captions.similarity(BASIS, "9 tests", "sentences"), "over sentences,"),
        (captions.similarity(BASIS, agreement=0.634), "two upper triangles, here 0.63."),
        (captions.compare(BASIS, "sentences"), "over sentences;"),
        (captions.compare(BASIS), captions.FOLDS),
        (captions.stimulus_map(1_000, 1_200), "seeded sample of 1,000"),
        (captions.ceiling(HOW_MUCH), "knows nothing of which values differ"),
        (captions.ceiling(OF_VALUES), f"coded by {OF_VALUES}"),
        (captions.scores(HOW_MUCH), "ridge penalty α"),
        (captions.scores(OF_VALUES), "strength β"),
        (captions.scores(OF_VALUES), "1e+12"),
        (UNITS.held_out("sentences"), "unseen sentences made of these words"),
    ],
)
def test_what_is_said(said, expected):
    assert expected in said


@pytest.mark.parametrize(
    ("said", "not_there"),
    [
        (captions.profiles(BASIS, HOW_MUCH), ("95 %", "Triangles")),
        (TESTED(), (captions.FOLDS,)),
        (captions.stimulus_map(1_000, 1_000), ("sample",)),
        (captions.similarity(BASIS), ("here",)),
        (captions.ceiling_of("first", OF_VALUES), ("knows nothing",)),
        (captions.scores(HOW_MUCH), ("β",)),
    ],
)
def test_what_is_not_said_of_what_is_not_there(said, not_there):
    assert not [words for words in not_there if words in said]


def test_every_gloss_has_its_entry_in_the_glossary():
    entries = re.findall(r"\*\*(.+?)\.?\*\*", GLOSSARY.read_text("utf-8"))
    assert set(NAMES) <= {entry.rstrip(".") for entry in entries}


def test_terms_are_found_as_words():
    for text, names in (
        ("weighted Kendall τ and RSA", ["τ, weighted Kendall τ", "RSA"]),
        ("determined, MDSX", []),
        ("95 % intervals", ["95 % interval"]),
    ):
        assert re.findall(r"\*\*(.+?)\*\*", glosses(text)) == names

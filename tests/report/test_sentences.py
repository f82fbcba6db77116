"""Sentences of a report that would mislead if they were wrong: what is said, and of what."""

import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
from inputs import for_each

from mlem_core.analysis.in_words import FOLDS, computed_on, fitting_sentence
from mlem_core.figures import captions
from mlem_core.figures.captions import TERMS, glosses
from mlem_core.figures.compare import compare_caption
from mlem_core.figures.profiles import profiles_caption
from mlem_core.figures.similarity import similarity_caption
from mlem_core.figures.stimulus_maps import map_caption
from mlem_core.pairs.resampling_units import Units

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
WHETHER, HOW_MUCH = "whether they differ", "whether and by how much they differ"
OF_VALUES = "which values of pos differ (others: whether they differ)"
BASIS = computed_on(1_200, 719_400, 5)
UNITS = Units(n_sentences=600, n_items=40)


def shown(over="", r=0.0, agreement=float("nan")):
    """What captions take of a context; without words for what intervals are over there are none."""
    correlations = pd.DataFrame([[1.0, r], [r, 1.0]], list("ab"), list("ab"))
    made = {"n_profile_features": 2, "agreement": agreement, "feature_correlations": correlations}
    tests = SimpleNamespace(family="9 tests") if over else None
    said = {"basis": BASIS, "coding": HOW_MUCH, "over": over, "names": None, "compared": None}
    said["importance_chance"] = None
    said |= {"score_tests": tests, "similarity_tests": tests, "results": SimpleNamespace(**made)}
    return SimpleNamespace(**said)


PLAIN, SURE = shown(), shown("sentences and words", 0.5, 0.634)
TESTED = profiles_caption(SURE, flagged=True)


@for_each(
    "said, expected",
    (BASIS, "Computed on 1,200 stimuli, 719,400 pairs, 5 folds."),
    (computed_on(1_200, 719_400), "Computed on 1,200 stimuli and 719,400 pairs."),
    (computed_on(1_200, held_out="unseen sentences"), "tested on unseen sentences."),
    (fitting_sentence("ridge", False, None, WHETHER), "are coded by whether they differ."),
    (fitting_sentence("x", True, "ignore", WHETHER), "with x with interactions"),
    (fitting_sentence("x", True, "ignore", WHETHER), "at no distance to any value. Features"),
    (
        fitting_sentence("ridge", False, "ignore", "which values of pos differ"),
        "to any value (a value of their own where values are told apart).",
    ),
    (fitting_sentence("ridge", False, "ignore", OF_VALUES), f"are coded by {OF_VALUES}"),
    (profiles_caption(PLAIN, flagged=False), FOLDS),
    (profiles_caption(PLAIN, flagged=False), f"coded by {HOW_MUCH}; it"),
    (TESTED, "95 % confidence intervals over sentences and words;"),
    (TESTED, "family of 9 tests"),
    (TESTED, "Triangles"),
    (TESTED, "a and b (r = 0.50) correlate: permuting one alone may mislead. Computed on"),
    (similarity_caption(SURE, flagged=False), "over sentences and words, and p of RSA"),
    (similarity_caption(SURE, flagged=False), "two upper triangles, here 0.63."),
    (compare_caption(SURE, flagged=False), "over sentences and words;"),
    (compare_caption(PLAIN, flagged=False), FOLDS),
    (map_caption(1_000, 1_200), "seeded sample of 1,000"),
    (captions.ceiling(HOW_MUCH), "knows nothing of which values differ"),
    (captions.ceiling(OF_VALUES), f"coded by {OF_VALUES}"),
    (captions.scores(HOW_MUCH), "ridge penalty α"),
    (captions.scores(OF_VALUES), "strength β"),
    (captions.scores(OF_VALUES), "1e+12"),
    (UNITS.held_out("sentences"), "unseen sentences made of these words"),
)
def test_what_is_said(said, expected):
    assert expected in said


@for_each(
    "said, not_there",
    (profiles_caption(PLAIN, flagged=False), ("95 %", "Triangles")),
    (TESTED, (FOLDS,)),
    (map_caption(1_000, 1_000), ("sample",)),
    (similarity_caption(PLAIN, flagged=False), ("here",)),
    (captions.ceiling_of("first", OF_VALUES), ("knows nothing",)),
    (captions.scores(HOW_MUCH), ("β",)),
)
def test_what_is_not_said_of_what_is_not_there(said, not_there):
    assert not [words for words in not_there if words in said]


def test_every_gloss_has_its_entry_in_the_glossary():
    entries = re.findall(r"\*\*(.+?)\.?\*\*", GLOSSARY.read_text("utf-8"))
    assert set(TERMS) <= {entry.rstrip(".") for entry in entries}


def test_terms_are_found_as_words():
    for text, names in (
        ("weighted Kendall τ and RSA", ["τ, weighted Kendall τ", "RSA"]),
        ("determined, MDSX", []),
        ("95 % intervals", ["95 % interval"]),
    ):
        assert re.findall(r"\*\*(.+?)\*\*", glosses(text)) == names

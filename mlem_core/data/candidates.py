"""Candidates: columns that need no annotation and may explain what the features leave unexplained.

Those that follow from the stimuli themselves are entries of `CANDIDATES`; every other column of the
table that is no feature of the analysis (`item`, `_note`, a feature that was not chosen) is one
too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from mlem_core.base.parameters import Registry
from mlem_core.data.added import ADDED, LANGUAGE
from mlem_core.data.columns import Kind, guess_kind, texts, typed_column
from mlem_core.data.stimuli import ITEM, Feature, StimulusSet, bare

# The value of a word that has none before it, or after it.
NO_WORD = "(none)"
# Columns that others stand for: the sentence, and the word in it.
_PLACES = frozenset({"sentence", "word_index", "word", "sentence_id"})


@dataclass(frozen=True)
class Candidate:
    """A column that may explain similarity.

    Attributes
    ----------
    label : as a sentence calls it
    values : of stimuli: (n_stimuli,) numbers or texts, missing is None; None where it does not
        apply. It may raise InputError
    kind : None is what its values look like
    is_identity : whether it says which word, item or sentence a stimulus is, and no more
    """

    name: str
    label: str
    values: Callable[[StimulusSet], Any]
    kind: Kind | None = "nominal"
    is_identity: bool = False


CANDIDATES = Registry[Candidate]("candidate")


def of_words(change: Callable[[str], str], stimuli: StimulusSet) -> list[str] | None:
    """What follows from each word, as `bare` has it: (n_stimuli,); None of sentences."""
    if stimuli.level == "sentence":
        return None
    return [change(bare(word)) for word in stimuli.words]


def neighbour(step: int, stimuli: StimulusSet) -> list[str] | None:
    """The word that stands so many words after each stimulus: (n_stimuli,); None of sentences.

    `NO_WORD` where the sentence ends before.
    """
    if stimuli.word_index is None:
        return None
    found = []
    for sentence, at in zip(stimuli.sentences, stimuli.word_index + step, strict=True):
        words = sentence.split()
        found.append(bare(words[at]) if 0 <= at < len(words) else NO_WORD)
    return found


def punctuation(stimuli: StimulusSet) -> list[str]:
    """The signs before and after each word, or each sentence, as in "( )": (n_stimuli,)."""
    edges = re.compile(r"^(\W*)(?:.*\w)?(\W*)$", re.DOTALL)
    found = {text: " ".join(edges.findall(text)[0]) for text in set(stimuli.words)}
    return [found[text] for text in stimuli.words]


def added(name: str, stimuli: StimulusSet) -> Any:
    """The values of one of `mlem_core.data.added.ADDED`; None of sentences where it is of words."""
    of_them = not ADDED[name].words_only or stimuli.level == "word"
    return ADDED[name].values(stimuli, LANGUAGE) if of_them else None


for _entry in (
    Candidate("word_form", "the word itself", partial(of_words, str), is_identity=True),
    Candidate("last_two_letters", "the last two letters", partial(of_words, lambda w: w[-2:])),
    Candidate("last_three_letters", "the last three letters", partial(of_words, lambda w: w[-3:])),
    Candidate("previous_word", "the previous word", partial(neighbour, -1)),
    Candidate("next_word", "the next word", partial(neighbour, 1)),
    Candidate("punctuation", "punctuation", punctuation),
    Candidate(
        "sentence_identity",
        "which sentence it is",
        lambda own: [*map(str, own.groups)],
        is_identity=True,
    ),
    *(
        Candidate(name, label, partial(added, name), "ordered")
        for name, label in (
            ("word_length", "the length of the word"),
            ("frequency", "the frequency of the word"),
            ("word_position", "the position from the start"),
            ("position_from_end", "the position from the end"),
            ("sentence_length", "the length of the sentence"),
        )
    ),
):
    CANDIDATES.register(_entry)


def candidates_of(stimuli: StimulusSet) -> list[Candidate]:
    """The candidates of a stimulus set: entries of `CANDIDATES`, then columns of its table.

    A column of the table takes the place of an entry of its name.
    """
    features = {feature.name for feature in stimuli.features}
    there = [str(name) for name in stimuli.table if str(name) not in _PLACES | features]
    made = [entry for name, entry in CANDIDATES.items() if name not in {*there, *features}]
    return made + [
        Candidate(name, f"the column {name}", partial(_column, name), None, name == ITEM)
        for name in there
        if name not in stimuli.rdms
    ]


def _column(name: str, stimuli: StimulusSet) -> Any:
    return stimuli.table[name]


def as_feature(stimuli: StimulusSet, candidate: Candidate) -> StimulusSet | None:
    """The stimuli with a candidate as their only feature; None where it does not apply.

    Raises
    ------
    InputError
        It cannot be computed.
    """
    values = candidate.values(stimuli)
    if values is None:
        return None
    cells = texts(pd.Series(values))
    kind = candidate.kind or guess_kind(cells)
    column = typed_column(candidate.name, cells, kind)
    table = stimuli.table.assign(**{candidate.name: column.to_numpy()})
    return replace(stimuli, table=table, features=(Feature(candidate.name, kind),))

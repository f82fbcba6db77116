"""Candidates: columns that need no annotation and may explain what the features leave unexplained.

Those that follow from the stimuli themselves are entries of `CANDIDATES`; most of these can be
features as well (`mlem_core.data.added`). Every other column of the table that is no feature of the
analysis (`item`, `_note`, a feature that was not chosen) is one too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from mlem_core.base.parameters import Registry
from mlem_core.data.added import ADDED, LANGUAGE, of_words
from mlem_core.data.columns import Kind, guess_kind, texts, typed_column
from mlem_core.data.stimuli import ITEM, Feature, Rdm, StimulusSet

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
    words_only : whether it is of words and not of sentences
    rdm : the distances of its values, where it is given by them
    """

    name: str
    label: str
    values: Callable[[StimulusSet], Any]
    kind: Kind | None = "nominal"
    is_identity: bool = False
    words_only: bool = False
    rdm: Rdm | None = None


CANDIDATES = Registry[Candidate]("candidate")


for _entry in (
    Candidate(
        "word_form", "the word itself", partial(of_words, str), is_identity=True, words_only=True
    ),
    Candidate(
        "sentence_identity",
        "which sentence it is",
        lambda own: [*map(str, own.groups)],
        is_identity=True,
    ),
    *(
        Candidate(
            name,
            added.label,
            lambda own, added=added: added.values(own, LANGUAGE),  # type: ignore[misc]
            added.kind,
            words_only=added.words_only,
        )
        for name, added in ADDED.items()
    ),
):
    CANDIDATES.register(_entry)


def candidates_of(stimuli: StimulusSet) -> list[Candidate]:
    """The candidates of a stimulus set: entries of `CANDIDATES`, then columns of its table.

    A column of the table takes the place of an entry of its name.
    """
    features = {feature.name for feature in stimuli.features}
    there = [str(name) for name in stimuli.table if str(name) not in _PLACES | features]
    made = [
        entry
        for name, entry in CANDIDATES.items()
        if name not in {*there, *features}
        and (stimuli.level == "word" if entry.words_only else stimuli.level != "stimulus")
    ]
    return made + [
        Candidate(name, f"the column {name}", partial(_column, name), None, name == ITEM)
        for name in there
        if name not in stimuli.rdms
    ]


def _column(name: str, stimuli: StimulusSet) -> Any:
    return stimuli.table[name]


def as_feature(stimuli: StimulusSet, candidate: Candidate) -> StimulusSet:
    """The stimuli with a candidate as their only feature.

    Raises
    ------
    InputError
        It cannot be computed.
    """
    cells = texts(pd.Series(candidate.values(stimuli)))
    kind = candidate.kind or guess_kind(cells)
    column = typed_column(candidate.name, cells, kind)
    table = stimuli.table.assign(**{candidate.name: column.to_numpy()})
    rdms = {} if candidate.rdm is None else {candidate.name: candidate.rdm}
    return replace(stimuli, table=table, features=(Feature(candidate.name, kind),), rdms=rdms)

"""Features that follow from the stimuli themselves: lengths, neighbours, merges.

Those of `CANDIDATES` need no annotation and may explain what the features leave unexplained; most
of these can be features as well. Every other column of the table that is no feature of the analysis
(`item`, `_note`, a feature that was not chosen) is a candidate too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed, many, short
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extending import entry_modules
from mlem_core.stimuli.columns import Kind, guess_kind, texts, typed_column
from mlem_core.stimuli.stimulus_set import (
    ITEM,
    UNIT,
    Feature,
    Rdm,
    StimulusSet,
    bare,
    count_words,
    without_punctuation,
    word_span,
    words_in,
)

# What frequencies are those of, unless it is said.
LANGUAGE = "en"
# The value of all stimuli whose own value is rare.
OTHER = "other"
# The value of a word that has none before it, or after it.
NO_WORD = "(none)"


@dataclass(frozen=True)
class Candidate:
    """A column that follows from stimuli: it may explain their similarity, or be a feature.

    Attributes
    ----------
    label : as a sentence calls it
    values : of stimuli: (n_stimuli,) numbers or texts, missing is None or NaN; it may raise
        InputError
    kind : None is what its values look like
    help : what it is; "" where it cannot be a feature
    is_identity : whether it says which word, item or sentence a stimulus is, or which word is next
        to it, and no more
    words_only : whether it is of words and not of sentences
    rdm : the distances of its values, where it is given by them
    """

    name: str
    label: str
    values: Callable[[StimulusSet], Any]
    kind: Kind | None = "nominal"
    help: str = ""
    is_identity: bool = False
    words_only: bool = False
    rdm: Rdm | None = None


def frequency(stimuli: StimulusSet, language: str = LANGUAGE) -> FloatArray:
    """The frequency of each word on the Zipf scale: (n_stimuli,).

    That is log10 of the occurrences in a thousand million words, by the package `wordfreq` 3.1
    (van Heuven et al. 2014 have the scale). A word that is not in its list is missing.

    Raises InputError: `wordfreq` is not installed, or has no list for the language.
    """
    if language not in (known := languages()):
        raise unknown("language of frequencies", language, known)
    import wordfreq

    # With its case, which some languages have rules of their own for: I is ı in Turkish.
    zipf = cache(lambda word: wordfreq.zipf_frequency(without_punctuation(word), language))
    try:
        values = np.array(list(map(zipf, stimuli.words)), dtype=np.float64)
    except ImportError as error:  # Chinese, Japanese and Korean need packages that find words
        raise InputError(
            f"frequencies of the language {language!r} need a further package: {error}."
        ) from error
    return np.where(values > 0, values, np.nan)


def languages() -> list[str]:
    """The codes of the languages that there are frequencies of.

    Raises InputError: `wordfreq` is not installed.
    """
    try:
        import wordfreq
    except ImportError as error:
        raise InputError(
            "frequencies need the package wordfreq, which is not installed: pip install wordfreq."
        ) from error
    return sorted(wordfreq.available_languages())


def _from_start(stimuli: StimulusSet) -> IntArray:
    assert stimuli.word_index is not None  # `add_feature` has looked
    return stimuli.word_index


def of_words(change: Callable[[str], Any], stimuli: StimulusSet) -> list[Any]:
    """Value of each word, as `bare` has it: (n_stimuli,)."""
    return [change(bare(word)) for word in stimuli.words]


def neighbour(step: int, stimuli: StimulusSet) -> list[str]:
    """Word that stands so many words after each stimulus: (n_stimuli,).

    `NO_WORD` where the sentence ends before.
    """
    found = []
    for sentence, at in zip(stimuli.sentences, _from_start(stimuli) + step, strict=True):
        words = sentence.split()
        found.append(bare(words[at]) if 0 <= at < len(words) else NO_WORD)
    return found


def punctuation(stimuli: StimulusSet) -> list[str]:
    """Signs before and after each word, or each sentence, as in "( )": (n_stimuli,)."""

    def signs(text: str) -> str:
        start, end = word_span(text)
        return f"{text[:start]} {text[end:]}"

    return list(map(cache(signs), stimuli.words))


def _ending(n: int, stimuli: StimulusSet) -> list[str]:
    return of_words(lambda word: word[-n:], stimuli)


def _sentence(stimuli: StimulusSet) -> list[str]:
    return [*map(str, stimuli.groups)]


def _to_end(stimuli: StimulusSet) -> IntArray:
    return words_in(stimuli.sentences) - 1 - _from_start(stimuli)


def _n_words(stimuli: StimulusSet) -> list[int]:
    return list(map(cache(count_words), stimuli.sentences))


CANDIDATES = Registry[Candidate]("candidate", entry_modules)
_Entry = tuple[str, str, Callable[[StimulusSet], Any], Kind, str]
_ENTRIES: tuple[_Entry, ...] = (
    ("word_form", "the word itself", partial(of_words, str), "nominal", ""),
    ("sentence_identity", "which sentence it is", _sentence, "nominal", ""),
    ("word_length", "the length of the word", partial(of_words, len), "ordered", "its characters"),
    ("word_position", "the position from the start", _from_start, "ordered", "words before it"),
    ("position_from_end", "the position from the end", _to_end, "ordered", "words after it"),
    ("sentence_length", "the length of the sentence", _n_words, "ordered", "its words"),
    ("frequency", "the frequency of the word", frequency, "ordered", "its log, on the Zipf scale"),
    ("previous_word", "the previous word", partial(neighbour, -1), "nominal", "the word before it"),
    ("next_word", "the next word", partial(neighbour, 1), "nominal", "the word after it"),
    ("last_two_letters", "the last two letters", partial(_ending, 2), "nominal", "of the word"),
    ("last_three_letters", "the last three letters", partial(_ending, 3), "nominal", "of the word"),
    ("punctuation", "punctuation", punctuation, "nominal", "the signs before and after it"),
)
# What they say is said by any labels of these units.
_IDENTITIES = ("word_form", "sentence_identity", "previous_word", "next_word")
_OF_SENTENCES = ("sentence_identity", "sentence_length", "punctuation")  # too
for _entry in _ENTRIES:
    CANDIDATES.register(
        Candidate(
            *_entry,
            is_identity=_entry[0] in _IDENTITIES,
            words_only=_entry[0] not in _OF_SENTENCES,
        )
    )
# Those that can be features.
ADDED = {name: entry for name, entry in CANDIDATES.items() if entry.help}


def add_feature(stimuli: StimulusSet, name: str, language: str = LANGUAGE) -> StimulusSet:
    """The stimuli with one of `ADDED` as a further feature.

    Raises InputError: an unknown feature; one of words where the stimuli are sentences; a column of
    that name is there, or all stimuli have the same value.
    """
    check_choice("feature to add", name, ADDED)
    if stimuli.level == "stimulus":
        raise InputError(
            f"{name} is a feature of text, and the stimuli of {stimuli.name} are none."
        )
    if ADDED[name].words_only and stimuli.level == "sentence":
        fit = [other for other, added in ADDED.items() if not added.words_only]
        raise InputError(
            f"{name} is a feature of words, and the stimuli of {stimuli.name} are sentences; "
            f"the choices are {', '.join(fit)}."
        )
    if name == "frequency":
        return with_values(stimuli, name, frequency(stimuli, language))
    return with_column(stimuli, name, ADDED[name].values(stimuli), ADDED[name].kind or "nominal")


def with_values(stimuli: StimulusSet, name: str, values: FloatArray) -> StimulusSet:
    """The stimuli with an ordered feature: values (n_stimuli,), missing is NaN, which is noted.

    Raises as `with_column`.
    """
    notes = stimuli.notes
    if n := int(np.isnan(values).sum()):
        notes = (*notes, f"{name} is missing for {n:,} of {len(stimuli):,} stimuli.")
    return with_column(replace(stimuli, notes=notes), name, values, "ordered")


def merge_rare(stimuli: StimulusSet, name: str, least: int) -> StimulusSet:
    """The stimuli with the rare values of a categorical feature as one value, "other".

    Rare are those that fewer than `least` stimuli have. A missing value stays missing.

    Raises InputError: no categorical feature of that name; `least` is below 2; all values are rare.
    """
    nominal = [feature.name for feature in stimuli.features if feature.kind == "nominal"]
    check_choice("categorical feature to merge rare values of", name, nominal)
    if least < 2:
        raise InputError(f"found {least} stimuli for {name!r}; expected at least 2.")
    column = stimuli.table[name]
    counts = column.value_counts()
    rare = counts[counts < least]
    if len(rare) == len(counts):
        raise InputError(
            f"no value of {name!r} has {least:,} stimuli; the most frequent, "
            f"{short(str(counts.index[0]))}, has {counts.iloc[0]:,}: choose a smaller number."
        )
    other = next(one for one in (OTHER, f"{OTHER} (rare)") if one not in counts.index)
    note = f"No value of {name} has fewer than {least:,} stimuli; none was merged."
    if len(rare):
        note = (
            f"{many(len(rare), 'value')} of {name} with fewer than {least:,} stimuli "
            f"({rare.sum():,} stimuli in all) became the value {other!r}, which makes "
            f"{len(counts) - len(rare) + 1} values."
        )
    merged = column.where(~column.isin(rare.index), other)
    table = stimuli.table.assign(**{name: merged})
    return replace(stimuli, table=table, notes=(*stimuli.notes, note))


def with_column(stimuli: StimulusSet, name: str, values: Any, kind: Kind) -> StimulusSet:
    """The stimuli with a further feature: values (n_stimuli,).

    Raises InputError: a column of that name is there; all stimuli have the same value.
    """
    taken = [str(column) for column in stimuli.table]
    if name in taken:
        raise InputError(
            f"{stimuli.name} has a column {name!r} already; its columns are "
            f"{listed([short(column) for column in taken], most=20)}."
        )
    column = typed_column(name, texts(pd.Series(values)), kind)
    if len(column.dropna().unique()) < 2:
        raise InputError(f"{name!r} has the same value for all stimuli; no two differ in it.")
    table = stimuli.table.assign(**{name: column.to_numpy()})
    return replace(stimuli, table=table, features=(*stimuli.features, Feature(name, kind)))


# Columns that others stand for: the sentence, and the word in it.
_PLACES = frozenset({"sentence", "word_index", "word", "sentence_id"})


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
        Candidate(
            name,
            f"the column {name}",
            partial(_column, name),
            None,
            is_identity=name == ITEM or name.startswith(UNIT),
        )
        for name in there
        if name not in stimuli.rdms
    ]


def _column(name: str, stimuli: StimulusSet) -> Any:
    return stimuli.table[name]


def as_feature(stimuli: StimulusSet, candidate: Candidate) -> StimulusSet:
    """The stimuli with a candidate as their only feature.

    Raises InputError: it cannot be computed.
    """
    cells = texts(pd.Series(candidate.values(stimuli)))
    kind = candidate.kind or guess_kind(cells)
    column = typed_column(candidate.name, cells, kind)
    table = stimuli.table.assign(**{candidate.name: column.to_numpy()})
    rdms = {} if candidate.rdm is None else {candidate.name: candidate.rdm}
    return replace(stimuli, table=table, features=(Feature(candidate.name, kind),), rdms=rdms)

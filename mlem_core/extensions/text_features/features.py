"""Columns that follow from the text of stimuli: lengths, places, frequency, neighbours, surprisal.

They need no annotation, may explain what the features leave unexplained, and most can be features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.stimuli.candidates import CANDIDATES, SURPRISAL, Candidate
from mlem_core.stimuli.columns import Kind
from mlem_core.stimuli.stimulus_set import (
    StimulusSet,
    bare,
    count_words,
    neighbouring_words,
    strip_punctuation,
    word_counts,
    word_span,
)

# Language of frequencies by default.
LANGUAGE = "en"


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
    zipf = cache(lambda word: wordfreq.zipf_frequency(strip_punctuation(word), language))
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
    assert stimuli.word_index is not None  # they are words
    return stimuli.word_index


def map_words(change: Callable[[str], Any], stimuli: StimulusSet) -> list[Any]:
    """Value of each word, as `bare` has it: (n_stimuli,)."""
    return [change(bare(word)) for word in stimuli.words]


def punctuation(stimuli: StimulusSet) -> list[str]:
    """Signs before and after each word, or each sentence, as in "( )": (n_stimuli,)."""

    def signs(text: str) -> str:
        start, end = word_span(text)
        return f"{text[:start]} {text[end:]}"

    return list(map(cache(signs), stimuli.words))


def _ending(n: int, stimuli: StimulusSet) -> list[str]:
    return map_words(lambda word: word[-n:], stimuli)


def _sentence(stimuli: StimulusSet) -> list[str]:
    return [*map(str, stimuli.groups)]


def _to_end(stimuli: StimulusSet) -> IntArray:
    return word_counts(stimuli.sentences) - 1 - _from_start(stimuli)


def _n_words(stimuli: StimulusSet) -> list[int]:
    return list(map(cache(count_words), stimuli.sentences))


def _surprisal(stimuli: StimulusSet, model: str, *, whole_words: bool) -> FloatArray:
    # What runs models is imported where one is run.
    from mlem_core.extensions.text_features import surprisal

    return surprisal.surprisal(stimuli, model, whole_words=whole_words)


_previous_word = partial(neighbouring_words, step=-1)
_next_word = partial(neighbouring_words, step=1)
_Entry = tuple[str, str, Callable[[StimulusSet], Any], Kind, str]
_ENTRIES: tuple[_Entry, ...] = (
    ("word_form", "the word itself", partial(map_words, str), "nominal", ""),
    ("sentence_identity", "which sentence it is", _sentence, "nominal", ""),
    ("word_length", "the length of the word", partial(map_words, len), "ordered", "its characters"),
    ("word_position", "the position from the start", _from_start, "ordered", "words before it"),
    ("position_from_end", "the position from the end", _to_end, "ordered", "words after it"),
    ("sentence_length", "the length of the sentence", _n_words, "ordered", "its words"),
    ("frequency", "the frequency of the word", frequency, "ordered", "its log, on the Zipf scale"),
    ("previous_word", "the previous word", _previous_word, "nominal", "the word before it"),
    ("next_word", "the next word", _next_word, "nominal", "the word after it"),
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
            languages=languages if _entry[0] == "frequency" else None,
        )
    )
for _name, _help, _whole in (
    (SURPRISAL, "of the word, in bits, in a causal model", False),
    ("word_surprisal", "the same of the word as a whole, with its end", True),
):
    CANDIDATES.register(
        Candidate(
            _name,
            _name.replace("_", " "),
            partial(_surprisal, whole_words=_whole),
            "ordered",
            _help,
            words_only=True,
            needs_model=True,
        )
    )

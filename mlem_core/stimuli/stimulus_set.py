"""Stimuli and their features.

One row is one stimulus. The column `sentence` is required, or `stimulus` where stimuli are no text;
`word_index` (0-based, counting whitespace-separated words) makes the set word-level. `word`,
`sentence_id`, `item` and names that begin with `_` are carried along; every other column is a
feature. An empty cell is a missing value.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.parameters import split_names
from mlem_core.base.text import listed, many, short, some
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.stimuli.columns import GIVEN, Kind, coded, override_kinds, texts, typed_column
from mlem_core.stimuli.table_warnings import Doubt

# The column that says what recurs from sentence to sentence, where that is not the word.
ITEM = "item"
# What stands in the place of a word before the first one, and after the last.
NO_WORD = "(none)"
# Columns whose names begin so say what else recurs, such as the document: they are no features.
UNIT = "_unit_"
# Of these, those that say when stimuli were presented: what is near in time stays together.
SESSION, RUN, BLOCK = PRESENTED = (f"{UNIT}session", f"{UNIT}run", f"{UNIT}block")
# When a stimulus was presented, and the fold that a table gives it.
ORDER, SPLIT = "_presented_at", "_given_fold"
_INSIDE = re.compile(r"\w")
_RECENT = 256  # sentences whose words are kept: rows of one sentence mostly stand together


@dataclass(frozen=True)
class Feature:
    """A column that describes the stimuli; `kind` says how its distance is taken.

    >>> analysis.stimuli.features[0]
    Feature(name='colour', kind='nominal')
    """

    name: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class Rdm:
    """A feature that is given by the distances between its values: a dissimilarity matrix.

    values : (n_values,) what the cells of its column say, each once
    distances : (n_values, n_values) symmetric, at least 0, and 0 on the diagonal
    """

    values: tuple[str, ...]
    distances: FloatArray

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the values and their distances."""
        digest = hashlib.sha256(json.dumps(self.values).encode())
        digest.update(np.ascontiguousarray(self.distances, dtype="<f8").tobytes())
        return digest.hexdigest()

    def among(self, values: Sequence[str]) -> FloatArray:
        """(n, n) the distances of some values, in their order."""
        places = {value: row for row, value in enumerate(self.values)}
        rows = [places[value] for value in values]
        return self.distances[np.ix_(rows, rows)]


@dataclass(frozen=True, eq=False)
class StimulusSet:
    """Stimuli with their features, checked. Made by `read_csv`, `from_frame` or `datasets.load`.

    >>> analysis.stimuli[:60]
    60 sentences of s.csv: colour (nominal) and size (ordered)

    Attributes
    ----------
    name : the built-in set's name or the CSV's file name
    table : n_stimuli rows, all columns in the order of the CSV; ordered features and `word_index`
        are numbers, everything else is str; missing is NaN
    features : in column order
    word_index : (n_stimuli,) int64, or None for a sentence-level set
    groups : (n_stimuli,) int64, codes 0.. of blocks or runs, see `mlem_core.stimuli.presentation`;
        without them of `sentence_id`, without that column of `sentence`
    notes : sentences about how they were read, where that is not as the contract has it
    doubts : those of the notes that a choice settles
    rdms : of each feature that is given by its distances
    """

    name: str
    table: pd.DataFrame
    features: tuple[Feature, ...]
    word_index: NDArray[np.int64] | None
    groups: NDArray[np.int64]
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    rdms: Mapping[str, Rdm] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        features = listed([f"{feature.name} ({feature.kind})" for feature in self.features], most=8)
        return f"{many(len(self), self.level)} of {self.name}: {features}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the table's content, however it was written, and the features' kinds."""
        # That of {"columns": [[name, [text of each cell]]], "features": [[name, kind]]} as JSON.
        digest = hashlib.sha256(b'{"columns":[')
        for place, name in enumerate(self.table):
            digest.update(f"{',' if place else ''}[{json.dumps(name)},[".encode())
            codes, distinct = coded(self.table[name])
            add_json(digest, codes, distinct, ",")
            digest.update(b"]]")
        kinds = [[feature.name, feature.kind] for feature in self.features]
        digest.update(f'],"features":{json.dumps(kinds, separators=(",", ":"))}}}'.encode())
        for name in sorted({feature.name for feature in self.features} & set(self.rdms)):
            digest.update(f"{json.dumps(name)}{self.rdms[name].digest}".encode())
        return digest.hexdigest()

    @cached_property
    def identity(self) -> str:
        """`digest` and the versions of rules that results in a store depend on: that by which words
        are compared where not all letters are ASCII, and that runs and blocks stay together."""
        words = "" if all(map(str.isascii, self.sentences)) else " words 2"
        is_presented = any(name in self.table for name in PRESENTED)
        return f"{self.digest}{words}{' presented 1' * is_presented}"

    @property
    def shape(self) -> tuple[int, int]:
        """(n_stimuli, n_features); scikit-learn takes many rows at once of what has a shape."""
        return len(self), len(self.features)

    def __getitem__(self, rows: Any) -> StimulusSet:
        """The stimuli of a slice, of row numbers or of a mask; scikit-learn has `[rows, ...]`."""
        return self.take(np.atleast_1d(np.arange(len(self))[rows]))

    @property
    def level(self) -> Literal["word", "sentence", "stimulus"]:
        """Whether a stimulus is a word in its sentence, a whole sentence, or no text."""
        if "sentence" not in self.table:
            return "stimulus"
        return "sentence" if self.word_index is None else "word"

    @cached_property
    def has_missing(self) -> bool:
        """Whether a feature has a missing value."""
        return any(self.table[feature.name].hasnans for feature in self.features)

    @property
    def sentences(self) -> list[str]:
        """The sentence of each stimulus; its name where it is no text."""
        named = "stimulus" if self.level == "stimulus" else "sentence"
        return cast("list[str]", texts(self.table[named]))

    @property
    def words(self) -> list[str]:
        """The word of each stimulus; in a sentence-level set the sentence."""
        if self.word_index is None:
            return self.sentences
        return indexed_words(self.sentences, self.word_index)

    @property
    def item_name(self) -> str:
        """The name of an item: "item" where the CSV names them or it has no text, else "word"."""
        return "word" if ITEM not in self.table and self.level != "stimulus" else ITEM

    @cached_property
    def items(self) -> NDArray[np.int64] | None:
        """A number for each item, which recurs from sentence to sentence: (n_stimuli,).

        The column `item`, else the word without case and surrounding punctuation; None for whole
        sentences without that column, and where no item occurs in two groups: then only sentences
        are drawn, each with items of its own.
        """
        if ITEM in self.table:
            return _recurring(self.table[ITEM].astype(str).tolist(), self.groups)
        if self.word_index is not None:
            return _recurring(list(map(cache(bare), self.words)), self.groups)
        return None

    def values(self, name: str) -> NDArray[Any]:
        """A feature's values: (n_stimuli,).

        Ordered: float64, missing is NaN. Nominal: object of str, missing is None.

        Raises InputError: no feature has this name.
        """
        kinds = {feature.name: feature.kind for feature in self.features}
        check_choice("feature", name, kinds)
        column = self.table[name]
        if kinds[name] == "ordered":
            return np.asarray(column, dtype=np.float64)
        codes, distinct = coded(column)
        return distinct[codes]

    def select(self, features: Sequence[str] | None) -> StimulusSet:
        """Stimulus set with only some features, in column order (None: all).

        Raises InputError: a name that no feature has, or no name at all.
        """
        if features is None:
            return self
        features, names = split_names(features), [feature.name for feature in self.features]
        for name in features:
            check_choice("feature", name, names)
        selected = tuple(feature for feature in self.features if feature.name in features)
        if selected == self.features:
            return self
        if not selected:
            raise InputError(f"no feature is chosen; at least one of {some(names)} must be chosen.")
        return replace(self, features=selected)

    def take(self, rows: NDArray[np.int64]) -> StimulusSet:
        """Only the stimuli in these rows, in their order: (n_rows,) row numbers."""
        return replace(
            self,
            table=self.table.iloc[rows].reset_index(drop=True),
            word_index=None if self.word_index is None else self.word_index[rows],
            groups=np.unique(self.groups[rows], return_inverse=True)[1].astype(np.int64),
        )

    def with_kinds(self, ordered: Iterable[str] = (), nominal: Iterable[str] = ()) -> StimulusSet:
        """Stimulus set with the kinds of some features set.

        Raises InputError: a name that no feature has or that is in both lists; a feature to be
        ordered that has a value which is no number; one that is given by its distances.
        """
        kinds: dict[str, Kind] = {feature.name: feature.kind for feature in self.features}
        override_kinds(kinds, ordered, nominal)
        columns = {str(name): self.table[name] for name in self.table.columns}
        for name, kind in kinds.items():
            if name in self.rdms and kind not in GIVEN:
                raise InputError(
                    f"the feature {name!r} is given by its distances and cannot be {kind}; leave "
                    "its kind as it is, or choose other features."
                )
            columns[name] = typed_column(name, texts(columns[name]), kind)
        features = tuple(Feature(name, kind) for name, kind in kinds.items())
        return replace(self, table=pd.DataFrame(columns), features=features)

    def with_feature(self, name: str, values: Any, kind: Kind) -> StimulusSet:
        """Stimulus set with a further feature: values (n_stimuli,).

        Raises InputError: a column of that name is there; all stimuli have the same value.
        """
        taken = [str(column) for column in self.table]
        if name in taken:
            raise InputError(
                f"{self.name} has a column {name!r} already; its columns are "
                f"{listed([short(column) for column in taken], most=20)}."
            )
        column = typed_column(name, texts(pd.Series(values)), kind)
        if len(column.dropna().unique()) < 2:
            raise InputError(f"{name!r} has the same value for all stimuli; no two differ in it.")
        table = self.table.assign(**{name: column.to_numpy()})
        return replace(self, table=table, features=(*self.features, Feature(name, kind)))

    def with_groups(self, column: str, cells: Sequence[str]) -> StimulusSet:
        """Stimulus set with another column of `PRESENTED`: cells (n_stimuli,)."""
        table = self.table.assign(**{column: pd.Series(cells, dtype=object)})
        return replace(self, table=table, groups=group_codes(table))


def sentence_ids(table: pd.DataFrame) -> IntArray:
    """(n_stimuli,) codes 0.. of `sentence_id`, without that column of the sentence or stimulus."""
    names = ("sentence_id", "sentence", "stimulus")
    column = next(name for name in names if name in table)
    return pd.factorize(table[column].to_numpy(dtype=object))[0].astype(np.int64)


def group_codes(table: pd.DataFrame) -> IntArray:
    """(n_stimuli,) codes 0.. of what stays together in folds and is drawn together.

    Blocks of a run of a session, as far as a table has these; else sentences.
    """
    names = [name for name in PRESENTED if name in table]
    if not names:
        return sentence_ids(table)
    return np.asarray(table.groupby(names, sort=False, dropna=False).ngroup(), dtype=np.int64)


def group_name(stimuli: StimulusSet) -> str:
    """The name of what stays together: "block", "run" or "session"; else "sentence"; "stimulus"
    or "group" of what is no text."""
    presented = [name for name in PRESENTED if name in stimuli.table]
    if presented:
        return presented[-1].removeprefix(UNIT)
    if stimuli.level != "stimulus":
        return "sentence"
    return "stimulus" if len(np.unique(stimuli.groups)) == len(stimuli) else "group"


def add_json(digest: Any, codes: NDArray[np.int64], distinct: NDArray[Any], comma: str) -> None:
    """Feed a digest the items of a JSON list, each as `json.dumps` has it.

    Parameters
    ----------
    codes, distinct : (n_rows,) into (n_distinct,), see `mlem_core.stimuli.columns.coded`
    comma : what stands between two items
    """
    written = np.array([json.dumps(value) for value in distinct], dtype=object)
    digest.update(comma.join(written[codes]).encode())


def _recurring(names: list[str], groups: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Codes of names (n_stimuli,); None where no name occurs in two groups."""
    codes = pd.factorize(np.array(names, dtype=object))[0].astype(np.int64)
    in_groups = pd.unique(codes * (int(groups.max(initial=0)) + 1) + groups)
    return codes if len(in_groups) > int(codes.max(initial=-1)) + 1 else None


def word_span(text: str) -> tuple[int, int]:
    """Start and end of a text without the punctuation around it, both its length if it is nothing
    else; combining marks, such as vowel signs, belong to the letter before them."""
    # One pattern for both edges would look at a run of signs from each of its places.
    first, last = _INSIDE.search(text), _INSIDE.search(text[::-1])
    if first is None or last is None:
        return len(text), len(text)
    end = len(text) - last.start()
    while end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return first.start(), end


def strip_punctuation(word: str) -> str:
    """A word in Unicode's composed form (NFC), without the punctuation around it (unless it is
    nothing else)."""
    word = unicodedata.normalize("NFC", word)
    start, end = word_span(word)
    return word[start:end] or word.strip()


def bare(word: str) -> str:
    """A word as words are compared: `strip_punctuation` and without case.

    Apostrophes are one. It has as many characters as the word with its case: ß stays one, and so
    does İ.
    """
    return re.sub("[‘’ʼ]", "'", strip_punctuation(word).lower().replace("i\u0307", "i"))


def word_counts(sentences: Sequence[str | None]) -> IntArray:
    """Number of whitespace-separated words of each sentence: (n_rows,)."""
    count = cache(lambda text: len((text or "").split()))
    return np.array([*map(count, sentences)], dtype=np.int64)


def count_words(sentence: str) -> int:
    """Number of whitespace-separated words of a sentence that have a letter or digit."""
    return sum(any(char.isalnum() for char in word) for word in sentence.split())


def indexed_words(sentences: Sequence[str], index: IntArray) -> list[str]:
    """The word of each sentence at its index, which is from 0 and in the sentence: (n_rows,)."""
    split = lru_cache(_RECENT)(str.split)
    return [split(text)[place] for text, place in zip(sentences, index.tolist(), strict=True)]


def neighbouring_words(stimuli: StimulusSet, step: int) -> list[str]:
    """Word that stands so many words after each stimulus, as `bare` has it: (n_stimuli,).

    `NO_WORD` where the sentence ends before.
    """
    assert stimuli.word_index is not None  # they are words
    neighbours = []
    for sentence, place in zip(stimuli.sentences, stimuli.word_index + step, strict=True):
        words = sentence.split()
        neighbours.append(bare(words[place]) if 0 <= place < len(words) else NO_WORD)
    return neighbours


def occurrences(
    words: Sequence[str | None], sentences: Sequence[str | None]
) -> tuple[IntArray, IntArray]:
    """Occurrences of each row's word in its sentence, and place of the first: (n_rows,) each.

    Words are compared as `bare` has them. Where a sentence does not have the
    word, its place is 0.
    """
    bare_of = cache(lambda word: bare(word or ""))
    split = lru_cache(_RECENT)(lambda text: [*map(bare_of, (text or "").split())])
    times, place = np.zeros((2, len(words)), dtype=np.int64)
    for row, (word, sentence) in enumerate(zip(words, sentences, strict=True)):
        own, wanted = split(sentence), bare_of(word)
        times[row] = own.count(wanted)
        place[row] = own.index(wanted) if wanted in own else 0
    return times, place

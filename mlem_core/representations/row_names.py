"""Names of the rows of arrays, and the rows of each stimulus by them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed, some
from mlem_core.base.typing import IntArray
from mlem_core.representations.array_files import (
    ADVICE,
    FIRST_NAME,
    CountsRows,
    FileArray,
    plain_name,
)
from mlem_core.stimuli.columns import texts
from mlem_core.stimuli.neural_rows import repeated_rows, rows_by_name
from mlem_core.stimuli.reading.table import read_table
from mlem_core.stimuli.stimulus_set import StimulusSet

# Texts of these names are those of subjects; of the others, only their number is noted.
_SUBJECTS = ("subject", "subject_id", "participant", "participant_id", "sub")
_PARTS = ("session", "run")
_BLOCK = 2**25  # bytes of rows that are read at a time


class RowLabels(NamedTuple):
    """A text for each row of the arrays of a file, or of a folder in it.

    name : without its folder
    folder : "" where they may be of all arrays
    what : as messages have it
    """

    name: str
    folder: str
    what: str
    texts: list[str]

    @classmethod
    def from_array(cls, name: str, file: str, array: NDArray[Any]) -> RowLabels:
        """Labels that a file of this name holds."""
        folder, _, leaf = name.rpartition("/")
        what = f"{name} of {file}" if name == FIRST_NAME else f"array {plain_name(name)} of {file}"
        return cls(leaf, folder, what, [str(text).strip() for text in array.ravel().tolist()])

    @classmethod
    def from_table(cls, path: str) -> list[RowLabels]:
        """Labels that each column of a table holds; raises as `read_table`."""
        table = read_table(path, what="table of rows")
        return [
            cls(str(name), "", f"column {name!r} of {table.name}", [*map(str, texts(column))])
            for name, column in table.frame.items()
        ]


class _Match(NamedTuple):
    """Rows of each stimulus, found in a column of the stimuli.

    n_rows : that the labels have
    """

    labels: RowLabels
    column: str
    rows: list[IntArray]
    n_rows: int

    @property
    def in_order(self) -> bool:
        """Whether every row is the stimulus in its place."""
        flat = np.concatenate(self.rows)
        return len(flat) == len(self.rows) and np.array_equal(flat, np.arange(self.n_rows))


@dataclass(frozen=True)
class MatchedRows:
    """The rows of each stimulus in the arrays of a file, by the folders of these.

    Attributes
    ----------
    notes : sentences about them
    has_subjects : whether they are those of one subject
    """

    matches: dict[str, _Match]
    notes: tuple[str, ...]
    has_subjects: bool = False

    def _match(self, name: str) -> _Match | None:
        while name:
            name = name.rpartition("/")[0]
            if name in self.matches:
                return self.matches[name]
        return None

    @property
    def identity(self) -> list[str]:
        """Text that names the order of the rows; none where it is that of the stimuli."""
        hashed = hashlib.sha256()
        different = [match for match in self.matches.values() if not match.in_order]
        for match in different:
            hashed.update(np.concatenate(match.rows).astype("<i8").tobytes())
            counts = np.array([*map(len, match.rows)], "<i8")
            hashed.update(counts.tobytes() if counts.max() > 1 else b"")
        return [f"rows {hashed.hexdigest()}"] * bool(different)

    def select(self, name: str, array: FileArray, where: str, distances: bool) -> FileArray:
        """An array with a row for each stimulus, or (repetitions, n_stimuli, n_units).

        Where stimuli have different numbers of rows, with their means.

        Raises InputError: its rows are not those that have names; a name has two rows, of distances
        or of an array of repetitions.
        """
        match = self._match(name)
        if match is None or array.problem or len(array.shape) < 2:
            return array
        if array.shape[-2] != match.n_rows:
            way = ": transpose the array" * (array.shape[-1] == match.n_rows)
            raise InputError(
                f"{where} has {array.shape[-2]:,} rows, and {match.labels.what} names "
                f"{match.n_rows:,}; expected as many{way}."
            )
        if match.in_order:
            return array
        n, width = len(match.rows), array.shape[-1]
        if distances or len(array.shape) > 2:
            rows_by_name(match.labels.texts, (), match.labels.what, match.column)
            order = np.concatenate(match.rows)
            index: Any = np.ix_(order, order) if distances else (..., order, slice(None))
            shape = (n, n) if distances else (*array.shape[:-2], n, width)
            return array._replace(shape=shape, read=lambda: array.read()[index], read_rows=None)
        counts = {*map(len, match.rows)}
        shape = (counts.pop(), n, width) if len(counts) == 1 and counts != {1} else (n, width)
        read = partial(_read_selected, array, match.rows, where)
        return array._replace(shape=shape, read=read, read_rows=None)


def _read_selected(array: FileArray, rows: Sequence[IntArray], where: str) -> NDArray[Any]:
    """The rows (n_stimuli, n_units), (repetitions, n_stimuli, n_units) or their means."""
    flat, counts = np.concatenate(rows), np.array([*map(len, rows)])
    width, repetitions = array.shape[-1], int(counts[0])
    if (counts == repetitions).all():
        check_memory(len(flat) * width * np.dtype(array.dtype).itemsize, where, ADVICE)
        picked = np.empty((len(flat), width), array.dtype)
        for start, block in _blocks(array, flat):
            inside = np.flatnonzero((flat >= start) & (flat < start + len(block)))
            picked[inside] = block[flat[inside] - start]
        if repetitions == 1:
            return picked
        return picked.reshape(len(rows), repetitions, width).swapaxes(0, 1)
    sums, stimulus = np.zeros((len(rows), width)), np.repeat(np.arange(len(rows)), counts)
    for start, block in _blocks(array, flat):
        inside = np.flatnonzero((flat >= start) & (flat < start + len(block)))
        np.add.at(sums, stimulus[inside], block[flat[inside] - start])
    return sums / counts[:, None]


def _blocks(array: FileArray, rows: IntArray) -> Iterator[tuple[int, NDArray[Any]]]:
    """Blocks of the rows of an array with their first rows, those with some of `rows` alone."""
    if array.read_rows is None:
        yield 0, array.read()
        return
    step = max(1, _BLOCK // (array.shape[-1] * np.dtype(array.dtype).itemsize))
    for start in np.unique(rows // step) * step:
        yield int(start), array.read_rows(int(start), min(int(start) + step, array.shape[0]))


def subject_names(labels: Sequence[RowLabels]) -> list[str]:
    """Names of the subjects that rows are of, where labels name several."""
    for label in labels:
        if label.name.casefold() in _SUBJECTS and len(names := {*label.texts}) > 1:
            return sorted(names)
    return []


def match_rows(
    file: str, labels: Sequence[RowLabels], stimuli: StimulusSet, subject: int = 0
) -> MatchedRows:
    """The rows of each stimulus by labels that have the values of a column of the stimuli.

    Parameters
    ----------
    file : name of the file, for messages
    subject : number of the one whose rows are meant, where labels name several

    Raises InputError: names as in `repeated_rows`; two labels with different rows for a folder;
    rows of several subjects without one that is meant. Raises CountsRows: a first column of other
    names.
    """
    candidates: dict[str, list[_Match]] = {}
    failures = list[InputError]()
    names = subject_names(labels)
    for label in labels:
        places = np.arange(len(label.texts))
        whose = next((one.texts for one in labels if one.name.casefold() in _SUBJECTS), [])
        if names and subject and len(whose) == len(places):
            if subject > len(names):
                raise InputError(
                    f"{file} has rows of {len(names)} subjects ({some(names, 5)}), and no subject "
                    f"{subject}."
                )
            places = np.flatnonzero(np.array(whose) == names[subject - 1])
        try:
            matched = repeated_rows([label.texts[k] for k in places], stimuli, label.what)
        except InputError as error:
            failures.append(error)
            continue
        if matched is not None:
            rows = [places[group] for group in matched[1]]
            match = _Match(label, matched[0], rows, len(label.texts))
            candidates.setdefault(label.folder, []).append(match)
        elif label.name == FIRST_NAME:
            raise CountsRows(
                f"{label.what} holds the names {some(label.texts, 3)}, which are the values of no "
                "column of the stimuli, so that nobody knows which row is which stimulus; add that "
                "column to the stimuli, or skip the names where the rows are in the order of the "
                "stimuli (--first-column NAME=skip)."
            )
    if failures and not candidates:
        raise failures[0]
    if not candidates:
        return MatchedRows({}, _without_names(file, labels))
    if names and not subject:
        raise InputError(
            f"{file} has rows of {len(names)} subjects ({some(names, 5)}); say which is read "
            "(--subject NAME=all, or its number)."
        )
    matches = {folder: _best_match(file, matches_of) for folder, matches_of in candidates.items()}
    return MatchedRows(matches, tuple(_notes(file, matches, labels)), bool(names))


def _best_match(file: str, matches: Sequence[_Match]) -> _Match:
    """The one match; of several that differ that of the labels called as the column is."""
    first, *others = sorted(matches, key=lambda match: match.labels.name != match.column)
    for match in others if first.labels.name != first.column else ():
        if any(map(lambda a, b: not np.array_equal(a, b), first.rows, match.rows)):
            raise InputError(
                f"{first.labels.what} and {match.labels.what} name different rows of {file} for "
                f"the same stimuli; call one {first.column!r}, or leave one out."
            )
    return first


def _without_names(file: str, labels: Sequence[RowLabels]) -> tuple[str, ...]:
    if not labels:
        return ()
    verb = "holds text and is no layer" if len(labels) == 1 else "hold text and are no layers"
    named = listed([plain_name(label.name) for label in labels], most=5)
    return (
        f"{named} of {file} {verb}; no column of the stimuli has these values, so that the rows "
        "count in the order of the stimuli.",
    )


def _notes(file: str, matches: dict[str, _Match], labels: Sequence[RowLabels]) -> Iterator[str]:
    for match in matches.values():
        if match.in_order:
            continue
        yield (
            f"The rows of {file} are matched with the stimuli by name: {match.labels.what} has the "
            f"values of their column {match.column!r}."
        )
        counts = [*map(len, match.rows)]
        if min(counts) < max(counts):
            yield (
                f"{file} has {min(counts)} to {max(counts)} rows of each stimulus, whose mean is "
                "taken; a distance over repetitions needs equally many."
            )
        for label in labels:
            if label.name.casefold() not in _PARTS or len(label.texts) != match.n_rows:
                continue
            if (n := len({label.texts[row] for row in np.concatenate(match.rows)})) > 1:
                yield f"The rows of {file} are of {n} {label.name.casefold()}s."

"""Arrays that a user brings as representations: which are layers, and whether they can be used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, first_line
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed, many, some
from mlem_core.base.typing import IntArray
from mlem_core.representations.array_files import (
    ADVICE,
    FIRST_NAME,
    FORMATS,
    CountsRows,
    FileArray,
    array_name,
    plain_name,
    read_arrays,
)
from mlem_core.stimuli.neural_rows import (
    TOLERANCE,
    are_distances,
    check_finite,
    checked_distances,
    drop_rounding,
    not_finite,
    order_by_name,
)
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.digests import Digested, Watched

_LAYER = re.compile(r"layer_0*(\d{1,6})", re.ASCII)
MOST_LAYERS = 2_000
# The number in the name of a time point, such as "-50 ms".
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?", re.ASCII)
# The numbers in a name: "0.25 s" has one, "blocks.0.1" two; a hyphen behind a letter is no sign.
_NUMBERS = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])|(?<![^\W_])-?\d+|\d+", re.ASCII)


class HowRead(TypedDict, total=False):
    """How the arrays of a file are read.

    distances : they hold distances, (n_stimuli, n_stimuli) or condensed (n_pairs,)
    first_column : of a CSV, one of `array_files.FIRST_COLUMN`, or "" where it is not said
    subject : which subject is read, from 1, where the first axis is over subjects; 0: it is not
    by_number : layers with names of their own are in the order of the numbers in these
    """

    distances: bool
    first_column: str
    subject: int
    by_number: bool


@dataclass(frozen=True)
class Arrays:
    """A checked file.

    names : layer -> array; numbered as in `natural_order` where no array is called `layer_00`
    named : whether the arrays have names of their own, which are those of the layers
    read(layer) : its (n_stimuli, n_units) array, memory-mapped where the file has it as floats of
        at least 32 bits, not compressed; where there are repetitions, (n_repetitions, n_stimuli,
        n_units)
    repeated : layer -> how many repetitions it has, where the array has three axes
    left_out : a sentence for each layer that holds a value that is not finite
    notes : sentences about arrays that are no layers, the order of rows and layers, and units
    reordered : whether layers are in another order than the arrays of the file
    order : (n_stimuli,) the row of each stimulus, where rows have names; None: as they stand
    """

    digest: str
    names: dict[int, str]
    dtypes: dict[str, str]
    read: Callable[[int], NDArray[np.floating]]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    named: bool = False
    repeated: Mapping[int, int] = field(default_factory=dict)
    reordered: bool = False
    order: IntArray | None = None


def check_format(path: Path, first_column: str = "") -> None:
    """Raise `InputError` where there is no such file, or its ending is not that of a format;
    `first_column` as in `HowRead`."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(
            f"the representations file {path.name!r} ends in {suffix or 'nothing'!r}; "
            f"expected {', '.join(FORMATS)}."
        )
    if not path.is_file():
        raise InputError(f"there is no representations file {str(path)!r}.")
    if suffix != ".csv" and first_column:
        raise InputError(f"{path.name} is no CSV; what its first column is cannot be chosen.")


def open_arrays(path: Path, stimuli: StimulusSet, **how: Unpack[HowRead]) -> Arrays:
    """Check every layer of a file, one at a time; `representations.from_file` says which fit."""
    check_format(path, how.get("first_column", ""))
    distances = how.get("distances", False)
    try:
        file = Digested.from_file(path)
        watched = Watched(file.digest, (file,))
        arrays, labels = _with_labels(path, how)
        order, n_rows, notes = _order(path, labels, stimuli)
        arrays = _taken(path, arrays, n_rows, how)
        names = _layers(path, arrays, how.get("by_number", False))
        named = not any(map(_LAYER.fullmatch, names.values()))
        reordered = named and not how.get("by_number") and [*names.values()] != [*arrays]
        if reordered:
            notes.append(
                f"The layers of {path.name} are in the order of the numbers in their names, from "
                f"{plain_name(names[0])} to {plain_name(names[len(names) - 1])}; the file has "
                "another order."
            )
        bad: dict[int, str] = {}
        units: dict[int, NDArray[np.bool_]] = {}  # of layers of which some are left out
        counts: list[str] = []
        for layer, name in names.items():
            where = path.name if path.suffix.lower() in (".csv", ".npy") else array_name(name, path)
            wrong, measured = _check_layer(where, arrays[name], n_rows, distances)
            if wrong:
                bad[layer] = wrong
            if measured is not None:
                units[layer] = measured
                of = many(len(measured), "unit")
                counts.append(f"{np.count_nonzero(~measured):,} of {of} in {plain_name(name)}")
        if len(bad) == len(names):
            raise InputError(next(iter(bad.values())))
        if not distances and all(_may_hold_pairs(arrays[name], n_rows) for name in names.values()):
            notes.append(
                f"{path.name} has a column for each stimulus and its lowest or highest number on "
                "the diagonal, as distances or similarities have, but its columns are read as "
                "units. If it holds distances, say so (--precomputed NAME); of similarities, give "
                "1 minus them so."
            )
        if counts:
            notes.append(
                f"Units of {path.name} that are NaN for every stimulus were left out: "
                f"{listed(counts, most=5)}."
            )
        watched.check()
    except OSError as error:
        raise InputError(f"the file {path.name!r} cannot be read: {first_line(error)}.") from error

    def layer_of(layer: int) -> NDArray[np.floating]:
        array = _as_float(arrays[names[layer]].read(), array_name(names[layer], path))
        watched.is_read()
        if layer in units:
            array = array[..., units[layer]]
        if order is not None:
            array = array[np.ix_(order, order)] if distances else array[..., order, :]
        return drop_rounding(array) if distances else array

    return Arrays(
        digest=watched.digest,
        names={layer: name for layer, name in names.items() if layer not in bad},
        dtypes={name: arrays[name].dtype for name in names.values()},
        read=layer_of,
        left_out=tuple(bad.values()),
        notes=(*_unused(path, arrays, names), *notes),
        order=order,
        named=named,
        reordered=reordered,
        repeated={
            layer: arrays[name].shape[0]
            for layer, name in names.items()
            if layer not in bad and len(arrays[name].shape) == 3
        },
    )


def _check_layer(
    where: str, file_array: FileArray, n_rows: int, distances: bool
) -> tuple[str, NDArray[np.bool_] | None]:
    """Why a layer is left out, "" where it is not, and (n_units,) which units have numbers.

    None: all of them, or these are distances. Raises InputError for an array of another shape.
    """
    shape = file_array.shape
    if file_array.problem:
        raise InputError(f"{where} {file_array.problem}.")
    if distances and shape != (n_rows, n_rows):
        raise InputError(
            f"{where} has the shape {shape}; precomputed distances of {n_rows} stimuli have the "
            f"shape ({n_rows}, {n_rows})."
        )
    if len(shape) not in (2, 3) or 0 in (shape[0], shape[-1]):
        raise InputError(
            f"{where} has the shape {shape}; expected (stimuli, units) or (repetitions, stimuli, "
            "units)."
        )
    if shape[-2] != n_rows:
        advice = ""
        if n_rows in shape:
            each = f"save ({n_rows}, units) for each time or region as an array of its own"
            advice = f"; its shape is {shape}, so {'transpose it' if len(shape) == 2 else each}"
        raise InputError(
            f"{where} has {shape[-2]} rows; expected one for each of {n_rows} stimuli{advice}."
        )
    array, measured = file_array.read(), None
    try:
        if distances:
            # Pairs that are NaN were not measured, see `mlem_core.analysis.layer_statistics`.
            checked_distances(array, where, complete=False)
            return "", None
        flat = array.reshape(-1, shape[-1])
        if not_finite(flat)[0]:
            with_numbers = ~np.isnan(flat).all(axis=0)
            if with_numbers.any() and not with_numbers.all():
                measured, array = with_numbers, np.where(with_numbers, array, 0)
            check_finite(array, where)
    except InputError as error:
        return str(error), measured
    return "", measured


def _may_hold_pairs(array: FileArray, n: int) -> bool:
    """Whether an array may hold distances or similarities of n stimuli, a triangle of them too."""
    if array.shape != (n, n):
        return False
    square = array.read()
    low, high = float(square.min()), float(square.max())
    near = partial(np.allclose, np.diag(square), rtol=0, atol=TOLERANCE * (high - low))
    return low < high and (near(low) or near(high))


def _with_labels(path: Path, how: HowRead) -> tuple[dict[str, FileArray], dict[str, FileArray]]:
    """The arrays of numbers of a file, and those of texts beside them."""
    arrays = read_arrays(path, how.get("first_column", ""))
    numbers = {name: array for name, array in arrays.items() if not array.is_text}
    if not numbers:
        return arrays, {}
    return numbers, {name: array for name, array in arrays.items() if array.is_text}


def _order(
    path: Path, labels: dict[str, FileArray], stimuli: StimulusSet
) -> tuple[IntArray | None, int, list[str]]:
    """The row of each stimulus by an array of names, how many rows there are, and notes.

    None where no array has the values of a column, and for rows that are in its order.
    """
    for name, array in labels.items():
        what = f"{name} of {path.name}" if name == FIRST_NAME else array_name(name, path)
        texts = [str(text).strip() for text in array.read().ravel().tolist()]
        matched = order_by_name(texts, stimuli, what)
        if matched is not None:
            column, order = matched
            if len(order) == len(texts) and (order == np.arange(len(order))).all():
                return None, len(stimuli), []
            note = (
                f"The rows of {path.name} are matched with the stimuli by name: {what} has the "
                f"values of their column {column!r}."
            )
            return order, len(texts), [note]
        if name == FIRST_NAME:
            raise CountsRows(
                f"{what} holds the names {some(texts, 3)}, which are the values of no column of "
                "the stimuli, so that nobody knows which row is which stimulus; add that column to "
                "the stimuli, or skip the names where the rows are in the order of the stimuli "
                "(--first-column NAME=skip)."
            )
    if not labels:
        return None, len(stimuli), []
    verb = "holds text and is no layer" if len(labels) == 1 else "hold text and are no layers"
    note = (
        f"{listed([plain_name(name) for name in labels], most=5)} of {path.name} {verb}; no column "
        "of the stimuli has these values, so that the rows count in the order of the stimuli."
    )
    return None, len(stimuli), [note]


def _taken(
    path: Path, arrays: dict[str, FileArray], n_stimuli: int, how: HowRead
) -> dict[str, FileArray]:
    """The arrays of a file: of one subject, and distances as squares."""
    subject, n_pairs = how.get("subject", 0), n_stimuli * (n_stimuli - 1) // 2
    for name, array in arrays.items() if subject else ():
        arrays[name] = _select_subject(array, array_name(name, path), subject)
    for name, array in arrays.items() if how.get("distances") else ():
        if array.shape in ((n_pairs,), (1, n_pairs), (n_pairs, 1)):
            square = partial(_square, array)
            arrays[name] = array._replace(shape=(n_stimuli, n_stimuli), read=square)
    return arrays


def _select_subject(array: FileArray, where: str, subject: int) -> FileArray:
    if len(array.shape) < 2 or array.shape[0] < subject:
        raise InputError(
            f"{where} has the shape {array.shape}, which has no subject {subject}; "
            "expected (subjects, stimuli, units), or distances of several subjects."
        )
    return array._replace(shape=array.shape[1:], read=lambda: array.read()[subject - 1])


def _square(array: FileArray) -> NDArray[Any]:
    from scipy.spatial.distance import squareform

    return np.asarray(squareform(array.read().ravel(), checks=False))


def n_subjects(
    path: Path, *, distances: bool = False, first_column: str = "", needed: bool = False
) -> int:
    """Number of subjects in a file whose arrays have an axis of them; 0 where they have none.

    Parameters
    ----------
    distances : the arrays of a subject are distances, square or condensed
    needed : it is an error that they have none

    Raises InputError: the file cannot be read; its arrays are of different numbers of subjects, or
    of none.
    """
    check_format(path, first_column)
    arrays, _ = _with_labels(path, HowRead(first_column=first_column))
    numbers = set()
    for name in _layers(path, arrays).values():
        shape = arrays[name].shape
        # A condensed RDM has n (n - 1) / 2 distances, more than there are subjects.
        n_bytes = 8 * shape[-1] + 1 if shape else 0
        condensed = len(shape) == 2 and 1 < shape[0] < shape[1] and isqrt(n_bytes) ** 2 == n_bytes
        numbers.add(shape[0] if len(shape) > 2 or (distances and condensed) else 0)
    if len(numbers) > 1:
        raise InputError(
            f"the arrays of {path.name} have {listed([*map(str, sorted(numbers))])} subjects; "
            "expected the same number in each."
        )
    number = numbers.pop()
    if needed and not number:
        raise InputError(
            f"{path.name} has no axis of subjects; expected arrays of the shape (subjects, "
            "stimuli, units), or distances of several subjects."
        )
    return number


def check_repeated(path: Path, arrays: Arrays, n_stimuli: int) -> None:
    """Raise `InputError` where an array of a file has no repetitions of the stimuli."""
    for layer, array in arrays.names.items():
        if arrays.repeated.get(layer, 0) < 2:
            raise InputError(
                f"{array_name(array, path)} has no repetitions; a distance over repetitions "
                f"needs arrays of the shape (repetitions, {n_stimuli}, units) with at least two, "
                "so choose another distance."
            )


def seem_distances(arrays: Arrays) -> bool:
    """Whether every array of a file is square and `are_distances` holds."""
    return not arrays.repeated and all(map(are_distances, map(arrays.read, arrays.names)))


def _layers(path: Path, names: Iterable[str], by_number: bool = False) -> dict[int, str]:
    names = list(names)
    layers: dict[int, str] = {}
    for name in sorted(names):
        if match := _LAYER.fullmatch(name):
            other = layers.setdefault(int(match[1]), name)
            if other != name:
                raise InputError(
                    f"{path.name} has two arrays for layer {match[1]}: {other} and {name}."
                )
    if not names:
        raise InputError(
            f"{path.name} has no array at all; expected one a layer: layer_00, layer_01 ..., or "
            "names of your own such as V1."
        )
    if not layers and not all(map(str.strip, names)):
        raise InputError(f"{path.name} has an array without a name; expected a name for each.")
    if not layers and by_number:
        names = sorted(names, key=partial(_number, path))
    elif not layers:
        names = natural_order(names)
    layers = dict(sorted(layers.items())) if layers else dict(enumerate(names))
    if len(layers) > MOST_LAYERS:
        raise InputError(
            f"{path.name} has {len(layers):,} layers; expected at most {MOST_LAYERS:,}, so put "
            "those to be compared into a file of their own."
        )
    return layers


def natural_order(names: Sequence[str]) -> list[str]:
    """Names, those that differ in their numbers alone in the order of these: 2 before 10.

    Others stay where they are.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_NUMBERS.sub("#", name), []).append(name)
    in_order = {
        stem: iter(sorted(same, key=lambda name: [*map(float, _NUMBERS.findall(name))]))
        for stem, same in alike.items()
    }
    return [next(in_order[_NUMBERS.sub("#", name)]) for name in names]


def _number(path: Path, name: str) -> float:
    """The number in the name of a layer, by which it is ordered."""
    match = _NUMBER.search(name)
    if match is None:
        raise InputError(
            f"{array_name(name, path)} has no number in its name; expected one for each layer of "
            "an axis with a unit, such as 120 ms."
        )
    return float(match[0])


def _unused(path: Path, names: Iterable[str], layers: Mapping[int, str]) -> list[str]:
    used = set(layers.values())
    others = [plain_name(name) for name in names if name not in used]
    if not others:
        return []
    verb = "is no layer" if len(others) == 1 else "are no layers"
    return [
        f"{listed(others, most=5)} of {path.name} {verb} here, because others are named as "
        f"{next(iter(used))} is; name every layer so, or none."
    ]


def _as_float(array: NDArray[Any], where: str) -> NDArray[np.floating]:
    floats = array.dtype.kind == "f"
    kind = np.result_type(array.dtype, np.float32) if floats else np.dtype(np.float64)
    if array.dtype != kind:
        check_memory(array.size * kind.itemsize, f"{where} as floats", ADVICE)
    return array.astype(kind, copy=False)

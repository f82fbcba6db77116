"""Arrays that a user brings as representations: which are layers, and whether they can be used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, first_line
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed, many, short, some
from mlem_core.base.typing import IntArray
from mlem_core.representations.array_files import (
    ADVICE,
    FIRST_NAME,
    CountsRows,
    FileArray,
    array_name,
    array_suffix,
    array_suffixes,
    plain_name,
    read_arrays,
)
from mlem_core.representations.layers import Representations
from mlem_core.stimuli.neural_rows import (
    TOLERANCE,
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
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?", re.ASCII)
# The numbers in a name: "0.25 s" has one, "blocks.0.1" two; a hyphen behind a letter is no sign.
_NUMBERS = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])|(?<![^\W_])-?\d+|\d+", re.ASCII)


def _check_format(path: Path, first_column: str) -> None:
    """Raise `InputError` where there is no such file, or its ending is not that of a format."""
    suffix = array_suffix(path)
    if not suffix:
        raise InputError(
            f"the representations file {path.name!r} ends in {path.suffix or 'nothing'!r}; "
            f"expected {', '.join(array_suffixes())}."
        )
    if not path.is_file():
        raise InputError(f"there is no representations file {str(path)!r}.")
    if suffix != ".csv" and first_column:
        raise InputError(f"{path.name} is no CSV; what its first column is cannot be chosen.")


def from_file(
    path: str | Path,
    stimuli: StimulusSet,
    name: str | None = None,
    *,
    distances: bool = False,
    first_column: str = "",
    subject: int = 0,
    by_number: bool = False,
    repetitions: bool = False,
    split: bool = False,
) -> Representations:
    """Representations that something else made: a network, a brain recording.

    Parameters
    ----------
    path : a `.npz` (without pickles), `.safetensors` or `.mat` file with arrays `layer_00`,
        `layer_01` ... of shape (n_stimuli, n_units), rows in the order of the stimuli; or one
        layer, as a `.npy` or as a `.csv`, a row a stimulus and a column a unit, with or without a
        header. Floats of at least 32 bits that are not compressed are memory-mapped. Where no array
        is called so, all are layers, numbered as in `natural_order`, and keep their names
        (`facts["layer_names"]`).
    name : what to call it; without one, the file's name.
    distances : the arrays hold distances, (n_stimuli, n_stimuli) or condensed (n_pairs,), and no
        representations.
    first_column : of a `.csv`: "skip" for row numbers, "unit", or "names" of the stimuli; to be
        said where it may be row numbers, as the index that pandas writes; text there, and arrays of
        text, name the rows where a column of the stimuli has their values, in any order.
    subject : which subject is read, from 1, where the first axis is over subjects; 0: it is not.
    by_number : layers are in the order of the numbers in their names ("120 ms").
    repetitions : give the repetitions of arrays (n_repetitions, n_stimuli, n_units) as they are,
        and take no others; else their mean, as a note says.
    split : the first axis is over models, each a layer, see `_split_models`.

    Raises `InputError` naming array and row where the file cannot be used. A layer with values
    that are not finite is left out (see `Representations.left_out`), unless all are so. Floats
    keep their precision (at least float32), whole numbers become float64.
    """
    path = Path(path)
    source = _open_file(
        path, stimuli, distances, first_column, subject, by_number, repetitions, split
    )
    source = source if name is None else replace(source, name=name)
    if repetitions or not source.facts.get("repetitions"):
        return source
    numbers = source.facts["repetitions"].values()
    few, most = min(numbers), max(numbers)
    note = (
        f"{path.name} has {few if few == most else f'{few} to {most}'} repetitions of each "
        "stimulus, whose mean is taken; a distance over repetitions compares them with each other. "
        "If they are subjects, say so (--subject NAME=all)."
    )
    return source.with_arrays(partial(_mean, source), notes=(*source.notes, note))


def _mean(source: Representations, layer: int) -> NDArray[np.floating]:
    """A layer (n_stimuli, n_units), the mean over repetitions where it has some."""
    array = source[layer]
    return array.mean(axis=0, dtype=np.float64) if array.ndim == 3 else array


def _open_file(
    path: Path,
    stimuli: StimulusSet,
    distances: bool,
    first_column: str,
    subject: int,
    by_number: bool,
    repetitions: bool,
    split: bool,
) -> Representations:
    """The layers of a file, each looked at once, with repetitions as they are; as `from_file`."""
    _check_format(path, first_column)
    try:
        file = Digested.from_file(path)
        watched = Watched(file.digest, (file,))
        arrays, labels = _with_labels(path, first_column)
        if split:
            arrays, labels = _split_models(path, arrays, labels, len(stimuli), distances)
        order, n_rows, notes = _order(path, labels, stimuli)
        if subject == 1 and distances:
            notes.append(
                f"Each set of distances in {path.name} is a subject; if they are models, say so "
                "(--subject NAME=none)."
            )
        for name, array in arrays.items():
            where = array_name(name, path)
            arrays[name] = _converted(array, where, len(stimuli), subject, distances)
        names = _layers(path, arrays, by_number)
        layers, more = _check_layers(path, arrays, names, n_rows, distances, repetitions)
        watched.check()
    except OSError as error:
        raise InputError(f"the file {path.name!r} cannot be read: {first_line(error)}.") from error
    named = not any(map(_LAYER.fullmatch, names.values()))
    reordered = named and not by_number and [*names.values()] != [*arrays]
    if reordered:
        notes.append(
            f"The layers of {path.name} are in the order of the numbers in their names, from "
            f"{plain_name(names[0])} to {plain_name(names[len(names) - 1])}; the file has "
            "another order."
        )
    usable = {layer: name for layer, name in names.items() if not layers[layer].problem}
    repeated = {str(n): layers[n].shape[0] for n in usable if len(layers[n].shape) == 3}
    read_as = [watched.digest] + [first_column] * (first_column in ("skip", "names"))
    read_as += [f"subject {subject}"] * bool(subject) + ["by number"] * by_number
    read_as += ["models"] * split
    read_as += ["reordered"] * reordered
    if order is not None:
        read_as.append(f"rows {hashlib.sha256(order.astype('<i8').tobytes()).hexdigest()}")

    def read(layer: int) -> NDArray[np.floating]:
        array = _as_float(layers[layer].read(), array_name(names[layer], path))
        watched.is_read()
        if order is not None:
            array = array[np.ix_(order, order)] if distances else array[..., order, :]
        return drop_rounding(array) if distances else array

    return Representations(
        name=path.stem,
        identity=" ".join(read_as),
        layers=tuple(sorted(usable)),
        n_stimuli=len(stimuli),
        facts={
            "file": path.name,
            "sha256": watched.digest,
            "arrays": {name: arrays[name].dtype for name in names.values()},
            **({"first_column": first_column} if first_column else {}),
            **({"subject": subject} if subject else {}),
            **({"models": True} if split else {}),
            **({"layer_names": {str(n): usable[n] for n in usable}} if named else {}),
            **({"repetitions": repeated} if repeated else {}),
        },
        _read=read,
        left_out=tuple(array.problem for array in layers.values() if array.problem),
        notes=(*_unused(path, arrays, names), *notes, *more),
        distances=distances,
    )


def _check_layers(
    path: Path,
    arrays: Mapping[str, FileArray],
    names: Mapping[int, str],
    n_rows: int,
    distances: bool,
    repetitions: bool,
) -> tuple[dict[int, FileArray], list[str]]:
    """The layers by their numbers, each checked by `_check_layer`, and notes about their units."""
    layers: dict[int, FileArray] = {}
    notes, counts = list[str](), list[str]()
    for layer, name in names.items():
        where = path.name if path.suffix.lower() in (".csv", ".npy") else array_name(name, path)
        layers[layer] = checked = _check_layer(where, arrays[name], n_rows, distances)
        if repetitions and not checked.problem and (len(checked.shape) < 3 or checked.shape[0] < 2):
            raise InputError(
                f"{array_name(name, path)} has no repetitions; a distance over repetitions "
                f"needs arrays of the shape (repetitions, {n_rows}, units) with at least two, "
                "so choose another distance."
            )
        n_units = arrays[name].shape[-1]
        if n_missing := n_units - checked.shape[-1]:
            counts.append(f"{n_missing:,} of {many(n_units, 'unit')} in {plain_name(name)}")
    if all(array.problem for array in layers.values()):
        raise InputError(next(iter(layers.values())).problem)
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
    return layers, notes


def _check_layer(where: str, file_array: FileArray, n_rows: int, distances: bool) -> FileArray:
    """A layer without the units that are NaN everywhere; its `problem` says why it is left out.

    Raises InputError for an array of another shape.
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
    array = file_array.read()
    try:
        if distances:
            # Pairs that are NaN were not measured, see `mlem_core.analysis.layer_statistics`.
            checked_distances(array, where, complete=False)
            return file_array
        flat = array.reshape(-1, shape[-1])
        if not not_finite(flat)[0]:
            return file_array
        measured = ~np.isnan(flat).all(axis=0)
        if measured.any() and not measured.all():
            array = np.where(measured, array, 0)
            n_measured, read_all = int(measured.sum()), file_array.read
            file_array = file_array._replace(
                shape=(*shape[:-1], n_measured), read=lambda: read_all()[..., measured]
            )
        check_finite(array, where)
    except InputError as error:
        return file_array._replace(problem=str(error))
    return file_array


def _may_hold_pairs(array: FileArray, n: int) -> bool:
    """Whether an array may hold distances or similarities of n stimuli, a triangle of them too."""
    if array.shape != (n, n):
        return False
    square = array.read()
    low, high = float(square.min()), float(square.max())
    near = partial(np.allclose, np.diag(square), rtol=0, atol=TOLERANCE * (high - low))
    return low < high and (near(low) or near(high))


def _with_labels(
    path: Path, first_column: str
) -> tuple[dict[str, FileArray], dict[str, FileArray]]:
    """The arrays of numbers of a file, and those of texts beside them."""
    arrays = read_arrays(path, first_column)
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
            if np.array_equal(order, np.arange(len(texts))):
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


def _split_models(
    path: Path,
    arrays: dict[str, FileArray],
    labels: dict[str, FileArray],
    n_stimuli: int,
    distances: bool,
) -> tuple[dict[str, FileArray], dict[str, FileArray]]:
    """Each model of arrays whose first axis is over models as an array, and the other labels.

    Models are called as an array of as many texts says, else by their number.

    Raises InputError for an array of another shape.
    """
    n_pairs, parts, others = n_stimuli * (n_stimuli - 1) // 2, dict[str, FileArray](), dict(labels)
    for name, array in arrays.items():
        shape, read_all = array.shape, array.read
        if not (len(shape) == 3 or (distances and shape[1:] == (n_pairs,))) or not shape[0]:
            expected = "(models, stimuli, stimuli) or (models, pairs)"
            raise InputError(
                f"{array_name(name, path)} has the shape {shape}, which has no axis of models; "
                f"expected {expected if distances else '(models, stimuli, units)'}."
            )
        titles = [f"{name} {k}" for k in range(1, shape[0] + 1)]
        for label, texts in labels.items():
            if np.prod(texts.shape) == shape[0] != n_stimuli:
                own = [str(text).strip() for text in texts.read().ravel().tolist()]
                prefix = "" if len(arrays) == 1 else f"{name} "
                titles = [f"{prefix}{text}" for text in own] if all(own) else titles
                others.pop(label, None)
        for k, title in enumerate(titles):
            if title in parts:
                raise InputError(f"{path.name} has two models named {short(title)}; expected one.")
            parts[title] = array._replace(shape=shape[1:], read=partial(_model, read_all, k))
    return parts, others


def _model(read_all: Callable[[], NDArray[Any]], number: int) -> NDArray[Any]:
    return read_all()[number]


def _converted(
    array: FileArray, where: str, n_stimuli: int, subject: int, distances: bool
) -> FileArray:
    """An array of one subject where the first axis is over subjects, and distances as squares."""
    if subject:
        if len(array.shape) < 2 or array.shape[0] < subject:
            raise InputError(
                f"{where} has the shape {array.shape}, which has no subject {subject}; "
                "expected (subjects, stimuli, units), or distances of several subjects."
            )
        read_all = array.read
        array = array._replace(shape=array.shape[1:], read=lambda: read_all()[subject - 1])
    n_pairs = n_stimuli * (n_stimuli - 1) // 2
    if distances and array.shape in ((n_pairs,), (1, n_pairs), (n_pairs, 1)):
        array = array._replace(shape=(n_stimuli, n_stimuli), read=partial(_square, array.read))
    return array


def _square(read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    from scipy.spatial.distance import squareform

    return np.asarray(squareform(read().ravel(), checks=False))


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
    _check_format(path, first_column)
    arrays, _ = _with_labels(path, first_column)
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
    match = NUMBER.search(name)
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

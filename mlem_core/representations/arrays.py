"""Arrays that a user brings as representations: which are layers, and whether they can be used."""

from __future__ import annotations

import math
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
from mlem_core.base.text import listed, many, short
from mlem_core.representations.array_files import (
    ADVICE,
    ARRAY_FORMATS,
    FileArray,
    HoldsDistances,
    array_name,
    array_suffix,
    array_suffixes,
    plain_name,
    read_arrays,
)
from mlem_core.representations.layers import Representations
from mlem_core.representations.row_names import MatchedRows, RowLabels, match_rows, subject_names
from mlem_core.stimuli.neural_rows import (
    TOLERANCE,
    check_finite,
    checked_distances,
    drop_rounding,
    not_finite,
)
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.digests import Digested, Watched

_LAYER = re.compile(r"layer_0*(\d{1,6})", re.ASCII)
MOST_LAYERS = 2_000
_PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
# The number in the name of a time point, such as "-50 ms".
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?", re.ASCII)
# The numbers in a name: "0.25 s" has one, "blocks.0.1" two; a hyphen behind a letter is no sign.
_NUMBERS = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])|(?<![^\W_])-?\d+|\d+", re.ASCII)


def _check_format(path: Path, options: Mapping[str, str]) -> str:
    """The ending of a file; InputError where there is no such file, or it is of no format."""
    suffix = array_suffix(path)
    if path.suffix.lower() in _PICKLES:
        raise InputError(
            f"{path.name} is a pickle, which may run any code when it is opened and is never read; "
            "save its arrays with numpy.savez, or RDMs with save('file.hdf5', file_type='hdf5')."
        )
    if not suffix:
        raise InputError(
            f"the representations file {path.name!r} ends in {path.suffix or 'nothing'!r}; "
            f"expected {', '.join(array_suffixes())}."
        )
    if not path.is_file():
        raise InputError(f"there is no representations file {str(path)!r}.")
    for option in [name for name, value in options.items() if value]:
        formats = [entry for entry in ARRAY_FORMATS.values() if entry.option == option]
        if not any(suffix in entry.suffixes for entry in formats):
            names = listed([entry.name for entry in formats], last="or")
            raise InputError(
                f"{path.name} is no {names}, for which alone there is an option --"
                f"{option.replace('_', '-')}; leave it out."
            )
    return suffix


def from_file(
    path: str | Path,
    stimuli: StimulusSet,
    name: str | None = None,
    *,
    distances: bool = False,
    subject: int = 0,
    by_number: bool = False,
    repetitions: bool = False,
    split: bool = False,
    rows: str = "",
    **options: str,
) -> Representations:
    """Representations that something else made: a network, a brain recording.

    Parameters
    ----------
    path : a file of one of `ARRAY_FORMATS` with arrays `layer_00`, `layer_01` ... of shape
        (n_stimuli, n_units), rows in the order of the stimuli; or one layer, as a `.npy` or as a
        `.csv`, a row a stimulus and a column a unit, with or without a header. Floats of at least
        32 bits that are not compressed are memory-mapped. Where no array is called so, all are
        layers, numbered as in `natural_order`, and keep their names (`facts["layer_names"]`).
    name : what to call it; without one, the file's name.
    distances : the arrays hold distances, (n_stimuli, n_stimuli) or condensed (n_pairs,), and no
        representations.
    subject : which subject is read, from 1, where the first axis is over subjects, or the names of
        the rows come with those of subjects; 0: there are none.
    by_number : layers are in the order of the numbers in their names ("120 ms").
    repetitions : give the repetitions of arrays (n_repetitions, n_stimuli, n_units) as they are,
        and take no others; else their mean, as a note says.
    split : the first axis is over models, each a layer, see `_split_models`.
    rows : path of a table with a row for each row of the arrays, whose columns name them.
    options : of formats, by the names of these. `first_column` of a `.csv` is "skip" for row
        numbers, "unit", or "names" of the stimuli; to be said where it may be row numbers, as the
        index that pandas writes.

    Names of rows (a first column of text, arrays of text, the table) are matched with the column of
    the stimuli that has their values, in any order; rows of one name are repetitions.

    Raises `InputError` naming array and row where the file cannot be used. A layer with values
    that are not finite is left out (see `Representations.left_out`), unless all are so. Floats
    keep their precision (at least float32), whole numbers become float64.
    """
    path = Path(path)
    options = {**options, "rows": rows}
    source = _open_file(path, stimuli, distances, options, subject, by_number, repetitions, split)
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
    options: Mapping[str, str],
    subject: int,
    by_number: bool,
    repetitions: bool,
    split: bool,
) -> Representations:
    """The layers of a file, each looked at once, with repetitions as they are; as `from_file`."""
    suffix = _check_format(path, {**options, "rows": ""})
    said = {name: value for name, value in options.items() if value}
    try:
        file = Digested.from_file(path)
        beside = {
            name: Digested.from_file(Path(value))
            for name, value in sorted(said.items())
            if name != "first_column"
        }
        watched = Watched(file.digest, (file, *beside.values()))
        arrays, labels = _with_labels(path, options)
        if split:
            arrays, labels = _split_models(path, arrays, labels, len(stimuli), distances)
        matched = match_rows(path.name, labels, stimuli, subject)
        if options["rows"] and not matched.matches:
            raise InputError(
                f"no column of {Path(options['rows']).name} has the values of a column of the "
                f"stimuli; expected one that names the rows of {path.name}."
            )
        arrays, notes = _select_rows(path, arrays, matched, subject, distances)
        names = _layers(path, arrays, by_number)
        layers, more = _check_layers(path, arrays, names, len(stimuli), distances, repetitions)
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
    first_column = said.get("first_column", "")
    read_as = [watched.digest] + [first_column] * (first_column in ("skip", "names"))
    read_as += [f"subject {subject}"] * bool(subject) + ["by number"] * by_number
    read_as += ["models"] * split
    read_as += ["reordered"] * reordered
    read_as += [f"{name} {other.digest}" for name, other in beside.items()] + matched.identity

    def read(layer: int) -> NDArray[np.floating]:
        array = _as_float(layers[layer].read(), array_name(names[layer], path))
        watched.is_read()
        return drop_rounding(array) if distances else array

    return Representations(
        name=path.name[: -len(suffix)],
        identity=" ".join(read_as),
        layers=tuple(sorted(usable)),
        n_stimuli=len(stimuli),
        facts={
            "file": path.name,
            "sha256": watched.digest,
            "arrays": {name: arrays[name].dtype for name in names.values()},
            **({"first_column": first_column} if first_column else {}),
            **({"beside": {n: other.digest for n, other in beside.items()}} if beside else {}),
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


def _select_rows(
    path: Path,
    arrays: Mapping[str, FileArray],
    matched: MatchedRows,
    subject: int,
    distances: bool,
) -> tuple[dict[str, FileArray], list[str]]:
    """The arrays of a subject that can be layers, with a row for each stimulus, and notes."""
    if not distances and any(array.is_distances for array in arrays.values()):
        raise HoldsDistances(
            f"{path.name} holds distances between stimuli; say so (--precomputed NAME)."
        )
    notes = list(matched.notes)
    if subject == 1 and distances:
        notes.append(
            f"Each set of distances in {path.name} is a subject; if they are models, say so "
            "(--subject NAME=none)."
        )
    several = not distances and any(len(array.shape) > 1 for array in arrays.values())
    # An array that is called a layer is meant to be one, whatever its shape.
    flat = [
        name
        for name, array in arrays.items()
        if several and len(array.shape) < 2 and not re.fullmatch(r"layer_\d+", name)
    ]
    if flat:
        notes.append(f"{listed(flat, most=5)} of {path.name}: one axis, so no layer.")
    selected = {}
    for name in [name for name in arrays if name not in flat]:
        where = array_name(name, path)
        axis = 0 if matched.has_subjects else subject
        array = _converted(arrays[name], where, axis, distances)
        selected[name] = matched.select(name, array, where, distances)
    return selected, notes


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
        where = path.name if array_suffix(path) in (".csv", ".npy") else array_name(name, path)
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
    path: Path, options: Mapping[str, str]
) -> tuple[dict[str, FileArray], list[RowLabels]]:
    """The arrays of numbers of a file, and the texts that may name their rows."""
    arrays = read_arrays(path, options)
    numbers = {name: array for name, array in arrays.items() if not array.is_text}
    texts = {name: array for name, array in arrays.items() if array.is_text and numbers}
    labels = [RowLabels.from_array(name, path.name, array.read()) for name, array in texts.items()]
    if options.get("rows"):
        labels += RowLabels.from_table(options["rows"])
    return numbers or arrays, labels


def _split_models(
    path: Path,
    arrays: dict[str, FileArray],
    labels: list[RowLabels],
    n_stimuli: int,
    distances: bool,
) -> tuple[dict[str, FileArray], list[RowLabels]]:
    """Each model of arrays whose first axis is over models as an array, and the other labels.

    Models are called as an array of as many texts says, else by their number.

    Raises InputError for an array of another shape.
    """
    n_pairs, parts, others = n_stimuli * (n_stimuli - 1) // 2, dict[str, FileArray](), list(labels)
    for name, array in arrays.items():
        shape, read_all = array.shape, array.read
        if not (len(shape) == 3 or (distances and shape[1:] == (n_pairs,))) or not shape[0]:
            expected = "(models, stimuli, stimuli) or (models, pairs)"
            raise InputError(
                f"{array_name(name, path)} has the shape {shape}, which has no axis of models; "
                f"expected {expected if distances else '(models, stimuli, units)'}."
            )
        titles = [f"{name} {k}" for k in range(1, shape[0] + 1)]
        for label in labels:
            if len(label.texts) == shape[0] != n_stimuli:
                prefix = "" if len(arrays) == 1 else f"{name} "
                if all(label.texts):
                    titles = [f"{prefix}{text}" for text in label.texts]
                others = [other for other in others if other is not label]
        for k, title in enumerate(titles):
            if title in parts:
                raise InputError(f"{path.name} has two models named {short(title)}; expected one.")
            parts[title] = array._replace(shape=shape[1:], read=partial(_model, read_all, k))
    return parts, others


def _model(read_all: Callable[[], NDArray[Any]], number: int) -> NDArray[Any]:
    return read_all()[number]


def _converted(array: FileArray, where: str, subject: int, distances: bool) -> FileArray:
    """An array of one subject where the first axis is over subjects, and distances as squares."""
    if subject:
        if len(array.shape) < 2 or array.shape[0] < subject:
            raise InputError(
                f"{where} has the shape {array.shape}, which has no subject {subject}; "
                "expected (subjects, stimuli, units), or distances of several subjects."
            )
        read_all = array.read
        array = array._replace(
            shape=array.shape[1:], read=lambda: read_all()[subject - 1], read_rows=None
        )
    n_pairs = math.prod(array.shape)
    n = (1 + isqrt(1 + 8 * n_pairs)) // 2
    condensed = n * (n - 1) // 2 == n_pairs > 0
    if distances and condensed and array.shape in ((n_pairs,), (1, n_pairs), (n_pairs, 1)):
        array = array._replace(shape=(n, n), read=partial(_square, array.read))
    return array


def _square(read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    from scipy.spatial.distance import squareform

    return np.asarray(squareform(read().ravel(), checks=False))


def n_subjects(path: Path, *, distances: bool = False, needed: bool = False, **options: str) -> int:
    """Number of subjects in a file whose arrays have an axis of them; 0 where they have none.

    Rows whose names come with those of subjects (`row_names`) count as well.

    Parameters
    ----------
    distances : the arrays of a subject are distances, square or condensed
    needed : it is an error that they have none
    options : as of `from_file`

    Raises InputError: the file cannot be read; its arrays are of different numbers of subjects, or
    of none.
    """
    _check_format(path, {**options, "rows": ""})
    arrays, labels = _with_labels(path, options)
    if number := len(subject_names(labels)):
        return number
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

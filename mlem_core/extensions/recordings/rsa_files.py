"""Files of rsatoolbox and of Meadows: RDMs with names, and responses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.extensions.recordings.hdf5 import dataset_array, optional_package
from mlem_core.extensions.recordings.matlab import by_subject, list_mat
from mlem_core.representations.array_files import ARRAY_FORMATS, ArrayFormat, FileArray

Arrays = Iterator[tuple[str, FileArray]]
# Descriptors of RDMs, as rsatoolbox's functions and documentation call them.
_SUBJECTS = ("subject", "participant", "subj", "sub")
_NAMES = ("name", "roi", "region", "model", "layer", "time")
_UTV = "rdmutv"


def _texts(values: Iterable[Any]) -> list[str]:
    return [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        for value in values
    ]


def labels(texts: list[str]) -> FileArray:
    """Names of rows as an array of a file."""
    return FileArray((len(texts),), "text", "", partial(np.array, texts, dtype=np.str_), True)


def distances(rows: Callable[[], NDArray[Any]], n_pairs: int) -> FileArray:
    """Distances of every two stimuli, which a function gives."""
    return FileArray((n_pairs,), "float64", "", rows, is_distances=True)


def _is_rsatoolbox(path: Path) -> bool:
    h5py = optional_package("h5py", path)
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path, "r") as file:
        return "rsatoolbox_version" in file.attrs


def _list_rsatoolbox(path: Path) -> Arrays:
    """The RDMs of a file, or the responses of a data set; a layer a point in time."""
    with optional_package("h5py", path).File(path, "r") as file:
        groups = {name: _descriptors(file, name) for name in file if name.endswith("_descriptors")}
        values = "dissimilarities" if "dissimilarities" in file else "measurements"
        if values not in file or len(file[values].shape) < 2:
            raise InputError(
                f"{path.name} is of rsatoolbox and holds no RDMs and no data set; save one with "
                "save(file, file_type='hdf5')."
            )
        array = dataset_array(path, values, file[values])
    for name, texts in groups.get(
        "pattern_descriptors" if values == "dissimilarities" else "obs_descriptors", {}
    ).items():
        if name != "index":
            yield name, labels(texts)
    if values == "dissimilarities":
        yield from _rdms(array, groups.get("rdm_descriptors", {}))
    elif len(array.shape) == 3:
        times = groups.get("time_descriptors", {}).get("time", [*map(str, range(array.shape[2]))])
        for place, time in enumerate(times):
            yield (
                f"{time} s",
                array._replace(shape=array.shape[:2], read=partial(_last, array, place)),
            )
    else:
        yield "measurements", array


def _descriptors(file: Any, name: str) -> dict[str, list[str]]:
    return {key: _texts(values[()]) for key, values in file[name].items() if values.shape}


def _last(array: FileArray, place: int) -> NDArray[Any]:
    return array.read()[..., place]


def _rdms(array: FileArray, descriptors: dict[str, list[str]]) -> Arrays:
    number, n_pairs = array.shape
    subjects = next((key for key in _SUBJECTS if key in descriptors), "")
    keys = [key for key in _NAMES if key in descriptors]
    keys = keys or [key for key in descriptors if key not in (subjects, "index")]
    names = [" ".join(descriptors[key][k] for key in keys) for k in range(number)]
    arrays = [(f"RDM {k + 1}", distances(partial(_row, array, k), n_pairs)) for k in range(number)]
    if subjects and len({*zip(names, descriptors[subjects], strict=True)}) == number:
        yield from by_subject([name or "RDM" for name in names], arrays)
    elif len({*names}) == number:
        yield from ((name, each) for name, (_, each) in zip(names, arrays, strict=True))
    else:
        yield from arrays


def _row(array: FileArray, k: int) -> NDArray[Any]:
    return array.read()[k]


def _list_meadows_mat(path: Path) -> Arrays:
    """Arrangements of one participant (rdmutv), or of several (rdmutv_NAME)."""
    rdms, names = list[tuple[str, FileArray]](), dict[str, FileArray]()
    for name, array in list_mat(path):
        if name.startswith(_UTV):
            rdms.append((name, array._replace(is_distances=True)))
        elif array.is_text and name.startswith("stimuli"):
            names[name.removeprefix("stimuli")] = array
    first, *others = [[*map(str, array.read().ravel())] for array in names.values()] or [[]]
    if any(other != first for other in others):
        raise InputError(
            f"participants of {path.name} have other stimuli, or others first; expected the same "
            "for all, so give each a file of their own."
        )
    yield from ((name, labels(_stems(first))) for name in ["stimuli"] * bool(first))
    yield from by_subject(["arrangement"] * len(rdms), rdms)


def _stems(names: Iterable[str]) -> list[str]:
    """Names of stimuli without the endings of their files."""
    return [name.strip().rpartition(".")[0] or name.strip() for name in map(str, names)]


def _is_meadows_mat(path: Path) -> bool:
    from scipy.io import whosmat
    from scipy.io.matlab import matfile_version

    if path.stat().st_size <= 128 or matfile_version(path)[0] != 1:
        return False
    return any(name.startswith(_UTV) for name, _, _ in whosmat(path))


def _list_meadows_json(path: Path) -> Arrays:
    """Arrangements of the tasks of one participant, a layer each."""
    content = json.loads(path.read_bytes())
    tasks = content.get("tasks") if isinstance(content, dict) else None
    tasks = [task for task in tasks or [] if "rdm" in task and "stimuli" in task]
    names = [[stimulus["name"] for stimulus in task["stimuli"]] for task in tasks]
    if not tasks or any(other != names[0] for other in names):
        raise InputError(
            f"{path.name} is no JSON of Meadows with arrangements of the same stimuli; expected "
            "tasks, each with stimuli and an rdm."
        )
    yield "stimuli", labels(_stems(names[0]))
    for number, task in enumerate(tasks, 1):
        title = str(task.get("task", {}).get("name") or f"task {number}")
        title = title if len(tasks) == 1 else f"{title} {number}"
        rdm = np.array(task["rdm"], dtype=np.float64).ravel()
        yield title, distances(partial(np.asarray, rdm), len(rdm))


def _meadows_rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file)


def _is_meadows_csv(path: Path) -> bool:
    header = [cell.strip() for cell in next(_meadows_rows(path), [])]
    return {"stim1_name", "stim2_name"} <= {*header}


def _list_meadows_csv(path: Path, first_column: str) -> Arrays:
    """Distances of pairs, a row each, of one participant or several."""
    header, *rows = _meadows_rows(path)
    header = [cell.strip() for cell in header]
    value = next((name for name in ("dissimilarity", "distance", "label") if name in header), "")
    if not value:
        raise InputError(
            f"{path.name} has names of two stimuli in each row and no column dissimilarity."
        )
    whose = next((name for name in ("participation", "participant") if name in header), "")
    one, two, number = (header.index(name) for name in ("stim1_name", "stim2_name", value))
    names = list(dict.fromkeys(row[k] for row in rows for k in (one, two)))
    places = {name: place for place, name in enumerate(names)}
    squares: dict[str, NDArray[Any]] = {}
    for row in rows:
        person = row[header.index(whose)] if whose else ""
        square = squares.setdefault(person, np.full((len(names), len(names)), np.nan))
        a, b = places[row[one]], places[row[two]]
        if not np.isnan(square[a, b]):
            raise InputError(
                f"{path.name} has two rows of {row[one]!r} and {row[two]!r}; expected one of each "
                "pair for a participant, so leave other tasks out."
            )
        square[a, b] = square[b, a] = float(row[number])
    for square in squares.values():
        np.fill_diagonal(square, 0)
    yield "stimuli", labels(_stems(names))
    made = [
        (
            person,
            FileArray(square.shape, "float64", "", partial(np.asarray, square), is_distances=True),
        )
        for person, square in squares.items()
    ]
    yield from (
        by_subject(["arrangement"] * len(made), made)
        if len(made) > 1
        else [("arrangement", made[0][1])]
    )


for entry in (
    ArrayFormat("rsatoolbox", (".h5", ".hdf5"), _list_rsatoolbox, _is_rsatoolbox),
    ArrayFormat("Meadows MAT", (".mat",), _list_meadows_mat, _is_meadows_mat),
    ArrayFormat("Meadows JSON", (".json",), _list_meadows_json),
    ArrayFormat("Meadows CSV", (".csv",), _list_meadows_csv, _is_meadows_csv, "first_column"),
):
    ARRAY_FORMATS.register(entry)

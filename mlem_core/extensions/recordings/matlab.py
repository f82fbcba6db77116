"""MATLAB's files: arrays, texts, and structs and cells of them, RDMs among these."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.files import ScratchFolder
from mlem_core.base.resources import check_memory
from mlem_core.extensions.recordings import matlab_process
from mlem_core.extensions.recordings.hdf5 import dataset_array, optional_package
from mlem_core.representations.array_files import (
    ARRAY_FORMATS,
    ArrayFormat,
    FileArray,
    array_name,
    npy_file,
    type_problem,
)
from mlem_core.storage.digests import Stamp, stamp

Arrays = Iterator[tuple[str, FileArray]]
# Classes of MATLAB's arrays of real numbers: bytes of each number.
_NUMBERS = {"double": 8, "single": 4, "logical": 1} | {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}
# Between region, subject and session in the names of RDMs (Nili et al. 2014).
_BETWEEN = " | "
_HDF5 = b"MATLAB 7.3"


def list_mat(path: Path) -> Arrays:
    """Arrays of a file of version 5 to 7.2."""
    from scipy.io import whosmat
    from scipy.io.matlab import matfile_version

    if path.stat().st_size <= 128 or matfile_version(path)[0] != 1:
        raise InputError(
            f"{path.name} is a MATLAB file of no version from 5 to 7.3; save it with "
            "save('file.mat', ..., '-v7'), or as .npz."
        )
    names = list[str]()
    for name, shape, kind in whosmat(path):
        n_bytes = math.prod(map(int, shape)) * _NUMBERS.get(kind, 8)
        check_memory(2 * n_bytes, array_name(name, path), "choose fewer units, or save it as .npz")
        # A name with underscores is that of what functions of the file share.
        names += [name] * (not name.startswith("__") and kind not in ("function", "opaque"))
    folder = _unpacked(path, stamp(path), tuple(names))
    about = json.loads((folder.path / "about.json").read_text("utf-8"))
    arrays = list[tuple[str, FileArray]]()
    for number, (name, kind) in enumerate(about):
        array = _unpacked_array(folder, number)
        problem = "" if kind == "texts" else type_problem(array.dtype)
        read: Callable[[], NDArray[Any]] = partial(_unpacked_array, folder, number)
        made = FileArray(array.shape, str(array.dtype), problem, read, kind == "texts")
        arrays.append((name, made._replace(is_distances=kind == "rdm")))
    yield from layers_of(arrays)


@lru_cache(maxsize=4)
def _unpacked(path: Path, now: Stamp | None, names: tuple[str, ...]) -> ScratchFolder:
    """Folder with the arrays of these variables, as `matlab_process` writes them."""
    folder = ScratchFolder("matlab")
    program = [sys.executable, "-I", matlab_process.__file__]
    done = subprocess.run(
        [*program, str(path), str(folder.path), *names],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise ValueError(" ".join(done.stderr.splitlines()[-1:]) or "its numbers cannot be read")
    return folder


def _unpacked_array(folder: ScratchFolder, number: int) -> NDArray[Any]:
    return npy_file(folder.path / f"{number}.npy")


def layers_of(arrays: Iterable[tuple[str, FileArray]]) -> Arrays:
    """The arrays of a file that can be layers: RDMs alone where there are some, and texts."""
    arrays = list(arrays)
    rdms = [each for each in arrays if each[1].is_distances]
    if not rdms:
        yield from arrays
        return
    parts = [name.split(_BETWEEN) for name, _ in rdms]
    yield from by_subject([_BETWEEN.join(part[:1] + part[2:]) for part in parts], rdms)
    yield from (each for each in arrays if each[1].is_text and each[1].shape[0] > 1)


def by_subject(layers: Iterable[Hashable], arrays: Iterable[tuple[str, FileArray]]) -> Arrays:
    """Arrays (subjects, ...) of those of one layer, where every layer has equally many."""
    arrays, groups = list(arrays), dict[Any, list[FileArray]]()
    for layer, (_, array) in zip(layers, arrays, strict=True):
        groups.setdefault(layer, []).append(array)
    number, *others = {len(group) for group in groups.values()}
    alike = all(len({array.shape for array in group}) == 1 for group in groups.values())
    if others or number < 2 or not alike:
        yield from arrays
        return
    for layer, group in groups.items():
        read = partial(_stacked, group)
        yield str(layer), group[0]._replace(shape=(number, *group[0].shape), read=read)


def _stacked(arrays: Iterable[FileArray]) -> NDArray[Any]:
    return np.stack([array.read() for array in arrays])


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_HDF5)) == _HDF5


def _list_hdf5(path: Path) -> Arrays:
    """Arrays of a file of version 7.3, which is HDF5 with the axes in the opposite order."""
    h5py = optional_package("h5py", path)

    def parse(item: Any) -> tuple[str, Any]:
        if isinstance(item, h5py.Group):
            fields = {name: item[name] for name in item}
            lists = [field for field in fields.values() if "MATLAB_class" not in field.attrs]
            if not lists:
                return "struct", [fields]
            return "struct", [
                {name: item.file[field[()].ravel()[k]] for name, field in fields.items()}
                for k in range(lists[0].size)
            ]
        if h5py.check_ref_dtype(item.dtype) is not None:
            cells = [item.file[reference] for reference in item[()].ravel()]
            texts = [parse(cell) for cell in cells]
            if all(kind == "texts" and len(text) <= 1 for kind, text in texts):
                return "texts", ["".join(text) for _, text in texts]
            return "cell", cells
        if item.attrs.get("MATLAB_class") == b"char":
            rows: Any = [] if "MATLAB_empty" in item.attrs else np.atleast_2d(item[()].T)
            return "texts", ["".join(map(chr, row)).rstrip() for row in rows]
        return "array", item

    arrays = list[tuple[str, FileArray]]()
    with h5py.File(path, "r") as file:
        for name in file:
            if name.startswith("#") or file.get(name, getclass=True, getlink=True) != h5py.HardLink:
                continue
            for leaf, content, kind in matlab_process.leaves(name, file[name], parse):
                if kind == "texts":
                    read = partial(np.array, content, dtype=np.str_)
                    array = FileArray((len(content),), "text", "", read, True)
                else:
                    array = _transposed(dataset_array(path, content.name, content))
                arrays.append((leaf, array._replace(is_distances=kind == "rdm")))
    yield from layers_of(arrays)


def _transposed(array: FileArray) -> FileArray:
    return array._replace(
        shape=array.shape[::-1], read=lambda: np.transpose(array.read()), read_rows=None
    )


ARRAY_FORMATS.register(ArrayFormat("MATLAB", (".mat",), list_mat))
ARRAY_FORMATS.register(ArrayFormat("MATLAB 7.3", (".mat",), _list_hdf5, _is_hdf5))

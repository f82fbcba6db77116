"""HDF5 files: each dataset of numbers is an array, each of texts may name the rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.resources import check_memory
from mlem_core.representations.array_files import (
    ADVICE,
    ARRAY_FORMATS,
    ArrayFormat,
    FileArray,
    array_name,
    type_problem,
)


def optional_package(name: str, path: Path) -> Any:
    """A package that reads a file; InputError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"{path.name} is read with the package {name}, which is not installed; run "
            "pip install mlem-explorer[recordings]."
        ) from error


def _list_hdf5(path: Path) -> Iterator[tuple[str, FileArray]]:
    h5py = optional_package("h5py", path)
    arrays = dict[str, FileArray]()

    def visit(name: str, item: Any) -> None:
        if "pandas_type" in item.attrs:
            raise InputError(
                f"{path.name} is a table of pandas ({name}), whose texts are pickles; read it with "
                "pandas.read_hdf and write its numbers with h5py, a row a stimulus or trial."
            )
        # Links to other files and soft ones are not followed.
        if isinstance(item, h5py.Dataset) and item.shape:
            arrays[name] = dataset_array(path, name, item)

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    yield from arrays.items()


def dataset_array(path: Path, name: str, dataset: Any) -> FileArray:
    """A dataset of an HDF5 file of this path, by its name in it."""
    shape = tuple(map(int, dataset.shape))
    read = partial(_read_dataset, path, name)
    if dataset.is_virtual or dataset.external:
        return FileArray(shape, "", "lies in other files, which are not read", read)
    if dataset.dtype.kind == "S" or dataset.dtype.metadata:
        h5py = optional_package("h5py", path)
        if h5py.check_string_dtype(dataset.dtype) is not None:
            return FileArray(shape, "text", "", read, True)
        if h5py.check_dtype(enum=dataset.dtype) is None:
            return FileArray(shape, "", "holds no numbers; expected real numbers", read)
    offset = dataset.id.get_offset()
    if offset is not None and dataset.size:
        read = partial(np.memmap, path, dataset.dtype, "r", offset, shape)
    array = FileArray(shape, str(dataset.dtype), type_problem(dataset.dtype), read)
    if offset is None and len(shape) == 2:
        return array._replace(read_rows=lambda *rows: _read_dataset(path, name, slice(*rows)))
    return array


def _read_dataset(path: Path, name: str, rows: slice = slice(None)) -> NDArray[Any]:
    with optional_package("h5py", path).File(path, "r") as file:
        dataset = file[name]
        if dataset.dtype.kind in "SO":
            return np.array(dataset.asstr(errors="replace")[()], dtype=np.str_)
        part = len(range(len(dataset))[rows]) / len(dataset)
        check_memory(part * dataset.nbytes, array_name(name, path), ADVICE)
        return np.asarray(dataset[rows])


ARRAY_FORMATS.register(ArrayFormat("HDF5", (".h5", ".hdf5"), _list_hdf5))

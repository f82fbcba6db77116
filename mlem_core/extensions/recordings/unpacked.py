"""Arrays of a file that are unpacked on disk, so that a layer at a time is in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.files import ScratchFolder
from mlem_core.base.resources import GB
from mlem_core.representations.array_files import npy_file

BLOCK = 2**27  # bytes that are read at a time


class UnpackedArray:
    """An array in a temporary file, which goes with this object.

    Parameters
    ----------
    what : how messages call it
    blocks : gives parts of the array, each with its place in it
    """

    def __init__(
        self,
        what: str,
        shape: tuple[int, ...],
        dtype: str,
        blocks: Iterable[tuple[Any, NDArray[Any]]],
    ) -> None:
        self._folder = ScratchFolder("recording")
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        free = shutil.disk_usage(self._folder.path).free
        if n_bytes > free:
            raise InputError(
                f"{what} needs {n_bytes / GB:.1f} GB of disk among the temporary files, and "
                f"{free / GB:.1f} GB are free; choose fewer channels or regions, or another folder "
                "for temporary files (TMPDIR)."
            )
        self._path = self._folder.path / "array.npy"
        array = np.lib.format.open_memmap(self._path, "w+", dtype, shape)
        for place, block in blocks:
            array[place] = block
        array.flush()

    def part(self, place: Any) -> Callable[[], NDArray[Any]]:
        """A function that gives a part of the array, memory-mapped."""
        return lambda: npy_file(self._path)[place]

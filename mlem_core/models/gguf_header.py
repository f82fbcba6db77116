"""GGUF files are opened with one reading of their header.

transformers reads the header, with each word of the vocabulary, for the tokenizer, for the
configuration and for the weights, through a memory map that takes long for each word, and makes the
table of tensor names anew for every module. Here it is read once, as plain bytes, for all of them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_LOCK = threading.RLock()


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Whatever opens a GGUF file in here shares one reading of each file."""
    import gguf

    class PlainReader(gguf.GGUFReader):
        """The same reader on an array that is no memory map for each part of it."""

        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = np.asarray(mapped)

    package: Any = gguf
    with _LOCK:
        own = package.GGUFReader, package.get_tensor_name_map
        package.GGUFReader = functools.cache(PlainReader)
        package.get_tensor_name_map = functools.cache(package.get_tensor_name_map)
        try:
            yield
        finally:
            package.GGUFReader, package.get_tensor_name_map = own

"""Statistics of pairs as a file: an .npz without pickles."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.feature_distances import FeatureDistance, PairwiseColumn
from mlem_core.pairs.moment_sums import DesignSums
from mlem_core.pairs.moments import LeftOutPairs, PairMoments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.scored_pairs import FoldPairs, ScoredPairs
from mlem_core.pairs.statistics import PairStatistics

# What a file may hold, by the names of the classes.
_RECORDS: dict[str, Any] = {
    record.__name__: record
    for record in (
        DesignSums,
        FeatureDistance,
        FoldPairs,
        PairColumns,
        PairMoments,
        PairStatistics,
        PairwiseColumn,
        ScoredPairs,
        LeftOutPairs,
    )
}


def _untested(first: IntArray, second: IntArray, ranks: FloatArray) -> LeftOutPairs:
    """The pairs of an older file, which held no distances of what only tests leave out."""
    targets = np.concatenate((np.zeros_like(ranks), ranks))
    return LeftOutPairs(first, second, targets, np.zeros(len(first), dtype=bool))


_OLDER: dict[str, Any] = {"Untested": _untested}
_CONTENTS = "contents"


def save_statistics(statistics: PairStatistics, path: Path) -> None:
    """Write statistics of pairs as an .npz without pickles, which loses nothing.

    Sums of ranks are half-integers: doubled they are whole numbers, which take less room.
    """
    writer = _Writer()
    contents = json.dumps(writer.written(statistics))
    writer.arrays[_CONTENTS] = np.frombuffer(contents.encode(), dtype=np.uint8)
    np.savez_compressed(path, **writer.arrays)


def load_statistics(path: Path) -> PairStatistics:
    """Statistics that `save_statistics` wrote.

    Raises OSError, ValueError, LookupError, TypeError: the file is damaged, or not of this form.
    """
    data = path.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            contents = json.loads(arrays[_CONTENTS].tobytes())
            statistics = _Reader({name: arrays[name] for name in arrays.files}).read(contents)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(statistics, PairStatistics):
        raise ValueError(f"{path} holds no statistics of pairs.")
    return statistics


class _Writer:
    """Arrays by their names, and records that have been met before by their number."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._numbers: dict[int, int] = {}

    def written(self, value: Any) -> Any:
        """What stands for a value in JSON."""
        if isinstance(value, np.ndarray):
            return {"array": self._array(value)}
        if is_dataclass(value) and not isinstance(value, type):
            return self._record(value, [field.name for field in fields(value)])
        if hasattr(value, "_fields"):
            return self._record(value, value._fields)
        if isinstance(value, tuple | list):
            return {"tuple": [self.written(item) for item in value]}
        if isinstance(value, dict):
            items = [[key, self.written(item)] for key, item in value.items()]
            return {"dict": items}
        return value

    def _record(self, value: Any, names: Any) -> Any:
        number = self._numbers.get(id(value))
        if number is not None:
            return {"same": number}
        contents = {name: self.written(getattr(value, name)) for name in names}
        self._numbers[id(value)] = len(self._numbers)
        return {"record": type(value).__name__, "fields": contents}

    def _array(self, array: NDArray[Any]) -> list[Any]:
        name = f"array_{len(self.arrays):03d}"
        doubled = 2 * array if array.dtype == np.float64 else None
        if doubled is not None and array.size and np.isfinite(doubled).all():
            largest = np.abs(doubled).max()
            if largest < 2**62 and np.array_equal(doubled, np.rint(doubled)):
                dtype = np.min_scalar_type(-int(largest) - 1)
                self.arrays[name] = doubled.astype(dtype)
                return [name, "doubled"]
        self.arrays[name] = array
        return [name, ""]


class _Reader:
    """Values of a file from its arrays."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._records: list[Any] = []

    def read(self, contents: Any) -> Any:
        """The value that stands in JSON."""
        if not isinstance(contents, dict):
            return contents
        if "array" in contents:
            name, how = contents["array"]
            array = self._arrays[name]
            return array / 2 if how == "doubled" else array
        if "tuple" in contents:
            return tuple(self.read(item) for item in contents["tuple"])
        if "dict" in contents:
            return {key: self.read(item) for key, item in contents["dict"]}
        if "same" in contents:
            return self._records[contents["same"]]
        values = {name: self.read(item) for name, item in contents["fields"].items()}
        record = (_RECORDS | _OLDER)[contents["record"]](**values)
        self._records.append(record)
        return record

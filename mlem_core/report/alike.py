"""Whether two files of a capsule say the same, up to the last digits of their numbers."""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.pairs import tables_io
from mlem_core.pairs.tables import LazyArray
from mlem_core.report.compared import TOLERANCE

_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+\.\d+(?:e[-+]?\d+)?(?![\w.])")
# What says where and with what something was computed: information, no result.
INFORMATION = ("versions", "machine", "device", "torch", "transformers", "kernels")
_UNREADABLE = (
    ValueError, TypeError, LookupError, OSError, EOFError, MemoryError, RecursionError,
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
)  # fmt: skip


def difference(name: str, old: bytes, new: bytes) -> str:
    """Where a file of a capsule says something else than the one made anew; empty: nowhere.

    Parameters
    ----------
    name : of the file; its ending says how it is read
    old, new : its content in the capsule, and as it is made anew
    """
    if old == new:
        return ""
    if far_larger(old, new):
        return "its size"
    try:
        if name.endswith(".json"):
            return next(_in_json(json.loads(old), json.loads(new), ""), "")
        if name.endswith("tables.npz"):
            _check_size(old, len(new))
            return _in_arrays(_of_tables(old), _of_tables(new))
        if name.endswith((".npy", ".npz")):
            _check_size(old, len(new))
            return _in_arrays(_arrays(old), _arrays(new))
        return _in_text(old.decode(), new.decode())
    except _UNREADABLE:
        return "it cannot be read"


def far_larger(old: bytes, new: bytes) -> bool:
    """Whether a file is so much larger than its like that it is other, and not to be read."""
    return len(old) > 20 * len(new) + 1_000_000


def _in_text(old: str, new: str) -> str:
    """Words to the letter; numbers with decimals within the tolerance or their last digit."""
    for number, (before, now) in enumerate(_lines(old, new), 1):
        if _NUMBER.split(before) != _NUMBER.split(now):
            return f"line {number}"
        for a, b in zip(_NUMBER.findall(before), _NUMBER.findall(now), strict=True):
            decimals = len(a.partition(".")[2].partition("e")[0])
            apart = abs(_value(a) - _value(b))
            if apart > max(TOLERANCE, 1.01 * 10.0**-decimals):
                return f"line {number}"
    return ""


def _lines(old: str, new: str) -> Iterator[tuple[str, str]]:
    before, now = old.split("\n"), new.split("\n")
    for at in range(max(len(before), len(now))):
        yield "".join(before[at : at + 1]), "".join(now[at : at + 1])


def _value(text: str) -> float:
    return float(text.replace("−", "-"))


def _in_json(old: Any, new: Any, place: str) -> Iterator[str]:
    here = f"the entry {place}" if place else "its entries"
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            if name in INFORMATION:
                continue
            where = f"{place}.{name}".strip(".")
            if name not in old or name not in new:
                yield f"the entry {where}"
            else:
                yield from _in_json(old[name], new[name], where)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield here
        else:
            for at, (a, b) in enumerate(zip(old, new, strict=True)):
                yield from _in_json(a, b, f"{place}.{at}")
    elif isinstance(old, float) and isinstance(new, float):
        if not abs(old - new) <= TOLERANCE * max(1.0, abs(new)):
            yield here
    elif type(old) is not type(new) or old != new:
        yield here


def _in_arrays(before: dict[str, Any], now: dict[str, Any]) -> str:
    if list(before) != list(now):
        return "the names of its arrays"
    for name, array in now.items():
        other = before[name]
        if other.shape != array.shape or other.dtype != array.dtype:
            return f"the array {name or 'in it'}"
        if array.dtype.kind == "f":
            scale = max(1.0, float(np.nanmax(np.abs(array), initial=0.0)))
            same = np.allclose(other, array, rtol=0.0, atol=TOLERANCE * scale, equal_nan=True)
        else:
            same = np.array_equal(other, array)
        if not same:
            return f"the array {name or 'in it'}"
    return ""


def _check_size(data: bytes, usual: int) -> None:
    """Raise ValueError for a file that would unpack to far more than its like."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as kept:
            if sum(entry.file_size for entry in kept.infolist()) > 100 * usual + 10_000_000:
                raise ValueError("it unpacks to too much")


def _arrays(data: bytes) -> dict[str, Any]:
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return {"": np.load(io.BytesIO(data), allow_pickle=False)}
    with np.load(io.BytesIO(data), allow_pickle=False) as kept:
        return {name: kept[name] for name in sorted(kept.files)}


def _of_tables(data: bytes) -> dict[str, Any]:
    """What pair tables hold: as a file the last bits of their numbers have places of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.npz"
        path.write_bytes(data)
        tables = tables_io.load(path)
    found: dict[str, Any] = {}
    for each in fields(tables):
        value = getattr(tables, each.name)
        for at, part in enumerate(value if isinstance(value, tuple) else (value,)):
            made = part() if isinstance(part, LazyArray) else part
            found[f"{each.name} {at}"] = np.asarray("" if made is None else made)
    return found

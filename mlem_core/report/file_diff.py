"""Differences of files of two capsules: tables number by number, parameters, pair tables."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist

from mlem_core.base.text import short
from mlem_core.pairs.build import load_pair_tables

# Other versions of torch and of the processor's libraries differ in the last bits of float32;
# the numbers that follow differ less than this.
TOLERANCE = 1e-4

_KEYS = (
    "measure", "model", "layer", "fold", "feature", "stimulus", "value_a", "value_b", "model_a",
    "layer_a", "model_b", "layer_b", "term", "quantity",
)  # fmt: skip
_SQUARES = ("similarity_profiles.csv", "similarity_rsa.csv", "feature_correlations.csv")
# What says where, with and from what something was computed: information, no parameter or result.
INFORMATION = (
    "versions", "machine", "device", "torch", "transformers", "kernels", "file", "notices",
)  # fmt: skip
_UNREADABLE = (
    ValueError, TypeError, LookupError, OSError, EOFError, MemoryError, RecursionError,
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
)  # fmt: skip


@dataclass(frozen=True)
class TableDiff:
    """A table of a capsule beside the same table of the new run.

    Attributes
    ----------
    name : file name of the table
    largest : largest absolute difference of two numbers that are in both
    n_values, n_different : how many numbers were compared, how many differ by more than `TOLERANCE`
    worst : in words, the number that differs most; empty where none differs
    n_missing : how many rows are in one of the two only
    only : "the capsule" or "the new run" where the other has no such table
    """

    name: str
    largest: float
    n_values: int
    n_different: int
    worst: str = ""
    n_missing: int = 0
    only: str = ""

    @property
    def same(self) -> bool:
        """Whether no number differs and no row is missing, nor the table."""
        return not (self.n_different or self.n_missing or self.only)

    def __str__(self) -> str:
        if self.same:
            return (
                f"{self.name}: the same ({self.n_values:,} numbers, largest difference "
                f"{self.largest:.1e}, tolerance {TOLERANCE:g})"
            )
        parts = [f"the table is in {self.only} only"] * bool(self.only)
        if self.n_different:
            parts.append(
                f"{self.n_different:,} of {self.n_values:,} numbers differ by more than "
                f"{TOLERANCE:g}, most (by {self.largest:.3g}) {self.worst}"
            )
        if self.n_missing:
            parts.append(f"{self.n_missing:,} rows are in one of the two only")
        return f"{self.name}: {'; '.join(parts)}"


def compare(name: str, old: bytes | None, new: bytes | None) -> TableDiff:
    """Compare two tables number by number; a row is known by what is no measurement in it.

    Parameters
    ----------
    name : of the file
    old, new : its content in the capsule and in the new run; None where one has none

    Raises
    ------
    ValueError
        One of them is no table.
    """
    if old is None or new is None:
        n_rows = max(0, (old or new or b"").count(b"\n") - 1)
        return TableDiff(
            name, 0.0, 0, 0, n_missing=n_rows, only="the new run" if old is None else "the capsule"
        )
    before, now = (
        _long(pd.read_csv(io.BytesIO(data), keep_default_na=False, na_values=[""]), name)
        for data in (old, new)
    )
    if name == "layer_map.csv" and _is_map(before) and _is_map(now):
        before, now = _distances(before), _distances(now)
    both = before.merge(now, on="key", how="outer", suffixes=("_before", "_now"), indicator=True)
    n_missing = int((both["_merge"] != "both").sum())
    both = both[both["_merge"] == "both"]
    a, b = (
        pd.to_numeric(both[side], errors="coerce").to_numpy(dtype=np.float64)
        for side in ("value_before", "value_now")
    )
    apart = np.abs(a - b)
    # What is no number, an empty cell for instance, has to be the same text.
    texts, others = (both[side].astype(object) for side in ("value_before", "value_now"))
    alike = texts.where(texts.notna(), "") == others.where(others.notna(), "")
    apart[np.isnan(a) & np.isnan(b) & alike.to_numpy()] = 0.0
    apart[np.isnan(apart)] = np.inf
    worst = ""
    if len(apart) and apart.max() > TOLERANCE:
        at = int(apart.argmax())
        before_at, now_at = _said(texts.iloc[at]), _said(others.iloc[at])
        worst = f"{both['key'].iloc[at]}: {before_at} in the capsule, {now_at} now"
    return TableDiff(
        name=name,
        largest=float(apart.max(initial=0.0)),
        n_values=len(apart),
        n_different=int((apart > TOLERANCE).sum()),
        worst=worst,
        n_missing=n_missing,
    )


def _long(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row a number: `key` says in words which one it is, `value` is the number."""
    if name in _SQUARES and len(table.columns):
        first = str(table.columns[0])
        keys = [first]
    else:
        keys = [column for column in table.columns if column in _KEYS]
        if name == "folds.csv":
            keys = ["stimulus"] if "stimulus" in table else []
    # An empty cell is a text too: rows without one are not all the same row.
    texts = {
        column: table[column].astype(object).where(table[column].notna(), "").astype(str)
        for column in keys
    }
    table = table.assign(**texts)
    table = table.rename(columns={"value": "contribution"})  # the name that `melt` gives
    values = [column for column in table.columns if column not in keys]
    long = table.melt(id_vars=keys, value_vars=values)
    if name in _SQUARES:
        words = long[keys[0]] + " and " + long["variable"].astype(str) if keys else long["variable"]
    else:
        words = long["variable"].astype(str)
        for column in keys:
            words = words + f", {column} " + long[column]
    found = pd.DataFrame({"key": words, "value": long["value"]})
    # A row that is there twice is one too many.
    again = found.groupby("key").cumcount()
    return found.assign(
        key=found["key"].where(again == 0, found["key"] + ", row " + (again + 1).astype(str))
    )


def _said(value: Any) -> str:
    """A cell as messages show it."""
    if isinstance(value, str):
        return short(value)
    return f"{value:.6g}" if pd.notna(value) else "nothing"


def _is_map(long: pd.DataFrame) -> bool:
    """Whether a table has the columns of a map, and no others."""
    return {key.partition(", ")[0] for key in long["key"]} == {"x", "y"}


def _distances(long: pd.DataFrame) -> pd.DataFrame:
    """Distances of a map's points: turning or mirroring it changes nothing that it says."""
    points = long.copy()
    points["axis"] = points["key"].str.slice(0, 1)
    points["place"] = points["key"].str.slice(3)
    wide = points.pivot_table(index="place", columns="axis", values="value", sort=False)
    rows = []
    for measure, positions in wide.groupby(wide.index.str.extract(r"^measure (\w+)", expand=False)):
        positions = positions.sort_index()
        names = [place.partition(", ")[2] for place in positions.index]
        apart = zip(combinations(names, 2), pdist(positions.to_numpy(np.float64)), strict=True)
        rows += [
            (f"distance in the map of {measure} of {one} and {other}", distance)
            for (one, other), distance in apart
        ]
    return pd.DataFrame(rows, columns=["key", "value"])


def difference(name: str, old: bytes, new: bytes) -> str:
    """First difference of a file of a capsule from the one made anew; empty without any.

    Parameters
    ----------
    name : of the file; its ending says how it is read
    old, new : its content in the capsule and in the new run
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
        return "" if compare(name, old, new).same else "a number"
    except _UNREADABLE:
        return "it cannot be read"


def far_larger(old: bytes, new: bytes) -> bool:
    """Whether a file is so large beside its counterpart that it differs, and is not to be read."""
    return len(old) > 20 * len(new) + 1_000_000


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
    """Content of pair tables: in a file the last bits of their numbers have places of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.npz"
        path.write_bytes(data)
        tables = load_pair_tables(path)
    found: dict[str, Any] = {}
    for each in fields(tables):
        value = getattr(tables, each.name)
        for at, part in enumerate(value if isinstance(value, tuple) else (value,)):
            made = part() if callable(part) else part
            found[f"{each.name} {at}"] = np.asarray("" if made is None else made)
    return found

"""Matrices of distances, and layers whose distances are known exactly; the same for each seed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from feeding import Fate, Hostile
from hostile_arrays import N, content, zipped
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

UPPER = np.triu_indices(N, 1)


class Order:
    """Distances of all pairs (n_pairs,), equal to others that put pairs into the same order.

    close : also to others that are the same numbers, to so large a share of the largest
    """

    def __init__(self, distances: np.ndarray, close: float | None = None) -> None:
        self.distances, self.close = np.asarray(distances), close

    def same(self, other: Order) -> bool:
        one, two = self.distances, other.distances
        if one.shape != two.shape or not np.isfinite(one).all():
            return False
        if other.close is not None:
            return bool(np.abs(one - two).max() <= other.close * np.abs(two).max())
        return bool(spearmanr(one, two)[0] > 1 - 1e-6)


def _file(
    name: str, suffix: str, data: bytes | str, holds: Order | None, fate: Fate | None = None
) -> Hostile:
    raw = data.encode() if isinstance(data, str) else data
    return Hostile(name, suffix, raw, holds, fate or ("refused" if holds is None else "read"))


def _square(rng: np.random.Generator) -> np.ndarray:
    """Distances with three decimals; as a 16-bit float has them, to its last digit."""
    return squareform(pdist(rng.standard_normal((N, 4)))).round(3)


def _text(rows: Any, separator: str = ",", names: list[str] | None = None, corner: str = "") -> str:
    lines = [[str(cell) for cell in row] for row in rows]
    if names is not None:
        lines = [[corner, *names], *([name, *row] for name, row in zip(names, lines, strict=True))]
    return "".join(separator.join(line) + "\n" for line in lines)


def _marred(square: np.ndarray, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Matrices that are none of distances, by a cell or two."""
    rng = np.random.default_rng(seed)
    row, column = sorted(rng.choice(N, 2, replace=False))
    for name, at, value in (
        ("a cell without its mirror", (row, column), square[row, column] + 0.001 * square.max()),
        ("a negative cell", (row, column), -0.5), ("not a number", (row, column), np.nan),
        ("infinite", (row, column), np.inf), ("a diagonal of 1", (row, row), 1.0),
        ("a negative diagonal", (row, row), -1e-3), ("no diagonal", (row, row), np.nan),
    ):  # fmt: skip
        changed = square.copy()
        changed[at] = value
        yield name, changed
    both = square.copy()
    both[row, column] = both[column, row] = -0.5
    yield "a negative pair", both
    yield "one triangle", np.triu(square)
    yield "half of it missing", np.where(np.tri(N, k=-1, dtype=bool), np.nan, square)
    yield "similarities", 1 - square / square.max()
    yield "rows in another order", square[rng.permutation(N)]
    yield "nothing", square * 0


def rdms(seed: int) -> Iterator[Hostile]:
    """Files of a feature's distances."""
    rng = np.random.default_rng(seed)
    square = _square(rng)
    held, flat = Order(square[UPPER], 1e-12), square[UPPER]
    for kind in ("<f4", ">f8", "<f2", ">f4"):
        for order in "CF":
            array = square.astype(kind, order=order)
            array = np.maximum(array, array.T)
            yield _file(f"rdm {kind} {order}", ".npy", content(".npy", {"": array}),
                        Order(array[UPPER].astype("f8"), 1e-12))  # fmt: skip
    for kind in ("u1", "<i8", "?", ">u2"):
        array = (40 * square).astype(kind)
        yield _file(f"rdm {kind}", ".npy", content(".npy", {"": array}),
                    Order(array[UPPER].astype("f8"), 1e-12))  # fmt: skip
    for scale in (2.0**900, 2.0**-900):
        yield _file(f"rdm times {scale:.0g}", ".npy", content(".npy", {"": scale * square}),
                    Order(scale * flat, 1e-12))  # fmt: skip
    skew = square + np.triu(np.full_like(square, 1e-9 * square.max()), 1)
    yield _file("rdm hardly skew", ".npy", content(".npy", {"": skew}), Order(flat, 1e-8))
    npy = content(".npy", {"": square})
    for name, array in {
        "complex": square + 0j, "text": square.astype("U8"), "fields": square.astype([("x", "f8")]),
        "objects": square.astype(object), "three axes": square[None], "not square": square[1:],
        "condensed and one more": np.append(flat, 1.0), "condensed and one less": flat[1:],
    }.items():  # fmt: skip
        yield _file(f"rdm {name}", ".npy", content(".npy", {"": array}), None)
    yield _file("rdm archive", ".npy", zipped({"a.npy": npy}), None)
    yield _file("rdm two arrays", ".npy", npy + npy, None)
    for name, array in {"condensed": flat, "row": flat[None], "column": flat[:, None]}.items():
        yield _file(f"rdm {name}", ".npy", content(".npy", {"": array}), held)
        yield _file(f"rdm {name}", ".csv", _text(np.atleast_2d(array)), held)
    for name, array in _marred(square, seed):
        yield _file(f"rdm {name}", ".npy", content(".npy", {"": array}), None)
        yield _file(f"rdm {name}", ".csv", _text(array), None)
    names = [f"w{i}" for i in range(N)]
    plain, comma = _text(square), _text(square, ";").replace(".", ",")
    saved = io.StringIO()
    np.savetxt(saved, square)
    lines = _text(square, names=names).splitlines(keepends=True)
    for name, suffix, text in (
        ("names", ".csv", "".join(lines)), ("names and a corner", ".csv",
                                            _text(square, names=names, corner="word")),
        ("names, rows swapped", ".csv", "".join([lines[0], *lines[:0:-1]])),
        ("decimal commas", ".csv", comma),
        ("decimal commas, tabs", ".tsv", comma.replace(";", "\t")),
        ("tabs", ".csv", _text(square, "\t")), ("as numpy saves", ".txt", saved.getvalue()),
        ("mark", ".csv", "\ufeff" + plain), ("windows", ".csv", plain.replace("\n", "\r\n")),
        ("blank lines", ".csv", plain.replace("\n", "\n\n")),
        ("quoted", ".csv", '"' + plain.replace(",", '","').replace("\n", '"\n"')[:-1]),
        ("UTF-16", ".csv", plain.encode("utf-16")),
    ):  # fmt: skip
        yield _file(f"rdm {name}", suffix, text, held, "or refused")
    cell = repr(float(square[1, 2]))
    thousands = comma.replace(cell.replace(".", ","), f"{cell[0]}.{cell[2:].ljust(3, '0')}")
    for name, suffix, text in (
        ("points among commas", ".csv", thousands),
        ("mixed separators", ".csv", plain.replace(",", ";", 1)),
        ("a comma behind", ".csv", plain.replace("\n", ",\n")), ("ragged", ".csv", plain[:-4]),
        ("names twice", ".csv", "".join(lines).replace("w1,", "w2,")),
        ("a name missing", ".csv", "".join(lines).replace("w3,", "w33,", 1)),
        ("a row missing", ".csv", "".join(lines[:-1])),
        ("a row less", ".csv", plain[plain.index("\n") + 1 :]),
        ("a row twice", ".csv", plain + plain[: plain.index("\n") + 1]),
        ("numbers above", ".csv", ",".join(map(str, range(N))) + "\n" + plain),
        ("a comment", ".txt", "# by hand\n" + saved.getvalue()), ("nul", ".csv", plain + "\0"),
        ("JSON", ".csv", json.dumps(square.tolist())),
    ):  # fmt: skip
        yield _file(f"rdm {name}", suffix, text, None)
    for odd in ("1_0", "１", "१", "1 0", "0x1", "NA", "", "1e999", "1,5.0", "-0.0.1", "True"):
        yield _file(f"rdm cell {odd!r}", ".csv", plain.replace(cell, odd), None)


def precomputed(seed: int) -> Iterator[Hostile]:
    """Files of a layer's distances."""
    rng = np.random.default_rng(seed)
    square = _square(rng)
    flat = square[UPPER]
    for suffix in (".npz", ".npy", ".safetensors", ".csv"):
        for name, array in _marred(square, seed):
            if name != "nothing":
                data = _text(array) if suffix == ".csv" else content(suffix, {"layer_00": array})
                yield _file(f"precomputed {name}", suffix, data, None)
        for power in (0, 500, -500):
            array = square * 2.0**power
            data = _text(array) if suffix == ".csv" else content(suffix, {"layer_00": array})
            yield _file(f"precomputed times 2 to {power}", suffix, data, Order(flat), "or refused"
                        if power else "read")  # fmt: skip
    for kind in ("<f2", ">f4", "<i4"):
        array = np.asfortranarray((10 * square).astype(kind))
        data = content(".npz", {"layer_00": np.maximum(array, array.T)})
        yield _file(f"precomputed {kind}", ".npz", data, Order(array[UPPER].astype("f8")))


def exact(rows: np.ndarray, metric: str) -> np.ndarray:
    """Distances (n_pairs,) of whole numbers, in 64 bits of mantissa."""
    wide = rows.astype(np.longdouble)
    if metric == "correlation":
        wide = wide - wide.mean(axis=1, keepdims=True)
    if metric in ("cosine", "correlation"):
        wide = wide / np.sqrt((wide**2).sum(axis=1, keepdims=True))
    apart = np.abs(wide[UPPER[0]] - wide[UPPER[1]])
    found = apart.sum(axis=1) if metric == "manhattan" else (apart**2).sum(axis=1)
    return np.asarray(found / found.max(), dtype=np.float64)


def layers(seed: int, metric: str) -> Iterator[Hostile]:
    """Layers of whole numbers of any size, with units added that change no order."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(-(10**5), 10**5, (N, 6)).astype(float)
    held = Order(exact(whole, metric))
    shifted = metric in ("euclidean", "manhattan")
    for power in (-1000, -600, -300, 300, 500, 600, 1000):
        data = content(".npz", {"layer_00": whole * 2.0**power})
        yield _file(f"scale 2 to {power}", ".npz", data, held, "or refused")
    for name, array in {
        "turned": -whole, "swapped units": whole[:, ::-1], "units twice": np.hstack([whole, whole]),
        **({} if metric == "correlation" else {"empty units": np.hstack([whole, whole * 0])}),
        **({"far": whole + 1e6, "very far": whole + 2.0**40,
            "one far unit": np.hstack([whole, np.full((N, 1), 1e9)])} if shifted else {}),
        "one tiny row": np.vstack([whole[:1] * 2.0**-200, whole[1:]]),
        "one huge row": np.vstack([whole[:1] * 2.0**200, whole[1:]]),
    }.items():  # fmt: skip
        order = Order(exact(array, metric))
        for suffix in (".npz", ".npy", ".safetensors"):
            yield _file(f"scale {name}", suffix, content(suffix, {"layer_00": array}), order,
                        "or said")  # fmt: skip
    if shifted:
        one = whole[:, :1]
        yield _file("scale one unit", ".npz", content(".npz", {"layer_00": one}),
                    Order(exact(one, metric)))  # fmt: skip

"""Matrices of distances, and layers whose distances are known exactly; the same for each seed."""

import numpy as np
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

from helpers.feeding import Hostile
from helpers.hostile_arrays import N, content

UPPER = np.triu_indices(N, 1)


class Order:
    """Distances of all pairs (n_pairs,), equal to others that put pairs into the same order.

    close : also to others that are the same numbers, to so large a share of the largest
    """

    def __init__(self, distances, close=None):
        self.distances, self.close = np.asarray(distances), close

    def same(self, other):
        one, two = self.distances, other.distances
        if one.shape != two.shape or not np.isfinite(one).all():
            return False
        if other.close is not None:
            return bool(np.abs(one - two).max() <= other.close * np.abs(two).max())
        return bool(spearmanr(one, two)[0] > 1 - 1e-6)


def _file(name, suffix, data, holds, fate=None):
    raw = data.encode() if isinstance(data, str) else data
    return Hostile(name, suffix, raw, holds, fate or ("refused" if holds is None else "read"))


def _square(rng):
    """Distances with three decimals; as a 16-bit float has them, to its last digit."""
    return squareform(pdist(rng.standard_normal((N, 4)))).round(3)


def _text(rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def _marred(square, seed):
    """Matrices that are none of distances, by a cell or two."""
    rng = np.random.default_rng(seed)
    row, column = sorted(rng.choice(N, 2, replace=False))
    for name, at, value in (
        ("a cell without its mirror", (row, column), square[row, column] + 0.001 * square.max()),
        ("a negative cell", (row, column), -0.5), ("infinite", (row, column), np.inf),
    ):  # fmt: skip
        changed = square.copy()
        changed[at] = value
        yield name, changed
    both = square.copy()
    both[row, column] = both[column, row] = -0.5
    yield "a negative pair", both
    yield "one triangle", np.triu(square)
    yield "similarities", 1 - square / square.max()
    yield "rows in another order", square[rng.permutation(N)]


def precomputed(seed):
    """Files of a layer's distances."""
    square = _square(np.random.default_rng(seed))
    for suffix in (".npz", ".npy", ".safetensors", ".csv"):
        arrays = {name: (array, None, None) for name, array in _marred(square, seed)}
        for name, value in (("a diagonal of noise", 0.1), ("no diagonal", np.nan)):
            arrays[name] = square + np.diag(np.full(N, value)), Order(square[UPPER]), "read"
        for power in (0, 500, -500):
            fate = "or refused" if power else "read"
            arrays[f"times 2 to {power}"] = square * 2.0**power, Order(square[UPPER]), fate
        for name, (array, holds, fate) in arrays.items():
            data = _text(array) if suffix == ".csv" else content(suffix, {"layer_00": array})
            yield _file(f"precomputed {name}", suffix, data, holds, fate)


def exact(rows, metric):
    """Distances (n_pairs,) of whole numbers, in 64 bits of mantissa."""
    wide = rows.astype(np.longdouble)
    if metric == "correlation":
        wide = wide - wide.mean(axis=1, keepdims=True)
    if metric in ("cosine", "correlation"):
        wide = wide / np.sqrt((wide**2).sum(axis=1, keepdims=True))
    apart = np.abs(wide[UPPER[0]] - wide[UPPER[1]])
    found = apart.sum(axis=1) if metric == "manhattan" else (apart**2).sum(axis=1)
    return np.asarray(found / found.max(), dtype=np.float64)


def layers(seed, metric):
    """Layers of whole numbers of any size, with units added that change no order."""
    whole = np.random.default_rng(seed).integers(-(10**5), 10**5, (N, 6)).astype(float)
    held = Order(exact(whole, metric))
    arrays = {f"2 to {power}": whole * 2.0**power for power in (-1000, -600, -300, 500, 600, 1000)}
    arrays |= {"turned": -whole, "units twice": np.hstack([whole, whole])}
    if metric != "correlation":
        arrays["empty units"] = np.hstack([whole, whole * 0])
    if metric in ("euclidean", "manhattan"):
        arrays["far"] = whole + 2.0**40
        arrays["one far unit"] = np.hstack([whole, np.full((N, 1), 1e9)])
        arrays["one unit"] = whole[:, :1]
    for name, power in {"tiny": -200, "huge": 200}.items():
        arrays[f"one {name} row"] = np.vstack([whole[:1] * 2.0**power, whole[1:]])
    for name, array in arrays.items():
        fate, order = "or said", Order(exact(array, metric))
        if "2 to" in name:
            fate, order = "or refused", held
        for suffix in (".npz", ".npy", ".safetensors"):
            yield _file(f"scale {name}", suffix, content(suffix, {"layer_00": array}), order, fate)

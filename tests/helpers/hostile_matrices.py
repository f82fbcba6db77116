"""Matrices of distances, and layers whose distances are known exactly; the same for each seed."""

import numpy as np
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

from helpers.hostile_arrays import BINARY, N, content, hostile

UPPER = np.triu_indices(N, 1)


def same_order(one, two):
    """Whether distances (n_pairs,) are finite and put the pairs into the same order."""
    finite = one.shape == two.shape and np.isfinite(one).all()
    return bool(finite and spearmanr(one, two)[0] > 1 - 1e-6)


def precomputed(seed):
    """Files of a layer's distances."""
    rng = np.random.default_rng(seed)
    # As a 16-bit float has them, to its last digit.
    square = squareform(pdist(rng.standard_normal((N, 4)))).round(3)
    row, column = sorted(rng.choice(N, 2, replace=False))
    pairs, known = np.zeros((N, N)), square[UPPER]
    pairs[row, column] = 1
    cases = {
        "a cell without its mirror": (square + pairs * 0.001 * square.max(), None),
        "a negative cell": (np.where(pairs, -0.5, square), None),
        "infinite": (np.where(pairs, np.inf, square), None),
        "a negative pair": (np.where(pairs + pairs.T, -0.5, square), None),
        "one triangle": (np.triu(square), None),
        "similarities": (1 - square / square.max(), None),
        "rows in another order": (square[rng.permutation(N)], None),
        "a diagonal of noise": (square + 0.1 * np.eye(N), known),
        "no diagonal": (np.where(np.eye(N), np.nan, square), known),
        **{f"times 2 to {power}": (square * 2.0**power, known) for power in (0, 500, -500)},
    }
    for suffix in (*BINARY, ".csv"):
        for name, (array, holds) in cases.items():
            fate = "or refused" if name.endswith("500") else None
            text = "".join(",".join(map(str, cells)) + "\n" for cells in array)
            data = text if suffix == ".csv" else content(suffix, {"layer_00": array})
            yield hostile(f"precomputed {name}", suffix, data, holds, fate)


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
    arrays = {"turned": -whole, "units twice": np.hstack([whole, whole])}
    if metric != "correlation":
        arrays["empty units"] = np.hstack([whole, whole * 0])
    if metric in ("euclidean", "manhattan"):
        arrays["far"] = whole + 2.0**40
        arrays["one far unit"] = np.hstack([whole, np.full((N, 1), 1e9)])
        arrays["one unit"] = whole[:, :1]
    for name, power in {"tiny": -200, "huge": 200}.items():
        arrays[f"one {name} row"] = np.vstack([whole[:1] * 2.0**power, whole[1:]])
    cases = [(name, array, exact(array, metric), "or said") for name, array in arrays.items()]
    for power in (-1000, -600, -300, 500, 600, 1000):
        cases.append((f"2 to {power}", whole * 2.0**power, exact(whole, metric), "or refused"))
    for name, array, distances, fate in cases:
        for suffix in BINARY:
            data = content(suffix, {"layer_00": array})
            yield hostile(f"scale {name}", suffix, data, distances, fate)

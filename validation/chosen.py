"""How often the interval of the most similar of many pairs of layers holds that pair's truth."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist, squareform

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.inference.intervals import Left, bounds_of_largest
from mlem_core.inference.resample import jackknife
from mlem_core.pairs.resampling_units import BLOCKS, jackknife_weights
from validation.work import Row, Task

STIMULI, UNITS, POPULATION = 100, 6, 2_500
DATA_SETS, PART, QUICK = 240, 12, 2
# What part of the variance of each layer both models share, and layer 0 of either more than that.
SHARED = {
    "unrelated, 144 pairs": (np.zeros(12), 0.0),
    "64 pairs, all alike": (np.full(8, 0.39), 0.0),
    "64 pairs, one above all": (np.full(8, 0.3), 0.4),
    "64 pairs, from .01 to .36": (np.linspace(0.1, 0.6, 8), 0.0),
}
WAYS = {
    "alone": "its own interval",
    "at once": "bounds at once (max-T)",
    "halves": "chosen in one half, reported in the other",
}


def layers(design: str, n: int, seed: list[int]) -> list[FloatArray]:
    """The layers of one model and of the other: what both share, what each has, and noise."""
    rng, (shares, more) = np.random.default_rng(seed), SHARED[design]
    common, pair, *own = rng.standard_normal((4, n, UNITS))
    found = []
    for mine in own:
        for layer, share in enumerate(shares):
            extra = more * (layer == 0)
            noise = np.sqrt(0.5) * (mine + rng.standard_normal((n, UNITS)))
            rows = np.sqrt(share) * common + np.sqrt(extra) * pair
            found.append(rows + np.sqrt(1.0 - share - extra) * noise)
    return found


def rsa(distances: FloatArray, rows: IntArray, n: int) -> FloatArray:
    """(n * n,) RSA of every layer of the first model, of n, with every one of the second.

    Parameters
    ----------
    distances : (n_layers, n_stimuli, n_stimuli)
    rows : the stimuli
    """
    i, j = np.triu_indices(len(rows), 1)
    pairs = distances[:, rows[i], rows[j]]
    ranks = np.empty_like(pairs)
    places = np.arange(pairs.shape[1], dtype=pairs.dtype)
    np.put_along_axis(ranks, pairs.argsort(axis=1), places[None], axis=1)
    ranks -= places.mean()
    ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
    found: FloatArray = (ranks[:n] @ ranks[n:].T).ravel().astype(np.float64)
    return found


def left_out(distances: FloatArray, rows: IntArray, n: int) -> tuple[FloatArray, Left]:
    """`rsa` of all rows, and without each block of them."""
    kept = jackknife_weights(len(rows), BLOCKS, np.random.default_rng(0)) > 0
    without = np.array([rsa(distances, rows[one], n) for one in kept])
    return rsa(distances, rows, n), Left(without, (len(kept),))


@lru_cache
def truth(design: str) -> FloatArray:
    """(n_pairs,) RSA in a population; exactly 0 where the models have nothing in common."""
    shares, more = SHARED[design]
    n = len(shares)
    if not shares.any():
        return np.zeros(n * n)
    made = layers(design, POPULATION, [2, list(SHARED).index(design)])
    distances = np.stack([squareform(pdist(rows)).astype(np.float32) for rows in made])
    found = rsa(distances, np.arange(POPULATION), n)
    return found if more or np.ptp(shares) else np.full(n * n, found.mean())


def part(design: str, first: int, n_sets: int) -> list[Row]:
    """The most similar pair of some data sets by each way, with its interval and its truth."""
    known, n, found = truth(design), len(SHARED[design][0]), list[Row]()
    for seed in range(first, first + n_sets):
        made = layers(design, STIMULI, [1, list(SHARED).index(design), seed])
        distances = np.stack([squareform(pdist(rows)).astype(np.float32) for rows in made])
        mixed = np.random.default_rng(seed).permutation(STIMULI)
        values, whole = left_out(distances, mixed, n)
        other, half = left_out(distances, mixed[: STIMULI // 2], n)
        chosen_there = int(rsa(distances, mixed[STIMULI // 2 :], n).argmax())
        chosen = int(values.argmax())
        ways = {
            "alone": (jackknife(values, *whole), chosen),
            "at once": (bounds_of_largest(values, whole), chosen),
            "halves": (jackknife(other, *half), chosen_there),
        }
        for way, (bounds, at) in ways.items():
            row = {"design": design, "seed": seed, "way": way, "truth": known[at]}
            ends = {name: getattr(bounds, name)[at] for name in ("value", "lower", "upper")}
            found.append(row | ends)
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    size, most = (QUICK, QUICK) if quick else (PART, DATA_SETS)
    return [
        Task(f"{design}, from {first}", part, (design, first, size))
        for first in range(0, most, size)
        for design in SHARED
    ]


def of_chosen(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often the interval holds, with its Monte-Carlo error, and is above 0; bias and width."""
    inside = (rows["lower"] <= rows["truth"]) & (rows["truth"] <= rows["upper"])
    rows = rows.assign(
        holds=inside,
        above=rows["lower"] > 0,
        bias=rows["value"] - rows["truth"],
        width=rows["upper"] - rows["lower"],
    )
    cells = rows.groupby(["design", "way"])
    mean, n = cells[["holds", "above", "bias", "width"]].mean(), cells.size()
    error = np.sqrt(mean["holds"] * (1 - mean["holds"]) / n)
    text = (
        mean["holds"].map("{:.1%}".format)
        + error.map(" ± {:.1%}".format)
        + mean["above"].map("; {:.1%} above 0".format)
        + mean["bias"].map("; {:+.3f}".format)
        + mean["width"].map("; {:.2f} wide".format)
    )
    table = text.unstack("way").reindex(index=list(SHARED), columns=list(WAYS))
    table = table.rename(columns=WAYS).rename_axis(index="pairs of layers", columns=None)
    return {"chosen pairs": table}

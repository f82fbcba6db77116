"""A seeded sample of stimuli that keeps sentences whole and balances features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown

# So many sentences, drawn at random, are compared at each step where features are balanced.
CANDIDATES = 100


def sample_rows(
    frame: pd.DataFrame,
    groups: NDArray[np.int64],
    n: int,
    balance: Sequence[str] = (),
    seed: int = 0,
) -> NDArray[np.int64]:
    """Rows of a sample: (n_sampled,), ascending; all of a group or none.

    Groups are drawn at random until at least `n` rows are there. To balance features, of
    `CANDIDATES` groups drawn at each step the one is taken that brings the values of each feature
    (missing ones left out) closest to being equally frequent, by the sum of squared differences of
    their shares.

    Parameters
    ----------
    frame : a row a stimulus
    groups : (n_stimuli,) codes 0.. of what stays together
    n : how many rows at least; all where there are no more
    balance : columns of `frame`

    Raises
    ------
    InputError
        Fewer than 2 stimuli are asked for; an unknown column to balance.
    """
    if n < 2:
        raise InputError(f"found a sample of {n} stimuli; at least 2 are needed to compare.")
    for name in balance:
        if name not in frame:
            raise unknown("feature to balance", name, [str(column) for column in frame])
    if n >= len(frame):
        return np.arange(len(frame))
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(groups.max()) + 1)
    sizes = np.bincount(groups)
    if not balance:
        last = int(np.searchsorted(np.cumsum(sizes[order]), n)) + 1
        chosen = order[:last]
    else:
        chosen = _balanced(_counts(frame, groups, balance), sizes, n, rng)
    return np.flatnonzero(np.isin(groups, chosen))


def _counts(
    frame: pd.DataFrame, groups: NDArray[np.int64], balance: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Of each feature (n_groups, n_values): how often a group has a value."""
    tables = []
    for name in balance:
        codes, values = pd.factorize(frame[name])
        there = codes >= 0
        table = np.zeros((int(groups.max()) + 1, len(values)))
        np.add.at(table, (groups[there], codes[there]), 1)
        tables.append(table)
    return tables


def _balanced(
    counts: list[NDArray[np.float64]],
    sizes: NDArray[np.int64],
    n: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    left = np.arange(len(sizes))
    sums = [np.zeros(table.shape[1]) for table in counts]
    chosen: list[int] = []
    total = 0
    while total < n:
        places = rng.permutation(len(left))[:CANDIDATES]
        candidates = left[places]
        cost = np.zeros(len(candidates))
        for table, so_far in zip(counts, sums, strict=True):
            with_it = so_far + table[candidates]
            shares = with_it / np.maximum(with_it.sum(axis=1, keepdims=True), 1)
            cost += ((shares - 1 / max(1, shares.shape[1])) ** 2).sum(axis=1)
        best = int(np.argmin(cost))
        group = int(candidates[best])
        for table, so_far in zip(counts, sums, strict=True):
            so_far += table[group]
        chosen.append(group)
        total += int(sizes[group])
        left = np.delete(left, places[best])
    return np.array(chosen)

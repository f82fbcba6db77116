"""Halves of the independent designs that an incomplete design of the pairs is of.

A half of the pairs, drawn as they were, differs from all of them as much as these do from another
draw, and a model is fitted to it nearly as to all of them: its penalty, and which weights are 0,
are those of about as many pairs. Of n designs a Hadamard matrix gives n - 1 ways to halve them in
which any two designs are as often in one half as apart, so that for a mean over the pairs the mean
squared difference of the halves from all is the variance between designs over n, with nothing lost.

Source: McCarthy (1969), Pseudo-replication: half samples (balanced half-samples).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from mlem_core.base.typing import FloatArray
from mlem_core.pairs.patterns import tested_blocks
from mlem_core.pairs.tables import PairTables, sums_by


def half_samples(designs: Sequence[PairTables]) -> Iterator[PairTables]:
    """The tables of 2 (n - 1) balanced halves of n designs, each followed by the other half.

    Parameters
    ----------
    designs : of the same layers and features, a power of 2 of them, see `together`
    """
    from scipy.linalg import hadamard

    for row in hadamard(len(designs))[1:]:
        for sign in (1, -1):
            yield together([own for own, side in zip(designs, row, strict=True) if side == sign])


def together(designs: Sequence[PairTables]) -> PairTables:
    """The tables of the pairs of several designs of the same stimuli, layers and features.

    Counts and distances are exact. A rank is that among the pairs of its own design, in proportion
    to how many there are: nothing is sorted again, and a correlation is a mean over the designs.
    """
    first = designs[0]
    n_blocks, n_patterns = first.target_low.shape[1], first.n_patterns
    keys = np.concatenate([own.cell_block * n_patterns + own.cell_pattern for own in designs])
    present = np.zeros(n_blocks * n_patterns, dtype=bool)
    present[keys] = True
    cells, at = np.flatnonzero(present), (np.cumsum(present) - 1)[keys]

    def summed(parts: Sequence[FloatArray]) -> FloatArray:
        return sums_by(at, np.concatenate(parts, axis=-1))

    blocks = [np.bincount(own.cell_block, own.counts, n_blocks) for own in designs]
    pairs = np.array(blocks, dtype=np.float64)
    of_all, of_block = _growth(pairs.sum(axis=1)), _growth(pairs)
    tested = tested_blocks(first.n_folds)
    found = replace(
        first,
        cell_block=cells // n_patterns,
        cell_pattern=cells % n_patterns,
        counts=summed([own.counts for own in designs]),
        target_sums=summed([own.target_sums for own in designs]),
        rank_sums=summed([own.rank_sums * by for own, by in zip(designs, of_all, strict=True)]),
        within_sums=summed(
            [
                own.within_sums * by[own.cell_block]
                for own, by in zip(designs, of_block, strict=True)
            ]
        ),
        rank_squares=np.sum([own.rank_squares for own in designs] * of_all[:, None] ** 2, axis=0),
        within_squares=np.sum(
            [own.within_squares for own in designs] * of_block[:, None, tested] ** 2, axis=0
        ),
        target_low=np.min([own.target_low for own in designs], axis=0),
        target_high=np.max([own.target_high for own in designs], axis=0),
        train_sums=None,
        train_squares=None,
    )
    squares = [own.train_squares for own in designs if own.train_squares is not None]
    if not squares:
        return found
    of_fold = _growth(pairs @ first.trains.T)
    parts = [own.training_ranks * by[:, None] for own, by in zip(designs, of_fold, strict=True)]
    return replace(
        found,
        train_sums=cache(lambda: summed(parts)),
        train_squares=np.sum(squares * of_fold[:, None] ** 2, axis=0),
    )


def _growth(pairs: FloatArray) -> FloatArray:
    """How many times as many pairs as each design (n_designs, ...) all of them have."""
    return np.divide(pairs.sum(axis=0), pairs, out=np.zeros_like(pairs), where=pairs > 0)

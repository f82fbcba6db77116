"""How much of two layers' RSA can be explained at all by any function of the word, or the sentence.

Any feature of a word is a function of it. What pairs of occurrences of the words u and w have in
common, whatever else differs, is the mean of their ranks; two layers share as much of it as the
mean in one covaries with the mean in the other. Both means are of disjoint occurrences (i, j) and
(k, l), i ≠ k and j ≠ l, so that noise has no part in it:

    E[r_A(i, j) r_B(k, l)] over the pairs of words, less the product of the means.

The rest is of these occurrences alone: no function of the word explains it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.added import NO_WORD, neighbour
from mlem_core.data.stimuli import StimulusSet, bare, group_name
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import jackknife

# Units that recur, at least: of fewer nothing is said.
FEWEST = 20
BLOCKS = 24


def explainable(pairs: LayerPairs, stimuli: StimulusSet) -> pd.DataFrame:
    """Shares of the RSA of two layers that are a function of a unit, with 95 % intervals.

    Of one layer they are shares of the variance of its ranks.

    Parameters
    ----------
    pairs : of the stimuli

    Returns
    -------
    unit, n_stimuli (that share it with others, at least two each), share, lower, upper; no row for
    a unit if fewer than `FEWEST` of its kind recur
    """
    rows = []
    squares = [_square(pairs, ranks) for ranks in (pairs.ranks[0], pairs.ranks[-1])]
    blocks = pairs.units.blocks(BLOCKS)
    for unit, labels in _units(stimuli):
        numbers = pd.factorize(pd.Series(labels))[0].astype(np.int64)
        recurs = np.bincount(numbers)[numbers] > 1
        if len(np.unique(numbers[recurs])) < FEWEST:
            continue
        share = common_share(squares, numbers, recurs)
        left = [common_share(squares, numbers, recurs & (kept > 0)) for kept in blocks.weights]
        if np.isfinite([share, *left]).all():
            bounds = jackknife(np.array(share), np.array(left), blocks.sizes)
            ends = float(bounds.lower), float(bounds.upper)
            rows.append((unit, int(recurs.sum()), share, *ends))
    return pd.DataFrame(rows, columns=["unit", "n_stimuli", "share", "lower", "upper"])


def _units(stimuli: StimulusSet) -> Iterator[tuple[str, list[str]]]:
    """Units that stimuli may share, and that of each stimulus: (n_stimuli,)."""
    if stimuli.level == "word":
        words = [bare(word) for word in stimuli.words]
        yield "the word", words
        before = zip(neighbour(-1, stimuli), words, strict=True)
        # What begins a sentence has nothing before it that could differ.
        yield (
            "the word and the one before it",
            [f"{left} {word}" if left != NO_WORD else word for left, word in before],
        )
    elif stimuli.items is not None:
        yield f"the {stimuli.item_name}", [*map(str, stimuli.items)]
    yield f"the {group_name(stimuli)}", [*map(str, stimuli.groups)]


def _square(pairs: LayerPairs, doubled: NDArray[np.uint32]) -> FloatArray:
    """(n_stimuli, n_stimuli) centred ranks; NaN where two stimuli are not compared."""
    n = len(pairs.groups)
    square = np.full((n, n), np.nan)
    first, second = pairs.design.ends(np.arange(len(doubled)))
    square[first, second] = 0.5 * (doubled - (len(doubled) + 1.0))
    square[second, first] = square[first, second]
    return square


def common_share(squares: list[FloatArray], units: IntArray, kept: NDArray[np.bool_]) -> float:
    """Share of the covariance of two layers that is a function of the units of the stimuli.

    Parameters
    ----------
    squares : of each of the two layers (n_stimuli, n_stimuli) ranks of the pairs
    units : (n_stimuli,) the unit of each
    kept : (n_stimuli,) which stimuli count; units of fewer than two of them do not

    Returns NaN where fewer than three units are left, or the layers do not covary.
    """
    from scipy.sparse import csr_array

    sizes = np.bincount(units[kept], minlength=units.max() + 1)
    at = np.flatnonzero(kept & (sizes[units] > 1))
    names, unit = np.unique(units[at], return_inverse=True)
    n, n_units = sizes[names].astype(np.float64), len(names)
    if n_units < 3:
        return np.nan
    of = csr_array((np.ones(len(at)), (np.arange(len(at)), unit)), shape=(len(at), n_units))
    a, b = (square[np.ix_(at, at)] for square in squares)
    gaps = np.isnan(a)
    a, b = np.where(gaps, 0.0, a), np.where(gaps, 0.0, b)
    sum_a, sum_b = (of.T @ own for own in (a, b))
    both = of.T @ (a * b) @ of
    one_end = (sum_a * sum_b) @ of
    sum_a, sum_b = sum_a @ of, sum_b @ of
    disjoint = sum_a * sum_b - one_end - one_end.T + both
    u, w = np.triu_indices(n_units, 1)
    whole = ~(of.T @ gaps.astype(np.float64) @ of > 0)[u, w]
    u, w = u[whole], w[whole]
    weight = n[u] * n[w]
    common = disjoint[u, w] / ((n[u] - 1) * (n[w] - 1))
    means = sum_a[u, w].sum() * sum_b[u, w].sum() / weight.sum()
    total = both[u, w].sum() - means
    return float((common.sum() - means) / total) if total > 0 else np.nan

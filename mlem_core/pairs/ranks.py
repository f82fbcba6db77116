"""Average ranks: of the pairs of a layer, which RSA correlates, and of predictions."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import each
from mlem_core.base.typing import FloatArray

# Predictions that differ by less than this part of their range differ only in how the sum was
# rounded: they are ties.
TIE = 1e-12
# Digits to which predictions of single pairs, from 0 to 1, must agree to be tied.
TIE_DIGITS = 11
# Numbers that are looked at together.
AT_ONCE = 2**17
# Ranks of all layers up to this size stay in memory; larger ones go to a temporary file.
IN_MEMORY_BYTES = 2**30


def pair_ranks(
    distances: FloatArray, overwrite: bool = False, threads: int = 1
) -> NDArray[np.uint32]:
    """Twice the average ranks (1-based) of distances (n_pairs,): whole numbers, so exact.

    The number of a pair goes into the low bits of a 64-bit key and its distance, rounded to the
    bits that are left, into the high ones, so that one sort (vectorised in NumPy) does the work of
    a slower argsort. 2 million pairs leave 32 bits of mantissa: distances that differ by less than
    a relative 2e-10, which is finer than any model computes, are ties (as they should be where only
    the order of summation tells them apart).

    Parameters
    ----------
    distances : (n_pairs,), may be squared; of at least 0
    overwrite : their memory may be used for the keys
    """
    from mlem_core.pairs.kernels.ranks import distance_keys, fill_doubled_ranks

    number_bits = max(1, (len(distances) - 1).bit_length())
    keys = (distances if overwrite else distances.copy()).view(np.uint64)
    distance_keys(keys, number_bits)
    edges = np.linspace(0, len(keys), threads + 1).astype(int)
    keys.partition(edges[1:-1])
    each(lambda ends: keys[slice(*ends)].sort(), itertools.pairwise(edges), threads)
    # No tie is divided between threads.
    bits, starts = np.uint64(number_bits), [0]
    for edge in edges[1:-1]:
        above = ((keys[edge - 1] >> bits) + np.uint64(1)) << bits
        starts.append(max(starts[-1], int(np.searchsorted(keys, above))))
    doubled = np.empty(len(keys), dtype=np.uint32)

    def fill(ends: tuple[int, int]) -> None:
        fill_doubled_ranks(keys[slice(*ends)], number_bits, ends[0], doubled)

    each(fill, itertools.pairwise([*starts, len(keys)]), threads)
    return doubled


class Score(NamedTuple):
    """ρ and ρ_a, of one shape."""

    rho: FloatArray
    rho_a: FloatArray


def score_patterns(
    predictions: FloatArray, counts: FloatArray, rank_sums: FloatArray, rank_squares: FloatArray
) -> Score:
    """Spearman ρ between predictions that are constant within a pattern and the pairs' distances.

    Exact: equals `scipy.stats.spearmanr` over the explicit pairs. ρ_a is the mean of ρ over random
    tie-breaks on both sides (the centred average ranks, divided by the spread of untied ranks).
    A prediction with one value, or distances with one value, have ρ = ρ_a = 0.

    Parameters
    ----------
    predictions : (n_layers, n_predictions, n_patterns)
    counts : (n_patterns,) pairs a pattern (may be fractional)
    rank_sums : (n_layers, n_patterns), sums of the centred average ranks of the distances
    rank_squares : (n_layers,), sum of the squared centred ranks over the pairs

    Returns Score of arrays (n_layers, n_predictions).

    Source: Jalouzot et al. 2024, section 2.3.
    """
    from mlem_core.pairs.kernels.ranks import prediction_keys, rank_moments

    moments = np.zeros((2, *predictions.shape[:2]))
    if predictions.size:
        predictions, sums = np.ascontiguousarray(predictions), np.ascontiguousarray(rank_sums)
        # Sorted by keys as in `pair_ranks`, in half of the time of an argsort.
        keys = np.empty(predictions.shape, dtype=np.int64)
        n = predictions.shape[-1]
        place_bits = (n - 1).bit_length()
        units = 2.0 ** (62 - place_bits)
        prediction_keys(predictions.reshape(-1, n), units, place_bits, keys.reshape(-1, n))
        keys.sort(axis=-1)
        rank_moments(predictions, keys, place_bits, counts, sums, TIE, moments)
    return _score_of_moments(moments, rank_squares, float(counts.sum()))


def score_pairs(
    predictions: FloatArray, rank_sums: FloatArray, rank_squares: FloatArray, n_classes: int = 0
) -> Score:
    """As `score_patterns`, of predictions of single pairs, to `TIE_DIGITS` of their range.

    Parameters
    ----------
    predictions : (n_layers, n_predictions, n_pairs)
    rank_sums : (n_layers, n_pairs) centred average ranks of the distances
    rank_squares : (n_layers,), sum of their squares
    n_classes : in so many classes predictions are ranked; 0 is exact
    """
    from mlem_core.pairs.kernels.ranks import class_moments, pair_moments, prediction_keys

    n_layers, n_predictions, n_pairs = predictions.shape
    flat, layers = predictions.reshape(-1, n_pairs), np.repeat(np.arange(n_layers), n_predictions)
    moments, sums = np.zeros((2, len(flat))), np.ascontiguousarray(rank_sums)
    place_bits = max(1, (n_pairs - 1).bit_length())
    units = min(10.0**TIE_DIGITS, 2.0 ** (62 - place_bits))
    for rows in few_at_once(len(flat), n_pairs) if n_pairs else ():
        some, into = np.ascontiguousarray(flat[rows]), moments[:, rows]
        if n_classes:
            class_moments(some, n_classes, layers[rows], sums, into)
            continue
        keys = np.empty(some.shape, dtype=np.int64)
        prediction_keys(some, units, place_bits, keys)
        keys.sort(axis=-1)
        pair_moments(keys, place_bits, layers[rows], sums, into)
    by_layer = moments.reshape(2, n_layers, n_predictions)
    return _score_of_moments(by_layer, rank_squares, float(n_pairs))


def _score_of_moments(moments: FloatArray, rank_squares: FloatArray, n_pairs: float) -> Score:
    """ρ and ρ_a from Σ of predicted rank x rank and Σ of squared predicted ranks."""
    covariance, spread = moments
    untied = (n_pairs**3 - n_pairs) / 12
    both = spread * rank_squares[:, None]
    rho = np.divide(covariance, np.sqrt(both), out=np.zeros_like(covariance), where=both > 0)
    return Score(rho, covariance / untied if untied > 0 else np.zeros_like(covariance))


def few_at_once(n: int, each: int) -> list[slice]:
    """Cut n things of so many numbers each into parts whose numbers stay in a processor's cache."""
    step = max(1, AT_ONCE // max(each, 1))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


@dataclass(frozen=True)
class NumbersInFile:
    """Numbers (size,) in an open file; a slice of them is mapped while it is used.

    A map of all of them would add every page that was ever read to the memory of the process.
    """

    file: IO[bytes]
    dtype: np.dtype[Any]
    start: int
    size: int

    @classmethod
    def from_values(cls, values: NDArray[Any], file: IO[bytes]) -> NumbersInFile:
        """Values (size,), written to the end of a file."""
        start = file.seek(0, 2)
        file.write(values.data)
        file.flush()
        return cls(file, values.dtype, start, values.size)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> NDArray[Any]:
        first, last, _ = part.indices(self.size)
        at = self.start + first * self.dtype.itemsize
        return np.memmap(self.file, self.dtype, "r", at, (last - first,))


class PairRanks:
    """Twice the average ranks (n_pairs,) of each of n_layers layers, in memory or in files.

    Parameters
    ----------
    folder : gets temporary files if the ranks are too large for memory
    """

    def __init__(self, n_layers: int, n_pairs: int, folder: Path | None = None) -> None:
        self.n_layers, self.n_pairs = n_layers, n_pairs
        self._large = 4 * n_layers * n_pairs > IN_MEMORY_BYTES
        self._folder = folder
        self._of_layer: dict[int, NumbersInFile | NDArray[np.uint32]] = {}

    def put(self, layer: int, doubled: NDArray[np.uint32]) -> None:
        """Keep twice the average ranks (n_pairs,) of a layer."""
        if self._large:
            # Unlinked as soon as it is open: nothing is left behind however the process ends.
            file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            self._of_layer[layer] = NumbersInFile.from_values(doubled, file)
        else:
            self._of_layer[layer] = doubled

    def read(self, layer: int, first: int, last: int) -> NDArray[np.uint32]:
        """Doubled ranks of the pairs first..last-1 in a layer."""
        return self._of_layer[layer][first:last]

    def rsa(self) -> FloatArray:
        """(n_layers, n_layers) Spearman ρ of the distances of every two layers over all pairs.

        A layer whose distances are all equal has ρ = 0 with every other and 1 with itself.

        Source: Salle et al. 2024, section 4 (feature-agnostic similarity).
        """
        products = np.zeros((self.n_layers, self.n_layers))
        for pairs in few_at_once(self.n_pairs, self.n_layers):
            of_pairs = [self.read(k, pairs.start, pairs.stop) for k in range(self.n_layers)]
            ranks = np.stack(of_pairs, dtype=np.float64)
            ranks -= self.n_pairs + 1.0
            products += ranks @ ranks.T
        return correlations(products)


def correlations(products: FloatArray) -> FloatArray:
    """Correlations of layers from sums of products of their ranks, both (n_layers, n_layers)."""
    spread = np.sqrt(np.diag(products))
    both = spread[:, None] * spread[None, :]
    rsa = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
    np.fill_diagonal(rsa, 1.0)
    return np.clip(rsa, -1.0, 1.0)

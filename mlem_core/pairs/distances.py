"""Neural distances: how far apart one layer holds every two stimuli."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray

# (start, stop, squared distances of rows start..stop-1 to the rows from `start` on)
Chunks = Iterator[tuple[int, int, FloatArray]]

METRICS = ("euclidean", "cosine", "manhattan", "correlation")
# Of arrays that are distances already; see `condensed_from_matrix`.
PRECOMPUTED = "precomputed"
DISTANCES = (*METRICS, PRECOMPUTED)

# Two rows closer than this share of their norm are one representation: a model run in float32
# gives the same word after the same left context only up to its last bits.
EQUAL_ROWS = {2: 2e-3, 4: 5e-6, 8: 1e-12}
# Below this share of the squared norms, |x|² + |y|² - 2xy has lost too many digits.
CANCELLATION = 1e-8
CHUNK_ELEMENTS = 2**19


def n_pairs(n_stimuli: int) -> int:
    """Number of unordered pairs of `n_stimuli` stimuli."""
    return n_stimuli * (n_stimuli - 1) // 2


def row_slices(n_stimuli: int) -> Iterator[tuple[int, slice]]:
    """For each stimulus i, where its pairs (i, i+1), (i, i+2), ... stand in a condensed vector."""
    start = 0
    for i in range(n_stimuli - 1):
        stop = start + n_stimuli - 1 - i
        yield i, slice(start, stop)
        start = stop


def ends_of(
    pairs: NDArray[np.int64], n_stimuli: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two stimuli of pairs, given where these stand in a condensed vector."""
    starts = np.cumsum(np.arange(n_stimuli - 1, 0, -1)) - np.arange(n_stimuli - 1, 0, -1)
    first = np.searchsorted(starts, pairs, side="right") - 1
    return first, pairs - starts[first] + first + 1


def equal_rows(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """The first row that each row is equal to, up to the precision of its type.

    Parameters
    ----------
    rows : (n_stimuli, n_units)

    Returns
    -------
    (n_stimuli,) row numbers; a row that equals no earlier one has its own number.
    """
    tolerance = EQUAL_ROWS.get(rows.dtype.itemsize, 1e-12)
    exact = rows.astype(np.float64, copy=False)
    norms = np.linalg.norm(exact, axis=1)
    # Equal rows have equal projections: only neighbours along one direction need a closer look.
    direction = np.random.default_rng(0).standard_normal(exact.shape[1])
    projection = exact @ (direction / np.linalg.norm(direction))
    order = np.argsort(projection, kind="stable")
    first = np.arange(len(exact))
    for position, i in enumerate(order):
        if first[i] != i:
            continue
        reach = tolerance * norms[i]
        stop = position + 1
        while stop < len(order) and projection[order[stop]] - projection[i] <= reach:
            stop += 1
        near = order[position + 1 : stop]
        near = near[first[near] == near]
        if len(near):
            apart = np.linalg.norm(exact[near] - exact[i], axis=1)
            first[near[apart <= reach]] = i
    # Name each group by its lowest row, whatever the order of the projections was.
    lowest = np.full(len(exact), len(exact))
    np.minimum.at(lowest, first, np.arange(len(exact)))
    return lowest[first].astype(np.int64)


def _prepared(rows: FloatArray, metric: str, layer: str, numbers: NDArray[np.int64]) -> FloatArray:
    if metric == "euclidean":
        return rows - rows.mean(axis=0)
    if metric == "correlation":
        rows = rows - rows.mean(axis=1, keepdims=True)
    if metric in ("cosine", "correlation"):
        norms = np.linalg.norm(rows, axis=1)
        zero = np.flatnonzero(norms == 0)
        if len(zero):
            what = "zeros only" if metric == "cosine" else "one and the same value"
            raise InputError(
                f"{layer} holds {what} for row {numbers[zero[0]] + 1}, where the {metric} distance "
                "is not defined; leave the row out or choose the euclidean or manhattan distance."
            )
        return rows / norms[:, None]
    return rows


def _square_chunk(rows: FloatArray, squares: FloatArray, start: int, stop: int) -> FloatArray:
    """Squared Euclidean distances of rows start..stop-1 to the rows from `start` on."""
    left, right = rows[start:stop], rows[start:]
    chunk: FloatArray = left @ right.T
    chunk *= -2
    scale = squares[start:stop, None] + squares[None, start:]
    chunk += scale
    scale *= CANCELLATION
    close_i, close_j = np.nonzero(chunk < scale)
    step = max(1, CHUNK_ELEMENTS // rows.shape[1])
    for at in range(0, len(close_i), step):
        i, j = close_i[at : at + step], close_j[at : at + step]
        difference = left[i] - right[j]
        chunk[i, j] = np.einsum("ij,ij->i", difference, difference)
    return chunk


def bands(rows: FloatArray, metric: str) -> Chunks:
    """Squared distances, a band of rows at a time, each to the columns from its first row on."""
    n = len(rows)
    height = max(16, CHUNK_ELEMENTS // max(1, n))
    squares = np.einsum("ij,ij->i", rows, rows)
    for start in range(0, n, height):
        stop = min(n, start + height)
        if metric == "manhattan":
            from scipy.spatial.distance import cdist

            yield start, stop, cdist(rows[start:stop], rows[start:], "cityblock") ** 2
        else:
            chunk = _square_chunk(rows, squares, start, stop)
            if metric in ("cosine", "correlation"):
                # For rows of norm 1, 1 - cos is half the squared Euclidean distance.
                chunk = (chunk / 2) ** 2
            yield start, stop, chunk


def squared_distances(
    representations: NDArray[np.floating],
    metric: str = "euclidean",
    *,
    layer: str = "the layer",
    chunks: Callable[[FloatArray, str], Chunks] = bands,
) -> FloatArray:
    """Squared neural distances of all pairs of stimuli.

    Equal rows (up to the precision of their type) are at distance 0 and at exactly the same
    distance from any third row; the others hold to a relative 1e-6 however much norms differ.

    Parameters
    ----------
    representations : (n_stimuli, n_units), or distances (n_stimuli, n_stimuli)
    metric : one of `DISTANCES`; "precomputed" where these are distances
    layer : how an error message calls these representations
    chunks : computes the squared distances in bands of rows

    Returns
    -------
    (n_pairs,) float64, in the order (0,1), (0,2), ..., (1,2), ...

    Raises
    ------
    InputError
        An unknown metric, values that are not finite, or a row for which the distance is not
        defined; as `condensed_from_matrix`.

    Source: Jalouzot et al. 2024, section 2.1.1; Salle et al. 2024, appendix B.
    """
    if metric not in DISTANCES:
        raise unknown("distance", metric, DISTANCES)
    if metric == PRECOMPUTED:
        return condensed_from_matrix(representations, layer=layer)
    raw = np.asarray(representations)
    if not np.issubdtype(raw.dtype, np.floating):
        raw = raw.astype(np.float64)
    finite = np.isfinite(raw).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{layer} holds a value that is not finite in row {int(np.argmin(finite)) + 1}; "
            "every value must be a finite number."
        )
    first = equal_rows(raw)
    kept, position = np.unique(first, return_inverse=True)
    rows = _prepared(raw[kept].astype(np.float64), metric, layer, kept)
    n = len(raw)
    condensed = np.empty(n_pairs(n))
    slices = list(row_slices(n))
    if len(kept) == n:
        for start, stop, chunk in chunks(rows, metric):
            for i in range(start, min(stop, n - 1)):
                condensed[slices[i][1]] = chunk[i - start, i - start + 1 :]
        return condensed
    # Copying from the distances of the distinct rows is what makes ties exact.
    square = np.zeros((len(kept), len(kept)))
    for start, stop, chunk in chunks(rows, metric):
        square[start:stop, start:] = chunk
        square[start:, start:stop] = chunk.T
    np.fill_diagonal(square, 0.0)
    for i, where in slices:
        np.take(square[position[i]], position[i + 1 :], out=condensed[where])
    return condensed


def condensed_from_matrix(matrix: NDArray[np.floating], *, layer: str = "the layer") -> FloatArray:
    """Squared distances from a precomputed distance matrix.

    Parameters
    ----------
    matrix : (n_stimuli, n_stimuli) distances, symmetric, zero on the diagonal

    Returns
    -------
    (n_pairs,) squared distances

    Raises
    ------
    InputError
        Not square, not finite, negative, not symmetric, or not zero on the diagonal.
    """
    square: FloatArray = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise InputError(
            f"{layer} has the shape {square.shape}; a precomputed distance matrix must be square."
        )
    if not np.isfinite(square).all() or (square < 0).any():
        row = int(np.argmin((np.isfinite(square) & (square >= 0)).all(axis=1))) + 1
        raise InputError(
            f"{layer} holds a distance in row {row} that is negative or not finite; distances must "
            "be finite and at least 0."
        )
    scale = square.max(initial=0.0)
    if not np.allclose(square, square.T, rtol=1e-6, atol=1e-9 * scale):
        raise InputError(f"{layer} is not symmetric; a distance matrix must equal its transpose.")
    if (np.diag(square) > 1e-9 * scale).any():
        raise InputError(f"{layer} has a distance of a stimulus to itself that is not 0.")
    upper: FloatArray = square[np.triu_indices(len(square), 1)]
    return upper**2

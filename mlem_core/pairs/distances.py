"""Neural distances: how far apart a layer represents every two stimuli; their one registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.numbers import moderate
from mlem_core.base.parallel import each
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray
from mlem_core.extending import entry_modules
from mlem_core.pairs.designs import PairDesign, bands, n_pairs, row_slices
from mlem_core.stimuli.neural_rows import check_finite, checked_distances

# Of arrays that are distances already; see `condensed_from_matrix`.
PRECOMPUTED = "precomputed"
# Ends the name of a distance that is taken for a squared one, such as "cosine-squared".
SQUARED = "-squared"

# A tile of the matrix of distances, (stop - start, n): of rows start..stop-1 to the n rows from
# `start` on, of which those above the diagonal are meant. It is made of the rows, their squared
# norms, start and stop.
Tile = Callable[[Any, Any, int, int], Any]
# What is done with the squared distances of a tile, from `start` on.
Fill = Callable[[int, FloatArray], None]
# Below this share of the squared norms, |x|² + |y|² - 2xy has lost too many digits.
CANCELLATION = 1e-8
CHUNK_ELEMENTS = 2**19
# A matrix product of fewer rows is slower.
CHUNK_ROWS = 128
# Two rows closer than this share of their norm are one representation: a model run in float32
# gives the same word after the same left context only up to its last bits.
EQUAL_ROWS = {2: 2e-3, 4: 5e-6, 8: 1e-12}
# Where rows lie this many times as far from 0 as from each other, that share would be one of what
# they have in common, and is taken of what they differ by.
FAR = 1e4
_SOME_ROWS, _FEW_ROWS = 1_000, 100
PAIR_ELEMENTS = 2**22
# Of rows (n_stimuli, n_units), what a design has of some of its rows, and the array to fill.
Along = Callable[[Any, Any, Any, Any, int, Any], None]


@dataclass(frozen=True)
class Distance:
    """A neural distance; `condensed` alone is enough.

    Everything else makes it faster or says more. The functions are called by several threads.

    Attributes
    ----------
    name : how a user asks for it; store entries are found by it, so that a function that gives
        other numbers needs another name
    condensed : prepared rows (n_stimuli, n_units), float64, to (n_pairs,) distances in the order
        (0,1), (0,2), ..., (1,2), ..., as `scipy.spatial.distance.pdist` gives them
    squared : whether the functions give squared distances
    prepare : what is done with the rows of a layer first, (n_stimuli, n_units) to the same shape
    undefined : what a row holds that `prepare` makes all zeros, if it then has no distance to any
        other, such as "zeros only"; such a row is an error
    tile : gives a band of the matrix instead of `condensed`, see `Tile`
    along : fills the distances of the pairs in some rows of a design, as
        `mlem_core.pairs.kernels.distances.along` does; without it only all pairs can be compared
    as_given : whether `along` is given rows that are not prepared
    over_repetitions : gives squared distances (n_pairs,) of repetitions (n_repetitions, n_stimuli,
        n_units) of what an error message calls so, in the place of all the others
    may_be_squared : whether it can be taken for a squared distance, see `SQUARED`
    label : how forms call it; by default its name
    phrase : how the methods paragraph calls it; by default "the NAME distance"
    """

    name: str
    condensed: Callable[[FloatArray], FloatArray] | None = None
    squared: bool = False
    prepare: Callable[[FloatArray], FloatArray] | None = None
    undefined: str = ""
    tile: Tile | None = None
    along: Along | None = None
    as_given: bool = False
    over_repetitions: Callable[[NDArray[np.floating], str], FloatArray] | None = None
    may_be_squared: bool = False
    label: str = ""
    phrase: str = ""

    def __post_init__(self) -> None:
        if not (self.condensed or self.tile or self.over_repetitions):
            raise ValueError(f"the distance {self.name!r} has no function that computes it.")
        object.__setattr__(self, "label", self.label or self.name)
        object.__setattr__(self, "phrase", self.phrase or f"the {self.name} distance")

    @property
    def repeated(self) -> bool:
        """Whether it is of the repetitions of each stimulus."""
        return self.over_repetitions is not None


DISTANCES = Registry[Distance]("distance", entry_modules)
register = DISTANCES.register


def distance_named(name: str) -> Distance:
    """The distance of this name; with `SQUARED` behind it the one that is a squared one already.

    So 1 - cos is half the squared Euclidean distance of rows of norm 1. Raises InputError: unknown.
    """
    known = DISTANCES.get(name.removesuffix(SQUARED))
    squared = known is not None and known.may_be_squared and name.endswith(SQUARED)
    return replace(known, squared=True) if squared and known else DISTANCES.named(name)


def metrics() -> tuple[str, ...]:
    """Names of the distances that are computed from representations without repetitions."""
    return tuple(n for n, known in DISTANCES.items() if n != PRECOMPUTED and not known.repeated)


def _prepared(
    rows: FloatArray, distance: Distance, layer: str, numbers: NDArray[np.int64]
) -> FloatArray:
    rows = rows if distance.prepare is None else distance.prepare(rows)
    if distance.undefined and not (has_values := rows.any(axis=1)).all():
        others = [name for name in metrics() if not DISTANCES[name].undefined]
        raise InputError(
            f"{layer} holds {distance.undefined} for row {numbers[np.argmin(has_values)] + 1}, "
            f"where the {distance.name} distance is not defined; leave the row out or choose the "
            f"{listed(others, last='or')} distance."
        )
    return rows


def squared_distances(
    representations: NDArray[np.floating],
    metric: str = "euclidean",
    *,
    design: PairDesign | None = None,
    layer: str = "the layer",
    threads: int = 1,
) -> FloatArray:
    """Squared neural distances (n_pairs,) of the pairs of stimuli.

    Equal rows (up to the precision of their type) are at distance 0 and at exactly the same
    distance from any third row; the others hold to a relative 1e-6 however much norms differ.
    Of numbers so small or large that squares of their squares cannot be computed, they are the
    distances divided by a power of 2 (`mlem_core.base.numbers.moderate`).

    Parameters
    ----------
    representations : (n_stimuli, n_units), or distances (n_stimuli, n_stimuli), or repetitions
        (n_repetitions, n_stimuli, n_units), see `Distance.over_repetitions`
    metric : a name in `DISTANCES`; "precomputed" where these are distances
    design : which pairs, in its order; by default all: (0,1), (0,2), ..., (1,2), ...
    layer : how an error message calls these representations
    threads : the distances are the same with any number of them

    Raises InputError: an unknown metric, values that are not finite, or a row for which the
    distance is not defined; as `condensed_from_matrix`; an incomplete design where the distance can
    only be computed of all pairs.

    Source: Jalouzot et al. 2024, section 2.1.1; Salle et al. 2024, appendix B.
    """
    if design is not None and not design.is_complete:
        return _along(representations, metric, design, layer, threads)
    distance = distance_named(metric)
    if metric == PRECOMPUTED:
        return condensed_from_matrix(representations, layer=layer)
    if distance.over_repetitions is not None:
        return distance.over_repetitions(representations, layer)
    from mlem_core.pairs.kernels.distances import fill_condensed

    # The distinct rows, prepared, and which of them each stimulus has.
    raw = checked_rows(representations, layer)
    distinct, position = np.unique(equal_rows(raw), return_inverse=True)
    rows = _prepared(raw[distinct].astype(np.float64), distance, layer, distinct)
    condensed = np.empty(n_pairs(len(position)))
    order = np.argsort(position, kind="stable")
    ascending = position[order]

    def fill(start: int, tile: FloatArray) -> None:
        fill_condensed(tile, start, order, ascending, condensed)

    if distance.tile is not None:
        fill_tiles(rows, distance.tile, distance.squared, fill, threads)
    else:
        _fill_condensed(rows, distance, fill)
    return condensed


def _fill_condensed(rows: FloatArray, distance: Distance, fill: Fill) -> None:
    assert distance.condensed is not None
    condensed = np.asarray(distance.condensed(rows), dtype=np.float64)
    if (
        condensed.shape != (n_pairs(len(rows)),)
        or not (np.isfinite(condensed) & (condensed >= 0)).all()
    ):
        raise InputError(
            f"the distance {distance.name!r} gave an array of shape {condensed.shape} for "
            f"{len(rows)} rows; expected {n_pairs(len(rows))} finite numbers of at least 0, one a "
            "pair."
        )
    for i, at in row_slices(len(rows)):
        band = np.concatenate(([0.0], condensed[at]))[None]
        fill(i, band if distance.squared else band**2)
    # No later row is left for the last one, but several stimuli may have it.
    fill(len(rows) - 1, np.zeros((1, 1)))


def _along(
    representations: NDArray[np.floating], metric: str, design: PairDesign, layer: str, threads: int
) -> FloatArray:
    """`squared_distances` of the pairs of an incomplete design."""
    distance = distance_named(metric)
    values = np.empty(design.n_pairs)
    if metric == PRECOMPUTED:
        matrix = checked_matrix(representations, layer, complete=False)
        for start in range(0, design.n_pairs, PAIR_ELEMENTS):
            places = np.arange(start, min(start + PAIR_ELEMENTS, design.n_pairs))
            values[places] = matrix[design.ends(places)]
        if np.isnan(values).any():
            checked_matrix(representations, layer)
        return np.square(moderate(values))
    if distance.along is None:
        able = [name for name, known in DISTANCES.items() if known.along]
        raise InputError(
            f"the distance {metric!r} can only be computed of all pairs of stimuli, not of some of "
            f"them; choose all pairs, or one of {listed(able)}."
        )
    along, raw = distance.along, checked_rows(representations, layer)
    distinct, position = np.unique(equal_rows(raw), return_inverse=True)
    number = position.astype(np.int32)
    rows: NDArray[np.floating] = np.asarray(raw if len(distinct) == len(raw) else raw[distinct])
    rows = rows.astype(np.float32) if rows.dtype.itemsize == 2 else rows
    if not distance.as_given:
        rows = _prepared(rows.astype(np.float64), distance, layer, distinct)

    def fill(ends: tuple[int, int]) -> None:
        starts = design.starts[ends[0] : ends[1] + 1]
        begin, end = starts[0], starts[-1]
        stimulus, partner = number[design.stimulus[slice(*ends)]], number[design.partner[begin:end]]
        along(rows, stimulus, starts, partner, begin, values[begin:end])

    # In parts of a second, between which a run may be stopped.
    each(fill, design.slices(max(threads, design.n_pairs >> 22)), threads)
    return values if distance.squared else np.square(values, out=values)


def equal_rows(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """The first row that each of rows (n_stimuli, n_units) equals, up to its type's precision.

    Returns (n_stimuli,) row numbers; a row that equals no earlier one has its own number.
    """
    from mlem_core.pairs.kernels.distances import join_equal

    tolerance = EQUAL_ROWS.get(rows.dtype.itemsize, 1e-12)
    given = moderate(np.asarray(rows, dtype=np.float32 if rows.dtype.itemsize == 2 else None))
    if (centre := _far_centre(given)) is not None:
        given = given.astype(np.float64) - centre
    # Equal rows have equal projections: only neighbours along one direction need a closer look.
    directions = np.random.default_rng(0).standard_normal((2, given.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    norms, projections = np.empty(len(given)), np.empty((2, len(given)))
    step = max(1, PAIR_ELEMENTS // given.shape[1])
    for start in range(0, len(given), step):
        band = slice(start, start + step)
        exact = given[band].astype(np.float64)
        norms[band] = np.linalg.norm(exact, axis=1)
        projections[:, band] = directions @ exact.T
    order = np.argsort(projections[0], kind="stable")
    first = np.arange(len(given))
    join_equal(given, order, projections, tolerance * norms, first)
    # Name each group by its lowest row, whatever the order of the projections was.
    lowest = np.full(len(given), len(given))
    np.minimum.at(lowest, first, np.arange(len(given)))
    return lowest[first].astype(np.int64)


def _far_centre(rows: NDArray[np.floating]) -> FloatArray | None:
    """The mean (n_units,) of some rows where they lie `FAR` from 0, else None."""
    some = np.asarray(rows[:: max(1, len(rows) // _SOME_ROWS)], dtype=np.float64)
    largest = float(np.abs(some).max(initial=0.0))
    if not 0 < largest < np.inf:
        return None
    centre: FloatArray = some.mean(axis=0)
    # Divided by the largest, so that squares stay finite.
    spread = np.linalg.norm((some - centre) / largest) / np.sqrt(len(some))
    return centre if np.linalg.norm(centre / largest) > FAR * spread > 0 else None


def checked_rows(representations: NDArray[np.floating], layer: str) -> NDArray[np.floating]:
    """Representations (n_stimuli, n_units) as floats, see `mlem_core.base.numbers.moderate`.

    Raises InputError: a value that is not finite.
    """
    rows = np.asarray(representations)
    if not np.issubdtype(rows.dtype, np.floating):
        rows = rows.astype(np.float64)
    check_finite(rows, layer)
    return moderate(rows)


def checked_matrix(
    matrix: NDArray[np.floating], layer: str, *, complete: bool = True
) -> FloatArray:
    """A matrix of distances (n_stimuli, n_stimuli) as float64, of `moderate` size.

    Parameters and errors are those of `mlem_core.stimuli.neural_rows.checked_distances`.
    """
    square = checked_distances(matrix, layer, complete=complete)
    return np.asarray(moderate(square), dtype=np.float64)


def centred_columns(rows: FloatArray) -> FloatArray:
    """Rows (n_stimuli, n_units) with each unit's mean 0, or its median.

    It is the median where a few rows are so large that the mean is `FAR` from most of them: they
    would lose the digits in which they differ.
    """
    mean = rows.mean(axis=0)
    some = np.array(rows[:: max(1, len(rows) // _FEW_ROWS)])
    middle = np.median(some, axis=0)
    usual = np.median(np.linalg.norm(some - middle, axis=1))
    return rows - (middle if np.linalg.norm(mean - middle) > FAR * usual > 0 else mean)


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows of norm 1; zeros stay."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, np.inf)


def unit_centred_rows(rows: FloatArray) -> FloatArray:
    """Rows of mean 0 and norm 1; zeros where all units of a row are equal."""
    return unit_rows(rows - rows.mean(axis=1, keepdims=True))


def fill_tiles(rows: FloatArray, tile: Tile, squared: bool, fill: Fill, threads: int) -> None:
    """Give the squared distances of rows (n_rows, n_units) to `fill`, a tile after the other.

    Parameters
    ----------
    squared : whether those that `tile` gives are squared already
    fill : called by several threads
    """
    squares = np.einsum("ij,ij->i", rows, rows)

    def fill_band(ends: tuple[int, int]) -> None:
        found: FloatArray = tile(rows, squares, *ends)
        fill(ends[0], found if squared else np.square(found, out=found))

    each(fill_band, bands(len(rows), max(CHUNK_ELEMENTS, CHUNK_ROWS * len(rows))), threads)


def squared_euclidean(rows: FloatArray, squares: FloatArray, start: int, stop: int) -> FloatArray:
    """A tile of squared Euclidean distances by one matrix product."""
    from mlem_core.pairs.kernels.distances import finish_squared

    left, right = rows[start:stop], rows[start:]
    tile: FloatArray = left @ right.T
    finish_squared(tile, left, right, squares[start:], CANCELLATION)
    return tile


def cityblock(rows: FloatArray, _: FloatArray, start: int, stop: int) -> FloatArray:
    """A tile of Manhattan distances."""
    from scipy.spatial.distance import cdist

    return cdist(rows[start:stop], rows[start:], "cityblock")


def half(tile: Tile) -> Tile:
    """Half of what a tile is: for rows of norm 1, 1 - cos is half the squared distance."""

    def halved(rows: Any, squares: Any, start: int, stop: int) -> Any:
        found = tile(rows, squares, start, stop)
        found /= 2
        return found

    return halved


def condensed_from_matrix(matrix: NDArray[np.floating], *, layer: str = "the layer") -> FloatArray:
    """Squared distances (n_pairs,) from a matrix of distances (n_stimuli, n_stimuli).

    Raises InputError: as `checked_matrix`.
    """
    square = checked_matrix(matrix, layer)
    upper: FloatArray = square[np.triu_indices(len(square), 1)]
    return upper**2


def _angular(name: str, prepare: Callable[[FloatArray], FloatArray], undefined: str) -> Distance:
    """1 - cos: half the squared distance of the rows, which `prepare` brings to norm 1."""
    return Distance(
        name,
        prepare=prepare,
        undefined=undefined,
        tile=half(squared_euclidean),
        along=_fill_half_along,
        may_be_squared=True,
    )


def _fill_along(*args: Any, cityblock: bool | None = None) -> None:
    from mlem_core.pairs.kernels.distances import along

    fill: Any = along
    fill(*args, cityblock)


def _fill_half_along(*args: Any) -> None:
    _fill_along(*args)
    args[-1][:] /= 2


for _distance in (
    Distance(
        "euclidean",
        squared=True,
        prepare=centred_columns,
        tile=squared_euclidean,
        along=_fill_along,
        as_given=True,
        phrase="the Euclidean distance",
    ),
    _angular("cosine", unit_rows, "zeros only"),
    Distance(
        "manhattan", tile=cityblock, along=partial(_fill_along, cityblock=True), as_given=True
    ),
    _angular("correlation", unit_centred_rows, "one and the same value"),
    Distance(
        PRECOMPUTED,
        condensed=condensed_from_matrix,
        squared=True,
        label="precomputed: the files hold distances",
        phrase="the distance given in the file",
    ),
):
    register(_distance)

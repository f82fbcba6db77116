"""Sums by pattern of a layer's distances: the one pass over the pairs.

A pair of stimuli enters every analysis through its pattern, the vector of its feature distances,
and patterns are few. `PairIndex` says which pattern each pair has (it depends on the stimuli
alone); `pair_tables` sums distances and ranks by pattern for each layer; everything after that
works on the `PairTables` and never sees a pair again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, one_thread_each
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.distances import distance_named, squared_distances
from mlem_core.pairs.layer_sums import LayerSums, layer_sums
from mlem_core.pairs.patterns import PairIndex, Patterns
from mlem_core.pairs.tables import BY_LAYER, PairTables
from mlem_core.scale.executor import HERE

# All cores share a layer of more pairs: two at once would take twice the memory.
LARGE = 2**24

LayerSource = Callable[[], NDArray[np.floating]]


@dataclass(frozen=True)
class PassOptions:
    """Options of the pass over the pairs, and its callbacks; the tables are the same.

    keep_ranks : called with a layer's position and its (n_pairs,) doubled ranks
    of_design : called with a layer's position, and the tables of this layer from each of the
        independent designs that an incomplete design of the pairs is of
    failed : called with the position of a layer whose distances cannot be computed and the error;
        the layer is then left out of the tables. Without it the error is raised
    progress : called with the number of layers done and their total
    workers : threads; by default one a core
    """

    keep_ranks: Callable[[int, NDArray[np.uint32]], None] | None = None
    of_design: Callable[[int, list[PairTables]], None] | None = None
    failed: Callable[[int, InputError], None] | None = None
    progress: Callable[[int, int], None] | None = None
    workers: int | None = None


def pair_tables(
    index: PairIndex,
    layers: Sequence[LayerSource],
    *,
    names: Sequence[str] | None = None,
    distance: str | Sequence[str] = "euclidean",
    train_ranks: bool = False,
    options: PassOptions | None = None,
) -> PairTables:
    """Pair tables of many layers, one pass over the pairs for each.

    Parameters
    ----------
    index : the pairs' patterns and blocks; which pairs
    layers : for each layer a function that gives its representations (n_stimuli, n_units), or its
        distances (n_stimuli, n_stimuli) where `distance` is "precomputed"
    names : how messages call each layer
    distance : a name in `mlem_core.pairs.distances.DISTANCES`, or one for each layer
    train_ranks : also sum the ranks among the training pairs of each fold, which the estimators
        that fit ranks need

    Raises InputError: as `squared_distances`; a layer whose number of rows is not that of the
    stimuli.
    """
    options = options or PassOptions()
    names = names or [f"layer {i}" for i in range(len(layers))]
    each = [distance] * len(layers) if isinstance(distance, str) else list(distance)
    for one_of in dict.fromkeys(each):
        distance_named(one_of)
    # All cores share a layer that holds much memory.
    alone = index.design.n_pairs > LARGE
    workers = 1 if alone else min(options.workers or cores(), max(1, len(layers)))
    threads = max(1, (options.workers or cores()) // workers)
    keep_ranks, of_design = options.keep_ranks, options.of_design

    def one(position: int) -> LayerSums:
        wanted = train_ranks, keep_ranks is not None, of_design is not None
        work = LayerWork(each[position], names[position], *wanted)
        found = one_layer(index, layers[position], work, threads)
        if of_design is not None and found.designs:
            of_design(position, found.designs)
        if keep_ranks is not None and found.doubled is not None:
            keep_ranks(position, found.doubled)
        return found.sums

    def usable() -> Iterator[LayerSums]:
        # The cores are shared out already: among the layers, or the bands of one.
        with one_thread_each():
            for position, found in HERE.each_of(one, range(len(layers)), threads=workers):
                if isinstance(found, LayerSums):
                    yield found
                elif options.failed is None:
                    raise found
                else:
                    options.failed(position, found)
                if options.progress is not None:
                    options.progress(position + 1, len(layers))

    return assembled(index, usable(), len(layers))


@dataclass(frozen=True)
class LayerWork:
    """Choices of the pass over a layer, see `pair_tables`.

    name : how messages call it
    ranks : also give the rank of each pair
    designs : also give the tables from each part of an incomplete design
    """

    distance: str
    name: str
    train_ranks: bool = False
    ranks: bool = False
    designs: bool = False


class LayerFound(NamedTuple):
    """Result of the pass over the pairs of a layer; `doubled` is twice the average ranks."""

    sums: LayerSums
    doubled: NDArray[np.uint32] | None = None
    designs: list[PairTables] | None = None


def one_layer(
    index: PairIndex, source: LayerSource, work: LayerWork, threads: int = 1
) -> LayerFound:
    """The pass over the pairs of one layer, the same with any number of threads.

    Raises as `pair_tables`.
    """
    design, train, rows = index.design, work.train_ranks, source()
    check_rows(rows, len(index.folds), work.name)
    squared = squared_distances(
        rows, work.distance, design=design, layer=work.name, threads=threads
    )
    designs = None
    if work.designs and not design.is_complete:
        designs = []
        for number in range(design.n_designs):
            part, own = index.of_design(number)
            sums, _ = layer_sums(part, squared[own], train, ranks=False, threads=threads)
            designs.append(assembled(part, [sums]))
    summed = layer_sums(index, squared, train, ranks=work.ranks, overwrite=True, threads=threads)
    return LayerFound(*summed, designs)


def check_rows(rows: NDArray[np.floating], n_stimuli: int, name: str) -> None:
    """Raise InputError for rows that are not (n_stimuli, n_units), or too large to be compared.

    `name` is how the message calls them.
    """
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InputError(
            f"{name} has the shape {rows.shape}; expected (stimuli, units), here ({n_stimuli}, 1 "
            "or more)."
        )
    if len(rows) != n_stimuli:
        raise InputError(
            f"{name} has {len(rows)} rows, but there are {n_stimuli} stimuli; "
            "it must have one row a stimulus, in the order of the CSV."
        )


def tables_without_layers(index: PairIndex) -> PairTables:
    """The patterns and how many pairs have each, for no layer: what the stimuli alone decide."""
    by_cell, by_block = np.zeros((0, index.n_cells)), np.zeros((0, index.n_blocks))
    patterns: dict[str, Any] = {own.name: getattr(index, own.name) for own in fields(Patterns)}
    return PairTables(
        **patterns,
        n_stimuli=len(index.folds),
        n_folds=index.n_folds,
        cell_block=index.cell_block,
        cell_pattern=index.cell_pattern,
        counts=index.counts.astype(np.float64),
        target_sums=by_cell,
        rank_sums=by_cell,
        within_sums=by_cell,
        rank_squares=np.zeros(0),
        within_squares=np.zeros((0, index.n_folds)),
        target_low=by_block,
        target_high=by_block,
    )


def assembled(index: PairIndex, rows: Iterable[LayerSums], n_layers: int = 1) -> PairTables:
    """The tables of the layers that have these sums, at most so many; a row is held once.

    Raises InputError: no layer is left.
    """
    arrays, n = dict[str, FloatArray](), 0
    for row in rows:
        for name in (*BY_LAYER, "train_sums", "train_squares"):
            own = getattr(row, name)
            if own is not None:
                if name not in arrays:
                    arrays[name] = np.empty((n_layers, *np.shape(own)))
                arrays[name][n] = own
        n += 1
    if not n:
        raise InputError("no layer is left whose distances can be computed.")
    changed: dict[str, Any] = {name: own[:n] for name, own in arrays.items()}
    if "train_sums" in changed:
        train_sums = changed["train_sums"]
        changed["train_sums"] = lambda: train_sums
    return replace(tables_without_layers(index), **changed)

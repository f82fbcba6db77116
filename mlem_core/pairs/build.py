"""Sums by pattern of a layer's distances: the one pass over the pairs, and its tables as a file.

A pair of stimuli enters every analysis through its pattern, the vector of its feature distances,
and patterns are few. `PairIndex` says which pattern each pair has (it depends on the stimuli
alone); `pair_tables` sums distances and ranks by pattern for each layer; everything after that
works on the `PairTables` and never sees a pair again.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import cores, in_order, one_thread_each
from mlem_core.pairs.distances import distance_named, squared_distances
from mlem_core.pairs.layer_sums import LayerSums, layer_sums
from mlem_core.pairs.patterns import PairIndex, Patterns, left_out, tested_blocks
from mlem_core.pairs.tables import PairTables

# All cores share a layer of more pairs: two at once would take twice the memory.
LARGE = 2**24

T = TypeVar("T")
LayerSource = Callable[[], NDArray[np.floating]]


def pair_tables(
    index: PairIndex,
    layers: Sequence[LayerSource],
    *,
    names: Sequence[str] | None = None,
    distance: str | Sequence[str] = "euclidean",
    train_ranks: bool = False,
    keep_ranks: Callable[[int, NDArray[np.uint32]], None] | None = None,
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
    keep_ranks : called with a layer's position and its (n_pairs,) doubled ranks

    Raises InputError: as `squared_distances`; a layer whose number of rows is not that of the
    stimuli.
    """
    names = names or [f"layer {i}" for i in range(len(layers))]
    each = [distance] * len(layers) if isinstance(distance, str) else distance
    for one_of in dict.fromkeys(each):
        distance_named(one_of)
    pairs = zip(each, names, strict=True)
    works = [LayerWork(of, name, train_ranks, keep_ranks is not None) for of, name in pairs]

    def then(at: int, found: LayerFound) -> LayerSums:
        if keep_ranks is not None and found.doubled is not None:
            keep_ranks(at, found.doubled)
        return found.sums

    def sums() -> Iterator[LayerSums]:
        for _, found in layer_passes(index, layers, works, then):
            if isinstance(found, InputError):
                raise found
            yield found

    return assembled(index, sums(), len(layers))


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


def layer_passes(
    index: PairIndex,
    layers: Sequence[LayerSource],
    works: Sequence[LayerWork],
    then: Callable[[int, LayerFound], T],
) -> Iterator[tuple[int, T | InputError]]:
    """The position of each layer and what `then` gives for it and its pass, in their order.

    Where the distances of a layer cannot be computed, its error is in the place of that.
    """
    # All cores share a layer that holds much memory.
    workers = 1 if index.design.n_pairs > LARGE else min(cores(), max(1, len(layers)))

    def passed(at: int) -> T | InputError:
        try:
            return then(at, one_layer(index, layers[at], works[at], max(1, cores() // workers)))
        except InputError as error:
            return error

    # The cores are shared out already: among the layers, or the bands of one.
    with one_thread_each():
        yield from enumerate(in_order(passed, range(len(layers)), workers))


def check_rows(rows: NDArray[np.floating], n_stimuli: int, name: str) -> None:
    """Raise InputError for rows that are not (n_stimuli, n_units), or too large to be compared.

    `name` is how the message calls them.
    """
    if rows.ndim != 2 or rows.shape[1] == 0 or len(rows) != n_stimuli:
        raise InputError(
            f"{name} has the shape {rows.shape}; expected ({n_stimuli}, units), one row a stimulus "
            "in the order of the CSV."
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
    for n, row in enumerate(rows, 1):
        for name, own in vars(row).items():
            if own is not None:
                if name not in arrays:
                    arrays[name] = np.empty((n_layers, *np.shape(own)))
                arrays[name][n - 1] = own
    if not n:
        raise InputError("no layer is left whose distances can be computed.")
    changed: dict[str, Any] = {name: own[:n] for name, own in arrays.items()}
    if "train_sums" in changed:
        train_sums = changed["train_sums"]
        changed["train_sums"] = lambda: train_sums
    return replace(tables_without_layers(index), **changed)


# Bits of the mantissa that sums of squared distances lose: a relative error of 7e-12 at most, where
# distances that differ by 2e-10 are ties already (see `mlem_core.pairs.ranks.keys_of`).
DROPPED = np.int64(16)

AS_THEY_ARE = (
    "cell_block", "cell_pattern", "counts", "codes",
    "rank_squares", "within_squares", "target_low", "target_high",
)  # fmt: skip


def save_pair_tables(tables: PairTables, path: Path, *, compress: bool = False) -> None:
    """Write pair tables as an .npz without pickles, small and quick to read.

    Left out is what is 0 by construction: ranks inside a fold where no fold tests a pair, ranks
    among the training pairs of a fold where the fold leaves a pair out. Sums of ranks are
    half-integers: doubled they are whole numbers, and what is kept of those among fewer pairs is
    how far they are from their share of the ranks among all pairs. Of a number's bytes those at one
    place stand together, which is what makes a table of numbers of similar size compress.

    Compressed it is a third smaller and takes many times as long to write: for what is kept.

    Raises ValueError: sums of ranks that are no half-integers.
    """
    doubled, counts = _doubled(tables.rank_sums), tables.counts
    arrays: dict[str, Any] = {name: getattr(tables, name) for name in AS_THEY_ARE}
    arrays |= {f"level_{f:03d}": level for f, level in enumerate(tables.levels)}
    arrays |= {f"values_{f:03d}": np.array(own) for f, own in enumerate(tables.value_names) if own}
    # The bits of numbers of at least 0 without the last ones, to the nearest.
    bits = np.ascontiguousarray(tables.target_sums + 0.0).view(np.int64)
    arrays["target_sums"] = pack((bits + (np.int64(1) << (DROPPED - 1))) >> DROPPED)
    arrays["rank_sums"] = pack(doubled)
    for k, (inside, training) in enumerate(_parts(tables.cell_block, tables.trains)):
        sums = _doubled(tables.within_sums[:, inside])
        arrays[f"within_{k:02d}"] = pack(sums - _expected(doubled, counts, inside))
        if tables.train_sums is not None:
            sums = _doubled(tables.train_sums()[:, k, training])
            arrays[f"train_{k:02d}"] = pack(sums - _expected(doubled, counts, training))
    if tables.train_squares is not None:
        arrays["train_squares"] = tables.train_squares
    write = np.savez_compressed if compress else np.savez
    write(
        path,
        features=np.array(tables.features),
        kinds=np.array(tables.kinds),
        size=np.array([tables.n_stimuli, tables.n_folds]),
        **arrays,
    )


def load_pair_tables(path: Path) -> PairTables:
    """The pair tables that `save_pair_tables` wrote.

    Ranks among training pairs, the larger part, are read from memory at their first use.

    Raises OSError, ValueError, KeyError: the file is damaged, or not of this form.
    """
    data = path.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as kept:
            features = tuple(str(name) for name in kept["features"])
            found: dict[str, Any] = {name: kept[name] for name in AS_THEY_ARE}
            n_stimuli, n_folds = (int(size) for size in kept["size"])
            shape = len(found["rank_squares"]), len(found["counts"])
            counts, n_blocks = found["counts"], found["target_low"].shape[1]
            parts = _parts(found["cell_block"], ~left_out(n_folds, n_blocks))
            doubled = unpack(kept["rank_sums"]).reshape(shape)
            within = np.zeros(shape)
            for k, (inside, _) in enumerate(parts):
                sums = unpack(kept[f"within_{k:02d}"]).reshape(shape[0], -1)
                within[:, inside] = (sums + _expected(doubled, counts, inside)) / 2
            target = unpack(kept["target_sums"]).reshape(shape) << DROPPED
            squares = kept.get("train_squares")
            levels = tuple(kept[f"level_{f:03d}"] for f in range(len(features)))
            kinds = tuple(str(kind) for kind in kept["kinds"])
            of_values = [kept.get(f"values_{f:03d}", ()) for f in range(len(features))]
            value_names = tuple(tuple(str(name) for name in own) for own in of_values)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error

    def train_sums() -> FloatArray:
        sums = np.zeros((shape[0], n_folds, shape[1]))
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as kept:
                for k, (_, training) in enumerate(parts):
                    part = unpack(kept[f"train_{k:02d}"]).reshape(shape[0], -1)
                    sums[:, k, training] = (part + _expected(doubled, counts, training)) / 2
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError) as error:
            raise InputError(
                "the pair tables of this analysis are damaged; run it again."
            ) from error
        return sums

    return PairTables(
        **found,
        features=features,
        kinds=kinds,
        levels=levels,
        value_names=value_names,
        n_stimuli=n_stimuli,
        n_folds=n_folds,
        target_sums=target.view(np.float64),
        rank_sums=doubled / 2,
        within_sums=within,
        train_sums=None if squares is None else cache(train_sums),
        train_squares=squares,
    )


def pack(numbers: IntArray) -> NDArray[np.uint8]:
    """Whole numbers (n in all) as bytes (n_bytes, n): the lowest byte of all, then the next.

    Small numbers of either sign have small bytes: 0, -1, 1, -2 ... are 0, 1, 2, 3 ...
    """
    flat = np.ascontiguousarray(numbers, dtype="<i8").ravel()
    folded = (flat << 1) ^ (flat >> 63)
    n_bytes = max(1, -(-int(folded.view("<u8").max(initial=0)).bit_length() // 8))
    return np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 8)[:, :n_bytes].T)


def unpack(packed: NDArray[np.uint8]) -> IntArray:
    """The numbers (n,) that `pack` made (n_bytes, n) of."""
    found = np.empty(packed.shape[1], dtype=np.int64)
    # So many at once stay in the processor's cache.
    for start in range(0, len(found), 2**16):
        some = packed[:, start : start + 2**16]
        folded = np.zeros(some.shape[1], dtype=np.uint64)
        for part in some[::-1]:
            folded = folded << 8 | part
        found[start : start + 2**16] = ((folded >> 1) ^ (~(folded & 1) + 1)).view(np.int64)
    return found


def _doubled(sums: FloatArray) -> IntArray:
    doubled = np.rint(2 * sums).astype(np.int64)
    if not np.array_equal(doubled, 2 * sums):
        raise ValueError("sums of ranks must be half-integers.")
    return doubled


def _parts(cell_block: IntArray, trains: NDArray[np.bool_]) -> list[tuple[IntArray, IntArray]]:
    """For each fold the cells of the pairs inside it, and of those that it does not leave out."""
    blocks = zip(tested_blocks(len(trains)), trains, strict=True)
    return [(np.flatnonzero(cell_block == k), np.flatnonzero(own[cell_block])) for k, own in blocks]


def _expected(doubled: IntArray, counts: FloatArray, cells: IntArray) -> IntArray:
    """Twice the ranks (n_layers, n_chosen) of some cells, if they are their share of all pairs."""
    # One product and one rounding: the same on every machine.
    share = float(counts[cells].sum() / counts.sum())
    return np.rint(doubled[:, cells] * share).astype(np.int64)

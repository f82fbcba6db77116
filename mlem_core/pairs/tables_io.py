"""Pair tables as a file: small, and quick to read.

Left out is what is 0 by construction: ranks inside a fold where no fold tests a pair, ranks among
the training pairs of a fold where the fold leaves a pair out. Sums of ranks are half-integers:
doubled they are whole numbers, and what is kept of those among fewer pairs is how far they are from
their share of the ranks among all pairs. Of a number's bytes those at one place stand together,
which is what makes a table of numbers of similar size compress.
"""

from __future__ import annotations

import functools
import io
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.patterns import left_out, tested_blocks
from mlem_core.pairs.tables import PairTables

# Bits of the mantissa that sums of squared distances lose: a relative error of 7e-12 at most, where
# distances that differ by 2e-10 are ties already (see `mlem_core.pairs.ranks.keys_of`).
DROPPED = np.int64(16)

PLAIN = ("cell_block", "cell_pattern", "counts", "codes")
BY_LAYER = ("rank_squares", "within_squares", "target_low", "target_high")


def save_pair_tables(tables: PairTables, path: Path, *, compress: bool = False) -> None:
    """Write pair tables as an .npz without pickles.

    Compressed it is a third smaller and takes many times as long to write: for what is kept.

    Raises ValueError: sums of ranks that are no half-integers.
    """
    doubled = _doubled(tables.rank_sums)
    arrays: dict[str, Any] = {name: getattr(tables, name) for name in (*PLAIN, *BY_LAYER)}
    arrays |= {f"level_{f:03d}": level for f, level in enumerate(tables.levels)}
    arrays |= {f"values_{f:03d}": np.array(own) for f, own in enumerate(tables.value_names) if own}
    arrays["target_sums"] = pack(_rounded(tables.target_sums))
    arrays["rank_sums"] = pack(doubled)
    parts = _parts(tables.cell_block, tables.counts, tables.trains)
    for k, (inside, training) in enumerate(parts):
        sums = _doubled(tables.within_sums[:, inside.cells])
        arrays[f"within_{k:02d}"] = pack(sums - inside.expected(doubled))
        if tables.train_sums is not None:
            sums = _doubled(tables.train_sums()[:, k, training.cells])
            arrays[f"train_{k:02d}"] = pack(sums - training.expected(doubled))
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
            found: dict[str, Any] = {name: kept[name] for name in (*PLAIN, *BY_LAYER)}
            n_stimuli, n_folds = (int(size) for size in kept["size"])
            shape = len(found["rank_squares"]), len(found["counts"])
            trains = ~left_out(n_folds, found["target_low"].shape[1])
            parts = _parts(found["cell_block"], found["counts"], trains)
            doubled = unpack(kept["rank_sums"]).reshape(shape)
            within = np.zeros(shape)
            for k, (inside, _) in enumerate(parts):
                sums = unpack(kept[f"within_{k:02d}"]).reshape(shape[0], -1)
                within[:, inside.cells] = (sums + inside.expected(doubled)) / 2
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
                    sums[:, k, training.cells] = (part + training.expected(doubled)) / 2
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
        train_sums=None if squares is None else functools.cache(train_sums),
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


def _rounded(sums: FloatArray) -> IntArray:
    """Bits of numbers of at least 0 without the last ones, to the nearest."""
    bits = np.ascontiguousarray(sums + 0.0).view(np.int64)
    return (bits + (np.int64(1) << (DROPPED - 1))) >> DROPPED


class _Part(NamedTuple):
    """Cells of some of the pairs, and the share that these have in all pairs."""

    cells: IntArray
    share: float

    def expected(self, doubled: IntArray) -> IntArray:
        # One product and one rounding: the same on every machine.
        return np.rint(doubled[:, self.cells] * self.share).astype(np.int64)


def _parts(
    cell_block: IntArray, counts: FloatArray, trains: NDArray[np.bool_]
) -> list[tuple[_Part, _Part]]:
    """Pairs inside each fold, and those that it does not leave out."""
    inside = tested_blocks(len(trains))

    def part(chosen: NDArray[np.bool_]) -> _Part:
        return _Part(np.flatnonzero(chosen), float(counts[chosen].sum() / counts.sum()))

    return [(part(cell_block == inside[k]), part(own[cell_block])) for k, own in enumerate(trains)]

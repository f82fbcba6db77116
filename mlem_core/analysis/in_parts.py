"""Layers of which the pairs do not fit the memory, by workers of a cluster that share the store.

Both passes over the tiles of such a layer are made of parts, see `mlem_core.pairs.class_passes`.
Workers leave what they count in a folder of the store, one of them makes ranks of it, and the sums
of the second pass come back, to be added as a tree. So it is with the products of the ranks of all
layers. A part that was counted is not counted again by a run that goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.executor import Executor, results
from mlem_core.base.typing import FloatArray
from mlem_core.models.representations import Representations
from mlem_core.pairs.build import LayerWork, distances_of
from mlem_core.pairs.class_passes import ClassPasses, PartSums, Ranked, added, n_parts
from mlem_core.pairs.classes import classes_of, sums_of_classes
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.rank_classes import RankClasses, RankProducts, sum_in_order
from mlem_core.storage.files import replacing
from mlem_core.storage.watched import check_unchanged

T = TypeVar("T")
_ROWS, _RANKS, _CLASSES = "rows.npy", "ranks.npz", "classes.npz"


class TiledLayer(NamedTuple):
    """A layer that is done in parts.

    source : its representations in the store; None where its rows are in the folder
    number : of the layer among these
    folder : of the store, for what workers find; it has the name of the layer's key
    """

    source: Representations | None
    number: int
    work: LayerWork
    folder: Path

    @classmethod
    def placed(
        cls, source: Representations, number: int, work: LayerWork, folder: Path
    ) -> TiledLayer:
        """The layer, the folder being there, with its rows where these are not in the store."""
        folder.mkdir(parents=True, exist_ok=True)
        if source.folder is not None and source.folder.is_relative_to(folder.parents[1]):
            return cls(source, number, work, folder)
        if not (folder / _ROWS).exists():

            def write(file: Any) -> None:
                np.save(file, np.asarray(source[number]))
                check_unchanged(source.identity)  # they are found under the layer's key

            _write(folder / _ROWS, write)
        return cls(None, number, work, folder)

    def rows(self) -> NDArray[np.floating]:
        """(n_stimuli, n_units)"""
        if self.source is not None:
            return self.source[self.number]
        rows: NDArray[np.floating] = np.load(self.folder / _ROWS, "r", allow_pickle=False)
        return rows


def passed_in_parts(
    index: PairIndex, layer: TiledLayer, executor: Executor, done: Callable[[int], None]
) -> tuple[LayerSums, dict[str, Any]]:
    """Both passes over a layer: its sums and classes (`RankClasses.as_arrays`).

    `done` is that of `mlem_core.pairs.classes.class_sums`.

    Raises
    ------
    InputError
        As `mlem_core.pairs.build.pair_tables`.
    """
    parts = range(n_parts(index.design.n_pairs, layer.work.memory))
    shared, root = (index, layer), layer.folder.parents[1]
    results(executor, count_part, parts, shared, done, root)
    results(executor, rank_all, [len(parts)], shared, None, root)
    sums = results(
        executor, sum_part, parts, shared, lambda number: done(len(parts) + number), root
    )
    (found,) = results(executor, finish, [added(sums)], shared, None, root)
    for part in parts:
        _counts(layer, part).unlink(missing_ok=True)
    sums_of_layer, classes = found
    return sums_of_layer, classes


def count_part(index: PairIndex, layer: TiledLayer, part: int) -> None:
    """What a worker does: the first pass over a part, its counts now in the layer's folder."""
    path = _counts(layer, part)
    if not path.exists():
        _write(path, partial(np.save, arr=_passes(index, layer).counts([part])))


def rank_all(index: PairIndex, layer: TiledLayer, number: int) -> None:
    """What a worker does: the ranks of all classes, from the counts of so many parts."""
    counts = np.load(_counts(layer, 0), allow_pickle=False)
    for part in range(1, number):
        counts += np.load(_counts(layer, part), "r", allow_pickle=False)
    found = _passes(index, layer).ranked(counts)
    _write(layer.folder / _RANKS, lambda file: np.savez(file, **found._asdict()))


def sum_part(index: PairIndex, layer: TiledLayer, part: int) -> PartSums:
    """What a worker does: the second pass over a part."""
    return _passes(index, layer).sums(part, _ranked(layer).ranks)


def finish(
    index: PairIndex, layer: TiledLayer, total: PartSums
) -> tuple[LayerSums, dict[str, Any]]:
    """What a worker does: what is known of a layer once the sums of all parts are added."""
    passes, ranked = _passes(index, layer), _ranked(layer)
    classes = classes_of(passes, ranked, lambda: passes.layer)
    return sums_of_classes(passes, ranked, total), classes.as_arrays()


def products_in_parts(
    index: PairIndex,
    layers: Sequence[TiledLayer],
    classes: Sequence[Mapping[str, Any]],
    executor: Executor,
) -> FloatArray:
    """`RankProducts.all` of layers that have these classes (`RankClasses.as_arrays`)."""
    for layer, given in zip(layers, classes, strict=True):
        _write(layer.folder / _CLASSES, partial(np.savez, **given))
    spans, root = _products(index, layers).spans, layers[0].folder.parents[1]
    parts = results(executor, products_of_span, spans, (index, tuple(layers)), None, root)
    return sum_in_order(parts)


def products_of_span(
    index: PairIndex, layers: tuple[TiledLayer, ...], span: tuple[int, int]
) -> FloatArray:
    """What a worker does: the products of the ranks of all layers over some pairs."""
    key = tuple(layer.folder for layer in layers)
    return _open_products.of(key, lambda: _products(index, layers)).of(span)


def _products(index: PairIndex, layers: Sequence[TiledLayer]) -> RankProducts:
    def classes(layer: TiledLayer) -> RankClasses:
        with np.load(layer.folder / _CLASSES, allow_pickle=False) as file:
            given = {name: file[name] for name in file.files}
        return RankClasses.from_arrays(distances_of(index, layer.rows, layer.work), given)

    return RankProducts([classes(layer) for layer in layers])


class _Open(Generic[T]):
    """The last thing that was opened in this process, for all pieces of work that need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Any, T] | None = None

    def of(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if self._held is None or self._held[0] != key:
                self._held = None
                self._held = key, make()
            return self._held[1]


_open_passes: _Open[ClassPasses] = _Open()
_open_ranks: _Open[Ranked] = _Open()
_open_products: _Open[RankProducts] = _Open()


def _passes(index: PairIndex, layer: TiledLayer) -> ClassPasses:
    work = layer.work

    def make() -> ClassPasses:
        distances = distances_of(index, layer.rows, work)
        return ClassPasses(index, distances(), work.train_ranks, work.memory)

    return _open_passes.of(layer.folder, make)


def _ranked(layer: TiledLayer) -> Ranked:
    def make() -> Ranked:
        with np.load(layer.folder / _RANKS, allow_pickle=False) as file:
            return Ranked(file["ranks"], file["ties"], float(file["bound"]))

    return _open_ranks.of(layer.folder, make)


def _counts(layer: TiledLayer, part: int) -> Path:
    return layer.folder / f"counts-{part}.npy"


def _write(path: Path, save: Callable[[Any], None]) -> None:
    with replacing(path, synced=False) as temporary, temporary.open("wb") as file:
        save(file)

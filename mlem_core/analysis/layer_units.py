"""The pass over the pairs of each layer by the workers of a cluster.

The unit is a layer. What its pass gives is an entry of the store, so that a run that was broken off
goes on from the layers that are done; the entries go when the tables of all layers are kept. Where
the workers share the store they read representations from it and write these entries themselves,
and nothing but names travels. Elsewhere a layer's rows go to one worker, and its sums and ranks
come back to be kept here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.pair_errors import DesignScores, OfDesigns
from mlem_core.base.errors import InputError
from mlem_core.base.executor import Executor
from mlem_core.base.parallel import each
from mlem_core.base.typing import Counted, FloatArray, Layer
from mlem_core.base.worker import Big
from mlem_core.models.representations import Representations
from mlem_core.pairs.build import LayerWork, assembled, one_layer
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.rank_classes import RankClasses
from mlem_core.pairs.rank_files import RankFiles
from mlem_core.pairs.rank_store import correlations
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.torch_backend import cuda_device
from mlem_core.storage.files import replacing
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

_CLASSES, _DESIGNS = "classes.npz", "designs.npz"
# A folder of the store for the ranks of all pairs, which are too many to be summed up in an entry.
_RANKS = "layer-ranks"


@dataclass(frozen=True)
class LayerParts:
    """What the pass over a layer's pairs gives, see `mlem_core.pairs.build.LayerFound`.

    classes : those of `RankClasses`, and `ranks` and `bound`
    designs : see `DesignScores`
    """

    sums: LayerSums
    doubled: NDArray[np.uint32] | None = None
    classes: Mapping[str, Any] | None = None
    designs: OfDesigns | None = None

    def save(self, folder: Path) -> None:
        """Write it into an existing folder, but for the ranks."""
        np.savez(folder / "sums.npz", **{k: v for k, v in vars(self.sums).items() if v is not None})
        if self.classes is not None:
            np.savez(folder / _CLASSES, **self.classes)
        if self.designs is not None:
            np.savez(folder / _DESIGNS, **self.designs._asdict())

    @classmethod
    def load(cls, folder: Path) -> LayerParts:
        """Read what `save` wrote."""
        sums = _numbers(folder / "sums.npz")
        classes, designs = folder / _CLASSES, folder / _DESIGNS
        return cls(
            LayerSums(**sums),
            classes=_numbers(classes) if classes.exists() else None,
            designs=OfDesigns(**_numbers(designs)) if designs.exists() else None,
        )


def _numbers(path: Path) -> dict[str, Any]:
    """The arrays of a file; those of one number as that number."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] if file[name].ndim else file[name].item() for name in file.files}


STAGE = Stage("layer-pairs", 1, LayerParts.save, LayerParts.load)


class LayerItem(NamedTuple):
    """One layer: its representations, or else its rows; its key in the store."""

    source: Representations | NDArray[np.floating]
    number: int
    work: LayerWork
    key: dict[str, Any]


def pass_over(
    index: PairIndex, scores: DesignScores, root: Path | None, item: LayerItem
) -> LayerParts:
    """What a worker does: the pass over one layer, kept in the store at `root` if it sees that.

    Returns what is found, but for the ranks where they are kept.
    """

    def rows() -> NDArray[np.floating]:
        source = item.source
        return source[item.number] if isinstance(source, Representations) else source

    def make() -> LayerParts:
        work = replace(item.work, device=cuda_device(item.work.device or "cpu"))
        found = one_layer(index, rows, work, parts=True)
        classes = None
        if found.classes is not None:
            of, to = found.classes, found.classes.to._asdict()
            classes = {**to, "ranks": of.ranks, "bound": of.bound}
        designs = scores.of(found.designs) if found.designs else None
        return LayerParts(found.sums, found.doubled, classes, designs)

    return make() if root is None else _kept(Store(root), item.key, make)


def _kept(store: Store, key: dict[str, Any], make: Callable[[], LayerParts]) -> LayerParts:
    """What is found of a layer, now in the store; there its ranks are from now on."""

    def with_ranks() -> LayerParts:
        parts = make()
        if parts.doubled is not None:
            path = _ranks(store, key)
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, parts.doubled)
        return replace(parts, doubled=None)

    return STAGE.kept(store, key, with_ranks)


def _ranks(store: Store, key: dict[str, Any]) -> Path:
    return store.root / _RANKS / f"{store.key(STAGE.name, STAGE.version, **key)}.npy"


class Passed(NamedTuple):
    """What the pass over all layers gives.

    tables : of the layers without an error
    errors : by the position of a layer
    bound : by what share of the pairs a rank is off at most
    rsa : (n_layers, n_layers)
    of_designs : (n_designs, n_layers, n_layers) the same of each independent design; None where all
        pairs are compared
    """

    tables: PairTables
    errors: dict[int, InputError]
    bound: float
    rsa: FloatArray
    of_designs: FloatArray | None


@dataclass(frozen=True)
class LayerUnits:
    """The layers of an analysis on a cluster.

    Attributes
    ----------
    works, keys : of each layer, what is done and what its entry depends on
    """

    index: PairIndex
    sources: Mapping[Layer, Representations]
    works: list[LayerWork]
    keys: list[dict[str, Any]]
    store: Store
    executor: Executor

    def passed(self, scores: DesignScores, progress: Counted) -> Passed:
        """Do what the store does not have, and put it together in the order of the layers."""
        errors: dict[int, InputError] = {}
        there = self._there(scores, errors, progress)
        kept = [at for at in range(len(self.keys)) if at not in errors]
        for at, one in there.items():
            if one.designs is not None:
                scores.keep(at, one.designs)
        tables = assembled(self.index, [there[at].sums for at in kept])
        classes = {at: one.classes for at, one in there.items() if one.classes is not None}
        if classes:
            bound = max(float(one["bound"]) for one in classes.values())
            return Passed(tables, errors, bound, self._rsa_of_classes(classes), None)
        paths = [
            _ranks(self.store, key) if at in there else None for at, key in enumerate(self.keys)
        ]
        return Passed(tables, errors, 0.0, *self._rsa(paths))

    def _there(
        self, scores: DesignScores, errors: dict[int, InputError], progress: Counted
    ) -> dict[int, LayerParts]:
        """What each layer gives, its ranks being in the store; those without go into `errors`."""
        store, n_layers = self.store, len(self.keys)
        shared = self.executor.shares(store.root)
        found = {}
        for at, key in enumerate(self.keys):
            parts = STAGE.find(store, key)
            if parts is not None and (parts.classes is not None or _ranks(store, key).exists()):
                found[at] = parts
            elif parts is not None:
                store.remove(STAGE.name, STAGE.version, **key)
        missing = [at for at in range(n_layers) if at not in found]
        progress(len(found), n_layers)
        done = self.executor.each_of(
            pass_over,
            (self._item(at, shared) for at in missing),
            (replace(self.index), scores, store.root if shared else None),
            store.root if shared else None,
        )
        for number, given in done:
            at = missing[number]
            if isinstance(given, InputError):
                errors[at] = given
                if len(errors) == n_layers:
                    raise errors[0]
            else:
                # What came from a worker that does not share the store is kept here.
                found[at] = (
                    given if shared else _kept(store, self.keys[at], lambda given=given: given)  # type: ignore[misc]
                )
            progress(len(found) + len(errors), n_layers)
        return found

    def _item(self, at: int, shared: bool) -> Any:
        (_, number), source = list(self.sources.items())[at]
        about = number, self.works[at], self.keys[at]
        if shared and source.folder is not None and source.folder.is_relative_to(self.store.root):
            return LayerItem(source, *about)
        return Big(lambda: LayerItem(np.asarray(source[number]), *about))

    def _rsa(self, paths: list[Path | None]) -> tuple[FloatArray, FloatArray | None]:
        design, store = self.index.design, self.store
        files = RankFiles(tuple(paths), design.n_pairs)
        spans = [(0, design.n_pairs)]
        if not design.is_complete:
            edges = [int(one) for one in design.starts[design.parts]]
            spans += itertools.pairwise(edges)
        rsa = files.rsa(spans, self.executor, store.root)
        return rsa[0], None if design.is_complete else rsa[1:]

    def _rsa_of_classes(self, classes: Mapping[int, Mapping[str, Any]]) -> FloatArray:
        from mlem_core.pairs.build import distances_of
        from mlem_core.pairs.kernels.classes import ClassMap
        from mlem_core.pairs.rank_classes import products_of_ranks

        layers, found = list(self.sources.items()), {}
        for at, given in classes.items():
            (_, number), source = layers[at]
            distances = distances_of(
                self.index, partial(source.__getitem__, number), self.works[at]
            )
            to = ClassMap(*(given[name] for name in ClassMap._fields))
            found[at] = RankClasses(distances, to, given["ranks"], float(given["bound"]))
        return correlations(products_of_ranks(found, len(layers)))

    def forget(self) -> None:
        """Remove the entries of the layers, once the tables of all are kept."""

        def remove(key: dict[str, Any]) -> None:
            self.store.remove(STAGE.name, STAGE.version, **key)
            _ranks(self.store, key).unlink(missing_ok=True)

        each(remove, self.keys, 8)

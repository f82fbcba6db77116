"""The pass over the pairs of each layer by the workers of a cluster.

The unit is a layer. What its pass gives is an entry of the store, so that a run that was broken off
goes on from the layers that are done; the entries go when the tables of all layers are kept. Where
the workers share the store they read representations from it and write these entries themselves,
and nothing but names travels. Elsewhere a layer's rows go to one worker, and its sums and ranks
come back to be kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.pair_errors import DesignScores, OfDesigns
from mlem_core.base.errors import InputError
from mlem_core.base.files import replacing
from mlem_core.base.parallel import each
from mlem_core.base.typing import Counted, FloatArray, Layer
from mlem_core.models.representations import Representations
from mlem_core.pairs.build import LayerWork, assembled, one_layer
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import PairRanks, is_little
from mlem_core.pairs.tables import PairTables
from mlem_core.scale.executor import Big, Executor
from mlem_core.storage.store import Stage, Store

# A folder of the store: the ranks of all pairs, which are too many to be summed up in an entry.
_RANKS = "layer-ranks"


@dataclass(frozen=True)
class LayerParts:
    """See `mlem_core.pairs.build.LayerFound`.

    designs : see `mlem_core.analysis.pair_errors.DesignScores`
    """

    sums: LayerSums
    doubled: NDArray[np.uint32] | None = None
    designs: OfDesigns | None = None


STAGE = Stage("layer-pairs", 3, LayerParts)


class LayerItem(NamedTuple):
    """One layer: its representations, or else its rows; its key in the store."""

    source: Representations | NDArray[np.floating]
    number: int
    work: LayerWork
    key: dict[str, Any]


def pass_over(
    index: PairIndex, scores: DesignScores, root: Path | None, little: bool, item: LayerItem
) -> LayerParts:
    """Result of the pass over one layer, as a worker does it.

    Where it sees the store at `root`, ranks are left there, and the rest too if it is not little.

    Returns what is found, but for the ranks where they are left.
    """

    def rows() -> NDArray[np.floating]:
        source = item.source
        return source[item.number] if isinstance(source, Representations) else source

    def make() -> LayerParts:
        found = one_layer(index, rows, item.work)
        designs = scores.of(found.designs) if found.designs else None
        return LayerParts(found.sums, found.doubled, designs)

    if root is None:
        return make()
    store = Store(root)
    return _without_ranks(store, item.key, make()) if little else _kept(store, item.key, make)


def _kept(store: Store, key: dict[str, Any], make: Callable[[], LayerParts]) -> LayerParts:
    """Result of the pass over a layer, from now on in the store, as its ranks are."""
    return STAGE.get(store, key, lambda: _without_ranks(store, key, make()))


def _without_ranks(store: Store, key: dict[str, Any], parts: LayerParts) -> LayerParts:
    """Result of a layer without its ranks, which go to a file of the store."""
    if parts.doubled is not None:
        path = _ranks(store, key)
        path.parent.mkdir(exist_ok=True)
        with replacing(path, synced=False) as temporary:
            parts.doubled.tofile(temporary)
    return replace(parts, doubled=None)


def _ranks(store: Store, key: dict[str, Any]) -> Path:
    return store.root / _RANKS / f"{store.key(STAGE.name, STAGE.version, **key)}.ranks"


class Passed(NamedTuple):
    """Result of the pass over all layers.

    tables : of the layers without an error
    errors : by the position of a layer
    rsa : (n_layers, n_layers)
    of_designs : (n_designs, n_layers, n_layers) the same of each independent design; None where all
        pairs are compared
    """

    tables: PairTables
    errors: dict[int, InputError]
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
        """Do what the store does not have, and put it together in the order of the layers.

        `progress` is that of `mlem_core.pairs.build.PassOptions`.
        """
        errors: dict[int, InputError] = {}
        there = self._there(scores, errors, progress)
        kept = [at for at in range(len(self.keys)) if at not in errors]
        for at, one in there.items():
            if one.designs is not None:
                scores.keep(at, one.designs)
        tables = assembled(self.index, [there[at].sums for at in kept], len(kept))
        return Passed(tables, errors, *_rsa(self, there))

    def _there(
        self, scores: DesignScores, errors: dict[int, InputError], progress: Counted
    ) -> dict[int, LayerParts]:
        """Results by layer that the store has, ranks that are not little being in its files.

        Layers without any go into `errors`.
        """
        store, n_layers = self.store, len(self.keys)
        found = {}
        for at, key in enumerate(self.keys):
            parts = STAGE.find(store, key)
            if parts is not None and _ranks(store, key).exists():
                found[at] = parts
            elif parts is not None:
                store.remove(STAGE.name, STAGE.version, **key)

        def told() -> None:
            progress(len(found) + len(errors), n_layers)

        told()
        missing = [at for at in range(n_layers) if at not in found]
        try:
            for at, given in self._done(missing, scores):
                if isinstance(given, InputError):
                    errors[at] = given
                    if len(errors) == n_layers:
                        raise errors[0]
                else:
                    found[at] = given
                told()
        except BaseException:
            self._keep(found)
            raise
        return found

    def _keep(self, found: Mapping[int, LayerParts]) -> None:
        """Keep what only this process has, for the run that goes on."""
        for at, parts in found.items():
            _kept(self.store, self.keys[at], partial(replace, parts))

    def _done(
        self, missing: list[int], scores: DesignScores
    ) -> Iterator[tuple[int, LayerParts | InputError]]:
        """Results of the missing layers, as they are done."""
        store = self.store
        shared = self.executor.shares(store.root)
        little = is_little(len(self.keys), self.index.design.n_pairs)
        given = self.executor.each_of(
            pass_over,
            (self._item(at, shared) for at in missing),
            (replace(self.index), scores, store.root if shared else None, little),
            store.root if shared else None,
        )
        for number, found in given:
            at = missing[number]
            if not shared and not little and isinstance(found, LayerParts):
                # What came from a worker that does not share the store is kept here.
                found = _kept(store, self.keys[at], partial(replace, found))
            yield at, found

    def _item(self, at: int, shared: bool) -> Any:
        (_, number), source = list(self.sources.items())[at]
        about = number, self.works[at], self.keys[at]
        if shared and source.folder is not None and source.folder.is_relative_to(self.store.root):
            return LayerItem(source, *about)
        return Big(lambda: LayerItem(np.asarray(source[number]), *about))

    def forget(self) -> None:
        """Remove the entries of the layers, once the tables of all are kept."""

        def remove(at: int) -> None:
            key = self.keys[at]
            if self.store.folder(STAGE.name, STAGE.version, **key).exists():
                self.store.remove(STAGE.name, STAGE.version, **key)
            _ranks(self.store, key).unlink(missing_ok=True)

        each(remove, range(len(self.keys)), 8)


def _rsa(
    units: LayerUnits, there: Mapping[int, LayerParts]
) -> tuple[FloatArray, FloatArray | None]:
    design, store = units.index.design, units.store

    ranks = PairRanks(len(units.keys), design.n_pairs)
    for at, parts in there.items():
        ranks.put(at, _ranks(store, units.keys[at]) if parts.doubled is None else parts.doubled)
    edges, workers = design.starts[design.parts], (units.executor, store.root)
    of_designs = None if design.is_complete else ranks.rsa(edges, *workers)
    return ranks.rsa(None, *workers), of_designs

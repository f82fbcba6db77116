"""The pair tables of an analysis: made from its representations, or found in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis import pair_errors
from mlem_core.analysis.pair_errors import DesignScores, OfDesigns
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.files import replacing
from mlem_core.base.room import check_free, check_memory, give_back_memory
from mlem_core.base.text import many, minus
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer, Report, counting
from mlem_core.base.work import cores, each
from mlem_core.base.workers import NOT_SHARED, in_processes, run_units
from mlem_core.data.folds import untested_items
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import estimator_named
from mlem_core.models.representations import Representations
from mlem_core.pairs.build import (
    LARGE,
    LayerFound,
    LayerWork,
    assembled,
    layer_passes,
    load_pair_tables,
    one_layer,
    pair_tables,
    save_pair_tables,
)
from mlem_core.pairs.columns import FeatureColumn
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex, bytes_of_cell
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks
from mlem_core.pairs.tables import PairTables, coarse_notes
from mlem_core.storage.store import InFile, Stage, Store

# Twice the rank of a pair is kept in 32 bits.
MOST_PAIRS = 2**31 - 1
# Stimuli and layers on which it is measured what distances in bins cost.
MEASURED, MEASURED_LAYERS = 400, 3


class LayerTables(NamedTuple):
    """Pair tables and RSA correlations of the layers that can be used.

    tables, rsa : of these layers
    notes : sentences about what is not exact or was left out
    kept : which of the layers these are, by position
    errors : how much the choice of the pairs matters, see `mlem_core.analysis.pair_errors`
    """

    tables: Annotated[PairTables, InFile(save_pair_tables, load_pair_tables)]
    rsa: FloatArray
    notes: list[str]
    kept: list[int]
    errors: pd.DataFrame


TABLES = Stage("pair-tables", 4, LayerTables)


def layer_tables(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    coding: tuple[IntArray, Sequence[FeatureColumn]],
    sources: Mapping[Layer, Representations],
    store: Store,
    report: Report,
) -> LayerTables:
    """The tables of the layers that can be used; if none can, what is wrong with the first one.

    `coding` is the fold of each stimulus, and the columns of the features.
    """
    folds, columns = coding
    items = untested_items(folds, stimuli.groups, stimuli.items)
    design = PairDesign.of(folds, spec.pairs or None, spec.seed, items=items)
    progress = counting(report, "pair tables", "layers")
    scores = DesignScores(spec.estimator, spec.interactions)

    def make() -> LayerTables:
        progress(0, len(sources))
        _check_room(design, sources, store)
        index = PairIndex.build(columns, folds, spec.missing, design=design)
        check_memory(
            2 * index.n_cells * len(sources) * bytes_of_cell(spec.folds),
            f"the pair tables of {len(sources)} layers with {index.n_cells:,} cells",
            "choose fewer layers or features, or code fewer features by value",
        )
        of = _Pass(index, columns, items, spec, sources, scores, store, progress)
        found = _passed(of, keys)
        usable = [list(sources.items())[i] for i in found.kept]
        found.notes.extend(_cost_of_bins(index, columns, spec, usable))
        give_back_memory()
        return found

    some = {} if design.is_complete else {"pairs": [design.n_pairs, spec.estimator, "halves"]}
    depends_on = {
        "stimuli": stimuli.digest,
        "layers": [[source.identity, n] for (_, n), source in sources.items()],
        **spec.pair_choices,
        **some,
    }
    keys: list[dict[str, Any]] = []
    if in_processes():
        # Of this analysis alone: another one that is done at the same time forgets its own.
        own = {"of": dict(depends_on), "interactions": spec.interactions}
        keys = [{"layer": [source.identity, n], **own} for (_, n), source in sources.items()]
    kept = TABLES.get(store, depends_on, make)
    each(partial(_forget, store), [key for key in keys if _ranks(store, key).exists()], 8)
    return kept


def _cost_of_bins(
    index: PairIndex,
    columns: Sequence[FeatureColumn],
    spec: AnalysisSpec,
    sources: Sequence[tuple[Layer, Representations]],
) -> list[str]:
    """Sentences on the change of ρ by bins, measured on some stimuli; none without bins."""
    if not index.notes:
        return []
    some = np.random.default_rng(spec.seed).permutation(len(index.folds))[:MEASURED]
    rows, layers = np.sort(some), sources[:: -(-len(sources) // MEASURED_LAYERS)]
    plain = [replace(column, values=column.values[rows], names=()) for column in columns]
    rho = []
    for like in (index, None):
        folds, every = index.folds[rows], len(rows) ** 2
        own = PairIndex.build(plain, folds, spec.missing, most_cells=every, like=like)
        tables = pair_tables(
            own,
            [lambda source=source, n=n: source.of(n, rows) for (_, n), source in layers],  # type: ignore[misc]
            distance=[spec.distance_of(model) for (model, _), _ in layers],
        )
        rho.append(estimator_named("ridge").model().cross_validate(tables).rho.mean())
    return [
        f"The bins change held-out ρ by {minus(f'{rho[0] - rho[1]:+.4f}')} on average, measured on "
        f"{many(len(layers), 'layer')} and {len(rows):,} stimuli with all features coded as same "
        "or different, or by how much they differ."
    ]


class _Pass(NamedTuple):
    """The layers of an analysis, and the pairs that are passed over."""

    pairs: PairIndex
    columns: Sequence[FeatureColumn]
    items: IntArray | None
    spec: AnalysisSpec
    sources: Mapping[Layer, Representations]
    scores: DesignScores
    store: Store
    progress: Counted

    def work(self, layer: Layer) -> LayerWork:
        """Choices of the pass over one layer."""
        name = f"{layer[0]} layer {layer[1]}"
        return LayerWork(self.spec.distance_of(layer[0]), name, True, True, True)


def _passed(of: _Pass, keys: Sequence[dict[str, Any]]) -> LayerTables:
    """Result of the pass over the pairs of all layers, without those that have an error.

    `keys` are what the entry of each layer in the store depends on, where workers make them; else
    none.
    """
    index, design, scores, layers = of.pairs, of.pairs.design, of.scores, list(of.sources)
    errors: dict[int, InputError] = {}
    ranks = PairRanks(len(layers), design.n_pairs, None if keys else of.store.root)

    def sums() -> Iterator[LayerSums]:
        for at, parts in _by_workers(of, keys, ranks) if keys else _here(of, ranks):
            if not isinstance(parts, InputError):
                if parts.designs is not None:
                    scores.keep(at, parts.designs)
                yield parts.sums
                continue
            errors[at] = parts
            if len(errors) == len(layers):
                raise errors[0]

    tables = assembled(index, sums(), len(layers))
    kept = [at for at in range(len(layers)) if at not in errors]
    rsa = ranks.rsa()[np.ix_(kept, kept)]
    notes = [f"A layer was left out: {errors[at]}" for at in sorted(errors)]
    of_pairs = pair_errors.none()
    if not design.is_complete:
        parts = ranks.rsa(design.starts[design.parts])[:, kept][:, :, kept]
        of_pairs = scores.table([layers[at] for at in kept], kept, tables, rsa, parts)
        about = tables.n_pairs, n_pairs(design.n_stimuli), design.n_designs
        notes = [pair_errors.errors_sentence(of_pairs, *about), *notes]
    return LayerTables(tables, rsa, [*index.notes, *coarse_notes(tables), *notes], kept, of_pairs)


@dataclass(frozen=True)
class LayerParts:
    """Result of the pass over one layer by a worker, but for the ranks, which are a file.

    designs : see `mlem_core.analysis.pair_errors.DesignScores`
    """

    sums: LayerSums
    designs: OfDesigns | None = None

    @classmethod
    def of(cls, found: LayerFound, scores: DesignScores) -> LayerParts:
        """Result for the tables, of a pass."""
        return cls(found.sums, scores.of(found.designs) if found.designs else None)


def _here(of: _Pass, ranks: PairRanks) -> Iterator[tuple[int, LayerParts | InputError]]:
    """The pass over each layer by the cores of this machine, or what is wrong with one."""

    def kept(at: int, found: LayerFound) -> LayerParts:
        assert found.doubled is not None
        ranks.put(at, found.doubled)
        return LayerParts.of(found, of.scores)

    layers = [lambda source=source, n=n: source[n] for (_, n), source in of.sources.items()]
    works = [of.work(layer) for layer in of.sources]
    for at, parts in layer_passes(of.pairs, layers, works, kept):
        yield at, parts
        of.progress(at + 1, len(layers))


# A unit of work of other processes is a layer. Its result is an entry, so that a run that was
# broken off goes on from the layers that are done; the entries go when the tables of all layers are
# kept.
LAYERS = Stage("layer-pairs", 4, LayerParts)


@dataclass(frozen=True)
class PassOfLayers:
    """What the pass over each layer of an analysis needs, but for its rows.

    digest : of all that the others hold
    """

    digest: str
    columns: Sequence[FeatureColumn] = field(compare=False)
    folds: IntArray = field(compare=False)
    items: IntArray | None = field(compare=False)
    spec: AnalysisSpec = field(compare=False)
    root: Path = field(compare=False)


class LayerItem(NamedTuple):
    """One layer: its representations in the store, or else its rows; its key in the store.

    An error in the place of its rows is that of this layer.
    """

    source: Representations | NDArray[np.floating] | InputError
    number: int
    work: LayerWork
    key: dict[str, Any]


@lru_cache(maxsize=1)
def _index(passed: PassOfLayers) -> PairIndex:
    """Index of the pairs, made once by each worker: it is larger than what it is made of."""
    folds, spec = passed.folds, passed.spec
    design = PairDesign.of(folds, spec.pairs or None, spec.seed, items=passed.items)
    return PairIndex.build(passed.columns, folds, spec.missing, design=design)


def keep_layer(passed: PassOfLayers, item: LayerItem) -> None:
    """Put the result of the pass over one layer into the store, as a worker does it.

    Raises InputError: the layer cannot be used.
    """
    store, spec = Store(passed.root), passed.spec

    def rows() -> NDArray[np.floating]:
        if isinstance(item.source, InputError):
            raise item.source
        return item.source[item.number] if isinstance(item.source, Representations) else item.source

    def make() -> LayerParts:
        found, path = one_layer(_index(passed), rows, item.work), _ranks(store, item.key)
        assert found.doubled is not None
        path.parent.mkdir(exist_ok=True)
        with replacing(path, synced=False) as temporary:
            found.doubled.tofile(temporary)
        return LayerParts.of(found, DesignScores(spec.estimator, spec.interactions))

    LAYERS.get(store, item.key, make)


def _ranks(store: Store, key: dict[str, Any]) -> Path:
    """File of the ranks of all pairs in a layer, which are too many to be summed up in an entry."""
    name = f"{store.key(LAYERS.name, LAYERS.version, **key)}.ranks"
    return store.root / "layer-ranks" / name


def _by_workers(
    of: _Pass, keys: Sequence[dict[str, Any]], ranks: PairRanks
) -> Iterator[tuple[int, LayerParts | InputError]]:
    """The pass over each layer by other processes, unless the store has its result.

    Workers read representations from the store and write results into it: names travel, and the
    rows of layers of files.
    """
    store, progress, layers = of.store, of.progress, list(of.sources.items())
    missing = [at for at, key in enumerate(keys) if not _has_layer(store, key)]

    def item(number: int) -> LayerItem:
        at = missing[number]
        layer, source = layers[at]
        rows: Representations | NDArray[np.floating] | InputError = source
        if source.folder is None or not source.folder.is_relative_to(store.root):
            try:
                rows = np.asarray(source[layer[1]])
            except (InputError, OSError) as error:
                rows = InputError(str(error))
        return LayerItem(rows, layer[1], of.work(layer), keys[at])

    def done(number: int) -> None:
        progress(len(layers) - len(missing) + number, len(layers))

    done(0)
    digest = store.key(LAYERS.name, LAYERS.version, of=[key["of"] for key in keys[:1]])
    passed = PassOfLayers(digest, of.columns, of.pairs.folds, of.items, of.spec, store.root)
    failed = run_units(partial(keep_layer, passed), item, len(missing), done)
    errors = {missing[number]: error for number, error in failed.items()}
    for at, key in enumerate(keys):
        if at not in errors:
            ranks.put(at, _ranks(store, key))
        yield at, errors.get(at) or LAYERS.get(store, key, _gone)


def _has_layer(store: Store, key: dict[str, Any]) -> bool:
    return _ranks(store, key).exists() and LAYERS.find(store, key) is not None


def _gone() -> LayerParts:
    raise InputError(NOT_SHARED)


def _forget(store: Store, key: dict[str, Any]) -> None:
    """Remove the entry of a layer, once the tables of all are kept."""
    store.remove(LAYERS.name, LAYERS.version, **key)
    _ranks(store, key).unlink(missing_ok=True)


def _check_room(design: PairDesign, sources: Mapping[Layer, Representations], store: Store) -> None:
    """Raise before anything is computed where memory or disk will not do."""
    pairs, n_layers = design.n_pairs, len(sources)
    if pairs > MOST_PAIRS:
        raise InputError(
            f"found {pairs:,} pairs of stimuli; a layer can have {MOST_PAIRS:,} at most, so choose "
            "fewer (--pairs)."
        )
    (_, number), source = next(iter(sources.items()))
    rows = 3 * source[number].nbytes
    if in_processes():
        # The memory of the workers is another; the ranks of all layers are files.
        memory, disk = 0, 4 * pairs * n_layers
    else:
        at_once = 1 if pairs > LARGE else min(cores(), n_layers)
        # Distances and ranks of the layers at once; cell and, of some pairs, the partner of each.
        each = 12 * at_once + 4 + 8 * (not design.is_complete)
        of_ranks = 4 * pairs * n_layers
        memory, disk = each * pairs + at_once * rows, of_ranks * (of_ranks > IN_MEMORY_BYTES)
        memory += of_ranks - disk
    what = f"comparing {pairs:,} pairs of stimuli in {n_layers} layers"
    fewer = f"choose fewer pairs (--pairs {max(10 * design.n_stimuli, pairs // 4)})"
    check_free(store.root, memory, disk, what, fewer)

"""The pair statistics of an analysis: made from its representations, or found in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis import pair_errors
from mlem_core.analysis.pair_errors import design_errors, errors_sentence
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.files import replacing
from mlem_core.base.room import check_free, check_memory, give_back_memory
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer, Report, counting
from mlem_core.base.work import cores, each
from mlem_core.base.workers import NOT_SHARED, in_processes, run_units
from mlem_core.data.folds import untested_items
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.models.representations import Representations
from mlem_core.pairs.columns import FeatureColumn
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks
from mlem_core.pairs.statistics import (
    LARGE,
    ComparedPairs,
    LayerPass,
    LayerSource,
    LayerStatistics,
    PairStatistics,
    pass_over_layer,
    passes_over_layers,
)
from mlem_core.pairs.statistics_file import load_statistics, save_statistics
from mlem_core.storage.store import InFile, Stage, Store

# Twice the rank of a pair is kept in 32 bits.
MOST_PAIRS = 2**31 - 1


class AnalysisStatistics(NamedTuple):
    """Pair statistics of the layers that can be used.

    pairs : statistics of these layers
    notes : sentences about what is not exact or was left out
    positions : which of the layers these are
    errors : how much the choice of the pairs matters, see `mlem_core.analysis.pair_errors`
    """

    pairs: Annotated[PairStatistics, InFile(save_statistics, load_statistics)]
    notes: list[str]
    positions: list[int]
    errors: pd.DataFrame


STATISTICS = Stage("pair-statistics", 1, AnalysisStatistics)


def layer_statistics(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    folds: IntArray,
    columns: Sequence[FeatureColumn],
    sources: Mapping[Layer, Representations],
    store: Store,
    report: Report,
) -> AnalysisStatistics:
    """Statistics of the layers that can be used; if none can, what is wrong with the first one.

    Parameters
    ----------
    folds : (n_stimuli,) the fold of each stimulus
    columns : of the features
    """
    items = untested_items(folds, stimuli.groups, stimuli.items)
    design = PairDesign.of(folds, spec.pairs or None, spec.seed, items=items)
    progress = counting(report, "pairs of stimuli", "layers")

    def make() -> AnalysisStatistics:
        progress(0, len(sources))
        _check_room(design, sources, store)
        compared = ComparedPairs.of(
            columns, folds, spec.missing, interactions=spec.interactions, design=design
        )
        check_memory(
            8 * sum(test.n_sums for test in compared.tests) * len(sources),
            f"the test pairs of {len(sources)} layers",
            "choose fewer layers or stimuli",
        )
        passes = _Passes(compared, columns, spec, sources, store, progress)
        statistics = _statistics_of(passes, keys)
        give_back_memory()
        return statistics

    depends_on = {
        "stimuli": stimuli.digest,
        "layers": [[source.identity, number] for (_, number), source in sources.items()],
        "interactions": spec.interactions,
        # Whose scores have errors from the choice of the pairs.
        "estimator": None if design.is_complete else spec.estimator,
        **spec.pair_choices,
    }
    keys: list[dict[str, Any]] = []
    if in_processes():
        # Of this analysis alone: another one that is done at the same time forgets its own.
        keys = [
            {"layer": [source.identity, number], "of": dict(depends_on)}
            for (_, number), source in sources.items()
        ]
    statistics = STATISTICS.get(store, depends_on, make)
    each(partial(_forget, store), [key for key in keys if _ranks(store, key).exists()], 8)
    return statistics


class _Passes(NamedTuple):
    """The layers of an analysis, and the pairs that are passed over."""

    compared: ComparedPairs
    columns: Sequence[FeatureColumn]
    spec: AnalysisSpec
    sources: Mapping[Layer, Representations]
    store: Store
    progress: Counted


def _statistics_of(passes: _Passes, keys: Sequence[dict[str, Any]]) -> AnalysisStatistics:
    """Result of the pass over the pairs of all layers, without those that have an error.

    `keys` are what the entry of each layer in the store depends on, where workers make them; else
    none.
    """
    compared, n_layers = passes.compared, len(passes.sources)
    ranks = PairRanks(n_layers, compared.design.n_pairs, None if keys else passes.store.root)
    results = _by_workers(passes, keys, ranks) if keys else _by_threads(passes, ranks)
    statistics: list[LayerStatistics] = []
    errors: dict[int, InputError] = {}
    for position, result in results:
        if not isinstance(result, InputError):
            statistics.append(result)
            continue
        errors[position] = result
        if len(errors) == n_layers:
            raise errors[0]
    positions = [position for position in range(n_layers) if position not in errors]
    products = compared.rank_products(ranks, positions)
    pairs = compared.together(statistics, products)
    notes = [f"A layer was left out: {errors[position]}" for position in sorted(errors)]
    if compared.design.is_complete:
        return AnalysisStatistics(pairs, notes, positions, pair_errors.none())
    n_designs, n_stimuli = compared.design.n_designs, compared.design.n_stimuli
    layers = [list(passes.sources)[position] for position in positions]
    without_design = compared.without_each_design(statistics, products)
    of_choice = design_errors(layers, pairs, without_design, passes.spec.estimator)
    sentence = errors_sentence(of_choice, pairs.n_pairs, n_pairs(n_stimuli), n_designs)
    return AnalysisStatistics(pairs, [sentence, *notes], positions, of_choice)


def training_pairs(
    pairs: PairStatistics,
    design: PairDesign,
    spec: AnalysisSpec,
    sources: Sequence[tuple[Layer, Representations]],
) -> TrainingPairs:
    """Pairs of some layers for an estimator that is fitted to single pairs.

    Parameters
    ----------
    pairs : statistics of these layers
    design : the pairs that are compared
    sources : (model, layer) and representations of each layer
    """

    def distances(position: int) -> FloatArray:
        layer, source = sources[position]
        distance = spec.distance_of(layer[0])
        rows = np.asarray(source[layer[1]])
        return squared_distances(rows, distance, design=design, layer=_layer_name(layer))

    folds = pairs.moments.folds
    return TrainingPairs.of(pairs.columns, folds, len(sources), distances, design)


def _layer_name(layer: Layer) -> str:
    return f"{layer[0]} layer {layer[1]}"


def _by_threads(
    passes: _Passes, ranks: PairRanks
) -> Iterator[tuple[int, LayerStatistics | InputError]]:
    """The pass over each layer by the cores of this machine, or what is wrong with one."""
    layers = list(passes.sources.items())
    sources: list[LayerSource] = [partial(source.__getitem__, layer[1]) for layer, source in layers]
    distances = [passes.spec.distance_of(model) for (model, _), _ in layers]
    names = [_layer_name(layer) for layer, _ in layers]
    results = passes_over_layers(passes.compared, sources, distances, names)
    for position, result in enumerate(results):
        if isinstance(result, InputError):
            yield position, result
        else:
            ranks.put(position, result.doubled)
            yield position, result.statistics
        passes.progress(position + 1, len(layers))


# A unit of work of other processes is a layer. Its result is an entry, so that a run that was
# broken off goes on from the layers that are done; the entries go when the statistics of all layers
# are kept.
LAYERS = Stage("layer-statistics", 1, LayerStatistics)


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
    layer: Layer
    key: dict[str, Any]


@lru_cache(maxsize=1)
def _compared(passed: PassOfLayers) -> ComparedPairs:
    """The compared pairs, made once by each worker: they are larger than what they are made of."""
    folds, spec = passed.folds, passed.spec
    design = PairDesign.of(folds, spec.pairs or None, spec.seed, items=passed.items)
    return ComparedPairs.of(
        passed.columns, folds, spec.missing, interactions=spec.interactions, design=design
    )


def keep_layer(passed: PassOfLayers, item: LayerItem) -> None:
    """Put the result of the pass over one layer into the store, as a worker does it.

    Raises InputError: the layer cannot be used.
    """
    store, spec = Store(passed.root), passed.spec
    model, number = item.layer

    def rows() -> NDArray[np.floating]:
        if isinstance(item.source, InputError):
            raise item.source
        return item.source[number] if isinstance(item.source, Representations) else item.source

    def make() -> LayerStatistics:
        distance = spec.distance_of(model)
        result: LayerPass = pass_over_layer(
            _compared(passed), rows, distance, _layer_name(item.layer)
        )
        path = _ranks(store, item.key)
        path.parent.mkdir(exist_ok=True)
        with replacing(path, synced=False) as temporary:
            result.doubled.tofile(temporary)
        return result.statistics

    LAYERS.get(store, item.key, make)


def _ranks(store: Store, key: dict[str, Any]) -> Path:
    """File of the ranks of all pairs in a layer, which are too many to be summed up in an entry."""
    name = f"{store.key(LAYERS.name, LAYERS.version, **key)}.ranks"
    return store.root / "layer-ranks" / name


def _by_workers(
    passes: _Passes, keys: Sequence[dict[str, Any]], ranks: PairRanks
) -> Iterator[tuple[int, LayerStatistics | InputError]]:
    """The pass over each layer by other processes, unless the store has its result.

    Workers read representations from the store and write results into it: names travel, and the
    rows of layers of files.
    """
    store, progress, layers = passes.store, passes.progress, list(passes.sources.items())
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
        return LayerItem(rows, layer, keys[at])

    def done(number: int) -> None:
        progress(len(layers) - len(missing) + number, len(layers))

    done(0)
    digest = store.key(LAYERS.name, LAYERS.version, of=[key["of"] for key in keys[:1]])
    compared = passes.compared
    passed = PassOfLayers(
        digest, passes.columns, compared.folds, compared.design.items, passes.spec, store.root
    )
    failed = run_units(partial(keep_layer, passed), item, len(missing), done)
    errors = {missing[number]: error for number, error in failed.items()}
    for at, key in enumerate(keys):
        if at not in errors:
            ranks.put(at, _ranks(store, key))
        yield at, errors.get(at) or LAYERS.get(store, key, _gone)


def _has_layer(store: Store, key: dict[str, Any]) -> bool:
    return _ranks(store, key).exists() and LAYERS.find(store, key) is not None


def _gone() -> LayerStatistics:
    raise InputError(NOT_SHARED)


def _forget(store: Store, key: dict[str, Any]) -> None:
    """Remove the entry of a layer, once the statistics of all are kept."""
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
        # Distances and ranks of the layers at once; of some pairs, the partner of each.
        each = 12 * at_once + 8 * (not design.is_complete)
        of_ranks = 4 * pairs * n_layers
        memory, disk = each * pairs + at_once * rows, of_ranks * (of_ranks > IN_MEMORY_BYTES)
        memory += of_ranks - disk
    what = f"comparing {pairs:,} pairs of stimuli in {n_layers} layers"
    fewer = f"choose fewer pairs (--pairs {max(10 * design.n_stimuli, pairs // 4)})"
    check_free(store.root, memory, disk, what, fewer)

"""The units of an analysis that workers compute: a model's hidden states, the pass over a layer."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.backends import BACKENDS, Backend
from mlem_core.analysis.layer_statistics import LayerPasses
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.labels import NAMES
from mlem_core.base.parallel import check_cancelled
from mlem_core.base.typing import Counted, Layer, Report, counting
from mlem_core.extensions.cluster.workers import (
    VARIABLE,
    connect,
    default_address,
    run_units,
    uses_processes,
)
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.statistics import ComparedPairs, LayerPass, pass_over_layer
from mlem_core.representations.extraction import ExtractionOptions
from mlem_core.representations.layers import Representations, from_model, kept_states
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import EntryKind, Store

NOT_SHARED = (
    "a worker put its result where this process does not see it; name a folder in MLEM_CACHE that "
    "all machines see under the same path."
)
# The result of a layer is an entry, so that a run that was broken off goes on from the layers that
# are done; the entries go when the statistics of all layers are kept.
LAYERS = EntryKind("layer-pass", 2, LayerPass)


def extract_models(
    spec: AnalysisSpec, stimuli: StimulusSet, store: Store, report: Report
) -> dict[str, InputError]:
    """Puts the hidden states of the models into the store; what is wrong with some, by model."""
    missing: list[str] = []
    errors: dict[str, InputError] = {}
    for name in spec.models:
        try:
            if kept_states(stimuli, name, store, spec.extraction) is None:
                missing.append(name)
        except InputError as error:
            errors[name] = error
    if not missing:
        return errors
    progress = counting(report, "representations", "models")
    progress(0, len(missing))
    failed = run_units(
        partial(keep_states, stimuli, spec.extraction, store.root),
        missing.__getitem__,
        len(missing),
        lambda number: progress(number, len(missing)),
    )
    for number, name in enumerate(missing):
        if number in failed:
            errors[name] = failed[number]
        elif kept_states(stimuli, name, store, spec.extraction) is None:
            raise InputError(NOT_SHARED)
    return errors


def keep_states(stimuli: StimulusSet, options: ExtractionOptions, root: Path, model: str) -> None:
    """Put the hidden states of one model into the store at `root`, as a worker does it.

    Raises InputError: the model cannot be used on this machine.
    """
    try:
        from_model(stimuli, model, Store(root), options, lambda *_: check_cancelled())
    except InputError as error:
        raise InputError(f"on {platform.node()}, {error}") from None


class LayerItem(NamedTuple):
    """One layer: its representations in the store, or else its rows; its key in the store.

    An error in the place of its rows is that of this layer.
    """

    source: Representations | NDArray[np.floating] | InputError
    layer: Layer
    key: dict[str, Any]


@lru_cache(maxsize=1)
def _compared_pairs(passes: LayerPasses) -> ComparedPairs:
    """The compared pairs, made once by each worker: they are larger than what they are made of."""
    folds, spec = passes.folds, passes.spec
    design = PairDesign.from_budget(
        folds, spec.pairs or None, spec.seed, items=passes.items, times=passes.times
    )
    return passes.compared(design.without(passes.missing))


def keep_layer(passes: LayerPasses, item: LayerItem) -> None:
    """Put the result of the pass over one layer into the store, as a worker does it.

    Raises InputError: the layer cannot be used.
    """
    model, number = item.layer

    def rows() -> NDArray[np.floating]:
        if isinstance(item.source, InputError):
            raise item.source
        return item.source[number] if isinstance(item.source, Representations) else item.source

    def make() -> LayerPass:
        distance = passes.spec.neural_distance(model)
        title = NAMES.layer_title(item.layer)
        return pass_over_layer(_compared_pairs(passes), rows, distance, title)

    LAYERS.get(Store(passes.root), item.key, make)


def pass_over_layers(
    passes: LayerPasses, sources: Mapping[Layer, Representations], store: Store, progress: Counted
) -> Iterator[tuple[int, LayerPass | InputError]]:
    """The place of each layer and the pass over it, or what is wrong with it.

    Workers read representations from the store and write results into it: names travel, and the
    rows of layers of files.
    """
    layers, keys = list(sources.items()), _keys(passes, sources)
    missing = [place for place, key in enumerate(keys) if LAYERS.where(store, key) is None]

    def item(number: int) -> LayerItem:
        layer, source = layers[missing[number]]
        rows: Representations | NDArray[np.floating] | InputError = source
        if source.folder is None or not source.folder.is_relative_to(store.root):
            try:
                rows = np.asarray(source[layer[1]])
            except (InputError, OSError) as error:
                rows = InputError(str(error))
        return LayerItem(rows, layer, keys[missing[number]])

    def count(number: int) -> None:
        progress(len(layers) - len(missing) + number, len(layers))

    count(0)
    failed = run_units(partial(keep_layer, passes), item, len(missing), count)
    errors = {missing[number]: error for number, error in failed.items()}
    for place, key in enumerate(keys):
        yield place, errors.get(place) or LAYERS.get(store, key, _refuse_unshared)


def discard_passes(
    passes: LayerPasses, sources: Mapping[Layer, Representations], store: Store
) -> None:
    """Removes what was kept of each layer for a run that breaks off."""
    for key in _keys(passes, sources):
        if LAYERS.where(store, key) is not None:
            store.remove(LAYERS.name, LAYERS.version, **key)


def _keys(passes: LayerPasses, sources: Mapping[Layer, Representations]) -> list[dict[str, Any]]:
    """What the entry of each layer in the store depends on."""
    # Of this analysis alone: another one that is done at the same time removes its own.
    return [
        {"layer": [source.identity, number], "of": passes.digest}
        for (_, number), source in sources.items()
    ]


def _refuse_unshared() -> LayerPass:
    raise InputError(NOT_SHARED)


BACKENDS.register(
    Backend(
        name="cluster",
        metavar="tcp://HOST:8786",
        help="have the workers of this Dask scheduler run the models and the pass over the "
        f"pairs; default: {VARIABLE}, else threads of this process",
        default_address=default_address,
        connect=connect,
        in_use=uses_processes,
        extract_models=extract_models,
        pass_over_layers=pass_over_layers,
        discard_passes=discard_passes,
    )
)

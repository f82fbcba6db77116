"""Decoding of the layers of an analysis: computed once, kept in the store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.layer_sources import representations_of
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Counted, Layer, counted, counting
from mlem_core.extensions.decoding.computation import Decoding, decoding
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.report.analysis_tables import ComputedTables, TableInput
from mlem_core.representations.layers import Representations
from mlem_core.storage.store import Stage, Store
from mlem_core.tasks.followups import JobInput, JobType

STAGE = Stage("baseline", 2, Decoding)


def decode_layers(
    analysis: Analysis,
    store: Store,
    layers: Sequence[Layer] | None = None,
    progress: Counted | None = None,
) -> Decoding:
    """Decoding on the stimuli, features and folds of an analysis; each layer is kept in `store`.

    Parameters
    ----------
    layers : of the analysis; None is all
    progress : called with the number of layers done and their total

    Raises InputError: representations that are no longer in the store; precomputed distances, which
    have no representations.
    """
    requested = analysis.layers if layers is None else layers
    decodable = [layer for layer in requested if analysis.spec.distance_of(layer[0]) != PRECOMPUTED]
    if not decodable:
        raise InputError(
            "decoding needs representations, but these layers have precomputed distances only."
        )
    by_layer = []
    for layer in counted(decodable, len(decodable), progress):
        source = representations_of(analysis, layer[0], store)

        def decode(layer: Layer = layer, source: Representations = source) -> Decoding:
            rows = {layer: np.asarray(source[layer[1]])}
            return decoding(analysis.stimuli, rows, analysis.folds)

        by_layer.append(STAGE.get(store, analysis.key([layer], name="decoding"), decode))
    return _joined(by_layer)


def cached_decoding(analysis: Analysis, store: Store, layers: Sequence[Layer]) -> Decoding | None:
    """Decoding if every one of these layers is in the store; computes nothing."""
    cached = [analysis.kept(STAGE, store, [layer], name="decoding") for layer in layers]
    there = [baseline for baseline in cached if baseline is not None]
    return None if len(there) < len(cached) else _joined(there)


def _joined(by_layer: Sequence[Decoding]) -> Decoding:
    notices = dict.fromkeys(notice for part in by_layer for notice in part.notices)
    table = pd.concat([layer.table for layer in by_layer], ignore_index=True)
    return Decoding(table, tuple(notices))


def decoding_tables(inputs: TableInput, name: str) -> ComputedTables:
    """Table of all layers by its file name, and its notices."""
    count = counting(inputs.progress, name, "layers")
    decoded = decode_layers(inputs.analysis, inputs.store or Store(), progress=count)
    return ComputedTables({f"{name}.csv": decoded.table}, decoded.notices)


def _decode(job: JobInput) -> None:
    decode_layers(job.analysis, job.store, job.layers(), counting(job.report, "decoding", "layers"))


JOB = JobType(_decode, lambda job: [model for model, _ in job.layers()])

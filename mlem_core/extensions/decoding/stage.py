"""Decoding of the layers of an analysis: computed once, kept in the store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.errors import InputError
from mlem_core.extensions.decoding.computation import Decoding, decoding
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.report.analysis_tables import ComputedTables, TableInput
from mlem_core.storage.store import Store
from mlem_core.tasks.followups import JobType


def compute_decoding(context: SelectionContext) -> Decoding:
    """Decoding on the stimuli, features and folds of an analysis, of the selected layers.

    Raises InputError: representations that are no longer in the store.
    """
    analysis, rows = context.analysis, {}
    for model, number in context.selection.layers:
        source = get_representations(analysis, model, context.required_store)
        rows[model, number] = np.asarray(source[number])
    return decoding(analysis.stimuli, rows, analysis.folds)


def decodable(context: SelectionContext) -> SelectionContext:
    """The context without layers that have precomputed distances, and so no representations.

    Raises InputError where none is left.
    """
    neural_distance = context.analysis.spec.neural_distance
    layers = [
        layer for layer in context.selection.layers if neural_distance(layer[0]) != PRECOMPUTED
    ]
    if not layers:
        raise InputError(
            "decoding needs representations, but these layers have precomputed distances only."
        )
    return context.reselect(layers=tuple(layers))


def join_decoding(by_layer: Sequence[Decoding]) -> Decoding:
    """Decoding of several layers, from that of each."""
    notices = dict.fromkeys(notice for part in by_layer for notice in part.notices)
    table = pd.concat([layer.table for layer in by_layer], ignore_index=True)
    return Decoding(table, tuple(notices))


DECODING = Stage[Decoding](
    "baseline",
    2,
    Decoding,
    compute_decoding,
    key=lambda context: context.analysis.key(context.selection.layers, name="decoding"),
    join=join_decoding,
    label="decoding",
)


def decoding_tables(inputs: TableInput, name: str) -> ComputedTables:
    """Table of all layers by its file name, and its notices."""
    store = inputs.store or Store()
    context = SelectionContext.from_analysis(inputs.analysis, store, inputs.progress)
    decoded = DECODING.get(decodable(context))
    return ComputedTables({f"{name}.csv": decoded.table}, decoded.notices)


JOB = JobType(lambda context, options: DECODING.get(decodable(context)))

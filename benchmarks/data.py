"""What the benchmarks work on: the probing set in both packaged models, or made-up layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import Layer
from mlem_core.representations import layers as representations
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import group_folds
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

MODELS = ("minilm", "smollm2")
FOLDS, SEED = 5, 0


@dataclass(frozen=True)
class Case:
    """Stimuli, their folds, and the representations of every layer, in memory."""

    stimuli: StimulusSet
    folds: NDArray[np.int64]
    layers: list[Layer]
    rows: list[NDArray[np.float32]]


def probing() -> Case:
    """The probing set and all layers of the packaged models, extracted if they are not stored."""
    stimuli = datasets.load("probing")
    store = Store()
    layers: list[Layer] = []
    rows = []
    for name in MODELS:
        source = representations.from_model(stimuli, name, store)
        for layer in source.layers:
            layers.append((name, layer))
            rows.append(np.array(source[layer]))
    return Case(stimuli, group_folds(stimuli.groups, FOLDS, SEED), layers, rows)

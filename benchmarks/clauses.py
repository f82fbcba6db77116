"""Section `clauses`: the relative-clause set in minilm, 29 million pairs a layer.

`python -m benchmarks.clauses` is the engine alone, in a process of its own: it prints the peak
memory (MB) and the time (s).
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks import routes
from benchmarks.data import FOLDS, SEED
from benchmarks.memory import peak_megabytes
from benchmarks.timing import Table, in_turn, printed_numbers
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics
from mlem_core.representations import layers as representations
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import group_folds
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

SET, MODEL = "relative-clauses", "minilm"


def load() -> tuple[StimulusSet, routes.Rows]:
    """The stimuli and every layer, extracted if they are not stored."""
    stimuli = datasets.load(SET)
    source = representations.from_model(stimuli, MODEL, Store())
    return stimuli, [np.array(source[layer]) for layer in source.layers]


def engine(stimuli: StimulusSet, rows: routes.Rows) -> None:
    """Pair statistics, ridge with nested cross-validation, importances."""
    folds = group_folds(stimuli.groups, FOLDS, SEED)
    pairs = ComparedPairs.from_features(feature_columns(stimuli), folds)
    fitted(pair_statistics(pairs, [lambda layer=layer: layer for layer in rows]))


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    stimuli, rows = load()
    ours, floor = in_turn(lambda: engine(stimuli, rows), lambda: routes.floor(rows), runs)
    table.add(
        "engine over the floor",
        f"{ours:.1f} s",
        f"{floor:.1f} s",
        f"{ours / floor:.2f}",
        "at most 0.3",
    )
    memory, _ = printed_numbers("benchmarks.clauses")
    table.add("peak memory", f"{memory:.0f} MB", target="under 4,096 MB")
    n = len(stimuli)
    return (
        f"the relative-clause set ({n:,} sentences, {n * (n - 1) // 2:,} pairs) in {len(rows)} "
        f"layers of {MODEL}, {FOLDS} folds, ridge with nested cross-validation and importances; "
        f"medians of {runs} runs in turn"
    )


if __name__ == "__main__":
    loaded = load()
    begun = time.perf_counter()
    engine(*loaded)
    print(f"{peak_megabytes():.0f} {time.perf_counter() - begun:.1f}")

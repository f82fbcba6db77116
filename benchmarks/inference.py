"""Section `inference`: contributions, their intervals by influence, and contributions by chance."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.data import MODELS, Case, probing
from benchmarks.timing import Table
from mlem_core.base.typing import IntArray, Layer
from mlem_core.inference.block_influence import BlockSums
from mlem_core.inference.layer_intervals import intervals_from_sums
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import chance_at_level
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import fitted
from mlem_core.pairs.resampling_units import Units
from validation.made_pairs import layer_pairs_of, statistics_of

# A layer of each model.
LAYERS = ((MODELS[0], 3), (MODELS[1], 20))
BY_VALUE = ("part_of_speech",)
PERMUTATIONS = 199


def pairs_of(case: Case, layers: Sequence[Layer], by_value: Sequence[str] = ()) -> LayerPairs:
    """Pairs of the stimuli in some layers."""
    stimuli = case.stimuli
    rows = [case.rows[case.layers.index(layer)] for layer in layers]
    groups = np.unique(stimuli.groups, return_inverse=True)[1]
    return layer_pairs_of(stimuli, rows, case.folds, groups, stimuli.items, by_value)


def intervals(case: Case, pairs: LayerPairs) -> BlockSums:
    """Intervals of scores, importances, similarities and contributions; the sums behind them."""
    blocks = BlockSums.from_pairs(pairs, with_distances=True)
    intervals_from_sums(
        pairs.statistics,
        fitted(pairs.statistics),
        blocks,
        layers=pairs.layers,
        estimator="ridge",
        units=Units.from_stimuli(case.stimuli),
        report=lambda _: None,
    )
    return blocks


def add_time(table: Table, what: str, call: Callable[[], object], target: str = "") -> float:
    """Add a row with the wall time and the processor time of a call; the latter in s."""
    start, processor = time.perf_counter(), time.process_time()
    call()
    took, used = time.perf_counter() - start, time.process_time() - processor
    table.add(what, f"{took:.2f} s, {used:.2f} s of processor time", target=target)
    return used


def measure(table: Table, runs: int, layers: Sequence[Layer] | None = None) -> str:
    """Fill the table; on what it was measured. `layers` are those that are meant by all."""
    case = probing()
    layers = case.layers if layers is None else layers
    everything = pairs_of(case, layers)
    decompose(pairs_of(case, LAYERS).statistics.moments)  # compiles
    n_features, n_layers = len(everything.statistics.features), len(layers)
    add_time(
        table,
        f"contributions to the RSA correlations of {n_layers} layers, {n_features} features",
        lambda: decompose(everything.statistics.moments),
        "at most 5 s",
    )
    for by_value in ((), BY_VALUE):
        pairs = pairs_of(case, LAYERS, by_value)
        coding = f", {by_value[0]} coded by value" if by_value else ""
        used = add_time(
            table,
            f"confidence intervals of two layers{coding}",
            partial(intervals, case, pairs),
        )
        blocks = pairs.units.blocks()
        n_blocks = sum(blocks.sizes)
        start = time.process_time()
        contributions_of(case, np.flatnonzero(blocks.weights[0]), by_value)
        anew = time.process_time() - start
        table.add(
            f"computing contributions anew without each of {n_blocks} blocks, over these{coding}",
            f"{used:.1f} s",
            f"{anew * n_blocks:.0f} s, by one block",
            f"{anew * n_blocks / used:.0f}",
        )
        add_time(
            table,
            f"{PERMUTATIONS} permutations of each feature, two layers{coding}",
            partial(chance_at_level, pairs, case.stimuli, PERMUTATIONS),
        )
    add_time(
        table, f"confidence intervals of {n_layers} layers", lambda: intervals(case, everything)
    )
    n = len(case.stimuli)
    return (
        f"the probing set ({n:,} words in {everything.n_groups} sentences, "
        f"{n * (n - 1) // 2:,} pairs), one run each"
    )


def contributions_of(case: Case, stimuli: IntArray, by_value: Sequence[str]) -> None:
    """Contributions to the similarity of two layers over some of the stimuli."""
    rows = [case.rows[case.layers.index(layer)][stimuli] for layer in LAYERS]
    decompose(
        statistics_of(case.stimuli.take(stimuli), rows, case.folds[stimuli], by_value).moments
    )

"""Serial dependence in files of representations: neighbours that are alike, whatever they are.

Signals drift, so that stimuli that came one after the other have near representations. Tests and
intervals that take stimuli for independent then find what is not there. So each file is looked at:
how much nearer are groups of stimuli that follow each other, beyond what their features explain,
and over how many of them does it last?
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlem_core.base.text import fraction
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.representations.layers import Representations
from mlem_core.stimuli.presentation import presentation_order, presentation_runs
from mlem_core.stimuli.stimulus_set import StimulusSet, group_name

# Neighbours that are nearer than others by less than so many standard deviations are not named ...
BOUND = 0.25
# ... nor by less than so many standard errors of independent pairs.
STEPS = 5.0
# Layers that are looked at, spread over all; pairs that others are measured on; lags.
LAYERS, PAIRS, LAGS = 20, 20_000, 200
# So that there are enough blocks for intervals.
FEWEST_BLOCKS = 10
# Differences of so many numbers are in memory together.
_NUMBERS = 2**24


class SerialDependence(NamedTuple):
    """How much nearer stimuli are that came soon after each other.

    nearness : (n_lags,) of groups 1, 2, ... apart, in standard deviations of the distances; below 0
        is nearer than others; the mean over layers
    least : what counts as nearer
    block_length : so many stimuli make a block that is long enough
    name, group : of the file, and of what follows each other
    """

    nearness: FloatArray
    least: float
    block_length: int
    name: str
    group: str

    @property
    def is_there(self) -> bool:
        """Whether neighbours are nearer than others."""
        return bool(len(self.nearness) and self.nearness[0] < -self.least)

    @property
    def sentence(self) -> str:
        """What it is and what to do; "" where neighbours are like others."""
        if not self.is_there:
            return ""
        return (
            f"Neighbours are alike in {self.name}: distances of one {self.group} and the next are "
            f"{fraction(-self.nearness[0])} standard deviations below those of others, beyond what "
            "the features explain. Tests and intervals then find too much: keep neighbours "
            f"together in blocks of {self.block_length} stimuli (--blocks {self.block_length})."
        )


def serial_dependence(source: Representations, stimuli: StimulusSet) -> SerialDependence:
    """Serial dependence in a file; its rows are those of the stimuli, in their order."""
    rng = np.random.default_rng(0)
    runs = presentation_runs(stimuli)
    order = presentation_order(stimuli)
    # Groups in the order of their first stimulus, and one stimulus of each.
    begins = np.unique(stimuli.groups[order], return_index=True)[1]
    groups = stimuli.groups[order[np.sort(begins)]]
    shuffled = rng.permutation(len(stimuli))
    member = np.empty(len(groups), dtype=np.int64)
    member[stimuli.groups[shuffled]] = shuffled
    members = member[groups]
    n_groups = len(members)
    lags = np.arange(1, min(n_groups // 3, LAGS) + 1)
    neighbours = [_within_runs(members[:-lag], members[lag:], runs) for lag in lags]
    first, second = rng.choice(members, (2, PAIRS))
    others = _within_runs(first, second, runs)
    pairs = np.concatenate([others, *neighbours], axis=1)
    columns = PairColumns.from_features(feature_columns(stimuli))
    values = np.column_stack((np.ones(pairs.shape[1]), columns.pair_values(*pairs)))
    n_others, total = others.shape[1], np.zeros(len(lags))
    layers = np.unique(np.linspace(0, len(source.layers) - 1, LAYERS).round().astype(int))
    ends = np.cumsum([n_others, *(part.shape[1] for part in neighbours)])
    for place in layers.tolist():
        distances = _distances(source, source.layers[place], *pairs)
        weights = np.linalg.lstsq(values[:n_others], distances[:n_others])[0]
        rest = distances - values @ weights
        spread = rest[:n_others].std()
        parts = np.split(rest, ends)[1:-1]
        total += [part.mean() / spread if len(part) and spread > 0 else 0.0 for part in parts]
    nearness, sizes = total / len(layers), np.diff(ends)
    least = max(BOUND, STEPS / np.sqrt(max(1, sizes[0]))) if len(lags) else np.inf
    length = 1
    if len(lags):
        # Until it is a quarter, or not to be told from chance.
        lasting = nearness < -np.maximum(-nearness[0] / 4, 2.0 / np.sqrt(np.maximum(sizes, 1)))
        length = len(lags) if lasting.all() else int(np.argmin(lasting))
    per_group = len(stimuli) / n_groups
    longest = max(2, len(stimuli) // FEWEST_BLOCKS)
    block_length = int(np.clip(np.ceil((length + 1) * per_group), 2, longest))
    return SerialDependence(nearness, least, block_length, source.name, group_name(stimuli))


def _within_runs(first: IntArray, second: IntArray, runs: IntArray) -> IntArray:
    """(2, n_pairs) the pairs of two different stimuli of one run."""
    same = (runs[first] == runs[second]) & (first != second)
    return np.stack((first[same], second[same]))


def _distances(
    source: Representations, layer: int, first: IntArray, second: IntArray
) -> FloatArray:
    """(n_pairs,) distances of pairs of stimuli in a layer; the mean where one is not known."""
    array = source[layer]
    if source.distances:
        distances = np.asarray(array[first, second], dtype=np.float64)
    else:
        rows = array.mean(axis=0) if array.ndim == 3 else array
        distances = np.empty(len(first))
        step = max(1, _NUMBERS // rows.shape[1])
        for start in range(0, len(first), step):
            some = slice(start, start + step)
            difference = rows[first[some]].astype(np.float64) - rows[second[some]]
            distances[some] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return np.nan_to_num(distances, nan=float(np.nanmean(distances)))

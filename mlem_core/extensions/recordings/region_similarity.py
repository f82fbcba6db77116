"""Layers of models beside the regions or time points of recordings, by RSA.

The most similar of many layers is too similar by chance. So for each region the layer is chosen in
one half of the stimuli, and its RSA is that of the other half: both ways, and for several random
halves. A correlation with p < .05 is larger than the largest of all layers and regions in 95 % of
permutations of the stimuli. Stimuli in time are shifted, or their blocks change their order, and
the distances in a region count beyond what the time between two stimuli explains.

Sources: Nichols and Holmes (2002), the largest statistic over a brain; Kriegeskorte et al. (2009),
what is chosen and tested by the same data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.subjects import subject_layers
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import map_on_all_cores
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray, Layer, counted, counting
from mlem_core.inference.block_influence import unit_shares, without_blocks
from mlem_core.inference.group_means import mean_estimate
from mlem_core.inference.influence import cross_rsa_influence
from mlem_core.inference.intervals import PERMUTATIONS, Left
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import corrected_p, farthest_exchange
from mlem_core.inference.resample import Estimate, check_enough, jackknife
from mlem_core.pairs.designs import PairDesign, n_pairs, pair_places, pairs_among
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.resampling_units import Units, draw_halves
from mlem_core.representations.arrays import NUMBER
from mlem_core.stimuli.levels import time_exchanges
from mlem_core.stimuli.presentation import are_in_time, presentation_order, presentation_runs
from mlem_core.stimuli.stimulus_set import StimulusSet

# Divisions into halves; of more stimuli than this a random part is taken, in whole sentences.
DRAWS, MOST = 10, 1_000


class Recording(NamedTuple):
    """A file with regions or time points, or those of a group of subjects.

    name : of the file or of the group
    subjects : (n_subjects,) files
    layers : (n_regions,) numbers of the regions, which all subjects have
    """

    name: str
    subjects: tuple[str, ...]
    layers: tuple[int, ...]

    def layers_by_subject(self) -> list[list[Layer]]:
        """The layers of each subject."""
        return [[(subject, number) for number in self.layers] for subject in self.subjects]

    def over(self, analysis: Analysis) -> str:
        """Resampling units of its intervals, in words."""
        units = Units.from_stimuli(analysis.stimuli).over.split(" and ")
        return listed(["subjects"] * (len(self.subjects) > 1) + units)

    def unit(self, analysis: Analysis) -> str:
        """Unit of its axis, such as "ms"; empty without one."""
        return analysis.spec.axis_names[self.subjects[0]].partition(" (")[2].rstrip(")")

    def times(self, analysis: Analysis) -> FloatArray:
        """(n_regions,) the number in the name of each, of an axis with a unit; else NaN."""
        names, subject = analysis.layer_names, self.subjects[0]
        matches = [NUMBER.search(names.get((subject, n), "")) for n in self.layers]
        times = [float(match[0]) for match in matches if match and self.unit(analysis)]
        return np.array(times if len(times) == len(matches) else [np.nan] * len(matches))


def find_recordings(analysis: Analysis) -> list[Recording]:
    """Files of an analysis that have an axis: their layers are regions or time points.

    Subjects of a group are one recording, with the regions that all of them have.
    """
    axes, groups = analysis.spec.axis_names, subject_layers(analysis)
    layers = {at: of for at, of in groups.items() if of[0][0] in axes}
    grouped = {subject for of in groups.values() for subject, _ in of}
    singles = [layer for layer in analysis.layers if layer[0] in axes and layer[0] not in grouped]
    layers |= {layer: (layer,) for layer in singles}
    recordings = []
    for name in dict.fromkeys(name for name, _ in layers):
        numbers = tuple(number for other, number in layers if other == name)
        subjects = tuple(subject for subject, _ in layers[name, numbers[0]])
        recordings.append(Recording(name, subjects, numbers))
    return recordings


def compared_layers(analysis: Analysis) -> list[Layer]:
    """Layers of models and files that are no recordings."""
    return [layer for layer in analysis.layers if layer[0] not in analysis.spec.axis_names]


@dataclass(frozen=True)
class RegionSimilarity:
    """RSA of layers with regions, and of the layer that each region is most similar to.

    Attributes
    ----------
    layers : recording, region (its number), model, layer, rsa (mean over subjects), lower, upper,
        p (corrected over all regions and layers of a recording)
    best : recording, region, model, layer (the most frequent choice), share (of halves that chose
        it), rsa (of the choice of one half in the other), lower, upper, p (the smallest of its
        layers)
    """

    layers: pd.DataFrame
    best: pd.DataFrame


def compute_region_similarity(
    context: SelectionContext, permutations: int = PERMUTATIONS
) -> RegionSimilarity:
    """RSA of every layer with every region of the recordings of an analysis.

    Raises InputError: no recording, or no layer beside it; too few sentences; representations that
    are no longer in the store; more layers than fit into memory.
    """
    analysis, layers = context.analysis, compared_layers(context.analysis)
    recordings = find_recordings(analysis)
    if not recordings or not layers:
        raise InputError(
            "layers are compared with regions or time points of a file, found "
            f"{'no layer' if recordings else 'none'}; say what the layers of a file are with "
            "--axis NAME=region or --axis NAME=time:ms, beside a model."
        )
    of_recordings = [
        layer for each in recordings for of in each.layers_by_subject() for layer in of
    ]
    size = n_pairs(min(len(analysis.stimuli), MOST)) * len((*layers, *of_recordings))
    check_memory(28 * size, "RSA of layers and regions", "choose fewer layers")
    selection = analysis.select(layers=[*layers, *of_recordings])
    pairs = LayerPairs.from_analysis(
        analysis,
        selection,
        context.required_store,
        most_stimuli=MOST,
        progress=counting(context.report, "distances", "layers"),
    )
    check_enough(pairs.n_groups)
    place = {layer: at for at, layer in enumerate(pairs.layers)}
    progress = counting(context.report, "layers against regions", "recordings")
    all_layers, best = [], []
    for recording in counted(recordings, len(recordings), progress):
        places = [[place[layer] for layer in of] for of in recording.layers_by_subject()]
        compared = _compare(analysis, pairs, len(layers), places, permutations)
        index = pd.DataFrame({"recording": recording.name, "region": recording.layers})
        of_layers = pd.DataFrame(layers, columns=["model", "layer"])
        columns = {name: values.T.ravel() for name, values in compared.columns().items()}
        all_layers.append(index.merge(of_layers, how="cross").assign(**columns))
        models = np.array([model for model, _ in layers])
        for model in dict.fromkeys(models):
            at = np.flatnonzero(models == model)
            numbers = np.array([number for _, number in layers])[at]
            best.append(compared.best_layers(at, numbers, index.assign(model=model)))
    table = pd.concat(best, ignore_index=True)
    return RegionSimilarity(pd.concat(all_layers, ignore_index=True), table)


class _Compared(NamedTuple):
    """RSA of n_layers layers with n_regions regions.

    rsa : (n_subjects, n_layers, n_regions) over all pairs of an analysis
    left : of the mean over subjects, without each block
    halves : (n_draws, 2, n_subjects, n_layers, n_regions) in each half of the stimuli
    p : (n_layers, n_regions)
    """

    rsa: FloatArray
    left: Left
    halves: FloatArray
    p: FloatArray

    def columns(self) -> dict[str, FloatArray]:
        """Columns of a table, (n_layers, n_regions) each."""
        estimate = _estimate(self.rsa, self.left)
        return {"rsa": estimate.value, **estimate.columns("lower", "upper"), "p": self.p}

    def best_layers(self, at: IntArray, numbers: IntArray, index: pd.DataFrame) -> pd.DataFrame:
        """`index` with the columns of `RegionSimilarity.best`, of the layers `at` these places."""
        choices = self.halves[:, :, :, at].mean(axis=2).argmax(axis=2)
        is_chosen = choices[:, :, None] == np.arange(len(at))[:, None]
        # What one half chose, in the other.
        other = np.where(is_chosen[:, ::-1, None], self.halves[:, :, :, at], 0.0).sum(axis=3)
        shares = is_chosen.mean(axis=(0, 1))
        values = other.mean(axis=(0, 1))
        # The choices are held: without a block these layers change as they do over all stimuli.
        change = (self.left.without - self.rsa.mean(axis=0))[:, at] * shares
        left = Left(values.mean(axis=0) + change.sum(axis=1), self.left.sizes)
        estimate = _estimate(values, left)
        return index.assign(
            layer=numbers[shares.argmax(axis=0)],
            share=shares.max(axis=0),
            rsa=estimate.value,
            **estimate.columns("lower", "upper"),
            p=self.p[at].min(axis=0),
        )


def _estimate(values: FloatArray, left: Left) -> Estimate:
    """Mean (...) of values (n_subjects, ...), with its interval over subjects and stimuli."""
    if len(values) == 1:
        return jackknife(values[0], left.without, left.sizes, (-1.0, 1.0))
    return mean_estimate(values, Left(left.without[:, None], left.sizes))


def _compare(
    analysis: Analysis,
    pairs: LayerPairs,
    n_layers: int,
    subjects: list[list[int]],
    permutations: int,
) -> _Compared:
    """The first layers of the pairs beside the regions of each subject, which have these places."""
    n, layers = len(pairs.folds), list(range(n_layers))
    at = np.array([analysis.layers.index(layer) for layer in pairs.layers])
    rsa = np.stack([analysis.rsa[np.ix_(at[:n_layers], at[of])] for of in subjects])
    first, second = np.triu_indices(n, 1)
    # Two stimuli within a lag are in no sum over pairs.
    counts = ~PairDesign.complete(n, times=pairs.times).are_near(first, second)
    ranks = _unit_ranks(pairs, layers, counts)
    regions = [_unit_ranks(pairs, of, counts) for of in subjects]
    blocks = pairs.units.blocks()
    members = (blocks.weights == 0).astype(np.float64)
    influence = np.mean([cross_rsa_influence(ranks, of, members) for of in regions], axis=0)
    shares = unit_shares(pairs, analysis.stimuli)
    left = Left(without_blocks(rsa.mean(axis=0), influence, blocks.sizes, shares), blocks.sizes)

    # The mean RSA with subjects is that with the mean of their standardised ranks.
    mean = np.mean(regions, axis=0)[:, counts]
    of_layers = np.stack(pairs.ranks[:n_layers])

    def permuted_rsa(labels: IntArray) -> FloatArray:
        def rsa_of(row: IntArray) -> FloatArray:
            places = pair_places(row[first], row[second], n)[counts]
            return _standardized(of_layers[:, places]) @ mean.T

        return np.stack(map_on_all_cores(rsa_of, labels)).reshape(len(labels), -1)

    rng, stimuli = np.random.default_rng(analysis.spec.seed), pairs.select_stimuli(analysis.stimuli)
    if are_in_time(stimuli):
        # Whatever drifts has larger distances of what came further apart, and a shift ends that.
        mean = _less_time(mean, stimuli, counts)
        ways = time_exchanges(stimuli)
        labels = ways[farthest_exchange(ways, permuted_rsa, rng)].draw(permutations, rng)
    else:
        labels = pairs.units.permuted(permutations, rng)
    draws = permuted_rsa(np.concatenate((np.arange(n)[None], labels)))
    p = corrected_p(draws, np.ones(draws.shape[1], dtype=bool)).reshape(rsa.shape[1:])

    halves = []
    for _ in range(DRAWS):
        for rows in draw_halves(pairs.units.together, pairs.folds, n, rng):
            places = pairs_among(rows, n)
            places = places[counts[places]]
            in_half = _ranks_among(pairs, layers, places)
            halves.append([in_half @ _ranks_among(pairs, of, places).T for of in subjects])
    return _Compared(rsa, left, np.reshape(halves, (DRAWS, 2, *rsa.shape)), p)


def _unit_ranks(pairs: LayerPairs, layers: list[int], counts: NDArray[np.bool_]) -> FloatArray:
    """(n_layers, n_pairs) ranks, centred and of length 1 over the pairs that count; else 0."""
    ranks = np.zeros((len(layers), len(counts)))
    ranks[:, counts] = _standardized(np.stack([pairs.ranks[layer][counts] for layer in layers]))
    return ranks


def _ranks_among(pairs: LayerPairs, layers: list[int], places: IntArray) -> FloatArray:
    """(n_layers, n_places) ranks among some pairs, centred and of length 1."""
    squared = [pairs.squared[layer][places] for layer in layers]
    return _standardized(np.stack(map_on_all_cores(partial(pair_ranks, overwrite=True), squared)))


def _less_time(ranks: FloatArray, stimuli: StimulusSet, counts: NDArray[np.bool_]) -> FloatArray:
    """Ranks (n_regions, n_counting_pairs) less their mean over pairs as many stimuli apart.

    Pairs inside runs and of two runs have means of their own.
    """
    n, runs = len(stimuli), presentation_runs(stimuli)
    place = np.argsort(presentation_order(stimuli))
    first, second = (ends[counts] for ends in np.triu_indices(n, 1))
    apart = np.abs(place[first] - place[second]) + n * (runs[first] != runs[second])
    sizes = np.maximum(np.bincount(apart), 1)
    return ranks - np.stack([(np.bincount(apart, row) / sizes)[apart] for row in ranks])


def _standardized(ranks: NDArray[np.uint32]) -> FloatArray:
    """Ranks of each row, centred and of length 1."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    return np.asarray(centred / np.where(length > 0, length, 1.0))


def _key(context: SelectionContext, permutations: int = PERMUTATIONS) -> dict[str, Any]:
    analysis, spec = context.analysis, context.analysis.spec
    axes = dict(spec.axis_names)
    return analysis.key(
        analysis.layers, groups=spec.groups, axes=axes, seed=spec.seed, permutations=permutations
    )


REGION_SIMILARITY = Stage[RegionSimilarity](
    "region-similarity", 3, RegionSimilarity, compute_region_similarity, key=_key
)

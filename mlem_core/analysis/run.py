"""The run of an analysis, from the stimuli to the statistics of their pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.files import build_manifest
from mlem_core.analysis.layer_sources import layer_sources, with_subjects
from mlem_core.analysis.layer_statistics import layer_statistics, training_pairs
from mlem_core.analysis.planning import (
    CHOSEN,
    check_columns,
    choose,
    fold_choices,
    possible_choices,
    sampled_rows,
)
from mlem_core.analysis.serial_dependence import serial_dependence
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.labels import NAMES
from mlem_core.base.progress import reporting
from mlem_core.base.text import fraction, listed
from mlem_core.base.typing import IntArray, Layer, Report, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import resolved_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import correlations, pair_ranks
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.representations.layers import Representations
from mlem_core.stimuli.datasets import SETS
from mlem_core.stimuli.folds import (
    FEWEST_FOLDS,
    FEWEST_TESTED,
    number_of_folds,
    stimulus_folds,
    tested,
)
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

# Fewer have too few pairs for a correlation.
FEWEST_COMPARED = 4


class TooFewStimuli(InputError):
    """Stimuli that are too few for folds, and so for anything but RSA.

    rsa : (n_layers, n_layers) Spearman ρ of the distances, by "model:layer"
    """

    rsa: pd.DataFrame

    @classmethod
    def from_sources(
        cls, sources: Mapping[Layer, Representations], spec: AnalysisSpec, n_stimuli: int
    ) -> TooFewStimuli:
        """Error with the RSA of every two layers; raises InputError as `squared_distances`."""
        names, ranks = [*map(layer_name, sources)], []
        for (model, layer), source in sources.items():
            rows, distance = np.asarray(source[layer]), spec.neural_distance(model)
            ranks.append(pair_ranks(squared_distances(rows, distance, layer=f"{model}:{layer}")))
        centred = np.stack(ranks) - np.mean(ranks, axis=1, keepdims=True)
        rsa = pd.DataFrame(correlations(centred @ centred.T), names, names)
        of_pairs = [f"{fraction(rsa.loc[a, b])} of {a} and {b}" for a, b in combinations(names, 2)]
        error = cls(
            f"found {n_stimuli} stimuli; features need folds, and these at least "
            f"{FEWEST_FOLDS * FEWEST_TESTED} stimuli, so add some. RSA needs no folds; it is "
            f"{listed(of_pairs, most=5) or 'of two layers or more'}."
        )
        error.rsa = rsa
        return error


def run(
    spec: AnalysisSpec,
    store: Store | None = None,
    progress: Report | bool | None = None,
    stimuli: StimulusSet | None = None,
) -> Analysis:
    """Run an analysis from top to bottom.

    Representations and pair statistics come from the store when nothing that they depend on has
    changed. A model or file that cannot be used is left out, with a notice, if another remains.

    Parameters
    ----------
    store : by default that of `Store()`
    progress : called as the work goes on; by default a progress bar on a terminal and in a
        notebook, with False none
    stimuli : those of `spec`, where they have been read before, or others in their place

    Raises
    ------
    InputError
        Whatever the user gave that cannot be used; no model is left.

    Examples
    --------
    >>> spec = AnalysisSpec("s.csv", representations={"m": "m.npz"}, layers=0)
    >>> run(spec, progress=False).layers
    [('m', 0)]
    """
    if stimuli is not None and spec.stimuli in SETS and stimuli.name != spec.stimuli:
        spec = replace(spec, stimuli=stimuli.name)
    with reporting(progress) as report:
        return _run(spec, Store() if store is None else store, report, stimuli)


def _run(spec: AnalysisSpec, store: Store, report: Report, stimuli: StimulusSet | None) -> Analysis:
    spec = with_subjects(spec)
    spec.check()
    whole = (spec.load_stimuli() if stimuli is None else stimuli).select(spec.features)
    stimuli = spec.kept.apply(whole)
    if FEWEST_COMPARED <= len(stimuli) < FEWEST_FOLDS * FEWEST_TESTED:
        raise TooFewStimuli.from_sources(
            layer_sources(spec, whole, store, report)[0], spec, len(stimuli)
        )
    folds = _folds(whole, spec)
    # A table may give others.
    spec = replace(spec, folds=number_of_folds(folds))
    requested, choices = spec, possible_choices(spec, stimuli)
    spec = replace(spec, estimator=choices[0].estimator, values=choices[-1].values)
    check_columns(resolved_columns(stimuli, spec.values), spec)
    sources, notices = layer_sources(spec, whole, store, report)
    record: dict[str, Any] = {}
    if len(choices) > 1:
        pairs = _sample_statistics(spec, stimuli, folds, sources, store, report)
        best, record = choose(requested, choices, pairs)
        spec = replace(spec, estimator=best.estimator, values=best.values)
    pairs, notes, positions, errors, variance = layer_statistics(
        spec, stimuli, folds, sources, store, report
    )
    layers = [list(sources)[position] for position in positions]
    named = replace(spec, values=pairs.resolved)
    notices = [*whole.notes, *notices, *notes, *lint(stimuli, named).said]
    notices += _identical_layers(layers, pairs)
    files = {name for name, _ in spec.representations}
    of_files = {model: source for (model, _), source in sources.items() if model in files}
    dependences = (serial_dependence(source, stimuli) for source in of_files.values())
    notices += filter(None, (dependence.sentence for dependence in dependences))
    manifest = build_manifest(named, whole, stimuli, sources, layers, notices)
    manifest |= {CHOSEN: record} if record else {}
    analysis = Analysis(
        spec,
        stimuli,
        layers,
        pairs,
        folds,
        notices,
        manifest,
        whole,
        pair_errors=errors,
        variance=variance,
    )
    for values in {choice.values for choice in fold_choices(manifest)} - {spec.values}:
        other = replace(spec, values=values)
        statistics = layer_statistics(other, stimuli, folds, sources, store, report)
        analysis = replace(analysis, otherwise_coded=statistics.pairs)
    if not estimator_named(spec.estimator).of_pairs:
        return analysis
    training = training_pairs(
        pairs, analysis.design, spec, [(layer, sources[layer]) for layer in layers]
    )
    return replace(analysis, fits=fitted(pairs, spec.estimator, training_pairs=training))


def _sample_statistics(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    folds: IntArray,
    sources: Mapping[Layer, Representations],
    store: Store,
    report: Report,
) -> PairStatistics:
    """Pair statistics for choices: of all pairs of a seeded sample, if there are more stimuli."""
    rows = sampled_rows(len(stimuli), spec.seed)
    if len(rows) < len(stimuli):
        # Which features have few enough values is said of all stimuli.
        coded = [column.name for column in resolved_columns(stimuli, spec.values) if column.names]
        spec = replace(spec, pairs=0, values=tuple(coded))
        stimuli = stimuli.take(rows)
        folds = folds[rows]
        sources = {layer: source.take(rows) for layer, source in sources.items()}
    return layer_statistics(spec, stimuli, folds, sources, store, report).pairs


def _folds(whole: StimulusSet, spec: AnalysisSpec) -> IntArray:
    """Folds over all stimuli: a sentence keeps its fold whichever words are left out."""
    every = stimulus_folds(whole, spec.folds_over, spec.folds, spec.seed)
    folds = every[spec.kept.rows(whole)]
    smallest = int(tested(folds, number_of_folds(every)).min())
    if smallest < FEWEST_TESTED:
        raise InputError(
            f"a fold is left with {smallest} stimuli of those that are kept (positions "
            f"{spec.positions}, half {spec.half}); each of the {spec.folds} folds needs at least "
            f"{FEWEST_TESTED}, so choose fewer folds or keep more stimuli."
        )
    return folds


def _identical_layers(layers: Sequence[Layer], pairs: PairStatistics) -> Iterator[str]:
    """Sentences about layers without differences between stimuli, and about identical ones."""
    moments = pairs.moments
    every_pair = np.ones(moments.n_blocks, dtype=bool)
    varies = np.diag(moments.rank_covariances(every_pair)) > 0
    for model, layer in (layers[at] for at in np.flatnonzero(~varies).tolist()):
        yield (
            f"{model} layer {layer} has the same distance between all stimuli; "
            "its scores and importances are 0."
        )
    sums = moments.within(every_pair)
    of_layers = np.column_stack((sums.distance_means, sums.with_distances))
    same = [
        f"{NAMES.layer_title(layers[a])} and {NAMES.layer_title(layers[b])}"
        for a, b in zip(*np.nonzero(np.triu(moments.rsa > 1 - 1e-9, 1)), strict=True)
        if varies[a] and varies[b] and np.allclose(of_layers[a], of_layers[b], rtol=1e-6, atol=0)
    ]
    if same:
        yield (
            f"Identical representations, with the same distances: {listed(same, most=8)}. Their "
            "similarity says nothing about models."
        )

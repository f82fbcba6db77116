"""Duration of intervals, from one unit of their work that is measured first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection
from mlem_core.base.parallel import cores
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.corrections import PERMUTATIONS
from mlem_core.inference.replicates import CHOSEN_ANEW
from mlem_core.measures.decomposition import divide
from mlem_core.measures.importance import mean_scores
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.resampling_units import StimulusUnits, Units
from mlem_core.pairs.similarities import RSA

# Seconds: to begin, and of a pair in a layer where sentences alone are left out, or words too.
START, PER_PAIR, PER_PAIR_TWO_WAY = 20.0, 2.0e-6, 5.0e-6
# How many times as long those of another similarity take as those of RSA.
OTHERS_OVER_RSA = 4


def seconds_of_layers(analysis: Analysis, selection: Selection) -> float:
    """Seconds that the intervals of all layers of a selection may take.

    Contributions to all are computed once to measure what permuted labels take, and one layer is
    fitted once, where models are fitted without each block.
    """
    n_layers, units = len(selection.layers), StimulusUnits.of(analysis.stimuli, analysis.folds)
    rate = PER_PAIR_TWO_WAY if Units.of(analysis.stimuli).two_way else PER_PAIR
    own = analysis.subset(selection)[0].coarse
    permuted = PERMUTATIONS * len(selection.features) * _took(lambda: divide(CrossFit.of(own)))
    seconds = START + analysis.tables.n_pairs * n_layers * rate + permuted / cores()
    if selection.similarity != RSA:
        return OTHERS_OVER_RSA * seconds
    entry = estimator_named(selection.estimator)
    if not entry.refitted:
        return seconds
    tables, _ = analysis.subset(replace(selection, layers=selection.layers[:1]))
    model, folds = entry.model(), range(tables.n_folds)
    held = model.solve(tables, folds)
    chosen = _took(lambda: model.solve(tables, folds))
    fitted = _took(lambda: mean_scores(tables, selection.estimator, held))
    blocks = units.blocks()
    anew = CHOSEN_ANEW * len(blocks.sizes)
    more = n_layers * (len(blocks.weights) * fitted + anew * (fitted + chosen))
    return seconds + more / cores()


def _took(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

"""The command `why`: explain the similarity of two layers."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.similarities import compared
from mlem_core.base.progress import Bars
from mlem_core.base.text import fraction
from mlem_core.base.typing import counting
from mlem_core.cli.inputs import analysis_of_two, new_notices
from mlem_core.cli.options import add_bootstrap, add_chance, add_similarity, add_two_layers
from mlem_core.cli.streams import complain, tell
from mlem_core.inference.explanation import explain, with_chance, with_intervals
from mlem_core.inference.intervals import check_permutations
from mlem_core.inference.resample import generalises
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.stimuli.stimulus_csv import write_table
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_two_layers(command)
    add_bootstrap(command, "95 %% confidence intervals")
    add_chance(command, "contributions beyond those with the labels of each feature")
    add_similarity(command, "the similarity that is explained")
    command.add_argument("--out", metavar="FILE.csv", help="write the contributions as CSV")


def why(options: argparse.Namespace) -> None:
    """Explain the similarity of two layers by features."""
    SIMILARITIES.named(options.similarity)
    if options.chance:
        check_permutations(options.chance)
    store = Store()
    with Bars() as bars:
        analysis = analysis_of_two(options, store, bars.show)
        complain(*new_notices(analysis))
        count = counting(bars.show, "similarity", "layers")
        of_layers = compared(analysis, options.similarity, store, count)
        layers = (options.first, options.second)
        explanation = explain(analysis, *layers, seed=options.seed, compared=of_layers)
        bars.clear()
        if explanation.similarity.divides or options.bootstrap:
            value = fraction(explanation.value)
            tell(f"{explanation.similarity.short} of {' and '.join(explanation.called)}: {value}")
            # Intervals and chance leave it as it is.
            sys.stdout.flush()  # what follows takes its time, and may go to a pipe
        if options.chance:
            explanation = replace(explanation, permutations=options.chance)
        if options.bootstrap:
            count = counting(bars.show, "intervals", "blocks")
            explanation = with_intervals(explanation, analysis, store, count)
        else:
            context = SelectionContext.from_analysis(analysis, store, bars.show)
            explanation = with_chance(explanation, context)
    if options.out is not None:
        write_table(
            explanation.terms if explanation.similarity.divides else explanation.whole,
            Path(options.out),
        )
    tell(explanation.text)
    units, seeds = Units.from_stimuli(analysis.stimuli), analysis.spec.has_seeds
    claimed = [generalises(units, seeds=seeds)] if options.bootstrap else []
    complain(*explanation.notes, *claimed)

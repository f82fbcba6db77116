"""The command `what-else`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlem_core.base.progress import Bars
from mlem_core.cli.inputs import analysis_of_two, new_notices
from mlem_core.cli.options import add_chance, add_two_layers
from mlem_core.cli.streams import complain, tell
from mlem_core.extensions.candidates.candidate_search import explain_rest
from mlem_core.inference.intervals import check_permutations
from mlem_core.stimuli.stimulus_csv import write_table
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_two_layers(command, "without it: what else explains the distances in the first")
    add_chance(command, "99 by default: gains beyond those with the labels of each candidate", 99)
    command.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the candidates as CSV; what the best "
        "explain together, and how much is a function of the word or sentence, as "
        "FILE_together.csv and FILE_reach.csv",
    )


def search_candidates(options: argparse.Namespace) -> None:
    """Find columns that explain more of two layers' similarity than the features."""
    check_permutations(options.chance)
    store = Store()
    with Bars() as bars:
        # Layer 0 is a candidate.
        analysis = analysis_of_two(options, store, bars.show, beside=(0,))
        layers = [layer for layer in (options.first, options.second) if layer is not None]
        complain(*new_notices(analysis))
        found = explain_rest(
            analysis, layers, store, n_permutations=options.chance, report=bars.show
        )
    if options.out is not None:
        out = Path(options.out)
        for name, table in found.written(out.stem).items():
            write_table(table, out.with_name(name).with_suffix(out.suffix))
    tell("\n".join(found.sentences))
    complain(*found.notes)

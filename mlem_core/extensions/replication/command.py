"""The command `replicate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlem_core.analysis.spec import parameters
from mlem_core.base.progress import Bars
from mlem_core.cli.inputs import two_results
from mlem_core.cli.options import add_inputs
from mlem_core.cli.streams import complain, tell
from mlem_core.extensions.replication.comparison import Paired, differences_in_words, replication
from mlem_core.stimuli.stimulus_csv import write_table
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    about = "a folder that analyze wrote; or a stimulus set, analysed with the options"
    command.add_argument("first", metavar="ONE", help=about)
    command.add_argument("second", metavar="TWO", nargs="?", help="another; not with --halves")
    halves = "compare two halves of ONE: of its sentences, or of what --folds-over names"
    command.add_argument("--halves", action="store_true", help=halves)
    add_inputs(command, [name for name in parameters() if name not in ("stimuli", "half")])
    command.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the correlations as CSV, and differences as FILE_importances.csv and "
        "FILE_similarities.csv",
    )


def replicate(options: argparse.Namespace) -> None:
    """Compare two results, or two halves of one stimulus set."""
    store = Store()
    with Bars() as bars:
        both = two_results(options, store, bars.show)
        bounds = Paired.get(*both, store, bars.show)
    said, tables = replication(both, (both[0].results(), both[1].results()), bounds)
    if options.out is not None:
        path = Path(options.out)
        for name, table in tables.items():
            end = "" if name == "correlations" else f"_{name}"
            write_table(table, path.with_name(f"{path.stem}{end}{path.suffix}"))
    tell(*said)
    complain(differences_in_words(*both))

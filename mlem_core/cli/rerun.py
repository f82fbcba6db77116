"""The command `rerun`: run an analysis again and compare its tables."""

from __future__ import annotations

import argparse

from mlem_core.base.parameters import parse_pair
from mlem_core.base.progress import Bars
from mlem_core.cli.streams import tell, typed

# Exit status where a table differs.
DIFFERS = 1


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument(
        "manifest",
        metavar="MANIFEST.json|FILE.zip",
        help="manifest.json that analyze wrote beside its tables, or a zip of export or the app",
    )
    command.add_argument(
        "--stimuli", metavar="FILE", help="the stimuli, where they are not beside the manifest"
    )
    command.add_argument(
        "--representations",
        action="append",
        default=[],
        type=typed(parse_pair("NAME=FILE")),
        metavar="NAME=FILE",
        help="a representations file that is not beside the manifest; may be given several times",
    )


def rerun_analysis(options: argparse.Namespace) -> int:
    """Run an analysis again and say which tables differ."""
    from mlem_core.report.rerun import rerun

    with Bars() as bars:
        outcome = rerun(
            options.manifest,
            stimuli=options.stimuli,
            representations=dict(options.representations),
            progress=bars.show,
        )
    tell(*outcome.lines())
    return 0 if outcome.same else DIFFERS

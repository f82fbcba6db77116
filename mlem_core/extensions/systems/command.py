"""The command `systems`: a table of models with their properties."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from mlem_core.cli.streams import complain
from mlem_core.representations.availability import systems_table
from mlem_core.representations.registry import SYSTEMS
from mlem_core.stimuli.stimulus_csv import write_table


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model",
        dest="models",
        action="append",
        metavar="NAME",
        help="may be given several times",
    )
    source.add_argument(
        "--preset", choices=list(SYSTEMS), help="a table that comes with the program, as it is"
    )
    command.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")


def write_systems(options: argparse.Namespace) -> None:
    """Write a table of models with the properties that their configurations tell."""
    notes: list[str] = []
    if options.preset:
        table = pd.read_csv(SYSTEMS[options.preset], dtype=str, keep_default_na=False)
    else:
        table, notes = systems_table(options.models)
    write_table(table, Path(options.out))
    complain(*notes)

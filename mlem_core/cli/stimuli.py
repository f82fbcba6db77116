"""The commands `stimuli` and `lint`: write stimuli, and check them before a run."""

from __future__ import annotations

import argparse

from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.source import READING
from mlem_core.base.parameters import join_names
from mlem_core.base.text import many
from mlem_core.cli.inputs import checked_spec
from mlem_core.cli.options import LINTED, add_inputs
from mlem_core.cli.streams import complain, tell
from mlem_core.stimuli.columns import cell_text, guess_kind
from mlem_core.stimuli.datasets import SETS
from mlem_core.stimuli.formats import folder_suffixes, ordered_steps
from mlem_core.stimuli.stimulus_csv import write_csv


def add_stimuli_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `stimuli`."""
    command.add_argument(
        "stimuli",
        metavar="NAME|FILE",
        help=", ".join([*SETS, "a file", *(f"a folder of {each}" for each in folder_suffixes())]),
    )
    not_written = [step.name for step in ordered_steps() if not step.fits_csv]
    written = [name for name in READING if name not in not_written]
    add_inputs(command, [*written, "ordered", "nominal"])
    command.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")


def add_lint_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `lint`."""
    add_inputs(command, ["stimuli", *READING, "ordered", "nominal", "features", *LINTED])


def write_stimuli(options: argparse.Namespace) -> None:
    """Write stimuli as CSV."""
    stimuli = checked_spec(options).load_stimuli()
    write_csv(stimuli, options.out)
    names = [
        feature.name
        for feature in stimuli.features
        if feature.kind == "nominal"
        and guess_kind([cell_text(value) for value in stimuli.values(feature.name)]) == "ordered"
    ]
    if names:
        complain(f"Read it with --nominal {join_names(names)}: the values are numbers, and names.")


def check_stimuli(options: argparse.Namespace) -> None:
    """Print what the look at the stimuli has found."""
    spec = checked_spec(options)
    stimuli = spec.load_stimuli().select(spec.features)
    findings = lint(stimuli, spec)
    for finding in findings.findings:
        rows = f" (rows {', '.join(map(str, finding.rows))})" if finding.rows else ""
        tell(f"{finding.severity}: {finding.sentence}{rows}")
    tell(
        f"{many(len(stimuli), stimuli.level)}, {many(len(stimuli.features), 'feature')}: "
        + ", ".join(f"{feature.name} ({feature.kind})" for feature in stimuli.features)
    )

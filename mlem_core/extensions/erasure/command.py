"""The command `erase`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.base.progress import Bars
from mlem_core.base.typing import parse_layer
from mlem_core.cli.inputs import checked_spec, new_notices
from mlem_core.cli.options import add_inputs
from mlem_core.cli.streams import complain, tell
from mlem_core.extensions.erasure.stage import erase
from mlem_core.stimuli.stimulus_csv import write_table
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument("feature", metavar="FEATURE", help="such as part_of_speech")
    command.add_argument(
        "--other",
        dest="others",
        action="append",
        default=[],
        metavar="MODEL:LAYER",
        help="a layer whose similarity with the later layers is measured; may be given several "
        "times",
    )
    command.add_argument(
        "--erased",
        default="all",
        metavar="all|stimuli",
        help="which tokens of a sentence are changed: all (default), or those of the stimuli",
    )
    add_inputs(command)
    command.add_argument("--out", metavar="FILE.csv", help="write the measures as CSV")


def erase_feature(options: argparse.Namespace) -> None:
    """Erase a feature from a layer of a model, and measure what changes."""
    if len(options.models) != 1 or ":" not in options.models[0]:
        named = ", ".join(options.models) or "none"
        raise InputError(
            f"found the models {named}; expected the one layer to erase from, as --model "
            "mini-gpt2:3 (name others by --other)."
        )
    layer, others = parse_layer(options.models[0]), [parse_layer(one) for one in options.others]
    files, later = dict(options.representations), options.layers
    options.models = [name for name in dict.fromkeys(dict([layer, *others])) if name not in files]
    options.layers = tuple(sorted({number for _, number in (layer, *others)}))
    store = Store()
    with Bars() as bars:
        analysis = run(checked_spec(options), store, bars.show)
        complain(*new_notices(analysis))
        found = erase(
            analysis,
            options.feature,
            layer,
            store,
            others=others,
            later=later,
            positions=options.erased,
            report=bars.show,
        )
    if options.out is not None:
        write_table(found.table.drop(columns="beyond"), Path(options.out))
    tell(*found.sentences())
    complain(*found.notes)

"""The command that erases a feature from a layer of a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlem_core.base.bars import Bars
from mlem_core.base.errors import InputError
from mlem_core.base.typing import parse_layer
from mlem_core.cli.streams import complain, tell

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec


def add_erase(
    commands: Any, add_inputs: Callable[[argparse.ArgumentParser], None]
) -> argparse.ArgumentParser:
    """The command and its options, beside those of an analysis."""
    command: argparse.ArgumentParser = commands.add_parser(
        "erase",
        help="erase a feature from a layer of a model, and measure what changes",
        description="Names one layer as --model mini-gpt2:3. The feature is erased by a linear map "
        "(LEACE) in the forward pass; importances, similarities and predictions are compared with "
        "those of controls. --layers names the later layers that are measured; by default all.",
    )
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
    return command


def run_erase(
    options: argparse.Namespace, spec: Callable[[argparse.Namespace], AnalysisSpec]
) -> None:
    """Run the command.

    Parameters
    ----------
    spec : the checked analysis of options
    """
    from mlem_core.analysis.run import run
    from mlem_core.data.stimulus_csv import write_table
    from mlem_core.robustness.erasure import erase
    from mlem_core.storage.store import Store

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
        analysis = run(spec(options), store, bars.show)
        complain(*[one for one in analysis.notices if one not in analysis.whole.notes])
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

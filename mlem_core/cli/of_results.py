"""Parsers of the commands that take what others wrote, or that erase a feature."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mlem_core.base.parameters import parse_pair
from mlem_core.base.typing import Layer, parse_layer
from mlem_core.cli.streams import typed


def add_rerun(commands: Any) -> argparse.ArgumentParser:
    """Parser of the command `rerun`."""
    command: argparse.ArgumentParser = commands.add_parser(
        "rerun",
        help="run an analysis again and say which tables differ",
        description="Exit code 0: all tables are equal; 1: a table differs; 2: the analysis cannot "
        "be run again.",
    )
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
    return command


def add_export(commands: Any) -> argparse.ArgumentParser:
    """Parser of the command `export`."""
    command: argparse.ArgumentParser = commands.add_parser(
        "export",
        help="write a result as one HTML page, or as a zip of everything",
        description="The page explains every two layers, with the maps of the stimuli, the "
        "profiles, the tables and the methods. Nothing in it is fetched from elsewhere. The zip "
        "has all tables and figures, the methods, the stimuli and manifest.json for rerun.",
    )
    command.add_argument("result", metavar="RESULT", help="a folder that analyze wrote")
    command.add_argument("--html", metavar="FILE.html", help="the page to write")
    command.add_argument("--zip", metavar="FILE.zip", help="the zip to write")
    command.add_argument("--title", help="of the page; by default the name of the stimuli")
    command.add_argument(
        "--pair",
        dest="pairs",
        action="append",
        type=typed(_pair),
        metavar="MODEL:LAYER,MODEL:LAYER",
        help="explain these two layers; may be given several times; by default every two",
    )
    command.add_argument(
        "--without-stimuli",
        action="store_true",
        help="leave the words and sentences out of the page; the values of their features stay",
    )
    return command


def _pair(text: str) -> tuple[Layer, Layer]:
    a, _, b = text.partition(",")
    return parse_layer(a.strip()), parse_layer(b.strip())


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

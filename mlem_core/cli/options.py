"""What the command line takes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, NoReturn

from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, parse_layer
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.pairs.distances import DISTANCES

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec

BAD_INPUT = 2
_FOLDER = "folder for the tables, made if it is not there"


class Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (--help lists what there is)", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in _names(text)}))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of layer numbers such as 0,3,6"
        ) from None


def _named_file(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=FILE")
    return name, path


def _layer(text: str) -> Layer:
    try:
        return parse_layer(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_bootstrap(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--bootstrap",
        type=int,
        default=0,
        metavar="N",
        help=f"{what} from N bootstrap replicates of the sentences",
    )


def _variation(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, values = text.partition("=")
    if not (name and equals and _names(values)):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form distance=euclidean,cosine")
    return name.replace("-", "_"), _names(values)


def _add_inputs(command: argparse.ArgumentParser) -> None:
    """What an analysis is of and how it is done: the same options for every command."""
    command.add_argument(
        "--stimuli", required=True, metavar="FILE.csv|NAME", help="a stimulus CSV or a built-in set"
    )
    command.add_argument(
        "--model",
        dest="models",
        action="append",
        default=[],
        metavar="NAME",
        help="mini-bert, mini-gpt2, mini-mamba, minilm, smollm2, a hub id or a local folder; "
        "may be given several times",
    )
    command.add_argument(
        "--representations",
        action="append",
        default=[],
        type=_named_file,
        metavar="NAME=FILE",
        help=".npz or .safetensors with layer_00, layer_01, ..., or a .csv of one layer; may be "
        "given several times",
    )
    command.add_argument("--layers", type=_numbers, metavar="0,3,6", help="default: all")
    command.add_argument("--features", type=_names, metavar="a,b", help="default: all")
    command.add_argument(
        "--ordered",
        type=_names,
        default=(),
        metavar="a,b",
        help="features that differ by how far apart their values are; default: the numeric ones",
    )
    command.add_argument(
        "--nominal",
        type=_names,
        default=(),
        metavar="a,b",
        help="features that are equal or not, though they are numbers",
    )
    command.add_argument(
        "--missing",
        default="ignore",
        metavar="ignore|level",
        help="a missing value differs from none (ignore, the default), or is a value of its own "
        "(level)",
    )
    command.add_argument(
        "--estimator",
        default="ridge",
        metavar="|".join(ESTIMATORS),
        help="; ".join(spec.label.replace("%", "%%") for spec in ESTIMATORS.values())
        + "; default: ridge",
    )
    command.add_argument(
        "--interactions", action="store_true", help="weigh products of two features too"
    )
    command.add_argument(
        "--distance",
        default="euclidean",
        metavar="|".join(DISTANCES),
        help="precomputed: the arrays of the representations files are distances",
    )
    command.add_argument(
        "--folds", type=int, default=5, metavar="N", help="of the cross-validation; default: 5"
    )
    command.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the folds and of resampling; default: 0",
    )
    command.add_argument(
        "--device",
        default="auto",
        metavar="auto|cpu|cuda",
        help="where models are run and pairs compared; auto (the default) takes a GPU if there is "
        "one",
    )
    command.add_argument(
        "--dtype",
        default="float32",
        metavar="float32|bfloat16",
        help="numbers that models compute with; default: float32",
    )
    command.add_argument(
        "--special-tokens",
        default="model",
        metavar="model|none|start",
        help="start and end tokens of a sentence: as the model's tokenizer adds them, none, or a "
        "start token in any case",
    )
    command.add_argument(
        "--pooling",
        default="standard",
        metavar="standard|mean|last",
        help="what stands for a stimulus: standard (a word's last sub-token, the mean of a "
        "sentence), mean (of a word's sub-tokens) or last (token of a sentence)",
    )
    command.add_argument(
        "--positions",
        default="all",
        metavar="all|without-first",
        help="without-first leaves out the words at position 0",
    )
    command.add_argument(
        "--units",
        default="raw",
        metavar="raw|standardised|without-outliers",
        help="of a layer: as they are (raw, the default), each with variance 1, or without those "
        "of outlying variance",
    )


def spec_of(options: argparse.Namespace) -> AnalysisSpec:
    """The analysis that the options of a command ask for."""
    from mlem_core.analysis.spec import AnalysisSpec

    names = {field.name for field in fields(AnalysisSpec)}
    return AnalysisSpec.from_dict({k: v for k, v in vars(options).items() if k in names})


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of the command line; `options.command` says which command is asked for."""
    whole = Parser(prog="python -m mlem_core", description=description)
    commands = whole.add_subparsers(dest="command", required=True, parser_class=Parser)

    analyze = commands.add_parser(
        "analyze", help="run an analysis and write its tables as CSV into a folder"
    )
    _add_inputs(analyze)
    analyze.add_argument(
        "--baselines",
        type=_names,
        default=(),
        metavar="decoding,random-forest,univariate",
        help="baselines to compute and write too, a CSV each; they take seconds to minutes a layer",
    )
    _add_bootstrap(
        analyze, "intervals.csv and similarity_intervals.csv too: 95 %% confidence intervals"
    )
    analyze.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)
    analyze.add_argument(
        "--capsule", metavar="FILE.zip", help="also write all of it, with figures, as one zip"
    )

    why = commands.add_parser("why", help="say why two layers are alike, feature by feature")
    for name in ("first", "second"):
        why.add_argument(name, type=_layer, metavar="MODEL:LAYER", help="such as minilm:3")
    _add_inputs(why)
    _add_bootstrap(why, "95 %% confidence intervals")
    why.add_argument("--out", metavar="FILE.csv", help="write the terms as CSV")

    audit = commands.add_parser(
        "audit", help="say of every layer what may be an artefact, and write the tables as CSV"
    )
    _add_inputs(audit)
    audit.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)

    multiverse = commands.add_parser(
        "multiverse",
        help="say in how many combinations of choices a claim about layers holds",
        description="A claim is one of: 'top FEATURE A' (it matters most in layer A), 'above "
        "FEATURE OTHER A' (it matters more than the other), 'more-in FEATURE A B', 'closer A B C "
        "rsa|tau' (A is more like B than like C), 'alike A B rsa|tau 0.5' (above 0.5); layers are "
        "written minilm:3.",
    )
    _add_inputs(multiverse)
    multiverse.add_argument(
        "layers_in_question",
        nargs="*",
        type=_layer,
        metavar="minilm:3",
        help="layers in question, beside those of the claims",
    )
    multiverse.add_argument(
        "--claim", dest="claims", action="append", default=[], help="may be given several times"
    )
    multiverse.add_argument(
        "--vary",
        action="append",
        default=[],
        type=_variation,
        metavar="distance=euclidean,cosine",
        help="what to vary (distance, units, positions, special_tokens, pooling, missing, "
        "estimator); may be given several times; default: every distance and estimator, and, "
        "where they matter, positions and missing",
    )
    multiverse.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)

    stimuli = commands.add_parser("stimuli", help="write a built-in stimulus set as CSV")
    stimuli.add_argument("name", metavar="NAME", help="probing or relative-clauses")
    stimuli.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")

    verify = commands.add_parser(
        "verify",
        help="run a capsule again and say what differs",
        description="Exit code 0: nothing differs; 1: something does; 2: it cannot be run again.",
    )
    verify.add_argument(
        "capsule", metavar="CAPSULE.zip", help="as --capsule of analyze, or the app, wrote it"
    )
    return whole

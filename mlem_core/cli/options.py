"""What the command line takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from mlem_core.analysis.source import READING
from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import Parameter, parse_names, parse_pair
from mlem_core.base.typing import parse_layer
from mlem_core.cli.streams import complain, one_line
from mlem_core.data.datasets import SETS
from mlem_core.pairs.similarities import NEIGHBOURS, RSA, SIMILARITIES
from mlem_core.scale.cluster import FORMS, VARIABLE, check_named

BAD_INPUT = 2
MOST_REPLICATES = 10_000_000
# What of an analysis the look at its stimuli depends on.
LINTED = ("missing", "interactions", "values", "folds", "folds_over", "seed")
_FOLDER = "folder for the tables, made if it is not there"


class Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        complain(one_line(f"{self.prog}: {message} (--help lists what there is)"))
        raise SystemExit(BAD_INPUT)


def _typed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """For argparse, which keeps the message of its own error only."""
    if parse in (int, str):
        return parse

    def typed(text: str) -> Any:
        try:
            return parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


_layer = _typed(parse_layer)


def _replicates(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None
    if number > MOST_REPLICATES:
        raise argparse.ArgumentTypeError(f"found {number}; expected at most {MOST_REPLICATES:,}")
    return number


def _add_bootstrap(command: argparse.ArgumentParser, what: str, of: str) -> None:
    command.add_argument(
        "--bootstrap",
        type=_replicates,
        default=0,
        metavar="N",
        help=f"{what} over sentences and recurring words, which are left out in turn; {of}",
    )


def _add_chance(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--chance",
        type=_replicates,
        default=0,
        metavar="N",
        help="importance_chance.csv too: importances with the labels of each feature permuted N "
        "times at its level (word, sentence, stimulus), at least 20",
    )


def _add_similarities(
    analyze: argparse.ArgumentParser, why: argparse.ArgumentParser, audit: argparse.ArgumentParser
) -> None:
    """Which similarities besides RSA, or instead of it, are looked at."""
    others = [name for name in SIMILARITIES if name != RSA]
    analyze.add_argument(
        "--similarities",
        type=parse_names,
        default=(),
        metavar=",".join(others),
        help="similarities beside RSA to compute and write too, a CSV each and one of its terms by "
        "feature; see --similarity of why. procrustes (one layer turned onto the other) and cca "
        "(directions that go together) are measured on held-out stimuli and have no terms",
    )
    for command, what in (
        (analyze, "what the lines and the tables of groups compare layers by"),
        (audit, "what changes between two layers: see --similarity of why"),
    ):
        command.add_argument(
            "--similarity", default=RSA, metavar="|".join(SIMILARITIES), help=f"{what} (rsa)"
        )
    why.add_argument(
        "--similarity",
        default=RSA,
        metavar="|".join(SIMILARITIES),
        help="what the terms add up to: the correlation of the ranks of distances (rsa, the "
        "default), of U-centred squared distances (cka: debiased linear CKA), or of who is among "
        f"the {NEIGHBOURS} nearest of whom (neighbours: calibrated overlap). procrustes and cca "
        "have no terms: one number, and with --bootstrap its interval",
    )


def _add_cluster(*commands: argparse.ArgumentParser) -> None:
    for command in commands:
        command.add_argument(
            "--cluster",
            type=_typed(check_named),
            metavar="local:4|tcp://HOST:8786",
            help=f"do the work on a Dask cluster: {FORMS}; by default what {VARIABLE} names, or "
            "the threads of this process",
        )


def _variation(text: str) -> tuple[str, tuple[str, ...]]:
    name, values = parse_pair("distance=euclidean,cosine", parse_names)(text)
    return name.replace("-", "_"), values


def _help(described: Parameter, default: Any) -> str:
    """What a parameter is, its choices where they say more than their names, its default."""
    more = [
        label if label.startswith(f"{name}:") else f"{name}: {label}"
        for name, label in described.labels.items()
        if label != name
    ]
    parts = [described.text, *([f"{'; '.join(more)}."] if more else [])]
    if described.repeated:
        parts.append("May be given several times.")
    elif isinstance(default, str) or (isinstance(default, int) and not isinstance(default, bool)):
        parts.append(f"Default: {default if isinstance(default, str) else format(default, ',')}.")
    return " ".join(parts).replace("%", "%%")


def _add_inputs(command: argparse.ArgumentParser, names: Iterable[str] | None = None) -> None:
    """What an analysis is of and how it is done: the same options for every command."""
    defaults = AnalysisSpec()
    for name, described in parameters().items():
        if names is not None and name not in names:
            continue
        default = getattr(defaults, name)
        options: dict[str, Any] = {"dest": name, "default": default}
        options["help"] = _help(described, None if name == "stimuli" else default)
        if isinstance(default, bool):
            options["action"] = "store_true"
        else:
            options["metavar"] = described.metavar or "|".join(described.labels)
            options["type"] = _typed(described.parse)
        if described.repeated:
            options |= {"action": "append", "default": []}
        if name == "stimuli":
            options |= {"required": True, "default": None}
        command.add_argument(f"--{(described.option or name).replace('_', '-')}", **options)


def _add_claims(command: argparse.ArgumentParser) -> None:
    """What is claimed of which layers, and what is varied."""
    command.add_argument(
        "layers_in_question",
        nargs="*",
        type=_layer,
        metavar="minilm:3",
        help="layers in question, beside those of the claims",
    )
    command.add_argument(
        "--claim", dest="claims", action="append", default=[], help="may be given several times"
    )
    command.add_argument(
        "--vary",
        action="append",
        default=[],
        type=_typed(_variation),
        metavar="distance=euclidean,cosine",
        help="what to vary (distance, units, positions, special_tokens, pooling, missing, "
        "estimator); may be given several times; default: every distance and estimator, and, "
        "where they matter, positions and missing",
    )


def _add_verify(commands: Any) -> argparse.ArgumentParser:
    verify: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="run a capsule again and say what differs",
        description="Exit code 0: nothing differs; 1: something does; 2: it cannot be run again.",
    )
    verify.add_argument(
        "capsule", metavar="CAPSULE.zip", help="as --capsule of analyze, or the app, wrote it"
    )
    verify.add_argument(
        "--model",
        dest="folders",
        action="append",
        default=[],
        type=_typed(parse_pair("NAME=FOLDER")),
        metavar="NAME=FOLDER",
        help="where a model is that was a folder; may be given several times",
    )
    verify.add_argument(
        "--download",
        action="store_true",
        help="fetch models of the Hugging Face hub that are not on this machine",
    )
    return verify


def _add_replicate(commands: Any) -> argparse.ArgumentParser:
    replicate: argparse.ArgumentParser = commands.add_parser(
        "replicate",
        help="say whether a second result repeats a first one",
        description="It does where the same feature matters most and importances correlate above "
        "0.5 for sure.",
    )
    about = "a folder that analyze wrote; or a stimulus set, analysed with the options"
    replicate.add_argument("first", metavar="ONE", help=about)
    replicate.add_argument("second", metavar="TWO", nargs="?", help="another; not with --halves")
    halves = "compare the halves of ONE: other sentences, or other units of --folds-over"
    replicate.add_argument("--halves", action="store_true", help=halves)
    _add_inputs(replicate, [name for name in parameters() if name not in ("stimuli", "half")])
    replicate.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the correlations as CSV, and differences as FILE_importances.csv and "
        "FILE_similarities.csv",
    )
    return replicate


def spec_from_options(options: argparse.Namespace) -> AnalysisSpec:
    """The analysis that the options of a command ask for."""
    return AnalysisSpec(**{k: v for k, v in vars(options).items() if k in parameters()})


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
        type=parse_names,
        default=(),
        metavar="decoding,random-forest,univariate",
        help="baselines to compute and write too, a CSV each; they take seconds to minutes a layer",
    )
    _add_bootstrap(
        analyze,
        "intervals.csv and similarity_intervals.csv too: 95 %% confidence intervals",
        "N bootstrap replicates give those of scores, importances and τ their shape",
    )
    _add_chance(analyze)
    analyze.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)
    analyze.add_argument(
        "--capsule", metavar="FILE.zip", help="also write all of it, with figures, as one zip"
    )

    why = commands.add_parser("why", help="say why two layers are alike, feature by feature")
    for name in ("first", "second"):
        about = "such as minilm:3, or brain:V1 of a file whose layers have names"
        why.add_argument(name, metavar="MODEL:LAYER", help=about)
    _add_inputs(why)
    _add_bootstrap(why, "95 %% confidence intervals", "they are the same for every N")
    why.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the terms as CSV, and S_feat, S_rest and transfer as FILE_partial.csv",
    )

    audit = commands.add_parser(
        "audit", help="say of every layer what may be an artefact, and write the tables as CSV"
    )
    _add_inputs(audit)
    _add_similarities(analyze, why, audit)
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
    _add_claims(multiverse)
    multiverse.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)

    stimuli = commands.add_parser(
        "stimuli", help="write stimuli as CSV: a built-in set, a table as it is read, a treebank"
    )
    stimuli.add_argument(
        "stimuli", metavar="NAME|FILE", help=f"{', '.join(SETS)}, a file, or a folder of .conllu"
    )
    # A CSV holds no distances.
    written = [name for name in READING if name not in ("vectors", "rdms")]
    _add_inputs(stimuli, [*written, "ordered", "nominal"])
    stimuli.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")

    lint = commands.add_parser(
        "lint", help="say what in the stimuli makes a result uncertain, before anything runs"
    )
    _add_inputs(lint, ["stimuli", *READING, "ordered", "nominal", "features", *LINTED])

    verify = _add_verify(commands)
    _add_cluster(analyze, why, audit, multiverse, verify, _add_replicate(commands))
    return whole

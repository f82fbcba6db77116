"""The options of the command line, in groups, with examples."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, NoReturn

from mlem_core.analysis.representations import with_subjects
from mlem_core.analysis.source import READING
from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base import VERSION
from mlem_core.base.parameters import Parameter, parse_names, parse_pair
from mlem_core.base.typing import Layer, parse_layer
from mlem_core.base.workers import VARIABLE
from mlem_core.cli.streams import complain, one_line, typed
from mlem_core.data.datasets import SETS
from mlem_core.models.registry import SYSTEMS
from mlem_core.pairs.similarities import NEIGHBOURS, RSA, SIMILARITIES
from mlem_core.report.analysis_tables import MOST_REPLICATES

BAD_INPUT = 2
# What of an analysis the look at its stimuli depends on.
LINTED = ("missing", "interactions", "values", "folds", "folds_over", "seed")
RELEASE = f"MLEM Explorer {VERSION}"
_FOLDER = "folder for the tables; created if missing"
# What is in none of them is of the analysis.
_GROUPS = {
    "stimuli": ("stimuli", *READING, "ordered", "nominal", "missing"),
    "models": (
        *("models", "representations", "precomputed", "layers", "device", "dtype", "pooling"),
        *("special_tokens", "positions", "units", "first_column", "subjects", "axes"),
        "already_squared",
    ),
    "groups of models": (
        *("groups", "labels", "trajectories", "property_groups", "property_kinds"),
        "resampled_whole",
    ),
}
_RUN = "mlem"
_EXAMPLES = {
    "mlem": ("app", "analyze --stimuli probing --model mini-gpt2 --out results", "analyze --help"),
    "app": ("app --port 8600",),
    "analyze": (
        "analyze --stimuli probing --model minilm --model smollm2 --out results",
        "analyze --stimuli my.csv --representations brain=brain.npz --bootstrap 1000 --out results",
    ),
    "why": ("why minilm:3 smollm2:20 --stimuli probing --bootstrap 1000",),
    "what-else": ("what-else minilm:3 smollm2:20 --stimuli probing --out candidates.csv",),
    "erase": ("erase part_of_speech --model mini-gpt2:3 --stimuli probing --out erase.csv",),
    "audit": ("audit --stimuli probing --model minilm --out audit",),
    "stimuli": ("stimuli treebank --add frequency --out words.csv",),
    "lint": ("lint --stimuli my.csv --sep semicolon --role note=ignore",),
    "systems": ("systems --model minilm --model smollm2 --out systems.csv",),
    "rerun": ("rerun results/manifest.json", "rerun all.zip"),
    "export": ("export results --html explorer.html", "export results --zip all.zip"),
    "replicate": ("replicate out1 out2 --out found.csv", "replicate out1 --halves"),
}


class Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, as every other error; help begins with examples."""

    def format_help(self) -> str:
        name = self.prog.split()[-1]
        places = [str(one.metavar) for one in self._get_positional_actions()]
        self.usage = " ".join((self.prog, "[options]", *places))
        examples = "".join(f"  {_RUN} {one}\n" for one in _EXAMPLES[name])
        return f"examples:\n{examples}\n{super().format_help()}"

    def error(self, message: str) -> NoReturn:
        complain(one_line(f"{self.prog}: {message} (--help lists what there is)"))
        raise SystemExit(BAD_INPUT)


def _replicates(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None
    if number > MOST_REPLICATES:
        raise argparse.ArgumentTypeError(f"found {number}; expected at most {MOST_REPLICATES:,}")
    return number


def _add_bootstrap(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--bootstrap",
        type=_replicates,
        default=0,
        metavar="N",
        help=f"{what} over sentences and recurring words; they are the same for every N",
    )


def _add_chance(command: argparse.ArgumentParser, what: str, default: int = 0) -> None:
    command.add_argument(
        "--chance",
        type=_replicates,
        default=default,
        metavar="N",
        help=f"{what} permuted N times (at least 20) at its level (word, sentence, stimulus); p is "
        "at least 1 / (N + 1)",
    )


def _add_similarities(
    analyze: argparse.ArgumentParser, why: argparse.ArgumentParser, audit: argparse.ArgumentParser
) -> None:
    """The options for similarities beside RSA, or instead of it."""
    others = [name for name in SIMILARITIES if name != RSA]
    analyze.add_argument(
        "--similarities",
        type=parse_names,
        default=(),
        metavar=",".join(others),
        help="also write these similarities, with their contributions by feature where there are "
        "any; procrustes and cca are measured on held-out stimuli and have none",
    )
    for command, what in (
        (analyze, "the similarity of the findings and of the tables of groups"),
        (audit, "the similarity that is audited"),
        (
            why,
            "the similarity that is explained: cka is debiased linear CKA, neighbours the overlap "
            f"of the {NEIGHBOURS} nearest; procrustes and cca have no contributions by feature",
        ),
    ):
        command.add_argument(
            "--similarity", default=RSA, metavar="|".join(SIMILARITIES), help=f"{what} (rsa)"
        )


def _add_cluster(*commands: argparse.ArgumentParser) -> None:
    for command in commands:
        command.add_argument(
            "--cluster",
            metavar="tcp://HOST:8786",
            help="have the workers of this Dask scheduler run the models and the pass over the "
            f"pairs; default: {VARIABLE}, else threads of this process",
        )


def _help(described: Parameter, default: Any) -> str:
    """Help of a parameter, with choices where they say more than their names, and default."""
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
    """The options of an analysis, in groups; the same for every command."""
    defaults = AnalysisSpec()
    groups = {title: command.add_argument_group(title) for title in (*_GROUPS, "analysis")}
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
            options["type"] = typed(described.parse)
        if described.repeated:
            options |= {"action": "append", "default": []}
        elif described.parse is parse_names:  # given twice, both lists count
            options |= {"action": "extend", "default": None if default is None else []}
        if name == "stimuli":
            options |= {"required": True, "default": None}
        title = next((title for title, of in _GROUPS.items() if name in of), "analysis")
        groups[title].add_argument(f"--{(described.option or name).replace('_', '-')}", **options)


def _add_two_layers(command: argparse.ArgumentParser, alone: str = "") -> None:
    """The two layers of a command; `alone` says what it does with one, if that will do."""
    about = "such as minilm:3, or brain:V1 if the layers of a file have names"
    command.add_argument("first", metavar="MODEL:LAYER", help=about)
    nargs, about = ("?", alone) if alone else (None, about)
    command.add_argument("second", metavar="MODEL:LAYER", nargs=nargs, help=about)
    _add_inputs(command)


def _add_what_else(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "what-else",
        help="find columns that explain more of two layers' similarity than the features",
        description="Candidates follow from the words and sentences, from the tokens and "
        "predictions of the models, or are other columns of the stimuli and distances in other "
        "layers. Their gains are beyond those with their labels permuted.",
    )
    _add_two_layers(command, "without it: what else explains the distances in the first")
    _add_chance(command, "99 by default: gains beyond those with the labels of each candidate", 99)
    command.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the candidates as CSV; what the best "
        "explain together, and how much is a function of the word or sentence, as "
        "FILE_together.csv and FILE_reach.csv",
    )
    return command


def _add_systems(commands: Any, analyze: argparse.ArgumentParser) -> None:
    analyze.add_argument(
        "--systems",
        metavar=f"SYSTEMS.csv|{'|'.join(SYSTEMS)}",
        help="a table of models and representations files, a row each in the column system, with "
        "properties that may make them alike; the column group names groups; families: 43 models "
        "of 10 families, without those that cannot be had",
    )
    systems = commands.add_parser(
        "systems",
        help="write a table of models with the properties that their configurations tell",
        description="To be completed by hand: family, release date and training tokens stand in "
        "no configuration. A column that is empty or the same for all models does no harm.",
    )
    source = systems.add_mutually_exclusive_group(required=True)
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
    systems.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")


def _add_replicate(commands: Any) -> argparse.ArgumentParser:
    replicate: argparse.ArgumentParser = commands.add_parser(
        "replicate",
        help="compare two results, or two halves of one stimulus set",
        description="A result replicates where the same feature matters most and the lower bound "
        "of the correlation of importances is above 0.5.",
    )
    about = "a folder that analyze wrote; or a stimulus set, analysed with the options"
    replicate.add_argument("first", metavar="ONE", help=about)
    replicate.add_argument("second", metavar="TWO", nargs="?", help="another; not with --halves")
    halves = "compare two halves of ONE: of its sentences, or of what --folds-over names"
    replicate.add_argument("--halves", action="store_true", help=halves)
    _add_inputs(replicate, [name for name in parameters() if name not in ("stimuli", "half")])
    replicate.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the correlations as CSV, and differences as FILE_importances.csv and "
        "FILE_similarities.csv",
    )
    return replicate


def _add_rerun(commands: Any) -> argparse.ArgumentParser:
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


def _add_export(commands: Any) -> argparse.ArgumentParser:
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


def _add_erase(commands: Any) -> argparse.ArgumentParser:
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
    _add_inputs(command)
    command.add_argument("--out", metavar="FILE.csv", help="write the measures as CSV")
    return command


def spec_from_options(options: argparse.Namespace) -> AnalysisSpec:
    """The analysis of the options of a command, with the systems of a table where one is named."""
    if vars(options).get("systems"):
        from mlem_core.groups.properties import read_systems

        table = read_systems(options.systems)
        named = dict(options.representations)
        options.models += [name for name in table.models if name not in options.models]
        options.representations += [one for one in table.files if one[0] not in named]
        options.groups += table.groups
        options.labels += table.labels
        options.systems = None
    return with_subjects(
        AnalysisSpec(**{k: v for k, v in vars(options).items() if k in parameters()})
    )


def _add_analyze(commands: Any) -> argparse.ArgumentParser:
    analyze: argparse.ArgumentParser = commands.add_parser(
        "analyze", help="run an analysis and write its tables as CSV"
    )
    _add_inputs(analyze)
    analyze.add_argument(
        "--baselines",
        type=parse_names,
        default=(),
        metavar="decoding",
        help="also write decoding.csv: how well a linear classifier reads out each feature; "
        "seconds per layer",
    )
    _add_bootstrap(
        analyze,
        "also write intervals.csv and similarity_intervals.csv: 95 %% confidence intervals",
    )
    _add_chance(analyze, "also write importance_chance.csv: with the labels of each feature")
    analyze.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)
    return analyze


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of the command line; `options.command` is the command."""
    whole = Parser(prog=_RUN, description=description)
    whole.add_argument("--version", action="version", version=RELEASE)
    commands = whole.add_subparsers(
        dest="command", required=True, parser_class=Parser, title="commands", metavar="COMMAND"
    )

    app = commands.add_parser("app", help="serve the app, and open it in the browser")
    app.add_argument("--port", type=int, help="default: 8501, or the next one that is free")
    app.add_argument(
        "--host",
        metavar="ADDRESS",
        help="the address to listen on (default: 127.0.0.1); one that other machines reach needs "
        "--view-only or a log-in, see docs/hosting.md",
    )
    app.add_argument(
        "--view-only",
        action="store_true",
        help="only show finished analyses: nothing can be uploaded, run, renamed or deleted",
    )
    analyze = _add_analyze(commands)
    why = commands.add_parser("why", help="explain the similarity of two layers by features")
    _add_two_layers(why)
    _add_bootstrap(why, "95 %% confidence intervals")
    _add_chance(why, "contributions beyond those with the labels of each feature")
    why.add_argument(
        "--out",
        metavar="FILE.csv",
        help="write the contributions as CSV",
    )

    what_else = _add_what_else(commands)
    erase = _add_erase(commands)
    audit = commands.add_parser(
        "audit", help="check every layer for artefacts, and write the tables as CSV"
    )
    _add_inputs(audit)
    _add_similarities(analyze, why, audit)
    audit.add_argument("--out", required=True, metavar="DIR", help=_FOLDER)

    stimuli = commands.add_parser(
        "stimuli", help="write stimuli as CSV, from a built-in set, a table or a treebank"
    )
    stimuli.add_argument(
        "stimuli", metavar="NAME|FILE", help=f"{', '.join(SETS)}, a file, or a folder of .conllu"
    )
    # A CSV holds no distances.
    written = [name for name in READING if name not in ("vectors", "rdms")]
    _add_inputs(stimuli, [*written, "ordered", "nominal"])
    stimuli.add_argument("--out", required=True, metavar="FILE.csv", help="the file to write")

    lint = commands.add_parser("lint", help="check stimuli before a run")
    _add_inputs(lint, ["stimuli", *READING, "ordered", "nominal", "features", *LINTED])

    _add_systems(commands, analyze)
    _add_export(commands)
    rerun = _add_rerun(commands)
    of_two = why, what_else, _add_replicate(commands)
    _add_cluster(analyze, *of_two, erase, audit, rerun)
    return whole

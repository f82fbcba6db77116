"""Options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from mlem_core.analysis.backends import BACKENDS
from mlem_core.analysis.layer_sources import with_subjects
from mlem_core.analysis.source import READING
from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.parameters import Parameter, parse_names
from mlem_core.cli.streams import typed
from mlem_core.extending import contributions, resolve
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.report.analysis_tables import MOST_REPLICATES

# What of an analysis the look at its stimuli depends on.
LINTED = ("missing", "interactions", "values", "folds", "folds_over", "seed")
FOLDER = "folder for the tables; created if missing"
# Sections of the options in help; files are among the models.
_SECTIONS = ("stimuli", "models", "groups of models", "analysis")


def _replicates(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None
    if number > MOST_REPLICATES:
        raise argparse.ArgumentTypeError(f"found {number}; expected at most {MOST_REPLICATES:,}")
    return number


def add_bootstrap(command: argparse.ArgumentParser, what: str) -> None:
    """Add the option for confidence intervals; `what` begins its help."""
    command.add_argument(
        "--bootstrap",
        type=_replicates,
        default=0,
        metavar="N",
        help=f"{what} over sentences and recurring words; they are the same for every N",
    )


def add_chance(command: argparse.ArgumentParser, what: str, default: int = 0) -> None:
    """Add the option for permuted labels; `what` begins its help."""
    command.add_argument(
        "--chance",
        type=_replicates,
        default=default,
        metavar="N",
        help=f"{what} permuted N times (at least 20) at its level (word, sentence, stimulus); p is "
        "at least 1 / (N + 1)",
    )


def add_similarity(command: argparse.ArgumentParser, what: str) -> None:
    """The option for a similarity in the place of RSA."""
    similarities = "; ".join(
        f"{similarity.name}: the {similarity.called}"
        + ("" if similarity.divides else ", without contributions by feature")
        for similarity in SIMILARITIES.values()
    )
    command.add_argument(
        "--similarity",
        default=RSA,
        metavar="|".join(SIMILARITIES),
        help=f"{what} (default: {RSA}). {similarities}",
    )


def add_backends(command: argparse.ArgumentParser) -> None:
    """Add an option for the address of each backend, such as a cluster."""
    for backend in BACKENDS.values():
        command.add_argument(f"--{backend.name}", metavar=backend.metavar, help=backend.help)


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


def add_inputs(command: argparse.ArgumentParser, names: Iterable[str] | None = None) -> None:
    """The options of an analysis, in groups; the same for every command."""
    defaults = AnalysisSpec()
    sections = {title: command.add_argument_group(title) for title in _SECTIONS}
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
        read = name in ("stimuli", *READING, "ordered", "nominal")
        section = "stimuli" if read else described.section
        title = "models" if section == "files" else section
        sections[title].add_argument(f"--{(described.option or name).replace('_', '-')}", **options)


def add_two_layers(command: argparse.ArgumentParser, alone: str = "") -> None:
    """The two layers of a command; `alone` says what it does with one, if that will do."""
    about = "such as minilm:3, or brain:V1 if the layers of a file have names"
    command.add_argument("first", metavar="MODEL:LAYER", help=about)
    nargs, about = ("?", alone) if alone else (None, about)
    command.add_argument("second", metavar="MODEL:LAYER", nargs=nargs, help=about)
    add_inputs(command)


def spec_from_options(options: argparse.Namespace) -> AnalysisSpec:
    """The analysis of the options of a command, with the models of a table where one is named."""
    for table in contributions("model_tables"):
        if path := vars(options).get(table.option):
            values = resolve(table.read)(path)
            files = dict(options.representations)
            values["models"] = [name for name in values["models"] if name not in options.models]
            values["representations"] = [
                file for file in values["representations"] if file[0] not in files
            ]
            for name, further in values.items():
                getattr(options, name).extend(further)
            setattr(options, table.option, None)
    return with_subjects(
        AnalysisSpec(**{k: v for k, v in vars(options).items() if k in parameters()})
    )

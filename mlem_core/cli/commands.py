"""The command line: `mlem COMMAND ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, NoReturn

from mlem_core import extending
from mlem_core.analysis.backends import connected
from mlem_core.base import VERSION
from mlem_core.base.errors import InputError
from mlem_core.base.files import check_target, is_full
from mlem_core.cli.streams import (
    INTRODUCTION,
    any_encoding,
    check_arguments,
    complain,
    one_line,
    tell,
)
from mlem_core.extending import Command, resolve

DESCRIPTION = "Compare layers of language models by the features of words and sentences."
PROGRAM = "mlem"
BAD_INPUT = 2  # exit status
EXAMPLES = ("app", "analyze --stimuli probing --model mini-gpt2 --out results", "analyze --help")
_HERE = "mlem_core.cli"
COMMANDS = (
    Command(
        name="app",
        help="serve the app, and open it in the browser",
        examples=("app --port 8600",),
        add_options=f"{_HERE}.app:add_options",
        run=f"{_HERE}.app:serve_app",
    ),
    Command(
        name="analyze",
        help="run an analysis and write its tables as CSV",
        examples=(
            "analyze --stimuli probing --model minilm --model smollm2 --out results",
            "analyze --stimuli my.csv --representations brain=brain.npz --bootstrap 1000 "
            "--out results",
        ),
        add_options=f"{_HERE}.analyze:add_options",
        run=f"{_HERE}.analyze:analyze",
        writes_folder=True,
        runs_analysis=True,
    ),
    Command(
        name="why",
        help="explain the similarity of two layers by features",
        examples=("why minilm:3 smollm2:20 --stimuli probing --bootstrap 1000",),
        add_options=f"{_HERE}.why:add_options",
        run=f"{_HERE}.why:why",
        runs_analysis=True,
    ),
    Command(
        name="stimuli",
        help="write stimuli as CSV, from a built-in set, a table or a treebank",
        examples=("stimuli treebank --add frequency --out words.csv",),
        add_options=f"{_HERE}.stimuli:add_stimuli_options",
        run=f"{_HERE}.stimuli:write_stimuli",
    ),
    Command(
        name="lint",
        help="check stimuli before a run",
        examples=("lint --stimuli my.csv --sep semicolon --role note=ignore",),
        add_options=f"{_HERE}.stimuli:add_lint_options",
        run=f"{_HERE}.stimuli:check_stimuli",
    ),
    Command(
        name="rerun",
        help="run an analysis again and say which tables differ",
        description="Exit code 0: all tables are equal; 1: a table differs; 2: the analysis cannot "
        "be run again.",
        examples=("rerun results/manifest.json", "rerun all.zip"),
        add_options=f"{_HERE}.rerun:add_options",
        run=f"{_HERE}.rerun:rerun_analysis",
        runs_analysis=True,
    ),
    Command(
        name="extensions",
        help="list the extensions that are there",
        examples=("extensions",),
        add_options=f"{_HERE}.commands:add_no_options",
        run=f"{_HERE}.commands:list_extensions",
    ),
)


class Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, as every other error; help begins with examples.

    Parameters
    ----------
    examples : command lines without the program's name
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_help(self) -> str:
        places = [str(action.metavar) for action in self._get_positional_actions()]
        self.usage = " ".join((self.prog, "[options]", *places))
        examples = "".join(f"  {PROGRAM} {example}\n" for example in self.examples)
        return f"examples:\n{examples}\n{super().format_help()}"

    def error(self, message: str) -> NoReturn:
        complain(one_line(f"{self.prog}: {message} (--help lists what there is)"))
        raise SystemExit(BAD_INPUT)


def add_no_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a command that has none."""


def list_extensions(options: argparse.Namespace) -> None:
    """Print each extension with what it is for."""
    for extension in extending.extensions().values():
        tell(f"{extension.name}: {extension.sentence}")


@cache
def commands() -> dict[str, Command]:
    """Commands by their names: those of the program, then those of extensions."""
    every = *COMMANDS, *extending.contributions("commands")
    return {command.name: command for command in every}


def parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the command line; `options.command` is the command.

    Parameters
    ----------
    arguments : only the command that they name gets its options, as others would be imported for
        nothing; None gives them to all
    """
    program = Parser(prog=PROGRAM, description=DESCRIPTION, examples=EXAMPLES)
    program.add_argument("--version", action="version", version=f"MLEM Explorer {VERSION}")
    subparsers = program.add_subparsers(
        dest="command", required=True, parser_class=Parser, title="commands", metavar="COMMAND"
    )
    for command in commands().values():
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.description or None,
            examples=command.examples,
        )
        if arguments is None or command.name in arguments:
            resolve(command.add_options)(subparser)
            if command.runs_analysis:
                resolve("mlem_core.cli.options:add_backends")(subparser)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns 0, 1 where a table differs from its rerun, or 2 for bad input (one line on stderr).
    Ctrl-C passes through to `mlem_core.__main__`, which exits with 130.
    """
    any_encoding()
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        check_arguments(words)
        if not words:
            tell(INTRODUCTION)
            return 0
        options = parser(words).parse_args(words)
        # What is written at the end must be possible before the work begins.
        command = commands()[options.command]
        if (path := getattr(options, "out", None)) is not None:
            check_target(path, "folder" if command.writes_folder else "file")
        for option in ("html", "zip"):
            if getattr(options, option, None) is not None:
                check_target(getattr(options, option), "file")
        with connected(vars(options)) if command.runs_analysis else nullcontext():
            return resolve(command.run)(options) or 0
    except InputError as error:
        complain(one_line(error))
    except MemoryError as error:
        about = f" ({error})" if str(error) else ""
        complain(
            f"the memory of this machine is full{about}: choose fewer stimuli, layers or pairs "
            "(--pairs), or free some."
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        about = error.strerror or str(error)
        advice = "; free some space, or write to another place" if is_full(error) else ""
        complain(one_line(f"{error.filename or 'a file'}: {about}{advice}."))
    return BAD_INPUT

"""The process of the command line: its streams in any encoding, and the app in its place."""

from __future__ import annotations

import argparse
import io
import os
import re
import resource
import sys
from collections.abc import Callable
from typing import Any, TextIO

from mlem_core.base.errors import InputError
from mlem_core.base.text import visible

_ENDLESS = re.compile(r"(\S{200})\S{300,}(\S{50})")
GB = 2**30
# What the libraries themselves take, measured: (limit, least, its unit, what it is of, its command)
_LEAST = (
    ("RLIMIT_AS", 3 * GB, GB, "GB of addresses", "ulimit -v"),
    ("RLIMIT_DATA", GB, GB, "GB of memory", "ulimit -d"),
    ("RLIMIT_NOFILE", 16, 1, "open files", "ulimit -n"),
)


def refused() -> str:
    """Sentence where this process may have less than the program needs; else empty.

    With less, libraries end it without a word that helps.
    """
    for name, least, unit, of, command in _LEAST:
        allowed, _ = resource.getrlimit(getattr(resource, name))
        if allowed not in (resource.RLIM_INFINITY, -1) and allowed < least:
            return (
                f"this process may have {allowed / unit:.3g} {of} ({command}); expected at least "
                f"{least / unit:g}."
            )
    return ""


def any_encoding() -> None:
    """Have what an encoding lacks (a ρ in ASCII, a file's name in no encoding) printed as \\u03c1.

    Both streams keep their encoding.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def tell(*lines: object, stream: TextIO | None = None) -> None:
    """Print lines, on stdout or `stream`, without what steers a terminal.

    Names of columns, layers and files come from outside.
    """
    for line in lines:
        print(*map(visible, str(line).split("\n")), sep="\n", file=stream)


def complain(*lines: object) -> None:
    """Print lines on stderr, as `tell`."""
    tell(*lines, stream=sys.stderr)


def said_whole(command: Callable[[], int]) -> int:
    """The exit status of a command, once all that it prints has arrived.

    It is 0 where a reader has left early, as `head` does: what is printed last is all that is lost.
    """
    try:
        try:
            status = command()
        except SystemExit as ended:  # of the parser
            status = ended.code if isinstance(ended.code, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        _silence_output()
        return 0
    except OSError as error:
        _silence_output()
        complain(f"what was found cannot be printed: {error.strerror}.")
        return 2


def _silence_output() -> None:
    """Python flushes once more at its end, and would complain again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def one_line(message: object) -> str:
    """A message in one line, without what nobody reads to its end."""
    text = " ".join(str(message).split("\n"))
    return _ENDLESS.sub(lambda match: f"{match[1]}…{match[2]}", text)


def check_arguments(arguments: list[str]) -> None:
    """Raise InputError for a character that no file's name and no other text has."""
    for number, text in enumerate(arguments, start=1):
        if "\0" in text:
            raise InputError(
                f"argument {number} ({text[:200]!r}) holds a NUL byte; leave it out, as no file's "
                "name has one."
            )


def typed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Parser for argparse, which keeps the message of its own error only."""
    if parse in (int, str):
        return parse

    def typed(text: str) -> Any:
        try:
            return parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


INTRODUCTION = """\
MLEM Explorer: what makes two language models think alike?
It shows which features of words or sentences shape each layer, and make two layers similar.
  mlem app                                                      in the browser
  mlem analyze --stimuli probing --model mini-gpt2 --out results    tables as CSV
  mlem why mini-gpt2:2 mini-gpt2:6 --stimuli probing                two layers
`mlem --help` lists all commands."""

"""Error that a user's input can cause, the only one, and other errors in its words."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from mlem_core.base.text import visible

LONGEST = 1_400  # letters of a message


class InputError(ValueError):
    """Something a user gave cannot be used; the message is one sentence for that user.

    It says what was found, where (row, column, layer, file), what was expected and, where
    there are some, the choices. The command line prints it and exits with 2; the pages show
    it in place; neither shows a traceback. What it quotes may have several lines or no end: it is
    put on one line, and cut.

    Examples
    --------
    >>> explain(analysis, "m:0", "m:7")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mlem_core.base.errors.InputError: unknown layer 'm:7': ...
    """

    def __init__(self, sentence: str) -> None:
        # Names, cells and what libraries say may hold line breaks and what steers a terminal.
        line = visible(" ".join(sentence[: 2 * LONGEST].splitlines()))
        super().__init__(line if len(line) <= LONGEST else f"{line[:LONGEST]}….")


def check_choice(kind: str, name: Any, choices: Collection[str]) -> None:
    """Raise `unknown` unless `name` is the text of one of `choices`."""
    if not isinstance(name, str) or name not in choices:
        raise unknown(kind, name, choices)


def unknown(kind: str, name: Any, choices: Iterable[str]) -> InputError:
    """The error for a name that is none of `choices`, with the nearest of them."""
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, 3, 0.5) if isinstance(name, str) else []
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return InputError(f"unknown {kind} {name!r}: {hint}the choices are {', '.join(choices)}.")


@contextlib.contextmanager
def readable(what: str, kind: str, *broken: type[Exception]) -> Iterator[None]:
    """Say in a sentence that a file is damaged or none of its kind, where that leads to an error.

    Parameters
    ----------
    what, kind : how the sentence calls the file, and what it should be
    broken : the errors that a damaged one leads to
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except broken as error:
        raise InputError(f"{what} is damaged or no {kind} ({first_line(error)}).") from error


@contextlib.contextmanager
def errors_as_sentence(beginning: str) -> Iterator[None]:
    """Raise `InputError` for any error of a library: the beginning, and the error's first line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        kind = f"{type(error).__name__} " if isinstance(error, LookupError) else ""
        raise InputError(f"{beginning}: {kind}{first_line(error)}.") from error


def first_line(error: BaseException) -> str:
    """The first line of an error, short enough for a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")[:200]

"""The one error that a user's input can cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something a user gave cannot be used; the message is one sentence for that user.

    It says what was found, where (row, column, layer, file), what was expected and, where
    there are some, the choices. The command line prints it and exits with 2; the pages show
    it in place; neither shows a traceback.
    """

    def __init__(self, sentence: str) -> None:
        # Names of files and columns, and what libraries say, may have line breaks in them.
        super().__init__(" ".join(sentence.splitlines()))


def unknown(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """The error for a name that is none of `choices`, with the nearest of them."""
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return InputError(f"unknown {kind} {name!r}: {hint}the choices are {', '.join(choices)}.")

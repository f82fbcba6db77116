"""The parser of a command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from mlem_core.cli.streams import complain, one_line

PROGRAM = "mlem"
# Exit status.
BAD_INPUT = 2


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

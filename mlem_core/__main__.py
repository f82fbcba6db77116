"""The command `mlem`, also as `python -m mlem_core`: see `mlem_core.cli`."""

import os
import sys

TYPE_CHECKING = False  # `typing` may be a file where one happens to be: see below
if TYPE_CHECKING:
    from typing import NoReturn


def _own_modules_first() -> None:
    """A file csv.py where one happens to be must not stand in for Python's own.

    `python -m` looks in the current folder first. It is needed only where this package lies there;
    `python -P -m` leaves it out from the beginning.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path and not sys.flags.safe_path and os.path.abspath(sys.path[0]) == os.getcwd():
        first = sys.path.pop(0)
        if os.path.realpath(first) == os.path.realpath(here):
            sys.path.append(first)


def run_command() -> "NoReturn":
    """Run the command that this process was started with, and end the process."""
    try:
        # Imports take seconds; Ctrl-C and SIGTERM end them as they end a command.
        from mlem_core.base.parallel import heed_signals

        heed_signals()
        from mlem_core.cli.streams import refused, said_whole

        if sentence := refused():
            print(sentence, file=sys.stderr)
            sys.exit(2)
        from mlem_core.cli.commands import main

        sys.exit(said_whole(main))
    except KeyboardInterrupt:
        # Python remembers a Ctrl-C that came while it ran source text (as it does to make a
        # dataclass), and would die of the signal though we caught it; running any text forgets it.
        exec("")
        print("stopped", file=sys.stderr)
        from mlem_core.base.parallel import signal_status

        sys.exit(signal_status())


if __name__ == "__main__":
    _own_modules_first()
    run_command()

"""`python -m mlem_core COMMAND ...`, see `mlem_core.cli`."""

import sys

INTERRUPTED = 130

if __name__ == "__main__":
    try:
        # Imports take seconds; Ctrl-C ends them as it ends a command.
        from mlem_core.base.bars import heed_ctrl_c
        from mlem_core.cli.commands import main

        heed_ctrl_c()
        sys.exit(main())
    except KeyboardInterrupt:
        # Python remembers a Ctrl-C that came while it ran source text (as it does to make a
        # dataclass), and would die of the signal though we caught it; running any text forgets it.
        exec("")
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)

"""`python -m mlem_core COMMAND ...`, see `mlem_core.cli`."""

import sys

from mlem_core.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())

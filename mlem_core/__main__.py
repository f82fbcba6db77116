"""`python -m mlem_core COMMAND ...`, see `mlem_core.cli`."""

import sys

if __name__ == "__main__":
    try:  # the imports take a second or two
        from mlem_core.cli.commands import main
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(main())

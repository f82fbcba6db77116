"""`python -m training`: text, tokenizer, three models, evaluation.

    python -m training --size tiny   a small trio in about two minutes, into out/trio-tiny
    python -m training               the trio itself, into cache/training/full
    python -m training --ship        the same, and put weights, cards and curves into the repository

A run that was stopped goes on where it was. `--write-stories 2000` lets SmolLM2 write stories for
so many seconds before anything else, and puts them in place of `training/stories.txt.gz`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mlem_core.base.errors import InputError
from training.networks import NAMES
from training.recipe import SIZES, run, ship
from training.text import save_stories

HERE = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run the recipe."""
    parser = argparse.ArgumentParser(
        prog="python -m training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", choices=NAMES, action="append", help="some of the models")
    parser.add_argument("--out", type=Path, help="where checkpoints, models and results go")
    parser.add_argument("--ship", action="store_true", help="put the result into the repository")
    parser.add_argument("--write-stories", type=float, metavar="SECONDS")
    options = parser.parse_args()
    default = "out/trio-tiny" if options.size == "tiny" else "cache/training/full"
    folder = options.out or HERE / default
    try:
        if options.write_stories:
            from training.writer import write

            written = folder / "stories.jsonl"
            write(written, seed=0, n_rows=256, seconds=options.write_stories)
            print(f"{save_stories([written])} stories are kept", flush=True)
        run(SIZES[options.size], folder, options.only or NAMES)
        if options.ship:
            ship(folder, HERE)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m training`: text, tokenizer, five kinds of models, evaluation.

    python -m training --size tiny      small ones in about three minutes, into out/trio-tiny
    python -m training --seeds 0 1 2    the models themselves, into cache/training/full
    python -m training --seeds 0 1 2 --ship
                                        the same, and put all of it into the repository

A run that was stopped goes on where it was. `--write stories 2000` lets SmolLM2 write for so many
seconds before anything else, and puts it in place of `training/stories.txt.gz`; `--write present`
does so for the texts in the present tense.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mlem_core.base.errors import InputError
from training.networks import NAMES
from training.prompts import present, prompt
from training.recipe import SIZES, run, ship
from training.text import save_written

HERE = Path(__file__).resolve().parents[1]
ASKED = {"stories": prompt, "present": present}


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
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the first weights")
    parser.add_argument("--write", nargs=2, metavar=("WHAT", "SECONDS"), help="stories or present")
    options = parser.parse_args()
    default = "out/trio-tiny" if options.size == "tiny" else "cache/training/full"
    folder = options.out or HERE / default
    try:
        if options.write:
            from training.writer import write

            what, seconds = options.write
            told = folder / f"{what}.jsonl"
            write(told, seed=0, n_rows=256, seconds=float(seconds), ask=ASKED[what])
            print(f"{save_written(what, [told])} texts are kept", flush=True)
        run(SIZES[options.size], folder, options.only or NAMES, options.seeds)
        if options.ship:
            ship(folder, HERE, options.only or NAMES)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

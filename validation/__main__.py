"""`python -m validation`: run the studies, then draw and write what they found."""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from pathlib import Path

from validation.work import execute

HERE = Path(__file__).resolve().parents[1]
# study: the module that makes its tasks, and the function's name
STUDIES = {
    "simulations": ("validation.simulations", "tasks"),
    "noise": ("validation.layers", "noise_tasks"),
    "noisy-profiles": ("validation.noisy_profiles", "tasks"),
    "strength": ("validation.layers", "strength_tasks"),
    "stability": ("validation.layers", "stability_tasks"),
    "permutations": ("validation.layers", "permutation_tasks"),
    "crossfit": ("validation.crossfit", "tasks"),
    "values": ("validation.values", "tasks"),
    "intervals": ("validation.intervals", "tasks"),
    "words": ("validation.intervals", "recurring_tasks"),
    "budget": ("validation.budget", "tasks"),
    "populations": ("validation.populations", "tasks"),
    "subjects": ("validation.subjects", "tasks"),
    "model-differences": ("validation.subjects", "difference_tasks"),
    "in-time": ("validation.in_time", "tasks"),
    "groups-in-time": ("validation.in_time", "group_tasks"),
    "onsets": ("validation.onsets", "tasks"),
    "second-level": ("validation.second_level", "tasks"),
    "similarity-terms": ("validation.similarity_terms", "tasks"),
    "units": ("validation.units", "tasks"),
    "familywise": ("validation.familywise", "tasks"),
    "choice": ("validation.choice", "tasks"),
    "chosen": ("validation.chosen", "tasks"),
    "erasing": ("validation.erasing", "tasks"),
    "crossnobis": ("validation.crossnobis", "tasks"),
    "what-else": ("validation.what_else", "tasks"),
}


def main() -> None:
    """Run, draw and write."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("--only", choices=STUDIES, action="append", help="some of the studies")
    parser.add_argument("--quick", action="store_true", help="a small part, into out/validation")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs have done")
    parser.add_argument("--out", type=Path, help="by default docs/validation")
    options = parser.parse_args()
    folder = options.out or HERE / ("out/validation" if options.quick else "docs/validation")
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    for study in options.only or STUDIES:
        path = folder / f"{study}.csv"
        if options.fresh:
            path.unlink(missing_ok=True)
        module, tasks = STUDIES[study]
        execute(path, getattr(import_module(module), tasks)(options.quick))
    from validation.report import report

    report(folder)
    print(f"written to {folder} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()

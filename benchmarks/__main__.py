"""`python -m benchmarks`: measure everything, print the tables and keep them in results/."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

from benchmarks import (
    clauses,
    engine,
    estimators,
    features,
    inference,
    redraw,
    systems,
    training,
    view,
)
from benchmarks.timing import Table
from mlem_core.base.parallel import cores

RESULTS = Path(__file__).with_name("results")
SECTIONS = {
    "engine": engine.measure,
    "redraw": redraw.measure,
    "estimators": estimators.measure,
    "fits": estimators.fits,
    "clauses": clauses.measure,
    "features": features.measure,
    "inference": inference.measure,
    "training": training.measure,
    "systems": systems.measure,
    "view": view.measure,
}


def main() -> None:
    """Measure, print and write, a section at a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each pair that is compared")
    parser.add_argument("--only", help=f"sections, by comma: {', '.join(SECTIONS)}")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SECTIONS)
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}; there are {', '.join(SECTIONS)}.")
    for name in names:
        table = Table()
        print(f"# {name}", flush=True)
        measured = SECTIONS[name](table, options.runs)
        table.write(
            RESULTS / f"{name}.md",
            f"Measured on {cores()} cores ({platform.machine()}, Python "
            f"{platform.python_version()}), {measured}.",
        )


if __name__ == "__main__":
    main()

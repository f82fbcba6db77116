"""`python -m benchmarks`: measure everything, print the table and keep it in results.md."""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import routes
from benchmarks.data import FOLDS, MODELS, probing
from mlem_core.models import open_model
from mlem_core.parallel import cores
from mlem_core.representations import input_batches
from mlem_core.results import fitted

RESULTS = Path(__file__).with_name("results.md")
SIZES = (2_000, 4_000, 8_000)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(first: Callable[[], object], second: Callable[[], object], runs: int) -> list[float]:
    """Medians of two calls, run in turn so that a slower minute hurts both."""
    times = [(seconds(first), seconds(second)) for _ in range(runs)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def one_fold(layers: list[tuple[str, int]], fold: int) -> pd.DataFrame:
    """The keys of some layers' rows for one fold, to merge a tidy table with."""
    return pd.DataFrame(layers, columns=["model", "layer"]).assign(fold=fold)


def peak_memory(n_stimuli: int) -> tuple[float, float]:
    """Peak memory (MB) and time (s) of a whole analysis, in a process of its own."""
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", str(n_stimuli)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    memory, took = printed.split()
    return float(memory), float(took)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each pair that is compared")
    parser.add_argument("--quick", action="store_true", help="without what takes minutes")
    options = parser.parse_args()
    case = probing()
    n, n_layers = len(case.stimuli), len(case.layers)
    rows: list[tuple[str, str, str, str, str]] = []

    def add(what: str, ours: str, other: str, ratio: str, target: str) -> None:
        rows.append((what, ours, other, ratio, target))
        print(" | ".join(rows[-1]), flush=True)

    tables, _, results = routes.engine(case)
    ours, floor = in_turn(
        lambda: routes.engine(case), lambda: routes.floor(case.rows), options.runs
    )
    add(
        "engine over the floor",
        f"{ours:.2f} s",
        f"{floor:.2f} s",
        f"{ours / floor:.2f}",
        "at most 2",
    )

    redraws = []
    for dropped in tables.features:
        kept = [name for name in tables.features if name != dropped]
        own = [seconds(lambda kept=kept: fitted(tables.of_features(kept))) for _ in range(5)]
        redraws.append((statistics.median(own), dropped))
    redraws.sort()
    slowest, dropped = redraws[-1]
    middle = statistics.median(took for took, _ in redraws)
    add(
        "redraw of all profiles after one feature is dropped, median over features",
        f"{1000 * middle:.0f} ms",
        "",
        "",
        "at most 100 ms",
    )
    add(
        f"the same, slowest feature ({dropped})",
        f"{1000 * slowest:.0f} ms",
        "",
        "",
        "at most 100 ms",
    )

    if not options.quick:
        for name in MODELS:
            loaded = open_model(name)
            inputs = input_batches(case.stimuli, loaded)
            routes.forward(loaded, inputs)
            took, bare = in_turn(
                lambda loaded=loaded: routes.extraction(case.stimuli, loaded),
                lambda loaded=loaded, inputs=inputs: routes.forward(loaded, inputs),
                options.runs,
            )
            add(
                f"representations of all layers over bare forward passes, {name}",
                f"{took:.2f} s",
                f"{bare:.2f} s",
                f"{took / bare:.2f}",
                "at most 1.25",
            )
        layer = n_layers // 2
        share = ours / (n_layers * FOLDS)
        explicit, (rho, importances) = 0.0, (0.0, np.empty(0))
        start = time.perf_counter()
        rho, importances = routes.scikit_learn(case, layer, 0)
        explicit = time.perf_counter() - start
        add(
            "scikit-learn pipeline, one layer and fold, over the engine's share",
            f"{1000 * share:.0f} ms",
            f"{explicit:.1f} s",
            f"{explicit / share:.0f}",
            "at least 100",
        )
        at = [case.layers[layer]]
        scores = results.scores.merge(one_fold(at, 0))
        own = results.importance.merge(one_fold(at, 0))
        print(
            f"  the same answer: ρ {scores['rho'].item():.6f} and {rho:.6f}; importances differ by "
            f"at most {np.abs(own['importance'].to_numpy() - importances).max():.4f}"
        )

        start = time.perf_counter()
        theirs = routes.rsatoolbox_rsa(case.rows)
        rsatoolbox = time.perf_counter() - start
        matrix = routes.our_rsa(case.rows)
        rsa = statistics.median(seconds(lambda: routes.our_rsa(case.rows)) for _ in range(3))
        add(
            "rsatoolbox's RSA matrix over ours",
            f"{rsa:.2f} s",
            f"{rsatoolbox:.1f} s",
            f"{rsatoolbox / rsa:.1f}",
            "at least 5",
        )
        print(f"  the same answer: matrices differ by at most {np.abs(theirs - matrix).max():.1e}")

        peaks = [peak_memory(size) for size in SIZES]
        for size, (memory, took) in zip(SIZES, peaks, strict=True):
            pairs = size * (size - 1) / (SIZES[0] * (SIZES[0] - 1))
            add(
                f"peak memory at {size:,} stimuli, {n_layers} layers",
                f"{memory:.0f} MB ({took:.0f} s)",
                f"{pairs:.1f} times the pairs",
                f"{memory / peaks[0][0]:.1f}",
                "under 4,096 MB, no faster than the pairs",
            )

    heading = (
        f"Measured on {cores()} cores ({platform.machine()}, Python {platform.python_version()}), "
        f"the probing set ({n:,} words, {n * (n - 1) // 2:,} pairs, {len(tables.codes):,} "
        f"patterns) in {n_layers} layers, {FOLDS} folds; medians of {options.runs} runs in turn."
    )
    lines = [
        heading,
        "",
        "| what | ours | compared with | ratio | target |",
        "| --- | --- | --- | --- | --- |",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]
    print("\n" + "\n".join(lines))
    if not options.quick:
        RESULTS.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

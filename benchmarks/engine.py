"""Section `engine`: from representations to results, and what one would use instead."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pandas as pd

from benchmarks import routes
from benchmarks.data import FOLDS, MODELS, probing
from benchmarks.timing import Table, in_turn, printed_numbers, seconds
from mlem_core.representations.extraction import input_batches
from mlem_core.representations.loading import open_model

SIZES = (2_000, 4_000, 8_000)


def _one_fold(layers: list[tuple[str, int]], fold: int) -> pd.DataFrame:
    """The keys of some layers' rows for one fold, to merge a tidy table with."""
    return pd.DataFrame(layers, columns=["model", "layer"]).assign(fold=fold)


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    case = probing()
    n, n_layers = len(case.stimuli), len(case.layers)
    _, results = routes.engine(case)
    ours, floor = in_turn(lambda: routes.engine(case), lambda: routes.floor(case.rows), runs)
    table.add(
        "engine over the floor",
        f"{ours:.2f} s",
        f"{floor:.2f} s",
        f"{ours / floor:.2f}",
        "at most 0.6",
    )
    ours, physical = in_turn(
        lambda: routes.engine(case), lambda: routes.physical_floor(case.rows), runs
    )
    table.add(
        "engine over the physical floor",
        f"{ours:.2f} s",
        f"{physical:.2f} s",
        f"{ours / physical:.1f}",
    )

    for name in MODELS:
        loaded = open_model(name)
        inputs = input_batches(case.stimuli, loaded)
        routes.forward(loaded, inputs)
        took, bare = in_turn(
            lambda loaded=loaded: routes.extraction(case.stimuli, loaded),
            lambda loaded=loaded, inputs=inputs: routes.forward(loaded, inputs),
            runs,
        )
        table.add(
            f"representations of all layers over bare forward passes, {name}",
            f"{took:.2f} s",
            f"{bare:.2f} s",
            f"{took / bare:.2f}",
            "at most 1.25",
        )

    layer = n_layers // 2
    share = ours / (n_layers * FOLDS)
    start = time.perf_counter()
    rho, importances = routes.scikit_learn(case, layer, 0)
    explicit = time.perf_counter() - start
    table.add(
        "scikit-learn pipeline, one layer and fold, over the engine's share",
        f"{1000 * share:.0f} ms",
        f"{explicit:.1f} s",
        f"{explicit / share:.0f}",
        "at least 500",
    )
    at = [case.layers[layer]]
    scores = results.scores.merge(_one_fold(at, 0))
    own = results.importance.merge(_one_fold(at, 0))
    print(
        f"  the same answer: ρ {scores['rho'].item():.6f} and {rho:.6f}; importances differ by "
        f"at most {np.abs(own['importance'].to_numpy() - importances).max():.4f}"
    )

    start = time.perf_counter()
    theirs = routes.rsatoolbox_rsa(case.rows)
    rsatoolbox = time.perf_counter() - start
    matrix = routes.our_rsa(case.rows)
    rsa = statistics.median(seconds(lambda: routes.our_rsa(case.rows)) for _ in range(3))
    table.add(
        "rsatoolbox's RSA matrix over ours",
        f"{rsa:.2f} s",
        f"{rsatoolbox:.1f} s",
        f"{rsatoolbox / rsa:.1f}",
        "at least 15",
    )
    print(f"  the same answer: matrices differ by at most {np.abs(theirs - matrix).max():.1e}")

    peaks = [printed_numbers("benchmarks.memory", size) for size in SIZES]
    for size, (memory, took) in zip(SIZES, peaks, strict=True):
        pairs = size * (size - 1) / (SIZES[0] * (SIZES[0] - 1))
        table.add(
            f"peak memory at {size:,} stimuli, {n_layers} layers",
            f"{memory:.0f} MB ({took:.0f} s)",
            f"{pairs:.1f} times the pairs",
            f"{memory / peaks[0][0]:.1f}",
            "under 1,000 MB, no faster than the pairs",
        )
    for size, most in ((2_000, 2_000), (20_000, 3_000)):
        memory, took = printed_numbers("benchmarks.memory", size, "values")
        table.add(
            f"the same at {size:,} stimuli with features coded by value",
            f"{memory:.0f} MB ({took:.0f} s)",
            target=f"under {most:,} MB",
        )
    return (
        f"the probing set ({n:,} words, {n * (n - 1) // 2:,} pairs) in {n_layers} layers, "
        f"{FOLDS} folds; medians of {runs} runs in turn"
    )

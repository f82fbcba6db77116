"""Peak memory of a whole analysis at one size; run as a process of its own.

python -m benchmarks.memory N_STIMULI [values]

With "values" features are as those of a treebank: part of speech (17 values) and relation (24) by
value, position and length of the word.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.data import FOLDS, SEED
from mlem_core.analysis.results import results_from_statistics
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics
from mlem_core.pairs.statistics_file import load_statistics, save_statistics
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import group_folds

N_LAYERS, N_UNITS = 38, 576


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a started process begins with the peak of the one that started it.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)


def _columns(n_stimuli: int, by_value: bool) -> list[FeatureColumn]:
    rng = np.random.default_rng(SEED)
    if by_value:
        made = {
            name: [f"{name} {one}" for one in rng.choice(size, n_stimuli, p=_zipf(size))]
            for name, size in (("upos", 17), ("relation", 24))
        }
        numbers = {"position": rng.geometric(0.08, n_stimuli), "length": rng.poisson(4, n_stimuli)}
        return feature_columns(pd.DataFrame(made | numbers), resolved=list(made))
    stimuli = datasets.load("probing")
    drawn = rng.integers(0, len(stimuli), n_stimuli)
    return [
        FeatureColumn(c.name, c.kind, c.values[drawn], c.span) for c in feature_columns(stimuli)
    ]


def _zipf(size: int) -> np.ndarray:
    weights = 1 / np.arange(1, size + 1)
    return np.asarray(weights / weights.sum())


def main(n_stimuli: int, by_value: bool) -> None:
    """Print peak memory in MB and the time in s, of 38 layers of 576 units."""
    columns = _columns(n_stimuli, by_value)
    folds = group_folds(np.arange(n_stimuli) // 3, FOLDS, SEED)
    start = time.perf_counter()
    pairs = ComparedPairs.from_features(columns, folds, design=PairDesign.from_budget(folds))

    def layer(number: int) -> np.ndarray:
        own = np.random.default_rng(number)
        return own.standard_normal((n_stimuli, N_UNITS), dtype=np.float32)

    with tempfile.TemporaryDirectory() as folder:
        sources = [lambda number=number: layer(number) for number in range(N_LAYERS)]
        statistics = pair_statistics(pairs, sources)
        # As the store keeps it, which an analysis goes on with.
        save_statistics(statistics, Path(folder) / "pairs.npz")
        statistics = load_statistics(Path(folder) / "pairs.npz")
    results_from_statistics(statistics, [("random", n) for n in range(N_LAYERS)], folds)
    print(f"{peak_megabytes():.0f} {time.perf_counter() - start:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), "values" in sys.argv[2:])

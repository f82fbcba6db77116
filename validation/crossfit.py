"""What features of pure noise contribute, and what they take from a true one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.measures.decomposition import decompose
from mlem_core.stimuli.folds import group_folds
from validation.made_pairs import statistics_of
from validation.work import Row, Task

# Stimuli, and how many data sets of so many.
SIZES = {60: 60, 150: 20}
PART = {60: 20, 150: 10}
# Kinds of noise, and how many features of each kind are added.
KINDS = {
    "categorical": (0, 1, 5, 40),
    "numeric": (1, 5, 40),
    "by value": (1, 2, 5),
}
# Values of a categorical feature of noise, and of one that is coded by value.
N_VALUES = {"categorical": 3, "by value": 12}


def noise(kind: str, n_stimuli: int, rng: np.random.Generator) -> FloatArray | np.ndarray:
    """(n_stimuli,) values of a feature that means nothing."""
    if kind == "numeric":
        return rng.normal(size=n_stimuli)
    names = np.array([f"v{number}" for number in range(N_VALUES[kind])])
    return rng.choice(names, n_stimuli)


def data_set(n_stimuli: int, kind: str, n_noise: int, seed: int) -> Row:
    """Contributions to the similarity of two layers that share one feature, beside noise."""
    rng = np.random.default_rng([n_stimuli, seed])
    true = np.arange(n_stimuli) % 2
    layers = [np.column_stack((2.5 * true, rng.standard_normal((n_stimuli, 3)))) for _ in range(2)]
    columns = {f"noise {number}": noise(kind, n_stimuli, rng) for number in range(n_noise)}
    features = pd.DataFrame({"true": np.array(["x", "y"])[true]} | columns)
    folds = group_folds(np.arange(n_stimuli), 5, 0)
    pairs = statistics_of(features, layers, folds, list(columns) if kind == "by value" else ())
    contributions = decompose(pairs.moments)
    return {
        "stimuli": n_stimuli,
        "kind": kind,
        "features": n_noise,
        "columns": len(pairs.columns) - 1,
        "seed": seed,
        "rsa": contributions.rsa[0, 1],
        "true": contributions.terms[0, 0, 1],
        "noise": contributions.terms[1:, 0, 1].sum(),
        "unexplained": contributions.unexplained[0, 1],
    }


def part(n_stimuli: int, kind: str, n_noise: int, first: int) -> list[Row]:
    """Some data sets of one size with so many features of noise."""
    seeds = range(first, first + PART[n_stimuli])
    return [data_set(n_stimuli, kind, n_noise, seed) for seed in seeds]


def tasks(quick: bool) -> list[Task]:
    """A task some data sets of one size and kind of noise."""
    sizes = {60: PART[60]} if quick else SIZES
    return [
        Task(f"{size} {kind} {n_noise} {first}", part, (size, kind, n_noise, first))
        for size, n_sets in sizes.items()
        for kind, numbers in KINDS.items()
        for n_noise in numbers
        for first in range(0, n_sets, PART[size])
    ]


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Contributions of the true feature and of noise, means and standard deviations."""
    cells = rows.groupby(["stimuli", "kind", "features"], sort=False)

    def mean(name: str) -> pd.Series:
        error = cells[name].std() / np.sqrt(cells.size())
        return cells[name].mean().map("{:.3f}".format) + error.map(" ± {:.3f}".format)

    table = pd.DataFrame(
        {
            "columns of noise": cells["columns"].mean().map("{:.0f}".format),
            "true feature": mean("true"),
            "sum of noise": mean("noise"),
            "its standard deviation": cells["noise"].std().map("{:.3f}".format),
            "unexplained": mean("unexplained"),
            "data sets": cells.size(),
        }
    )
    how = {"categorical": "categorical", "numeric": "numeric", "by value": "coded by value"}
    table.index = pd.Index(
        [f"{size} stimuli, {n_noise} {how[kind]}" for size, kind, n_noise in table.index],
        name="features of noise",
    )
    return {"noise features": table}

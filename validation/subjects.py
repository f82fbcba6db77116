"""How often intervals of a model's RSA with subjects hold the truth, beside rsatoolbox's.

The truth is the mean RSA over many subjects and stimuli. Intervals are over subjects and stimuli:
that of the program, and the two-factor bootstrap of rsatoolbox (Schütt et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import redirect_stderr
from io import StringIO
from itertools import product
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist, squareform

from mlem_core.base.typing import FloatArray
from mlem_core.extensions.systems.mean_profiles import estimate
from mlem_core.extensions.systems.model_groups import group_means
from mlem_core.inference.intervals import Left
from mlem_core.pairs.resampling_units import jackknife_weights
from validation.chosen import rsa
from validation.work import Row, Task

# Spread over subjects of how much of each dimension, and of its own, a subject has (log).
POPULATIONS = {"subjects differ": 0.6, "subjects are similar": 0.1}
SUBJECTS, STIMULI, UNITS = (5, 10), (40, 80), 8
OWN, NOISE = 0.8, 0.8
LARGE, LARGE_SETS = (100, 400), 20
REPLICATES = 200
OURS, THEIRS, TRUTH = "ours", "rsatoolbox", "truth"
# rsatoolbox takes one to three seconds a data set, so it has fewer, of one population.
DATA_SETS, PART, QUICK = {OURS: 300, THEIRS: 60}, {OURS: 50, THEIRS: 10}, 2


def drawn(spread: float, n_subjects: int, n_stimuli: int, seed: Iterable[int]) -> FloatArray:
    """(1 + n_subjects, n_stimuli, n_stimuli) distances of the model and of new subjects.

    A subject has each dimension of the signal that all share in its own measure, a signal of its
    own and noise; the model has the shared signal and something else.
    """
    rng = np.random.default_rng(list(seed))
    shared = rng.standard_normal((n_stimuli, UNITS))
    layers = [shared + rng.standard_normal((n_stimuli, UNITS))]
    for _ in range(n_subjects):
        gains, own = np.exp(spread * rng.standard_normal((2, UNITS)))
        rows = gains * shared + OWN * own * rng.standard_normal((n_stimuli, UNITS))
        layers.append(rows + NOISE * rng.standard_normal((n_stimuli, UNITS)))
    return np.stack([squareform(pdist(rows)) for rows in layers])


def ours(distances: FloatArray, _: int = 0) -> tuple[float, float, float]:
    """Mean RSA of the model with the subjects, with the interval of `group_similarity.csv`."""
    n, n_subjects = distances.shape[1], len(distances) - 1
    matrix = np.zeros((n + 1, 1, n_subjects + 1, n_subjects + 1))
    kept = jackknife_weights(n, n, np.random.default_rng(0)) > 0
    for at, one in enumerate((np.ones(n, dtype=bool), *kept)):
        found = rsa(distances, np.flatnonzero(one), 1)
        matrix[at, 0, 0, 1:] = matrix[at, 0, 1:, 0] = found
    group_of = np.array([0] + [1] * n_subjects)
    value, lower, upper, *_ = estimate(group_means, matrix[0], group_of, Left(matrix[1:], (n,)))
    return float(value[0, 0, 1]), float(lower[0, 0, 1]), float(upper[0, 0, 1])


def theirs(distances: FloatArray, seed: int) -> tuple[float, float, float]:
    """The same by `rsatoolbox.inference.eval_dual_bootstrap`, with its own interval."""
    from rsatoolbox.inference import eval_dual_bootstrap
    from rsatoolbox.model import ModelFixed
    from rsatoolbox.rdm import RDMs

    # rsatoolbox draws from NumPy's global generator.
    np.random.seed(seed)  # noqa: NPY002
    model, subjects = ModelFixed("model", RDMs(distances[:1])), RDMs(distances[1:])
    # The noise ceiling of each draw takes most of the time and is no part of this interval.
    no_ceiling = patch("rsatoolbox.inference.evaluate.boot_noise_ceiling", return_value=(0.0, 0.0))
    with redirect_stderr(StringIO()), no_ceiling:
        found = eval_dual_bootstrap(model, subjects, method="spearman", N=REPLICATES)
    lower, upper = found.get_ci(0.95)
    return float(found.get_means()[0]), float(lower[0]), float(upper[0])


def truth(population: str, n_sets: int) -> list[Row]:
    """The mean RSA in large sets of subjects and stimuli."""
    every = np.arange(LARGE[1])
    return [
        {"population": population, "kind": TRUTH, "seed": seed, "value": found.mean()}
        for seed in range(n_sets)
        for found in [rsa(drawn(POPULATIONS[population], *LARGE, [seed, 1]), every, 1)]
    ]


def part(kind: str, population: str, sizes: tuple[int, int], first: int, n: int) -> list[Row]:
    """One kind of interval in some data sets."""
    found: list[Row] = []
    of_design = {"population": population, "kind": kind} | dict(
        zip(("subjects", "stimuli"), sizes, strict=True)
    )
    for seed in range(first, first + n):
        distances = drawn(POPULATIONS[population], *sizes, [seed, 0])
        ends = (ours if kind == OURS else theirs)(distances, seed)
        bounds = dict(zip(("value", "lower", "upper"), ends, strict=True))
        found.append(of_design | {"seed": seed} | bounds)
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    found = [
        Task(f"{TRUTH}, {name}", truth, (name, QUICK if quick else LARGE_SETS))
        for name in POPULATIONS
    ]
    for kind, n in DATA_SETS.items():
        size, most = (QUICK, QUICK) if quick else (PART[kind], n)
        found += [
            Task(f"{kind}, {name}, {sizes}, from {first}", part, (kind, name, sizes, first, size))
            for first in range(0, most, size)
            for name in list(POPULATIONS)[: None if kind == OURS else 1]
            for sizes in product(SUBJECTS, STIMULI)
        ]
    return found


def of_subjects(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often each interval holds the truth, its Monte-Carlo error, and how wide it is."""
    known = rows[rows["kind"] == TRUTH].groupby("population")["value"].mean()
    rows = rows[rows["kind"] != TRUTH].astype({"subjects": int, "stimuli": int})
    target = rows["population"].map(known)
    rows = rows.assign(
        held=(rows["lower"] <= target) & (target <= rows["upper"]),
        width=rows["upper"] - rows["lower"],
    )
    cells = rows.groupby(["population", "subjects", "stimuli", "kind"], sort=False)
    mean, n = cells[["held", "width"]].mean(), cells.size()
    error = np.sqrt(mean["held"] * (1 - mean["held"]) / n)
    # Beside it the width of an interval that normally distributed estimates of known sd would have.
    ratio = mean["width"] / (2 * 1.96 * cells["value"].std())
    shown = {
        "held": mean["held"].map("{:.1%}".format) + error.map(" ± {:.1%}".format),
        "width": mean["width"].map("{:.3f}".format) + ratio.map(" ({:.2f})".format),
        "data sets": n.map(str),
    }
    table = pd.DataFrame(
        {
            f"{name}, {kind}": text.xs(kind, level="kind")
            for name, text in shown.items()
            for kind in (OURS, THEIRS)
        }
    )
    order = pd.MultiIndex.from_product([list(POPULATIONS), SUBJECTS, STIMULI])
    table = table.reindex(order).fillna("")
    table.index = pd.Index(
        [
            f"{name}, {subjects} subjects, {stimuli} stimuli (truth {known[name]:.3f})"
            for name, subjects, stimuli in order
        ],
        name="model with a group",
    )
    return {"coverage of subjects": table}

"""How often intervals of a model's RSA with subjects hold the truth, beside rsatoolbox's.

The truth is the mean RSA over many subjects and stimuli. Intervals are over subjects and stimuli:
that of the program, and the two-factor bootstrap of rsatoolbox (Schütt et al. 2023).

And the same of the difference between two models, which are as good as each other, or one of which
has more of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist, squareform
from scipy.stats import t as student

from mlem_core.base.typing import FloatArray
from mlem_core.extensions.systems.mean_profiles import estimate
from mlem_core.extensions.systems.model_groups import group_means
from mlem_core.inference.group_means import mean_estimate
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
# What the second of two models has of its own; the first has 1.
EQUAL, APART = "equal models", "another model"
OWN_OF_SECOND = {EQUAL: 1.0, APART: 1.6}
# rsatoolbox takes five seconds a data set with two models.
DIFFERENCE_SETS = {OURS: 300, THEIRS: 10}


def drawn(
    spread: float,
    n_subjects: int,
    n_stimuli: int,
    seed: Iterable[int],
    own_of_models: Sequence[float] = (1.0,),
) -> FloatArray:
    """(n_models + n_subjects, n_stimuli, n_stimuli) distances of models and of new subjects.

    A subject has each dimension of the signal that all share in its own measure, a signal of its
    own and noise; a model has the shared signal and something else.
    """
    rng = np.random.default_rng(list(seed))
    shared = rng.standard_normal((n_stimuli, UNITS))
    layers = [shared + own * rng.standard_normal((n_stimuli, UNITS)) for own in own_of_models]
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
    result = dual_bootstrap(distances[:1], distances[1:], seed)
    lower, upper = result.get_ci(0.95)
    return float(result.get_means()[0]), float(lower[0]), float(upper[0])


def dual_bootstrap(models: FloatArray, subjects: FloatArray, seed: int) -> Any:
    """The result of `eval_dual_bootstrap` for distances (n, n_stimuli, n_stimuli) of both."""
    from rsatoolbox.inference import eval_dual_bootstrap
    from rsatoolbox.model import ModelFixed
    from rsatoolbox.rdm import RDMs

    # rsatoolbox draws from NumPy's global generator.
    np.random.seed(seed)  # noqa: NPY002
    fixed = [ModelFixed(f"model {at}", RDMs(model[None])) for at, model in enumerate(models)]
    # The noise ceiling of each draw takes most of the time and is no part of this interval.
    no_ceiling = patch("rsatoolbox.inference.evaluate.boot_noise_ceiling", return_value=(0.0, 0.0))
    with redirect_stderr(StringIO()), no_ceiling:
        return eval_dual_bootstrap(fixed, RDMs(subjects), method="spearman", N=REPLICATES)


def our_difference(distances: FloatArray, _: int = 0) -> tuple[float, float, float, float]:
    """Difference of two models in RSA, its interval and p, as `model_differences.csv`."""
    n, n_subjects = distances.shape[1], len(distances) - 2
    masks = jackknife_weights(n, n, np.random.default_rng(0)) > 0
    apart = np.empty((n + 1, n_subjects))
    for at, stimuli in enumerate((np.ones(n, dtype=bool), *masks)):
        similarities = rsa(distances, np.flatnonzero(stimuli), 2).reshape(2, n_subjects)
        apart[at] = similarities[0] - similarities[1]
    value, lower, upper, p = mean_estimate(apart[0], Left(apart[1:], (n,)), counted_once=True)
    return float(value), float(lower), float(upper), float(p)


def their_difference(distances: FloatArray, seed: int) -> tuple[float, float, float, float]:
    """The same by `rsatoolbox.inference.eval_dual_bootstrap` and its test of pairs of models."""
    result = dual_bootstrap(distances[:2], distances[2:], seed)
    means = result.get_means()
    apart, reach = means[0] - means[1], np.sqrt(result.diff_var[0]) * student.ppf(0.975, result.dof)
    p = result.test_pairwise()[0, 1]
    return float(apart), float(apart - reach), float(apart + reach), float(p)


def difference_truth(n_sets: int) -> list[Row]:
    """The difference of two models in large sets of subjects and stimuli; 0 of equal ones."""
    every, own_of_models = np.arange(LARGE[1]), (1.0, OWN_OF_SECOND[APART])
    spread = POPULATIONS["subjects differ"]
    rows: list[Row] = []
    for seed in range(n_sets):
        distances = drawn(spread, *LARGE, [seed, 2], own_of_models)
        first, second = rsa(distances, every, 2).reshape(2, -1).mean(axis=1)
        rows.append({"models": APART, "kind": TRUTH, "seed": seed, "value": first - second})
    return rows


def difference_part(
    kind: str, models: str, sizes: tuple[int, int], first: int, n: int
) -> list[Row]:
    """One kind of interval and test of a difference in some data sets."""
    call = our_difference if kind == OURS else their_difference
    place = {"models": models, "kind": kind, "subjects": sizes[0], "stimuli": sizes[1]}
    rows: list[Row] = []
    for seed in range(first, first + n):
        own_of_models = (1.0, OWN_OF_SECOND[models])
        distances = drawn(POPULATIONS["subjects differ"], *sizes, [seed, 3], own_of_models)
        numbers = dict(zip(("value", "lower", "upper", "p"), call(distances, seed), strict=True))
        rows.append(place | {"seed": seed} | numbers)
    return rows


def difference_tasks(quick: bool) -> list[Task]:
    """The study of differences in parts."""
    tasks = [Task(TRUTH, difference_truth, (QUICK if quick else LARGE_SETS,))]
    for kind, n in DIFFERENCE_SETS.items():
        size, most = (QUICK, QUICK) if quick else (PART[kind], n)
        tasks += [
            Task(
                f"{kind}, {models}, {sizes}, from {first}",
                difference_part,
                (kind, models, sizes, first, size),
            )
            for first in range(0, most, size)
            for models in OWN_OF_SECOND
            for sizes in product(SUBJECTS, STIMULI)
        ]
    return tasks


def difference_tables(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often intervals of a difference hold it, and how often a test at .05 claims one."""
    apart = rows.loc[rows["kind"] == TRUTH, "value"].mean()
    rows = rows[rows["kind"] != TRUTH].astype({"subjects": int, "stimuli": int})
    target = rows["models"].map({EQUAL: 0.0, APART: apart})
    rows = rows.assign(
        held=(rows["lower"] <= target) & (target <= rows["upper"]),
        claimed=rows["p"] < 0.05,
        width=rows["upper"] - rows["lower"],
    )
    mean = rows.groupby(["models", "subjects", "stimuli", "kind"])[["held", "claimed", "width"]]
    texts = {
        f"{name}, {kind}": values.map("{:.3f}".format if name == "width" else "{:.1%}".format)
        for name in ("held", "claimed", "width")
        for kind, values in mean.mean()[name].groupby("kind")
    }
    table = pd.DataFrame({name: text.droplevel("kind") for name, text in texts.items()})
    table = table.reindex(pd.MultiIndex.from_product([list(OWN_OF_SECOND), SUBJECTS, STIMULI]))
    table.index = pd.Index(
        [
            f"{models} (difference {0.0 if models == EQUAL else apart:.3f}), "
            f"{subjects} subjects, {stimuli} stimuli"
            for models, subjects, stimuli in table.index
        ],
        name="two models with a group",
    )
    return {"differences of models": table}


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

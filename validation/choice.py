"""Held-out ρ where each fold chooses estimator and coding: of noise, and of planted truths."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from mlem_core.analysis.planning import Choice, best_by_fold
from mlem_core.base.typing import FloatArray
from mlem_core.estimators.registry import tested_fits
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics
from mlem_core.stimuli.folds import group_folds
from validation.work import Row, Task

PART, QUICK = 50, 2
UNITS, LAYERS = 8, 2
NOISE = ("Gaussian noise", "heavy-tailed noise")
# How far apart the four values of a feature are: at equal distances, or on a line.
PLACES = {
    "by value": np.array([[0.0], [1.0], [5.0], [6.0]]),
    "outliers": 2.0 * np.eye(4),
    "neither": 2.0 * np.eye(4),
    "by value, weak": np.array([[0.0], [1.0], [5.0], [6.0]]) / 3,
}
DATA_SETS = {
    (NOISE[0], 60): 1_200,
    (NOISE[0], 200): 800,
    (NOISE[1], 60): 1_600,
    (NOISE[1], 200): 800,
    **dict.fromkeys([(design, n) for design in PLACES for n in (60, 200)], 100),
}
TARGETS = {"ridge": "distance", "ridge-rank": "rank"}
CODINGS = ((), ("4 values", "7 values"))
WAYS = {
    "ridge": "ρ of ridge, same or different",
    "auto": "ρ of `auto`",
    "gain": "difference",
    "most": "ρ with the most frequent choice in every fold",
}
SHARES = {
    "by_value": "folds by value",
    "most_by_value": "most by value",
    "on_ranks": "folds on ranks",
    "most_on_ranks": "most on ranks",
    "same_in_all": "all folds alike",
}


def features(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Three features of four, seven and two values, and a number, of n stimuli."""
    columns = {f"{k} values": np.array(list("abcdefg"))[rng.integers(0, k, n)] for k in (4, 7, 2)}
    return pd.DataFrame({**columns, "number": rng.standard_normal(n)})


def layer(design: str, table: pd.DataFrame, rng: np.random.Generator) -> FloatArray:
    """(n, n_units) a layer that knows nothing of the features, or the first of them."""
    noise = rng.standard_normal((len(table), UNITS))
    if design in NOISE:
        # The norms of the stimuli are log-normal: a few distances are far larger than all others.
        spread = 1.5 * rng.standard_normal((len(table), 1)) * (design == NOISE[1])
        return np.asarray(noise * np.exp(spread))
    known = PLACES[design][table["4 values"].map("abcd".index)]
    outliers = 0.5 * rng.standard_cauchy((len(table), 2)) * (design == "outliers")
    return np.column_stack((known, noise, outliers))


def part(design: str, n: int, first: int, n_sets: int) -> list[Row]:
    """Mean ρ of some data sets by each way to choose, and what was chosen."""
    rows: list[Row] = []
    for seed in range(first, first + n_sets):
        rng = np.random.default_rng([list(DATA_SETS).index((design, n)), seed])
        table, folds = features(n, rng), group_folds(np.arange(n), 5, seed)
        layers = [layer(design, table, rng) for _ in range(LAYERS)]
        pairs = {
            values: pair_statistics(
                ComparedPairs.from_features(feature_columns(table, resolved=values), folds),
                [partial(np.asarray, rows) for rows in layers],
            )
            for values in CODINGS
        }
        choices = [Choice(name, values) for name in TARGETS for values in CODINGS]
        scores, rho = {}, {}
        for choice in choices:
            solver, own = RidgeSolver(TARGETS[choice.estimator]), pairs[choice.values]
            solution = solver.solve(own, range(own.n_folds))
            scores[choice] = solution.inner_rho.mean(axis=1)
            rho[choice] = tested_fits(own, solution.coef).rho.mean(axis=0)
        by_fold = best_by_fold(scores)
        most = max(choices, key=by_fold.count)
        rows.append(
            {
                "design": design,
                "n": n,
                "seed": seed,
                "ridge": rho[choices[0]].mean(),
                "auto": np.mean([rho[choice][fold] for fold, choice in enumerate(by_fold)]),
                "most": rho[most].mean(),
                "by_value": np.mean([bool(choice.values) for choice in by_fold]),
                "on_ranks": np.mean([TARGETS[choice.estimator] == "rank" for choice in by_fold]),
                "most_by_value": bool(most.values),
                "most_on_ranks": TARGETS[most.estimator] == "rank",
                "same_in_all": len({*by_fold}) == 1,
            }
        )
    return rows


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    return [
        Task(f"{design}, {n} stimuli, from {first}", part, (design, n, first, size))
        for (design, n), total in DATA_SETS.items()
        for size in (QUICK if quick else PART,)
        for first in range(0, QUICK if quick else total, size)
    ]


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """ρ by each way to choose with its Monte-Carlo error, and how often what was chosen."""
    rows = rows.assign(gain=rows["auto"] - rows["ridge"])
    lines = {}
    for (design, n), cell in rows.groupby(["design", "n"]):
        cell = cell[[*WAYS, *SHARES]].astype(float)
        mean, error = cell.mean(), cell.std() / np.sqrt(len(cell))
        lines[design, n] = {
            "data sets": f"{len(cell):,}",
            **{title: f"{mean[name]:+.4f} ± {error[name]:.4f}" for name, title in WAYS.items()},
            **{title: f"{mean[name]:.0%}" for name, title in SHARES.items()},
        }
    order = [key for key in DATA_SETS if key in lines]
    table = pd.DataFrame([lines[key] for key in order])
    table.insert(0, "stimuli", [n for _, n in order])
    table.index = pd.Index([design for design, _ in order], name="layers")
    return {"choice": table}

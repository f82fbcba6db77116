"""How well distances over repetitions follow the true ones, and what noise alone makes of them.

Schemes differ in where the covariance of the noise comes from: from all stimuli (rsatoolbox), from
all but the two that are compared (ours), from two of five groups of stimuli less (before), from
the other repetitions, or only variances from all but the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from mlem_core.base.typing import FloatArray
from mlem_core.extensions.repeated_measures.crossnobis import (
    cross_validated_distances,
    diagonal,
)
from validation.work import Row, Task

KINDS = ("independent", "shared sources")
REPETITIONS, STIMULI, UNITS = (2, 4, 8), (20, 60), (10, 50, 200)
DIMENSIONS, SIGNAL, SOURCES, GAIN = 5, 0.5, 3, 0.5
GROUPS = 5  # of the scheme before
DATA_SETS, QUICK = 6, 2
OURS, THEIRS, BEFORE = "ours", "rsatoolbox", "five groups"
REPETITIONS_OUT, VARIANCES = "other repetitions", "ours, variances"


def drawn(kind: str, shape: tuple[int, int, int], seed: int) -> tuple[FloatArray, ...]:
    """Signal (n_stimuli, n_units), noise (n_repetitions, n_stimuli, n_units) and its covariance.

    Units share few sources of noise, and differ in how much noise they have.
    """
    rng = np.random.default_rng([seed, *shape, KINDS.index(kind)])
    _, n_stimuli, n_units = shape
    signal = rng.standard_normal((n_stimuli, DIMENSIONS))
    signal = SIGNAL * signal @ rng.standard_normal((DIMENSIONS, n_units)) / np.sqrt(DIMENSIONS)
    covariance = np.eye(n_units)
    if kind != KINDS[0]:
        weights = 0.8 * rng.standard_normal((n_units, SOURCES))
        gains = np.exp(GAIN * rng.standard_normal(n_units))
        covariance = (covariance + weights @ weights.T) * gains[:, None] * gains
    noise = rng.standard_normal(shape) @ np.linalg.cholesky(covariance).T
    return signal, noise, covariance


def by_rsatoolbox(measured: FloatArray) -> FloatArray:
    """Crossnobis of rsatoolbox, with its shrunken covariance of all residuals."""
    from rsatoolbox.data import Dataset
    from rsatoolbox.data.noise import prec_from_unbalanced
    from rsatoolbox.rdm import calc_rdm_crossnobis

    n_repetitions, n_stimuli, n_units = measured.shape
    numbers = {
        "stimulus": np.tile(np.arange(n_stimuli), n_repetitions),
        "run": np.repeat(np.arange(n_repetitions), n_stimuli),
    }
    data = Dataset(measured.reshape(-1, n_units), obs_descriptors=numbers)
    precision = prec_from_unbalanced(data, "stimulus")
    rdm = calc_rdm_crossnobis(data, "stimulus", noise=precision, cv_descriptor="run")
    return np.asarray(rdm.dissimilarities[0] * n_units)


def products(measured: FloatArray, covariance: FloatArray) -> FloatArray:
    """Cross-validated distances (n_stimuli, n_stimuli) by a covariance of the noise."""
    white = np.linalg.solve(np.linalg.cholesky(covariance), np.swapaxes(measured, 1, 2))
    total, n = white.sum(axis=0), len(measured)
    inner = total.T @ total - np.einsum("mui,muj->ij", white, white, optimize=True)
    norms = np.diagonal(inner)
    return np.asarray(norms[:, None] + norms - 2 * inner) / (n * (n - 1))


def ledoit_wolf_of(measured: FloatArray) -> FloatArray:
    """Shrunken covariance of what the repetitions of stimuli differ by."""
    from sklearn.covariance import ledoit_wolf

    n_repetitions, _, n_units = measured.shape
    noise = measured - measured.mean(axis=0)
    noise -= noise.mean(axis=1, keepdims=True)
    covariance = ledoit_wolf(noise.reshape(-1, n_units), assume_centered=True)[0]
    return np.asarray(covariance) * n_repetitions / (n_repetitions - 1)


def by_groups(measured: FloatArray) -> FloatArray:
    """The noise of each pair from the stimuli of the other groups, of five in all."""
    n_stimuli = measured.shape[1]
    group, squared = np.arange(n_stimuli) % GROUPS, np.empty((n_stimuli, n_stimuli))
    for pair in itertools.combinations(range(GROUPS), 2):
        inside = np.isin(group, pair)
        rows = np.flatnonzero(inside)
        covariance = ledoit_wolf_of(measured[:, ~inside])
        squared[np.ix_(rows, rows)] = products(measured[:, rows], covariance)
    return np.asarray(squared[np.triu_indices(n_stimuli, 1)])


def by_repetitions(measured: FloatArray) -> FloatArray:
    """The noise of every two repetitions from the others, of which there must be two."""
    pairs = list(itertools.combinations(range(len(measured)), 2))
    squared = [
        products(measured[list(pair)], ledoit_wolf_of(np.delete(measured, pair, axis=0)))
        for pair in pairs
    ]
    return np.asarray(np.mean(squared, axis=0)[np.triu_indices(measured.shape[1], 1)])


SCHEMES: dict[str, Callable[[FloatArray], FloatArray]] = {
    OURS: cross_validated_distances,
    THEIRS: by_rsatoolbox,
    BEFORE: by_groups,
    REPETITIONS_OUT: by_repetitions,
    VARIANCES: partial(cross_validated_distances, weigh=diagonal),
}


def part(kind: str, shape: tuple[int, int, int], n_sets: int) -> list[Row]:
    """All schemes on the data sets of a design."""
    n_repetitions, n_stimuli, n_units = shape
    upper, rows = np.triu_indices(n_stimuli, 1), list[Row]()
    level = np.where(np.arange(n_stimuli) % 2, 2.0, 1.0)
    for seed in range(n_sets):
        signal, noise, covariance = drawn(kind, shape, seed)
        white = np.linalg.solve(np.linalg.cholesky(covariance), signal.T).T
        true = ((white[upper[0]] - white[upper[1]]) ** 2).sum(axis=1)
        for scheme, distances in SCHEMES.items():
            if scheme == REPETITIONS_OUT and n_repetitions < 4:
                continue
            unequal = distances(level[:, None] * noise)
            scores = {
                "rho": spearmanr(distances(signal + noise), true).statistic,
                # Of the squared distance of two means of noise, which is 2 / n a unit.
                "bias": distances(noise).mean() * n_repetitions / (2 * n_units),
                "noise_rho": spearmanr(unequal, np.multiply.outer(level, level)[upper]).statistic,
            }
            design = {"repetitions": n_repetitions, "stimuli": n_stimuli, "units": n_units}
            rows.append({"noise": kind, **design, "seed": seed, "scheme": scheme, **scores})
    return rows


def tasks(quick: bool) -> list[Task]:
    """The study in parts, a design each."""
    designs = itertools.product(KINDS, itertools.product(REPETITIONS, STIMULI, UNITS))
    n_sets = QUICK if quick else DATA_SETS
    parts = [Task(f"{kind}, {shape}", part, (kind, shape, n_sets)) for kind, shape in designs]
    return [task for task in parts if not quick or task.arguments[1][2] < UNITS[-1]]


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Mean and standard error over data sets: a row a design, a column a scheme."""
    design = ["noise", "repetitions", "stimuli", "units"]
    places = pd.MultiIndex.from_frame(rows[design].drop_duplicates())

    def table(score: str) -> pd.DataFrame:
        cells = rows.groupby([*design, "scheme"])[score].agg(["mean", "sem"])
        text = cells["mean"].map("{:.3f}".format) + cells["sem"].map(" ± {:.3f}".format)
        wide = text.unstack("scheme").reindex(places)[list(SCHEMES)].fillna("")
        wide.index = pd.Index(
            [
                f"{kind}, {n} repetitions, {stimuli} stimuli, {units} units"
                for kind, n, stimuli, units in places
            ],
            name="noise",
        )
        return wide.rename_axis(columns=None)

    tables = {"rho": "true distances", "bias": "noise alone", "noise_rho": "unequal noise"}
    return {f"crossnobis, {name}": table(score) for score, name in tables.items()}

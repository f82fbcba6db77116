"""How often intervals of similarities other than RSA, and of their terms, hold the truth.

The truth is the mean over data sets of as many stimuli: the overlap of neighbours depends on their
number, and so does how well a rotation is found.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.extensions.similarities.alignment import components
from mlem_core.inference.block_influence import ComparedLayers
from mlem_core.inference.intervals import term_estimate
from mlem_core.inference.resample import Estimate, jackknife, standard_error
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.pairs.similarities import SIMILARITIES, Similarity
from mlem_core.pairs.similarity_moments import similarity_moments
from mlem_core.stimuli.folds import group_folds
from validation.made_pairs import statistics_of
from validation.work import Row, Task

STIMULI = 60
DATA_SETS, PART, QUICK = 200, 20, 3
NAMES = ("cka", "neighbours", "procrustes", "cca")
FEATURES = ("two", "three")


def simulated(n: int, seed: int) -> tuple[pd.DataFrame, list[FloatArray]]:
    """Stimuli with two features, and two layers that share them and something else."""
    rng = np.random.default_rng([4, seed])
    features = pd.DataFrame(
        {"two": rng.choice(list("ab"), n), "three": rng.choice(list("abc"), n, p=[0.6, 0.3, 0.1])}
    )
    common = rng.standard_normal((n, 3))
    layers = []
    for _ in range(2):
        rows = rng.standard_normal((n, 6))
        rows[:, 0] += 2.5 * (features["two"] == "a")
        rows[:, 1] += 2.5 * (features["three"] == "a")
        rows[:, 2] += 2.5 * (features["three"] == "b")
        rows[:, 3:] += 0.5 * common
        layers.append(rows)
    return features, layers


def compared_layers(
    features: pd.DataFrame, layers: list[FloatArray], similarity: Similarity, seed: int
) -> ComparedLayers:
    """The layers of a data set, each stimulus a sentence of its own."""
    groups = np.arange(len(features))
    folds = group_folds(groups, 5, seed)
    inputs = [(squared_distances if similarity.divides else components)(rows) for rows in layers]
    statistics = statistics_of(features, layers, folds)
    moments = similarity_moments(
        similarity, [partial(np.asarray, layer) for layer in inputs], statistics.columns, folds
    )
    if similarity.divides:
        in_place = moments.replace_ranks(statistics.moments)
        statistics = replace(statistics, moments=in_place)
    return ComparedLayers(similarity, statistics, StimulusUnits(folds, groups), inputs)


def estimates(layers: ComparedLayers) -> dict[str, Estimate]:
    """Intervals of the similarity and, where it has them, of its terms."""
    compared = layers.without()
    found = {}
    if layers.similarity.divides:
        error = standard_error(compared.terms_without[:, :, 0, 1], compared.sizes)
        bounds = term_estimate(compared.terms[:, 0, 1], error, compared.sizes)
        for at, name in enumerate((*FEATURES, UNEXPLAINED)):
            found[name] = Estimate(bounds.value[at], bounds.lower[at], bounds.upper[at])
    found["similarity"] = jackknife(
        compared.values[0, 1], compared.values_without[:, 0, 1], compared.sizes, (-1.0, 1.0)
    )
    return found


def part(name: str, first: int, n: int) -> list[Row]:
    """The intervals of some data sets."""
    rows: list[Row] = []
    for seed in range(first, first + n):
        layers = compared_layers(*simulated(STIMULI, seed), SIMILARITIES[name], seed)
        for quantity, bounds in estimates(layers).items():
            ends = {end: float(getattr(bounds, end)) for end in ("value", "lower", "upper")}
            rows.append({"similarity": name, "seed": seed, "quantity": quantity, **ends})
    return rows


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    size, n = (QUICK, QUICK) if quick else (PART, DATA_SETS)
    return [
        Task(f"{name}, from {first}", part, (name, first, size))
        for first in range(0, n, size)
        for name in NAMES
    ]


def of_similarity_terms(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Coverage, and how wide an interval is beside what 95 % of the data sets span."""
    cells = rows.groupby(["similarity", "quantity"], sort=False)
    truth = cells["value"].transform("mean")
    held = rows.assign(held=(rows["lower"] <= truth) & (truth <= rows["upper"]))
    width = (cells["upper"].mean() - cells["lower"].mean()) / (2 * 1.96 * cells["value"].std())
    table = pd.DataFrame(
        {
            "truth": cells["value"].mean().map("{:.3f}".format),
            "held": held.groupby(["similarity", "quantity"], sort=False)["held"]
            .mean()
            .map("{:.1%}".format),
            "width over that of 95 %": width.map("{:.2f}".format),
            "data sets": cells["seed"].nunique(),
        }
    )
    table.index = pd.Index(
        [f"{SIMILARITIES[name].short}: {quantity}" for name, quantity in table.index],
        name=f"{STIMULI} stimuli",
    )
    return {"coverage of similarities": table}

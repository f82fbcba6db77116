"""How often intervals of similarities other than RSA, and of their terms, hold the truth.

The truth is the mean over data sets of as many stimuli: the overlap of neighbours depends on their
number, and so does how well a rotation is found.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray
from mlem_core.data.folds import group_folds
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.replicates import Comparison
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.similarities import SIMILARITIES, components
from validation.work import Row, Task

STIMULI = 60
DATA_SETS, PART, QUICK = 300, 10, 3
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


def pairs_of(features: pd.DataFrame, layers: list[FloatArray], seed: int) -> LayerPairs:
    """The pairs of all stimuli, each a sentence of its own."""
    groups = np.arange(len(features))
    folds = group_folds(groups, 5, seed)
    index = PairIndex.build(feature_columns(features), folds)
    tables = pair_tables(index, [lambda rows=rows: rows for rows in layers])
    both = (("m", 0), ("m", 1))
    return LayerPairs(both, tables, (), (), index.design, index.cell, groups, folds)


def part(name: str, first: int, n: int) -> list[Row]:
    """The intervals of some data sets."""
    found: list[Row] = []
    similarity = SIMILARITIES[name]
    terms = (*FEATURES, UNEXPLAINED) if similarity.divides else ()
    for seed in range(first, first + n):
        features, layers = simulated(STIMULI, seed)
        inputs = [(squared_distances if similarity.divides else components)(x) for x in layers]
        layer_pairs = pairs_of(features, layers, seed)
        value, lower, upper, *_ = Comparison(layer_pairs, similarity, inputs).interval()
        for at, quantity in enumerate((*terms, "similarity")):
            bounds = {"value": value[at], "lower": lower[at], "upper": upper[at]}
            found.append({"similarity": name, "seed": seed, "quantity": quantity, **bounds})
    return found


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

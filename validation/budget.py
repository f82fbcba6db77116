"""How far the numbers of a budget of pairs are from those of all pairs, and whether they say so.

The stimuli are fixed; what is drawn is which of their pairs are compared. Two layers have three
features in different strengths, a part in common that no feature knows, and nothing of a fourth.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.pair_errors import design_errors
from mlem_core.base.numbers import student_quantile
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import DESIGNS, PairDesign
from mlem_core.pairs.ranks import PairRanks
from mlem_core.pairs.statistics import ComparedPairs, pass_over_layer
from mlem_core.stimuli.folds import group_folds
from validation.work import Row, Task

# Stimuli and budget, of 180 thousand, 2 million and 32 million pairs; and how often it is drawn.
SIZES = {600: 24_000, 2_000: 100_000, 8_000: 1_000_000}
DRAWS, PART = {600: 100, 2_000: 100, 8_000: 40}, {600: 20, 2_000: 20, 8_000: 10}
LAYERS = (("m", 0), ("m", 1))


def made_case(n: int) -> tuple[pd.DataFrame, list[NDArray[np.float32]]]:
    """Features of n stimuli and two layers (n, 8)."""
    rng = np.random.default_rng([n, 1])
    features = pd.DataFrame(
        {
            "a": rng.choice(list("xyz"), n),
            "b": rng.choice(list("uv"), n),
            "c": rng.integers(0, 6, n).astype(np.float64),
            "nothing": rng.choice(list("pqrs"), n),
        }
    )
    common, layers = 0.7 * rng.standard_normal((n, 8)), []
    for strength in (2.0, 1.0):
        rows = rng.standard_normal((n, 8)) + common
        rows[:, 0] += 2.0 * (features["a"] == "x")
        rows[:, 1] += strength * (features["b"] == "u")
        rows[:, 2] += features["c"] / 3
        layers.append(rows.astype(np.float32))
    return features, layers


def numbers(n: int, budget: int | None, seed: int) -> pd.DataFrame:
    """measure, layer, feature, value and error (0 where all pairs are compared)."""
    features, layers = made_case(n)
    folds = group_folds(np.arange(n) // 3, 5, 0)
    design = PairDesign.from_budget(folds, budget, seed)
    compared = ComparedPairs.from_features(feature_columns(features), folds, design=design)
    ranks, statistics = PairRanks(len(layers), design.n_pairs), []
    for position, rows in enumerate(layers):
        result = pass_over_layer(compared, partial(np.asarray, rows), "euclidean", str(position))
        ranks.put(position, result.doubled)
        statistics.append(result.statistics)
    products = compared.rank_products(ranks, range(len(layers)))
    pairs = compared.together(statistics, products)
    if budget is None:
        return design_errors(LAYERS, pairs, [pairs, pairs])
    return design_errors(LAYERS, pairs, compared.leave_designs_out(statistics, products))


def repeated(n: int, first: int) -> list[Row]:
    """Some designs of the same stimuli, each beside all pairs."""
    by = ["measure", "layer", "feature"]
    truth = numbers(n, None, 0)[[*by, "value"]].rename(columns={"value": "truth"})
    rows: list[Row] = []
    for seed in range(first, first + PART[n]):
        drawn = numbers(n, SIZES[n], seed)[[*by, "value", "error"]].merge(truth, on=by)
        rows += drawn.assign(stimuli=n, pairs=SIZES[n], seed=seed).to_dict("records")
    return rows


def tasks(quick: bool = False) -> list[Task]:
    """The study in parts."""
    sizes = list(SIZES)[: 1 if quick else None]
    return [
        Task(f"{n} stimuli, from {start}", repeated, (n, start))
        for n in sizes
        for start in range(0, PART[n] if quick else DRAWS[n], PART[n])
    ]


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Bias, spread, stated error and coverage by quantity."""
    rows = rows[rows["measure"] != "ceiling"]
    reach = student_quantile(DESIGNS - 1) * rows["error"]
    rows = rows.assign(
        off=rows["value"] - rows["truth"],
        held=((rows["value"] - rows["truth"]).abs() <= reach),
        square=rows["error"] ** 2,
    )
    names = {"rho": "held-out ρ", "rsa": "RSA correlation"}
    rows["quantity"] = [
        f"{names.get(measure, measure)}{f' of {feature}' if feature else ''}"
        + ("" if measure in ("rsa", "contribution") else f", layer {'AB'[layer]}")
        for measure, layer, feature in zip(
            rows["measure"], rows["layer"], rows["feature"].fillna(""), strict=True
        )
    ]
    tables = {}
    for n, of_size in rows.groupby("stimuli"):
        cells = of_size.groupby("quantity", sort=False)
        n_draws = of_size["seed"].nunique()
        title = f"{n:,} stimuli, {of_size['pairs'].iloc[0]:,} pairs ({n_draws} draws)"
        tables[f"budget {n}"] = pd.DataFrame(
            {
                "all pairs": cells["truth"].mean().map("{:.4f}".format),
                "off on average": cells["off"].mean().map("{:+.4f}".format),
                "standard deviation": cells["off"].std().map("{:.4f}".format),
                "error said": np.sqrt(cells["square"].mean()).map("{:.4f}".format),
                "held": cells["held"].mean().map("{:.1%}".format),
            }
        ).rename_axis(title)
    return tables

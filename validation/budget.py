"""How far the numbers of a budget of pairs are from those of all pairs, and whether they say so.

The stimuli are fixed; what is drawn is which of their pairs are compared. Two layers have three
features in different strengths, a part in common that no feature knows, and nothing of a fourth.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.analysis.pair_errors import DesignScores
from mlem_core.base.numbers import student_quantile
from mlem_core.data.folds import group_folds
from mlem_core.measures.importance import fitted
from mlem_core.pairs.build import LayerFound, LayerWork, assembled, layer_passes
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import DESIGNS, PairDesign
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import PairRanks
from validation.work import Row, Task

# Stimuli and budget, of 180 thousand, 2 million and 32 million pairs.
SIZES = {600: 24_000, 2_000: 100_000, 8_000: 1_000_000}
REPETITIONS, PART = 200, 10
LAYERS = (("m", 0), ("m", 1))


def _case(n: int) -> tuple[pd.DataFrame, list[np.ndarray]]:
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


def _numbers(n: int, budget: int | None, seed: int) -> pd.DataFrame:
    """measure, layer, feature, value, error and bias; the last two only of a budget."""
    features, layers = _case(n)
    folds = group_folds(np.arange(n) // 3, 5, 0)
    design = PairDesign.of(folds, budget, seed)
    index = PairIndex.build(feature_columns(features), folds, design=design)
    scores = DesignScores("ridge", interactions=False)
    ranks = PairRanks(len(layers), design.n_pairs)

    def kept(at: int, found: LayerFound) -> LayerSums:
        assert found.doubled is not None
        ranks.put(at, found.doubled)
        if found.designs:
            scores.keep(at, scores.of(found.designs))
        return found.sums

    works = [LayerWork("euclidean", str(at), ranks=True, designs=True) for at in range(len(layers))]
    passes = layer_passes(index, [lambda own=own: own for own in layers], works, kept)
    tables = assembled(index, (sums for _, sums in passes), len(layers))
    rsa = ranks.rsa()
    if budget is not None:
        parts = ranks.rsa(design.starts[design.parts])
        return scores.table(LAYERS, range(len(LAYERS)), tables, rsa, parts)
    fits, importance = fitted(tables)
    rows: list[tuple[str, int, str, float]] = []
    for layer in range(len(layers)):
        rows += [("rho", layer, "", fits.rho[layer].mean())]
        rows += [("ceiling", layer, "", fits.ceiling[layer].mean())]
        means = importance[layer].mean(axis=0)
        rows += [
            ("importance", layer, name, drop)
            for name, drop in zip(features.columns, means, strict=True)
        ]
    rows.append(("rsa", 0, "", rsa[0, 1]))
    return pd.DataFrame(rows, columns=["measure", "layer", "feature", "value"])


def repeated(n: int, first: int) -> list[Row]:
    """Some designs of the same stimuli, each beside all pairs."""
    by = ["measure", "layer", "feature"]
    truth = _numbers(n, None, 0).rename(columns={"value": "truth"})
    rows: list[Row] = []
    for seed in range(first, first + PART):
        found = _numbers(n, SIZES[n], seed).merge(truth, on=by)
        found = found.assign(stimuli=n, pairs=SIZES[n], seed=seed)
        rows += found.drop(columns=["model", "model_b", "layer_b"]).to_dict("records")
    return rows


def tasks(quick: bool = False) -> list[Task]:
    """The study in parts."""
    starts = range(0, REPETITIONS, PART)[: 1 if quick else None]
    return [
        Task(f"{n} stimuli, from {start}", repeated, (n, start))
        for n in list(SIZES)[: 1 if quick else None]
        for start in starts
    ]


def of_budget(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Bias, spread, stated error and coverage by quantity."""
    reach = student_quantile(DESIGNS - 1) * rows["error"]
    rows = rows.assign(
        off=rows["value"] - rows["truth"],
        held=((rows["value"] - rows["truth"]).abs() <= reach),
        square=rows["error"] ** 2,
    )
    names = {"rho": "held-out ρ", "rsa": "RSA correlation"}
    rows["quantity"] = [
        f"{names.get(measure, measure)}{f' of {feature}' if feature else ''}"
        + ("" if measure == "rsa" else f", layer {'AB'[layer]}")
        for measure, layer, feature in zip(
            rows["measure"], rows["layer"], rows["feature"].fillna(""), strict=True
        )
    ]
    found = {}
    for n, own in rows.groupby("stimuli"):
        cells = own.groupby("quantity", sort=False)
        found[f"budget {n}"] = pd.DataFrame(
            {
                "all pairs": cells["truth"].mean().map("{:.4f}".format),
                "off on average": cells["off"].mean().map("{:+.4f}".format),
                "bias said": cells["bias"].mean().map("{:+.4f}".format),
                "standard deviation": cells["off"].std().map("{:.4f}".format),
                "error said": np.sqrt(cells["square"].mean()).map("{:.4f}".format),
                "held": cells["held"].mean().map("{:.1%}".format),
            }
        ).rename_axis(f"{n:,} stimuli, {own['pairs'].iloc[0]:,} pairs")
    return found

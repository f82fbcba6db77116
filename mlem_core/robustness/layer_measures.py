"""What the distances of a layer are made of: position 0, outlier units, one common direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.transforms import outlier_units, variances
from mlem_core.base.parallel import cores
from mlem_core.base.typing import FloatArray, Layer, Progress, Report
from mlem_core.models.registry import base_name
from mlem_core.pairs.designs import PairDesign, resampled_part, row_slices
from mlem_core.pairs.distances import PRECOMPUTED, design_distances
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.tables import without_training_ranks
from mlem_core.robustness.variants import CONTROL
from mlem_core.scale.executor import workers_sharing
from mlem_core.storage.store import Store


def position_share(values: FloatArray, number: NDArray[np.integer]) -> float:
    """The share of the variance of values over pairs that is between three kinds of pairs.

    With z the values, and the pairs in three groups by how many of their two stimuli (0, 1 or 2)
    are at position 0: Σ_g n_g (z̄_g - z̄)² / Σ (z - z̄)².

    Parameters
    ----------
    values : (n_pairs,)
    number : (n_pairs,) 0, 1 or 2, see `stimuli_at_first`

    Returns
    -------
    From 0 to 1; NaN where all values are equal or all pairs are of one kind
    """
    mean = float(values.mean())
    total = float(np.square(values - mean).sum())
    groups = [values[number == k] for k in range(3)]
    means = [(len(group), float(group.mean())) for group in groups if len(group)]
    if total == 0 or len(means) < 2:
        return float("nan")
    return sum(n * (group_mean - mean) ** 2 for n, group_mean in means) / total


def stimuli_at_first(first: NDArray[np.bool_], design: PairDesign) -> NDArray[np.uint8]:
    """How many of the two stimuli of each pair are at position 0: (n_stimuli,) to (n_pairs,)."""
    ones = first.astype(np.uint8)
    number = np.repeat(ones[design.stimulus], np.diff(design.starts))
    if not design.is_complete:
        number += ones[design.partner]
        return number
    for i, where in row_slices(len(first)):
        number[where] += ones[i + 1 :]
    return number


def mean_cosine(rows: NDArray[np.floating]) -> float:
    """The mean cosine of every two different stimuli: how anisotropic a layer is.

    (|Σ u|² - n) / (n (n - 1)) for rows u of norm 1. A row of zeros has cosine 0 with all others.

    Parameters
    ----------
    rows : (n_stimuli, n_units)

    Source: Ethayarajh (2019), section 4.1.
    """
    exact = rows.astype(np.float64)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    units = np.divide(exact, norms, out=np.zeros_like(exact), where=norms > 0)
    n = len(units)
    total = units.sum(axis=0)
    return float((total @ total - np.count_nonzero(norms)) / (n * (n - 1)))


class _Audited(NamedTuple):
    """What the measures of a layer are taken from.

    design : of the pairs whose distances are looked at
    at_first : (n_pairs,) see `stimuli_at_first`, or None for whole sentences
    """

    analysis: Analysis
    variants: Mapping[str, Analysis]
    design: PairDesign
    at_first: NDArray[np.uint8] | None


def layer_table(
    analysis: Analysis, variants: Mapping[str, Analysis], store: Store, report: Report
) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
    """The measures of every layer, and how alike its distances are in each variant.

    Returns
    -------
    model, layer, position0, position0_ranks, mean_cosine, n_units, n_outliers, outliers,
    outlier_share; and for each variant Spearman ρ of every layer's distances before and after (NaN
    where the pairs are others). Of a design of more than `RESAMPLED` pairs, from a part of it.
    """
    index = analysis.stimuli.word_index
    design = resampled_part(analysis.design, analysis.folds)
    at_first = None if index is None else stimuli_at_first(index == 0, design)
    bare = {name: _bare(variant) for name, variant in variants.items()}
    audited = _Audited(_bare(analysis), bare, design, at_first)
    n = len(analysis.layers)

    def told(done: int) -> None:
        report(Progress("audit", None, done, n, "layers"))

    told(0)
    shared, root = (audited, store.root), store.root
    where = workers_sharing(root)
    rows = where.results(_row, analysis.layers, shared, told, root, threads=cores())
    table = pd.DataFrame(rows)
    return table, {name: table.pop(f"same {name}") for name in variants}


def _bare(analysis: Analysis) -> Analysis:
    """The same without the tables, which no measure of a layer needs."""
    empty = without_training_ranks(analysis.tables).of_layers([])
    return replace(analysis, tables=empty, rsa=analysis.rsa[:0, :0])


def _row(audited: _Audited, root: Path, layer: Layer) -> dict[str, Any]:
    """The row of one layer, representations from the store at `root`."""
    analysis, variants, design, at_first = audited
    store = Store(root)
    rows = representations_of(analysis, layer[0], store)[layer[1]]
    distance = analysis.spec.distance_of(layer[0])
    squared = _squared(rows, distance, layer, design)
    ranks = _centred_ranks(squared)
    # Distances have no units.
    units = rows[:, :0] if distance == PRECOMPUTED else rows
    variance = variances(units)
    outliers = outlier_units(variance)
    total = float(variance.sum())
    shares = (np.nan, np.nan)
    if at_first is not None:
        shares = (position_share(np.sqrt(squared), at_first), position_share(ranks, at_first))
    return {
        "model": layer[0],
        "layer": layer[1],
        "position0": shares[0],
        "position0_ranks": shares[1],
        "mean_cosine": mean_cosine(units) if units.size else np.nan,
        "n_units": units.shape[1],
        "n_outliers": len(outliers),
        "outliers": " ".join(map(str, outliers)),
        "outlier_share": float(variance[outliers].sum()) / total if total else 0.0,
        **{
            f"same {name}": _correlation(ranks, name, variant, layer, store)
            for name, variant in variants.items()
        },
    }


def _squared(
    rows: NDArray[np.floating], distance: str, layer: Layer, design: PairDesign
) -> FloatArray:
    return design_distances(rows, distance, design, layer=f"{layer[0]} layer {layer[1]}")


def _centred_ranks(squared: FloatArray) -> FloatArray:
    ranks: FloatArray = pair_ranks(squared).astype(np.float64)
    return ranks - (len(squared) + 1.0)


def _correlation(
    ranks: FloatArray, name: str, variant: Analysis, layer: Layer, store: Store
) -> float:
    """Spearman ρ of a layer's distances before and after; NaN where the pairs are others."""
    model = layer[0]
    if name == CONTROL:
        model = next((one for one, _ in variant.layers if base_name(one) == model), "")
    design = resampled_part(variant.design, variant.folds)
    if (model, layer[1]) not in variant.layers or design.n_pairs != len(ranks):
        return float("nan")
    rows = representations_of(variant, model, store)[layer[1]]
    after = _centred_ranks(_squared(rows, variant.spec.distance_of(layer[0]), layer, design))
    scale = np.sqrt((ranks @ ranks) * (after @ after))
    return float(ranks @ after / scale) if scale > 0 else float("nan")

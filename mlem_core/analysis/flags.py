"""Flags on layers, and on pairs of layers, that are to be read with care.

Each run flags layers of whose variance one position, or one unit, has a large part; extensions may
flag more (`mlem_core.extending.Extension.flags`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mlem_core.base.text import listed, percent
from mlem_core.base.typing import Layer
from mlem_core.pairs.similarities import RSA, SIMILARITIES

COLUMNS = ("measure", "model_a", "layer_a", "model_b", "layer_b", "variant", "reason", "severity")
# From here on a layer is flagged.
POSITION_SHARE = 0.25  # of the variance of the ranks: as much as a whole profile often explains
OUTLIER_SHARE = 0.25  # of the variance of all units, in units that are 1 % or less of them
# Figures mark what changes a conclusion by this many times the limit above; tables have all.
MARKED = 2.0
MEASURES_OF_LAYERS = {"profiles": "profile", "scores": "score"}


def short_measure_name(measure: str) -> str:
    """Short name of "tau", or of a similarity of two layers."""
    return "τ" if measure == "tau" else SIMILARITIES[measure].short


def variance_flags(variance: pd.DataFrame | None) -> pd.DataFrame:
    """Flags of layers of whose variance position 0, or one unit, has a large part.

    Each run computes these shares; whether they change a conclusion an audit tells. A layer is
    flagged in its profile, and as the pair with itself in both similarities.

    `variance` is that of an `Analysis`. Returns the columns `COLUMNS`: measure ("profiles",
    "scores", "tau", and "rsa" or the name of another similarity), model_a, layer_a, model_b,
    layer_b ("" and -1 for a layer alone), variant, reason, severity.
    """
    rows = []
    for row in () if variance is None else variance.itertuples():
        limits = ("position 0", row.first, POSITION_SHARE), ("one unit", row.unit, OUTLIER_SHARE)
        large = [f"{name} has {percent(share)}" for name, share, least in limits if share >= least]
        if large:
            layer, reason = (row.model, row.layer), f"{listed(large)} of its variance"
            rows.append(("profiles", *layer, "", -1, "variance", reason, MARKED))
            rows += [(by, *layer, *layer, "variance", reason, MARKED) for by in (RSA, "tau")]
    return pd.DataFrame(rows, columns=COLUMNS)


def marked(flags: pd.DataFrame) -> pd.DataFrame:
    """Flags that a figure marks: severity at least `MARKED`, the most severe first."""
    severe = flags[flags["severity"] >= MARKED]
    return severe.sort_values("severity", ascending=False, kind="stable")


def reasons(flags: pd.DataFrame, measure: str) -> dict[Layer, str] | dict[tuple[Layer, Layer], str]:
    """Reasons why a figure of a measure marks a layer, or a pair of layers, the most severe first.

    Parameters
    ----------
    flags : a table with the columns `COLUMNS`; only `marked` ones count
    measure : "profiles" or "scores" of layers, "tau" or a similarity of pairs (each in both orders)
    """
    texts: dict[Any, list[str]] = {}
    for row in marked(flags[flags["measure"] == measure]).itertuples():
        a, b = (row.model_a, row.layer_a), (row.model_b, row.layer_b)
        for key in [a] if row.layer_b == -1 else dict.fromkeys([(a, b), (b, a)]):
            texts.setdefault(key, []).append(row.reason)
    return {key: "; ".join(parts) for key, parts in texts.items()}


def layer_reasons(
    by_measure: Mapping[str, Mapping[Any, str]], layers: Sequence[Layer]
) -> dict[Layer, str]:
    """Reasons why the profile or the score of a layer is marked, of the marked layers.

    Parameters
    ----------
    by_measure : of "profiles" and "scores", as the function `reasons`; what is absent marks nothing
    """
    both = [by_measure.get(measure, {}) for measure in MEASURES_OF_LAYERS]
    why = {layer: "; ".join(of[layer] for of in both if layer in of) for layer in layers}
    return {layer: text for layer, text in why.items() if text}


def pair_reasons(by_measure: Mapping[str, Mapping[Any, str]], a: Layer, b: Layer) -> dict[str, str]:
    """Reasons why the profile of "a" or "b", or the similarity of "both", is marked.

    Parameters
    ----------
    by_measure : of "profiles", similarities and "tau", as the function `reasons`
    """
    profiles = by_measure.get("profiles", {})
    similar = [
        f"{short_measure_name(measure)}: {why}"
        for measure, of_pairs in by_measure.items()
        if measure not in MEASURES_OF_LAYERS and (why := of_pairs.get((a, b)))
    ]
    marked = {"a": profiles.get(a, ""), "b": profiles.get(b, ""), "both": "; ".join(similar)}
    return {side: why for side, why in marked.items() if why}

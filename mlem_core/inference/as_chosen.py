"""Two layers that were chosen as the most similar of many: bounds that hold for all of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.numbers import CONFIDENCE
from mlem_core.base.text import fraction, listed
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.inference.corrections import of_largest, of_pairs
from mlem_core.inference.explained import Explanation
from mlem_core.inference.intervals import LayerIntervals, Left
from mlem_core.measures.similarity import candidates


def as_chosen(
    why: Explanation,
    analysis: Analysis,
    layers: Sequence[Layer],
    intervals: LayerIntervals | None = None,
    square: FloatArray | None = None,
) -> Explanation:
    """An explanation of two layers that says so where they are the most similar of all of these.

    Its interval then holds for all that they were chosen from, and among models of groups the mean
    over members comes first. Of any other two layers, or where the similarity of all is not known,
    it stays as it is.

    Parameters
    ----------
    intervals : of all these layers by the similarity of the explanation
    square : (n_layers, n_layers) of these layers; None is RSA, or that of the intervals
    """
    from scipy.special import ndtri

    at = [analysis.layers.index(layer) for layer in layers]
    if square is None and why.similarity.of_ranks:
        square = analysis.rsa[np.ix_(at, at)]
    elif square is None and intervals is not None:
        places = intervals.places(layers)
        square = intervals.values[np.ix_(places, places)]
    if square is None or len(layers) < 3:
        return why
    files, group_of = [name for name, _ in analysis.spec.representations], analysis.spec.group_of
    pairs = candidates(square, layers, files, group_of)
    own = square[pairs.first, pairs.second]
    best, n = (pairs.best(own), len(own)) if len(own) else (0, 0)
    if n < 2 or {*why.layers} != {layers[pairs.first[best]], layers[pairs.second[best]]}:
        return why
    cell, means, whole, sure = pairs.cell[best], pairs.means(own), why.whole.copy(), ""
    if intervals is not None:
        _, left = of_pairs(intervals, layers, pairs.first, pairs.second)
        found = of_largest(own, left)
        whole = whole.reindex(columns=["quantity", "value", "lower", "upper"])
        whole.loc[0, ["lower", "upper"]] = found.lower[best], found.upper[best]
        mean = of_largest(means, Left(pairs.means(left.without), left.sizes))
        ends = f"{fraction(mean.lower[cell])} to {fraction(mean.upper[cell])}"
        sure = f" (95 % CI {ends}, over {intervals.units.over})"
    elif "lower" in whole:
        down, up = ndtri([CONFIDENCE ** (1 / n), CONFIDENCE]) / ndtri((1 + CONFIDENCE) / 2)
        value, low, high = whole.loc[0, ["value", "lower", "upper"]]
        whole.loc[0, ["lower", "upper"]] = value - down * (value - low), value + up * (high - value)
    members, group_mean = int((pairs.cell == cell).sum()), ""
    if members > 1:
        of = listed([f"{group_of.get(model, model)} layer {layer}" for model, layer in why.layers])
        group_mean = f"The mean {why.similarity.short} of {members} pairs of members, {of}, is "
        group_mean += f"{fraction(means[cell])}{sure}."
    return replace(why, whole=whole, among=f"{n:,} pairs of {pairs.what}", group_mean=group_mean)

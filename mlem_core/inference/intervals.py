"""Confidence intervals of what is known of all layers.

`mlem_core.inference.layer_intervals` computes them, `mlem_core.inference.tables` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from mlem_core.analysis.selection import check_layers
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA
from mlem_core.storage.store import Packed

# What is left without each block is many numbers, and only their spread is used.
Without = Annotated[FloatArray, Packed(np.float32)]
SimilaritiesWithout = Annotated[FloatArray, Packed(np.float32, diagonal=1.0)]
Similarities = Annotated[FloatArray, Packed(diagonal=1.0)]
Terms = Annotated[FloatArray, Packed(diagonal=0.0)]


class Left(NamedTuple):
    """A value without each block of stimuli, as `jackknife.standard_error` takes it.

    without : (n_blocks, ...)
    sizes : how many of the blocks are of each kind of unit
    """

    without: Without
    sizes: tuple[int, ...]

    def moves(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Changes of the value with other stimuli, (n, ...), as the jackknife says it varies.

        Each block moves it by a random multiple of what it does when it is left out. With two kinds
        of units what sentences and items do; what both have in common is in both.

        Returns
        -------
        and (...) the variance of the moves
        """
        shape = self.without.shape[1:]
        moved, variance = np.zeros((n, *shape)), np.zeros(shape)
        for part in np.split(self.without, np.cumsum(self.sizes)[:-1])[:2]:
            blocks = len(part)
            away = (part - part.mean(axis=0)) * np.sqrt((blocks - 1) / blocks)
            moved += np.tensordot(rng.standard_normal((n, blocks)), away, axes=1)
            variance += (away**2).sum(axis=0)
        return moved, variance


@dataclass(frozen=True)
class LayerIntervals:
    """Results of n_layers layers, with confidence intervals over sentences and words.

    Attributes
    ----------
    layers : (model, layer) of each
    features, columns : of the terms; of the importances (interactions among them)
    estimator : of the metric models
    scores, scores_lower, scores_upper : (n_layers, 2 + n_columns) ρ, ceiling and importances
    scores_without : (n_blocks, n_layers, 2 + n_columns) without each block of stimuli
    tau, tau_lower, tau_upper : (n_layers, n_layers)
    values : (n_layers, n_layers) of `similarity`; values_without : (n_blocks, n_layers, n_layers)
    terms, terms_error : (n_features + 1, n_layers, n_layers) the terms, the last one
        "unexplained", and their standard errors; none with more than 12 features, or where the
        similarity has no terms
    ceilings, ceilings_error : (n_layers,) cross-fitted feature ceilings of all pairs
    partial_error : (2, n_layers, n_layers) standard errors of S_feat and S_rest, NaN where a block
        leaves none; (0, ...) where `terms` is
    units : what was drawn
    sizes : how many of the n_blocks blocks are of each kind of unit, see
        `mlem_core.inference.resample.standard_error`
    similarity : its name, see `mlem_core.pairs.similarities`
    """

    layers: tuple[Layer, ...]
    features: tuple[str, ...]
    columns: tuple[str, ...]
    estimator: str
    scores: FloatArray
    scores_lower: FloatArray
    scores_upper: FloatArray
    scores_without: Without
    tau: Similarities
    tau_lower: Similarities
    tau_upper: Similarities
    values: Similarities
    values_without: SimilaritiesWithout
    terms: Terms
    terms_error: Terms
    ceilings: FloatArray
    ceilings_error: FloatArray
    partial_error: Terms
    units: Units
    sizes: tuple[int, ...]
    similarity: str = RSA

    def places(self, layers: Sequence[Layer] | None = None) -> list[int]:
        """Places of layers (None: all); InputError for one that is not there."""
        if layers is None:
            return list(range(len(self.layers)))
        check_layers(layers, self.layers)
        place = {layer: at for at, layer in enumerate(self.layers)}
        return [place[layer] for layer in layers]

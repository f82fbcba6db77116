"""Similarity of two layers in what the features explain, in the residual, and in their metrics.

RSA correlates all that two layers do with the pairs, and mixes the three. With v what all features
explain of an RSA correlation, cross-fitted (`mlem_core.measures.decomposition`):

- S_feat = v_AB / √(v_AA v_BB), the correlation of what the features explain in either layer. How
  much they explain does not enter: it is 1 where two layers use them alike, one with more noise
  than the other.
- S_rest = (RSA - v_AB) / √((1 - v_AA)(1 - v_BB)), a partial RSA: the correlation of what is left
  when the means by pattern are taken away.
- Transfer from A to B: the held-out ρ that the metric of A has on the distances of B.

All three are ratios of estimates or scores of few stimuli, so they may come out above 1. Where what
stands below the root is not clearly above 0 there is no number (`above_zero`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.numbers import student_quantile
from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.estimators.registry import held_out_scores
from mlem_core.measures.similarity import pairs_of_layers
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.tables import PairTables

# Of two layers: A's metric on B, B's on A, the score of each on its own layer, and the first two as
# parts of the score of the layer that is predicted.
TRANSFERS = ("transfer_ab", "transfer_ba", "score_a", "score_b", "ratio_ab", "ratio_ba")


def explained_parts(tables: PairTables) -> tuple[FloatArray, FloatArray]:
    """Part of n_layers layers that all features explain, cross-fitted, in units of ρ.

    Returns (n_layers, n_layers) v of every two layers, means over folds, and (n_layers, n_used) v
    of each layer with itself, in each fold that has pairs.

    Raises InputError: tables of one fold.
    """
    fit = CrossFit.of(tables.coarse)
    whole, means = fit.explained(fit.whole)[0], fit.means(fit.whole)[..., 0]
    inside = fit.sums[:, 0, :, :, 0]
    pairs, squares = inside[:, 0].sum(axis=0), fit.spread[0][:, None] ** 2
    products = np.einsum("glk,glk->lk", means, inside[:, 1:])
    scale = np.where(squares > 0, squares, np.inf) * np.maximum(pairs, 1.0)
    return whole, (products / scale)[:, pairs > 0]


def above_zero(by_fold: FloatArray) -> NDArray[np.bool_]:
    """Whether a mean (...) over folds (..., n_folds) is clearly above 0; never with one fold.

    It is where the 95 % interval by t over the folds is above 0. Folds share training stimuli, so
    this is a rule, not a test: `docs/why.md` has how often it takes noise for something.
    """
    n = by_fold.shape[-1]
    if n < 2:
        return np.zeros(by_fold.shape[:-1], dtype=bool)
    error = by_fold.std(axis=-1, ddof=1) / np.sqrt(n)
    clear: NDArray[np.bool_] = by_fold.mean(axis=-1) - student_quantile(n - 1) * error > 1e-9
    return clear


def feature_similarity(
    explained: FloatArray, one: FloatArray, other: FloatArray, *, drawn: bool = False
) -> FloatArray:
    """S_feat (...): the correlation of what the features explain in two layers.

    Parameters
    ----------
    explained, one, other : (...) v of the two layers, of the first with itself, of the second; NaN
        where either of these is 0 or less
    drawn : of draws (n_draws, ...) to first order around the first, so that an interval follows
        from those of what it is made of, and none has 0 below it

    Source: Spearman (1904), the correction for attenuation.
    """
    if drawn:
        value = feature_similarity(explained[0], one[0], other[0])
        own, its = (np.where(below[0] > 0, below[0], np.nan) for below in (one, other))
        moved = (explained - explained[0]) / np.sqrt(own * its)
        moved -= value / 2 * ((one - one[0]) / own + (other - other[0]) / its)
        return np.asarray(value + moved)
    known = (one > 0) & (other > 0)
    scale = np.sqrt(np.where(known, one, 1.0) * np.where(known, other, 1.0))
    return np.where(known, explained / scale, np.nan)


def rest_similarity(
    rsa: FloatArray,
    explained: FloatArray,
    one: FloatArray,
    other: FloatArray,
    *,
    drawn: bool = False,
) -> FloatArray:
    """S_rest (...): the RSA correlation of two layers apart from what the features explain.

    Parameters
    ----------
    rsa : (...) their RSA correlations
    explained, one, other, drawn : as in `feature_similarity`; NaN where one of both is 1 or more

    Source: partial correlation, with means by pattern in the place of a line.
    """
    return feature_similarity(rsa - explained, 1.0 - one, 1.0 - other, drawn=drawn)


def transfer(tables: PairTables, weights: FloatArray) -> FloatArray:
    """The held-out ρ of each layer's metric on the distances of each: (n_from, n_to, n_folds).

    The weights of a fold's model on that fold's pairs, which neither layer's model has seen. With a
    layer itself it is its score.

    `weights` are (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`.
    """
    n_layers, n_folds, _ = weights.shape
    found = np.zeros((n_layers, n_layers, n_folds))
    for fold in range(n_folds):
        every = np.tile(weights[:, fold], (n_layers, 1, 1))
        found[..., fold] = held_out_scores(tables, every, fold).rho.T
    return found


def with_ratios(means: FloatArray, *, drawn: bool = False) -> FloatArray:
    """`TRANSFERS` (..., 6) of two layers; a ratio is NaN where what is below it is 0 or less.

    Parameters
    ----------
    means : (..., 2, 2) of `transfer`, over the folds
    drawn : as in `feature_similarity`
    """
    (a, ab), (ba, b) = np.moveaxis(means, (-2, -1), (0, 1))
    ratios = [feature_similarity(of, own, own, drawn=drawn) for of, own in ((ab, b), (ba, a))]
    return np.stack((ab, ba, a, b, *ratios), axis=-1)


@dataclass(frozen=True)
class PartialSimilarity:
    """Similarities of every two of n_layers layers beside RSA.

    features, rest : (n_layers, n_layers) S_feat and S_rest; NaN where what they are divided by is
        not clearly above 0
    transfer : (n_layers, n_layers) mean over folds of what the metric of the first has on the
        second; the scores of the layers on its diagonal
    ratio : the same as a part of the score of the second; NaN where that is not clearly above 0
    """

    features: FloatArray
    rest: FloatArray
    transfer: FloatArray
    ratio: FloatArray

    def square(self, name: str, layers: Sequence[Layer]) -> pd.DataFrame:
        """One of them for every two layers, "model:layer"; of transfer the rows are from, the
        columns to.

        `name` is "features", "rest", "transfer" or "ratio".
        """
        names = [layer_name(layer) for layer in layers]
        return pd.DataFrame(getattr(self, name), index=names, columns=names)

    def table(self, layers: Sequence[Layer]) -> pd.DataFrame:
        """All of every two different layers.

        Returns model_a, layer_a, model_b, layer_b, s_feat, s_rest and `TRANSFERS`.
        """
        scores = np.broadcast_to(np.diagonal(self.transfer), self.transfer.shape)
        return pairs_of_layers(
            layers,
            s_feat=self.features,
            s_rest=self.rest,
            transfer_ab=self.transfer,
            transfer_ba=self.transfer.T,
            score_a=scores.T,
            score_b=scores,
            ratio_ab=self.ratio,
            ratio_ba=self.ratio.T,
        )


def partial_similarity(
    tables: PairTables, rsa: FloatArray, weights: FloatArray | None = None
) -> PartialSimilarity:
    """S_feat, S_rest and transfer of every two layers of pair tables.

    Parameters
    ----------
    rsa : (n_layers, n_layers) their RSA correlations
    weights : see `transfer`; without them that is NaN

    Raises InputError: tables of one fold.
    """
    whole, by_fold = explained_parts(tables)
    own = np.diagonal(whole)
    features = feature_similarity(whole, own[:, None], own[None])
    rest = rest_similarity(rsa, whole, own[:, None], own[None])
    told, left = above_zero(by_fold), above_zero(1.0 - by_fold)
    means, below = np.full_like(rsa, np.nan), np.full(len(rsa), np.nan)
    if weights is not None:
        scores = transfer(tables, weights)
        of_own, means = np.diagonal(scores).T, scores.mean(axis=-1)
        below = np.where(above_zero(of_own), of_own.mean(axis=-1), np.nan)
    return PartialSimilarity(
        np.where(told[:, None] & told[None], features, np.nan),
        np.where(left[:, None] & left[None], rest, np.nan),
        means,
        means / below[None],
    )

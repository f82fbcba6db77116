"""The normal equations of ridge for every layer and training set, from the pair tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray
from mlem_core.estimators.nnls import nonnegative_quadratic
from mlem_core.pairs.patterns import left_out
from mlem_core.pairs.tables import PairTables


@dataclass(frozen=True)
class Moments:
    """Centred normal equations of the squared, min-max scaled distances on training sets.

    gram : (n_sets, n_features, n_features)
    moment : (n_layers, n_sets, n_features)
    x_mean : (n_sets, n_features) means of the squared feature distances
    y_mean : (n_layers, n_sets) means of the scaled target
    """

    gram: FloatArray
    moment: FloatArray
    x_mean: FloatArray
    y_mean: FloatArray


def training_blocks(tables: PairTables, without: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Which blocks of pairs remain when folds are left out.

    Parameters
    ----------
    without : for each training set the folds that it leaves out

    Returns (n_sets, n_blocks).
    """
    out = left_out(tables.n_folds, tables.target_low.shape[1])
    return np.stack([~out[list(folds)].any(axis=0) for folds in without])


def moments(tables: PairTables, blocks: NDArray[np.bool_]) -> Moments:
    """Normal equations of every layer on every training set.

    The target is the squared neural distance, min-max scaled to [0, 1] over the pairs of the
    training set (Salle et al. 2024, appendix B); a layer whose distances there are all equal has
    the target 0.

    Parameters
    ----------
    blocks : (n_sets, n_blocks), see `training_blocks`
    """
    x = tables.terms
    edges = tables.block_edges[:-1]
    occupied = np.diff(tables.block_edges) > 0
    columns = x[tables.cell_pattern]
    weighted = columns * tables.counts[:, None]
    n_blocks, n_features = len(edges), x.shape[1]

    def by_block(values: FloatArray) -> FloatArray:
        sums = np.zeros((*values.shape[:-1], n_blocks))
        sums[..., occupied] = np.add.reduceat(values, edges[occupied], axis=-1)
        return sums

    n = by_block(tables.counts)
    x_sum = by_block(weighted.T)
    xx_sum = np.zeros((n_blocks, n_features, n_features))
    xy_sum = np.zeros((tables.n_layers, n_blocks, n_features))
    for b in np.flatnonzero(occupied):
        at = slice(tables.block_edges[b], tables.block_edges[b + 1])
        xx_sum[b] = columns[at].T @ weighted[at]
        xy_sum[:, b] = tables.target_sums[:, at] @ columns[at]
    y_sum = by_block(tables.target_sums)

    chosen = blocks.astype(np.float64)
    total = np.maximum(chosen @ n, 1.0)
    x_mean = (chosen @ x_sum.T) / total[:, None]
    gram = np.einsum("sb,bij->sij", chosen, xx_sum)
    gram -= total[:, None, None] * x_mean[:, :, None] * x_mean[:, None, :]
    y_mean = (y_sum @ chosen.T) / total
    moment = np.einsum("sb,lbi->lsi", chosen, xy_sum, optimize=True)
    moment -= (y_mean * total)[:, :, None] * x_mean
    low = np.stack([tables.target_low[:, use].min(axis=1) for use in blocks], axis=1)
    high = np.stack([tables.target_high[:, use].max(axis=1) for use in blocks], axis=1)
    span = high - low
    constant = ~(span > 0)
    span[constant] = 1.0
    moment = np.where(constant[:, :, None], 0.0, moment / span[:, :, None])
    y_mean = np.where(constant, 0.0, (y_mean - low) / span)
    return Moments(gram, moment, x_mean, y_mean)


def rank_moments(
    tables: PairTables, blocks: NDArray[np.bool_], ranked_without: Sequence[int | None]
) -> Moments:
    """Normal equations whose target is the rank of the neural distance, scaled to [0, 1].

    Parameters
    ----------
    blocks : (n_sets, n_blocks), see `training_blocks`
    ranked_without : for each training set, the fold that the pairs leave out among which distances
        are ranked, or None for ranks among all pairs. The set is these pairs or a part of them

    Raises InputError: the tables have no ranks among training pairs.
    """
    equations = moments(tables, blocks)
    moment, y_mean = np.zeros_like(equations.moment), np.zeros_like(equations.y_mean)
    edges = tables.block_edges
    counts = np.bincount(tables.cell_block, tables.counts, minlength=len(edges) - 1)
    for fold in dict.fromkeys(ranked_without):
        sums = tables.rank_sums if fold is None else tables.training_ranks[:, fold]
        at = [s for s, without in enumerate(ranked_without) if without == fold]
        among = training_blocks(tables, [() if fold is None else (fold,)])[0]
        scale = counts[among].sum()
        xy = np.zeros((len(sums), len(counts), tables.terms.shape[1]))
        y = np.zeros((len(sums), len(counts)))
        for b in np.flatnonzero(counts):
            cells = slice(int(edges[b]), int(edges[b + 1]))
            xy[:, b] = sums[:, cells] @ tables.terms[tables.cell_pattern[cells]]
            y[:, b] = sums[:, cells].sum(axis=-1)
        chosen = blocks[at].astype(np.float64)
        total = y @ chosen.T
        moment[:, at] = np.einsum("sb,lbi->lsi", chosen, xy, optimize=True)
        moment[:, at] -= total[:, :, None] * equations.x_mean[at]
        moment[:, at] /= scale
        y_mean[:, at] = total / (chosen @ counts) / scale + 0.5
    return replace(equations, moment=moment, y_mean=y_mean)


def ridge_weights(equations: Moments, alphas: Sequence[float]) -> FloatArray:
    """Non-negative ridge weights for each α.

    Minimises ||y - Xw - b||² + α ||w||² over w >= 0 and b, the objective of scikit-learn's
    `Ridge(positive=True)`, on the pairs of each training set.

    Returns (n_layers, n_sets, n_alphas, n_features).
    """
    n_features = equations.gram.shape[-1]
    penalty = np.asarray(alphas)[:, None, None] * np.eye(n_features)
    gram = equations.gram[None, :, None] + penalty
    return nonnegative_quadratic(gram, equations.moment[:, :, None, :])

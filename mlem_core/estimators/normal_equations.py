"""The normal equations of ridge for every layer and training set, from the pair tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.numbers import nonnegative_quadratic
from mlem_core.base.typing import FloatArray
from mlem_core.base.work import each, if_large
from mlem_core.pairs.columns import ends
from mlem_core.pairs.tables import PairTables

# The ridge penalty of weights that values are shrunk towards: hardly any.
LEAST = 1e-4
# Predictions that vary by less than this part of their squares are all equal but for rounding.
ROUNDED = 1e-13
# What stands for the strength where no feature is coded by value.
NOT_APART = 1e12


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
    """Mask of the blocks of pairs that remain when folds are left out.

    `without` has for each training set the folds that it leaves out.

    Returns (n_sets, n_blocks).
    """
    return np.stack([tables.trains[list(folds)].all(axis=0) for folds in without])


def moments(tables: PairTables, blocks: NDArray[np.bool_]) -> Moments:
    """Normal equations of every layer on every training set.

    The target is the squared neural distance, min-max scaled to [0, 1] over the pairs of the
    training set (Salle et al. 2024, appendix B); a layer whose distances there are all equal has
    the target 0.

    `blocks` are (n_sets, n_blocks), see `training_blocks`.
    """
    edges = tables.block_edges[:-1]
    occupied = np.diff(tables.block_edges) > 0
    n_blocks, n_features = len(edges), len(tables.columns)

    def by_block(values: FloatArray) -> FloatArray:
        sums = np.zeros((*values.shape[:-1], n_blocks))
        sums[..., occupied] = np.add.reduceat(values, edges[occupied], axis=-1)
        return sums

    n = by_block(tables.counts)
    x_sum = np.zeros((n_features, n_blocks))
    xx_sum = np.zeros((n_blocks, n_features, n_features))
    xy_sum = np.zeros((tables.n_layers, n_blocks, n_features))

    def add_up(b: int) -> None:
        at = slice(tables.block_edges[b], tables.block_edges[b + 1])
        terms, counts = tables.terms.of(tables.cell_pattern[at]), tables.counts[at]
        x_sum[:, b] = terms.sums(counts[None])[0]
        xx_sum[b] = terms.products(counts)
        xy_sum[:, b] = terms.sums(tables.target_sums[:, at])

    each(add_up, np.flatnonzero(occupied), if_large(tables.target_sums.size))
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


def rank_equations(
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
        xy = np.zeros((len(sums), len(counts), len(tables.columns)))
        y = np.zeros((len(sums), len(counts)))
        for b in np.flatnonzero(counts):
            cells = slice(int(edges[b]), int(edges[b + 1]))
            xy[:, b] = tables.terms.of(tables.cell_pattern[cells]).sums(sums[:, cells])
            y[:, b] = sums[:, cells].sum(axis=-1)
        chosen = blocks[at].astype(np.float64)
        total = y @ chosen.T
        moment[:, at] = np.einsum("sb,lbi->lsi", chosen, xy, optimize=True)
        moment[:, at] -= total[:, :, None] * equations.x_mean[at]
        moment[:, at] /= scale
        y_mean[:, at] = total / (chosen @ counts) / scale + 0.5
    return replace(equations, moment=moment, y_mean=y_mean)


def value_weights(
    tables: PairTables, equations: Moments, betas: Sequence[float], alphas: Sequence[float]
) -> FloatArray:
    """Weights where features are resolved by value: for each β of `penalty_matrices`, then each α.

    With an α they are those of features that differ or do not, so that pairs which only other
    values distinguish are tied; a β, however large, would leave small differences.

    Returns (n_layers, n_sets, n_betas + n_alphas, n_columns).
    """
    found = [ridge_weights(equations, penalty_matrices(tables, [beta])) for beta in betas]
    if len(alphas):
        # The terms (n_columns, n_features) as Δ_f² makes them of the weights of the features.
        columns = tables.columns
        plain = np.zeros((len(columns), len(tables.features)))
        for f, names in enumerate(tables.value_names):
            plain[columns.part == f, f] = _aims(names, tables.levels[f]) if names else 1.0
        merged = Moments(
            plain.T @ equations.gram @ plain,
            equations.moment @ plain,
            equations.x_mean @ plain,
            equations.y_mean,
        )
        identity = np.eye(plain.shape[1])
        own = ridge_weights(merged, np.asarray(alphas)[:, None, None] * identity)
        found.append(own @ plain.T)
    return np.concatenate(found, axis=2)


def _aims(names: Sequence[str], distances: FloatArray) -> FloatArray:
    """(n,) the terms of a resolved feature when it is coded as same or different: Δ²; 0."""
    first, second = ends(len(names))
    return np.concatenate((distances[first != second] ** 2, np.zeros(len(names))))


def ridge_weights(equations: Moments, penalties: FloatArray) -> FloatArray:
    """Non-negative ridge weights for each penalty.

    Minimises ||y - Xw - b||² + v' P v over v = (w, u) >= 0 and b, on the pairs of each training
    set; u are variables that only the penalty knows. With P = α I and no u that is the objective of
    scikit-learn's `Ridge(positive=True)`.

    `penalties` are (n_penalties, n, n) the matrices P, n at least n_columns; see
    `penalty_matrices`.

    Returns (n_layers, n_sets, n_penalties, n_columns).
    """
    n_columns, n = equations.gram.shape[-1], penalties.shape[-1]
    more = n - n_columns
    gram = np.pad(equations.gram, ((0, 0), (0, more), (0, more)))[:, None] + penalties
    moment = np.pad(equations.moment, ((0, 0), (0, 0), (0, more)))[:, :, None]
    return nonnegative_quadratic(gram, moment)[..., :n_columns]


def held_out_correlations(tables: PairTables, weights: FloatArray, fold: int) -> FloatArray:
    """Pearson correlation of predictions with the ranks of the neural distances inside a fold.

    It follows from the normal equations, where Spearman's ρ needs every prediction to be sorted.

    `weights` are (n_layers, n_predictions, n_columns).

    Returns (n_layers, n_predictions); 0 for predictions or distances that are all equal.
    """
    inside = tables.inside(fold)
    terms, counts = inside.terms, inside.counts
    # The ranks are centred, the terms not: their products are less what their means make.
    means = weights @ terms.sums(counts[None])[0] / counts.sum()
    shared = np.einsum("lpi,li->lp", weights, terms.sums(inside.rank_sums))
    squares = np.einsum("lpi,lpi->lp", weights @ terms.products(counts), weights)
    variance = squares - counts.sum() * means**2
    variance[variance < ROUNDED * squares] = 0.0
    scale = np.sqrt(variance * inside.rank_squares[:, None])
    return np.divide(shared, scale, out=np.zeros_like(shared), where=scale > 0)


def penalty_matrices(tables: PairTables, strengths: Sequence[float]) -> FloatArray:
    """The penalties of each strength: (n_strengths, n, n).

    α ||w||² where no feature is resolved by value. A resolved feature is shrunk towards the metric
    that does not distinguish its values: with u_f >= 0 the weight that the feature has there and
    Δ_ab the distance of two of its values, the penalty of strength β is

        β Σ_ab (w_ab - u_f Δ_ab²)² + β Σ_a s_a² + α Σ_f u_f²,

    α being `LEAST` here, for the features that are not resolved too. The u_f follow the columns.
    """
    columns = tables.columns
    if not tables.resolved:
        return np.asarray(strengths)[:, None, None] * np.eye(len(columns))
    n_all = len(columns) + len(tables.resolved)
    shrunk, fixed = np.zeros((2, n_all, n_all))
    aim = len(columns)
    for f, (names, distances) in enumerate(zip(tables.value_names, tables.levels, strict=True)):
        own = np.flatnonzero(columns.part == f)
        if not names:
            fixed[own, own] = LEAST
            continue
        towards = _aims(names, distances)
        shrunk[own, own] = 1.0
        shrunk[own, aim] = shrunk[aim, own] = -towards
        shrunk[aim, aim] = (towards**2).sum()
        fixed[aim, aim] = LEAST
        aim += 1
    return np.asarray(strengths)[:, None, None] * shrunk + fixed

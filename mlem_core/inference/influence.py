"""Influence of each stimulus on the RSA correlation of two layers and on its contributions.

A number θ that follows from sums over pairs changes by Σ_i h_i ε_i where stimulus i counts 1 + ε_i
times (a pair then counts as often as its two stimuli together). Sampling other sentences and words
varies θ by what the stimuli of a sentence, and those of a word, have together: the variance is

    Σ over sentences (Σ_i h_i)² + Σ over words (Σ_i h_i)² - Σ over stimuli of both (Σ_i h_i)²,

the infinitesimal jackknife with two kinds of clusters. It needs no replicate: h follows from the
moments and from the sums of the pairs of each stimulus (`mlem_core.pairs.moments.StimulusSums`).

Sources: Jaeckel (1972), the infinitesimal jackknife; Cameron, Gelbach and Miller (2011), two kinds
of clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.measures.contributions import (
    FoldEquations,
    fold_equations,
    shapley_shares,
    subsets,
)
from mlem_core.pairs.moments import PairMoments, StimulusSums


class PairInfluence(NamedTuple):
    """Influence of each stimulus on the numbers of two layers.

    Attributes
    ----------
    terms : (n_features, n_stimuli) on the contributions
    rsa : (n_stimuli,) on the RSA correlation
    """

    terms: FloatArray
    rsa: FloatArray


class _SubsetSums(NamedTuple):
    """Sums over all sets of features in one fold, by their share in each Shapley value.

    Attributes
    ----------
    outside, inside : (2, n_features, n_columns) of the coefficients of each layer, fitted to
        covariances outside the fold and inside it
    products : (n_features, n_columns, n_columns) of products of both
    values : (n_features,) of v
    """

    outside: FloatArray
    inside: FloatArray
    products: FloatArray
    values: FloatArray


def pair_influence(moments: PairMoments, sums: StimulusSums) -> PairInfluence:
    """Influence of each stimulus on the RSA correlation of two layers and its contributions.

    Every set of features is visited, so that features should be at most
    `mlem_core.measures.contributions.EXACT_FEATURES`.

    Parameters
    ----------
    moments : of two layers
    sums : of the same layers
    """
    equations = fold_equations(moments)
    n_features, n = len(moments.columns.features), moments.n_stimuli
    values, terms = np.zeros(n_features), np.zeros((n_features, n))
    among, of_among = 0.0, np.zeros(n)
    for fold, own in enumerate(equations):
        found = _over_subsets(moments, own)
        values += found.values
        terms += _of_fold(moments, sums, fold, found)
        among += own.rank_covariances[0, 1]
        of_among += _rank_products(moments, sums, moments.tested(fold), 0, 1, fold)
    everything = np.ones(moments.n_blocks, dtype=bool)
    covariance = moments.rank_covariances(everything)
    rsa = float(moments.rsa[0, 1])
    spread = np.sqrt(covariance[0, 0] * covariance[1, 1])
    of_rsa = _rank_products(moments, sums, everything, 0, 1) / spread
    for layer in (0, 1):
        own_squares = _rank_products(moments, sums, everything, layer, layer)
        of_rsa -= rsa / 2 * own_squares / covariance[layer, layer]
    scale = rsa / among
    of_scale = of_rsa / among - rsa / among**2 * of_among
    return PairInfluence(scale * terms + np.outer(values, of_scale), of_rsa)


def _over_subsets(moments: PairMoments, equations: FoldEquations) -> _SubsetSums:
    columns = moments.columns
    n_features, K = len(columns.features), len(columns)
    outside, inside = np.zeros((2, 2, n_features, K))
    products, values = np.zeros((n_features, K, K)), np.zeros(n_features)
    for subset in subsets(columns, equations):
        if not len(subset.chosen):
            continue
        both = np.concatenate((subset.outside, subset.inside), axis=1)
        solved = solve_triangular(subset.factor, both, lower=True, trans="T", check_finite=False)
        beta, gamma = solved[:, :2], solved[:, 2:]
        shares = shapley_shares(subset.members, n_features)
        for layer in (0, 1):
            outside[layer][:, subset.chosen] += np.outer(shares, beta[:, layer])
            inside[layer][:, subset.chosen] += np.outer(shares, gamma[:, layer])
        crossed = (np.outer(gamma[:, 1], beta[:, 0]) + np.outer(gamma[:, 0], beta[:, 1])) / 2
        at = np.ix_(np.arange(n_features), subset.chosen, subset.chosen)
        products[at] += np.multiply.outer(shares, crossed)
        values += shares * subset.explained[0, 1]
    return _SubsetSums(outside, inside, products, values)


def _of_fold(moments: PairMoments, sums: StimulusSums, fold: int, found: _SubsetSums) -> FloatArray:
    """(n_features, n_stimuli) influence on the sums over one fold."""
    train, test = moments.training(fold), moments.tested(fold)
    influence = np.zeros((len(found.values), moments.n_stimuli))
    for layer, other in ((0, 1), (1, 0)):
        tested = _column_products(moments, sums, test, other, fold)
        influence += found.outside[layer] @ tested.T / 2
        fitted = _column_products(moments, sums, train, layer)
        influence += found.inside[other] @ fitted.T / 2
    influence -= _column_squares(moments, sums, train, found.products)
    return influence


def _members(moments: PairMoments, blocks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return blocks[moments.block]


def _untested(moments: PairMoments, fold: int | None) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs of a fold that do not test it, and their ranks; none without a fold."""
    if fold is None or moments.untested is None:
        none = np.empty(0, dtype=np.int64)
        return none, none, np.empty((moments.n_layers, 0))
    own = moments.folds[moments.untested.first] == fold
    first, second = moments.untested.first[own], moments.untested.second[own]
    return first, second, moments.untested.ranks[:, own]


def _to_stimuli(
    first: IntArray, second: IntArray, values: FloatArray, n_stimuli: int
) -> FloatArray:
    """(n_stimuli, ...) sums of values (n_pairs, ...) over the pairs of each stimulus."""
    found = np.zeros((n_stimuli, *values.shape[1:]))
    np.add.at(found, first, values)
    np.add.at(found, second, values)
    return found


def _column_totals(
    moments: PairMoments, blocks: NDArray[np.bool_], sums: StimulusSums
) -> FloatArray:
    """(n_stimuli, n_columns) sums of the columns over the pairs of each stimulus with blocks."""
    columns = moments.columns
    basis, found = columns.basis, np.zeros((moments.n_stimuli, len(columns)))
    inside = _members(moments, blocks)
    total = basis[inside].sum(axis=0)
    with_itself = basis @ columns.of_same_stimulus * inside[:, None]
    by_term = basis[:, columns.left] * total[columns.right]
    found[:, columns.product_columns] = columns.sum_terms(by_term) - with_itself
    for number, column in enumerate(columns.pairwise):
        found[:, column] = sums.pairwise_with_basis[number][:, blocks, 0].sum(axis=1)
    return found


def _column_products(
    moments: PairMoments,
    sums: StimulusSums,
    blocks: NDArray[np.bool_],
    layer: int,
    fold: int | None = None,
) -> FloatArray:
    """(n_stimuli, n_columns) centred sums of products of the columns with ranks, by stimulus.

    Over the pairs of each stimulus of some blocks with the stimuli of these blocks; 0 for others.
    With a fold, pairs that do not test it are left out.
    """
    columns, n = moments.columns, moments.n_stimuli
    with_basis = sums.with_basis[layer][:, blocks].sum(axis=1)
    found = np.zeros((n, len(columns)))
    by_term = columns.basis[:, columns.left] * with_basis[:, columns.right]
    found[:, columns.product_columns] = columns.sum_terms(by_term)
    D = moments.n_pairwise
    for number, column in enumerate(columns.pairwise):
        found[:, column] = sums.pairwise_products[number, D + layer][:, blocks].sum(axis=1)
    totals, ranks = _column_totals(moments, blocks, sums), with_basis[:, 0].copy()
    counts = np.full(n, float(_members(moments, blocks).sum() - 1))
    own = moments.within(blocks) if fold is None else moments.inside_fold(fold)
    first, second, untested = _untested(moments, fold)
    if len(first):
        z = columns.of_pairs(first, second)
        found -= _to_stimuli(first, second, z * untested[layer][:, None], n)
        totals -= _to_stimuli(first, second, z, n)
        ranks -= _to_stimuli(first, second, untested[layer], n)
        counts -= _to_stimuli(first, second, np.ones(len(first)), n)
    means, mean_rank = own.means, own.rank_means[layer]
    found += -np.outer(ranks, means) - totals * mean_rank + np.outer(counts, means * mean_rank)
    return found * _members(moments, blocks)[:, None]


def _column_squares(
    moments: PairMoments, sums: StimulusSums, blocks: NDArray[np.bool_], weights: FloatArray
) -> FloatArray:
    """(n_weights, n_stimuli) Σ_cd W_cd of the centred products of two columns, by stimulus.

    Over the pairs of each stimulus of some blocks with the stimuli of these blocks.

    `weights` are (n_weights, n_columns, n_columns).
    """
    columns, n = moments.columns, moments.n_stimuli
    inside = _members(moments, blocks)
    basis, product_columns = columns.basis, columns.product_columns
    A = moments.basis_moments[blocks].sum(axis=0)
    found = np.zeros((len(weights), n))
    if len(columns.starts):
        crossed = A[columns.right[:, None], columns.right]
        crossed *= columns.sign[:, None] * columns.sign
        n_basis = basis.shape[1]
        place = (columns.left[:, None] * n_basis + columns.left).ravel()
        same = basis @ columns.of_same_stimulus
        for number, own in enumerate(weights):
            by_term = own[columns.column[:, None], columns.column] * crossed
            form = np.bincount(place, by_term.ravel(), n_basis**2).reshape(n_basis, n_basis)
            found[number] = np.einsum("ip,ip->i", basis @ form, basis)
            between = own[np.ix_(product_columns, product_columns)]
            found[number] -= np.einsum("ic,ic->i", same @ between, same)
    for number, column in enumerate(columns.pairwise):
        with_basis = sums.pairwise_with_basis[number][:, blocks].sum(axis=1)
        products = columns.sum_terms(basis[:, columns.left] * with_basis[:, columns.right])
        both = weights[:, column] + weights[:, :, column]
        found += both[:, product_columns] @ products.T
        for second, other in enumerate(columns.pairwise):
            squares = sums.pairwise_products[number, second][:, blocks].sum(axis=1)
            found += np.outer(weights[:, column, other], squares)
    totals = _column_totals(moments, blocks, sums)
    means, count = moments.within(blocks).means, float(inside.sum() - 1)
    # Each product less its means.
    found -= (weights @ means + np.einsum("wcd,c->wd", weights, means)) @ totals.T
    found += (count * np.einsum("wcd,c,d->w", weights, means, means))[:, None]
    return found * inside


def _rank_products(
    moments: PairMoments,
    sums: StimulusSums,
    blocks: NDArray[np.bool_],
    layer: int,
    other: int,
    fold: int | None = None,
) -> FloatArray:
    """(n_stimuli,) centred sums of products of the ranks of two layers, by stimulus."""
    n = moments.n_stimuli
    products = sums.rank_products[layer, other][:, blocks].sum(axis=1)
    one, two = (sums.with_basis[k][:, blocks, 0].sum(axis=1) for k in (layer, other))
    counts = np.full(n, float(_members(moments, blocks).sum() - 1))
    own = moments.within(blocks) if fold is None else moments.inside_fold(fold)
    first, second, untested = _untested(moments, fold)
    if len(first):
        both = untested[layer] * untested[other]
        products = products - _to_stimuli(first, second, both, n)
        one = one - _to_stimuli(first, second, untested[layer], n)
        two = two - _to_stimuli(first, second, untested[other], n)
        counts -= _to_stimuli(first, second, np.ones(len(first)), n)
    a, b = own.rank_means[layer], own.rank_means[other]
    centred = products - a * two - b * one + counts * a * b
    return np.asarray(centred * _members(moments, blocks))


def two_way_variance(
    influence: FloatArray, groups: IntArray, items: IntArray | None = None
) -> FloatArray:
    """(...) variance over sentences and, where they recur, words.

    Each kind is larger by n / (n - 1) for its n units, as a variance of n numbers is.

    Parameters
    ----------
    influence : (..., n_stimuli)
    groups : (n_stimuli,) the sentence of each stimulus
    items : (n_stimuli,) its word, or other item; None where none recurs
    """

    def of_units(units: IntArray) -> FloatArray:
        names, number = np.unique(units, return_inverse=True)
        by_unit = influence @ np.eye(len(names))[number]
        n_units = len(names)
        return np.asarray((by_unit**2).sum(axis=-1) * n_units / max(1, n_units - 1))

    variance = of_units(groups)
    if items is not None:
        both = np.unique(np.column_stack((groups, items)), axis=0, return_inverse=True)[1].ravel()
        by_items = of_units(items)
        # Where both kinds share nearly all, the difference could fall below either of them.
        variance = np.maximum(variance + by_items - of_units(both), np.maximum(variance, by_items))
    return variance

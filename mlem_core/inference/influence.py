"""Influence of units of stimuli (sentences, words) on the numbers of an analysis.

A number θ that follows from sums over pairs changes by Σ_i h_i ε_i where stimulus i counts 1 + ε_i
times (a pair then counts as often as its two stimuli together). A unit's influence is the sum of h
over its stimuli, and θ without the unit is, to first order,

    θ - B / (B - 1) Σ h,

B being the number of units of its kind (`mlem_core.inference.block_influence`): the infinitesimal
jackknife, whose standard errors are those of these values as of values that were computed again
without each unit. Influences follow in closed form from the moments and from the sums of the pairs
of each unit (`UnitSums`): no model is fitted again and no pair is looked at again.

RSA and contributions are such numbers. Held-out ρ is Spearman's, of ranks of predictions that are
no sums over pairs; its influence is that of Pearson's correlation of what comes nearest to these
ranks, a weighted sum of the columns, with the ranks of the distances; and of the same with one part
of the columns independent of the others for permutation importance. Weights follow with their
strength and with the set of those that are 0 held.

Sources: Jaeckel (1972), the infinitesimal jackknife; Cameron, Gelbach and Miller (2011), two kinds
of units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from mlem_core.base.typing import Counted, FloatArray, IntArray, counted
from mlem_core.estimators.normal_equations import (
    NOT_APART,
    normal_equations,
    penalty_matrices,
    target_scales,
)
from mlem_core.measures.contributions import (
    STABLE,
    FoldEquations,
    WeightedSubset,
    fold_equations,
    rank_scale,
    weighted_subsets,
)
from mlem_core.pairs.designs import pair_places
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.scored_pairs import FoldPairs, ScoredPairs
from mlem_core.pairs.unit_sums import MOST_NUMBERS, UnitSums

# A column whose sum of squares is below this part of the largest is constant but for rounding.
ROUNDED = 1e-12


def rsa_influence(sums: UnitSums) -> FloatArray:
    """(n_units, n_layers, n_layers) influence on the RSA correlation of every two layers."""
    moments = sums.moments
    covariances = moments.rank_covariances(np.ones(moments.n_blocks, dtype=bool))
    variance = np.diag(covariances).copy()
    variance[~(variance > 0)] = np.inf
    products = sums.rank_products()
    squares = np.diagonal(products, axis1=1, axis2=2) / variance
    influence = products / np.sqrt(np.outer(variance, variance))
    influence -= moments.rsa / 2 * (squares[:, :, None] + squares[:, None, :])
    return np.asarray(influence)


def cross_rsa_influence(first: FloatArray, second: FloatArray, members: FloatArray) -> FloatArray:
    """Influence on the RSA correlation of each of some layers with each of others.

    As `rsa_influence` without the sums over pairs of layers that are not compared.

    Parameters
    ----------
    first, second : (n_first, n_pairs), (n_second, n_pairs) ranks, centred and of length 1
    members : (n_units, n_stimuli) 1 where a stimulus is of a unit, else 0

    Returns
    -------
    (n_units, n_first, n_second)
    """
    n, rsa = members.shape[1], first @ second.T
    influence = np.empty((n, *rsa.shape))
    for stimulus in range(n):
        others = np.delete(np.arange(n), stimulus)
        places = pair_places(np.full(n - 1, stimulus), others, n)
        a, b = first[:, places], second[:, places]
        squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)
        influence[stimulus] = a @ b.T - rsa / 2 * squares
    return np.tensordot(members, influence, axes=1)


def similarity_influence(
    sums: UnitSums, progress: Counted | None = None
) -> tuple[FloatArray, FloatArray]:
    """Influence on RSA and on the contributions, see `mlem_core.measures.contributions`.

    Parameters
    ----------
    sums : of n_units units
    progress : called with the number of steps done and their total

    Raises InputError: moments of one fold.

    Returns
    -------
    (n_units, n_layers, n_layers) on the RSA correlation of every two layers; and (n_units,
    n_features + 1, n_layers, n_layers) on the contributions, "unexplained" last
    """
    moments = sums.moments
    equations = fold_equations(moments)
    L = moments.n_layers
    n_features, K = len(moments.columns.features), len(moments.columns)
    values = np.zeros((n_features, L, L))
    terms = np.zeros((sums.n_units, n_features, L, L))
    squares, squares_influence = np.zeros(L), np.zeros((sums.n_units, L))
    n_steps = len(equations) * n_features * L
    for fold, of_fold in enumerate(equations):
        subsets = _Subsets.from_equations(of_fold, weighted_subsets(moments.columns, of_fold))
        values += subsets.values
        squares += np.diag(of_fold.rank_covariances)
        squares_influence += np.diagonal(sums.rank_products(fold), axis1=1, axis2=2)
        tested, trained = sums.products(fold, tested=True), sums.products(fold)
        for feature in range(n_features):
            counted, shares = subsets.counted(feature)
            outside, inside = subsets.outside[counted], subsets.inside[counted]
            # Σ over sets of their coefficients: the influence of the covariances.
            one_way = np.einsum("s,sca,ucb->uab", shares, outside, tested, optimize=True)
            one_way += np.einsum("s,sca,ucb->uab", shares, inside, trained, optimize=True)
            terms[:, feature] += (one_way + one_way.swapaxes(1, 2)) / 2
        del tested, trained
        grams = np.empty((K * (K + 1) // 2, sums.n_units))
        for units, of_units in sums.grams(fold):
            grams[:, units] = of_units
        for feature in range(n_features):
            counted, shares = subsets.counted(feature)
            for layer in range(L):
                less = _gram_influence(subsets, counted, shares, layer, grams)
                terms[:, feature, layer, layer:] -= less
                terms[:, feature, layer + 1 :, layer] -= less[:, 1:]
                if progress is not None:
                    progress((fold * n_features + feature) * L + layer + 1, n_steps)
    scale = rank_scale(equations)
    relative = squares_influence / np.where(squares > 0, squares, np.inf)
    scale_influence = -scale / 2 * (relative[:, :, None] + relative[:, None, :])
    terms *= scale
    terms += values * scale_influence[:, None]
    rsa = rsa_influence(sums)
    unexplained = rsa - terms.sum(axis=1)
    return rsa, np.concatenate((terms, unexplained[:, None]), axis=1)


class _Subsets(NamedTuple):
    """Sets of features in one fold, see `weighted_subsets`.

    Attributes
    ----------
    outside, inside : (n_sets, n_columns, n_layers) coefficients of the covariances outside the fold
        and of those inside it; 0 for columns that are not of the set
    shares : (n_sets, n_features)
    values : (n_features, n_layers, n_layers) Σ of shares times v
    """

    outside: FloatArray
    inside: FloatArray
    shares: FloatArray
    values: FloatArray

    @classmethod
    def from_equations(
        cls, equations: FoldEquations, subsets: Iterable[WeightedSubset]
    ) -> _Subsets:
        K, L = equations.outside.shape
        coefficients, all_shares, of_sets = [], [], []
        for _, subset, shares in subsets:
            if not len(subset.chosen):
                continue
            both = np.concatenate((subset.outside, subset.inside), axis=1)
            solved = np.zeros((K, 2 * L))
            solved[subset.chosen] = solve_triangular(
                subset.factor, both, lower=True, trans="T", check_finite=False
            )
            coefficients.append(solved)
            all_shares.append(shares)
            of_sets.append(subset.explained)
        stacked, stacked_shares = np.stack(coefficients), np.stack(all_shares)
        values = np.tensordot(stacked_shares.T, np.stack(of_sets), axes=1)
        return cls(stacked[..., :L], stacked[..., L:], stacked_shares, values)

    def counted(self, feature: int) -> tuple[IntArray, FloatArray]:
        """Which sets count for a feature, and how much."""
        counted = np.flatnonzero(self.shares[:, feature])
        return counted, np.asarray(self.shares[counted, feature])


def _gram_influence(
    subsets: _Subsets, counted: IntArray, shares: FloatArray, layer: int, grams: FloatArray
) -> FloatArray:
    """(n_units, n_layers - layer) Σ over sets of γ_b' G_u β_a, the mean of both directions.

    a is the layer, b itself and those that follow.
    """
    outside, inside = subsets.outside[counted], subsets.inside[counted]
    n_sets, K, _ = outside.shape
    others = slice(layer, None)
    weights = (outside[:, :, layer] * shares[:, None]).T @ inside[:, :, others].reshape(n_sets, -1)
    weights += (inside[:, :, layer] * shares[:, None]).T @ outside[:, :, others].reshape(n_sets, -1)
    square = weights.reshape(K, K, -1) / 2
    first, second = np.triu_indices(K)
    packed = square[first, second] + square[second, first]
    packed[first == second] /= 2
    return np.asarray(grams.T @ packed)


def score_influence(
    sums: UnitSums,
    coef: FloatArray,
    strength: FloatArray | None,
    target: str = "distance",
    *,
    tests: ScoredPairs | None = None,
    progress: Counted | None = None,
) -> FloatArray:
    """Influence on the held-out ρ and on every permutation importance, means over the folds.

    Parameters
    ----------
    sums : of the units
    coef : (n_layers, n_folds, n_columns) weights of the metric that each fold tests
    strength : (n_layers, n_folds) of the penalty with which they were fitted; None for weights that
        are held as they are
    target : what they were fitted to, "distance" or "rank"
    tests : the pairs that test each fold, by which the predictions are ranked; None is the
        influence on Pearson's correlation of the predictions as they are
    progress : called with the number of folds done and their number

    Returns
    -------
    (n_units, n_layers, 1 + n_parts): ρ, then the parts that are permuted (features; with
    interactions the columns)
    """
    moments = sums.moments
    columns, L = moments.columns, moments.n_layers
    n_parts, n_folds = len(columns.parts), moments.n_folds
    influence = np.zeros((sums.n_units, L, 1 + n_parts))
    of_part = columns.part == np.arange(n_parts)[:, None]
    for fold in counted(range(n_folds), n_folds, progress):
        inside = moments.inside_fold(fold)
        variance = np.diag(moments.rank_covariances(moments.tested(fold), fold))
        weights, scale = coef[:, fold], np.ones(L)
        if tests is not None:
            weights = _rank_weights(tests.folds[fold], inside.gram, weights)
            scale = _spread(inside.gram, weights) / _spread(inside.gram, coef[:, fold])
        gradients = [
            _ScoreGradient.from_gram(
                inside.gram, inside.with_ranks[k], variance[k], weights[k], of_part
            )
            for k in range(L)
        ]
        tested = sums.products(fold, tested=True)
        squares = np.diagonal(sums.rank_products(fold), axis1=1, axis2=2)
        for k, gradient in enumerate(gradients):
            influence[:, k] += tested[:, :, k] @ gradient.products.T
            influence[:, k] += np.outer(squares[:, k], gradient.variance)
        if strength is not None:
            # Derivatives by what the weights are fitted to: the products of the columns with the
            # scaled target outside the fold, less their Gram matrix times the weights.
            equations = normal_equations(moments, [(fold,)], target)
            towards = np.zeros((L, 1 + n_parts, len(columns)))
            for k in np.flatnonzero(coef[:, fold].any(axis=1)).tolist():
                towards[k] = gradients[k].weights @ _weight_sensitivity(
                    columns,
                    equations.gram[0],
                    equations.moment[k, 0],
                    coef[k, fold],
                    strength[k, fold],
                )
            towards *= scale[:, None, None]
            # A layer whose distances are all equal has weights of 0, whatever its scale.
            scaled = towards / target_scales(moments, (fold,), target)[:, None, None]
            trained = sums.products(fold, target)
            influence += np.einsum("kpc,uck->ukp", scaled, trained, optimize=True)
            for units, grams in sums.grams(fold):
                influence[units] -= _fit_influence(grams, coef[:, fold], towards)
        for units, grams in sums.grams(fold, tested=True):
            influence[units] += _spread_influence(grams, weights, gradients, of_part)
    return influence / n_folds


def _spread(gram: FloatArray, weights: FloatArray) -> FloatArray:
    """(n_layers,) spread of the predictions of weights (n_layers, n_columns); 1 where it is 0."""
    squares = np.einsum("kc,cd,kd->k", weights, gram, weights)
    return np.sqrt(np.where(squares > 0, squares, 1.0))


def _rank_weights(pairs: FoldPairs, gram: FloatArray, weights: FloatArray) -> FloatArray:
    """(n_layers, n_columns) weights whose predictions are nearest to the ranks of predictions.

    ρ is Pearson's correlation of the ranks. A feature of little weight beside others of few values
    orders what these leave tied, so that it has more weight in the ranks than in the predictions.

    Parameters
    ----------
    pairs : that test a fold
    gram : (n_columns, n_columns) of the columns over these pairs
    weights : (n_layers, n_columns)
    """
    ranks = pairs.prediction_ranks(pairs.predictions(weights))
    products = np.zeros(weights.shape)
    step = max(1, MOST_NUMBERS // weights.shape[1])
    for start in range(0, len(pairs.counts), step):
        some = np.arange(start, min(start + step, len(pairs.counts)))
        first, second = pairs.stimuli[pairs.first[some]], pairs.stimuli[pairs.second[some]]
        columns = pairs.columns.pair_values(first, second)
        products += (ranks[:, some] * pairs.counts[some]) @ columns
    of_ranks, squares = np.zeros(weights.shape), np.diag(gram)
    # A column that is constant in the fold orders nothing there.
    varies = squares > ROUNDED * squares.max()
    for layer, own in enumerate(weights):
        used = np.flatnonzero((own != 0) & varies)
        square = gram[np.ix_(used, used)] + np.diag(STABLE * squares[used])
        of_ranks[layer, used] = np.linalg.solve(square, products[layer, used])
    return of_ranks


def _spread_influence(
    grams: FloatArray,
    coef: FloatArray,
    gradients: Sequence[_ScoreGradient],
    of_part: NDArray[np.bool_],
) -> FloatArray:
    """(n, n_layers, 1 + n_parts) influence through the spread of the predictions in a fold."""
    influence = np.zeros((grams.shape[1], len(coef), 1 + len(of_part)))
    for layer, gradient in enumerate(gradients):
        used = np.flatnonzero(coef[layer])
        weights, parts = coef[layer, used], of_part[:, used]
        square = _square(grams, used, coef.shape[1])
        predicted = np.einsum("cdu,d->cu", square, weights)
        same_part = np.asarray((parts[:, :, None] & parts[:, None, :]).any(axis=0))
        among_part = np.einsum("cdu,d->cu", square * same_part[:, :, None], weights)
        # w'Gw, and by part w_p'Gw and w_p'Gw_p.
        total = weights @ predicted
        permuted = total + (parts * weights) @ (2 * (among_part - predicted))
        influence[:, layer] += total[:, None] * gradient.spread
        influence[:, layer, 1:] += permuted.T * gradient.permuted_spread
    return influence


def _fit_influence(grams: FloatArray, coef: FloatArray, towards: FloatArray) -> FloatArray:
    """(n, n_layers, 1 + n_parts) influence of the Gram matrix that weights are fitted with."""
    influence = np.zeros((grams.shape[1], *towards.shape[:2]))
    for layer, weights in enumerate(coef):
        used = np.flatnonzero(weights)
        square = _square(grams, used, coef.shape[1])
        predicted = np.einsum("cdu,d->cu", square, weights[used])
        influence[:, layer] = (towards[layer][:, used] @ predicted).T
    return influence


def _square(grams: FloatArray, columns: IntArray, n_columns: int) -> FloatArray:
    """(n, n, n_units) Gram matrices of n of the columns, from (n_column_pairs, n_units)."""
    place = np.zeros((n_columns, n_columns), dtype=np.int64)
    first, second = np.triu_indices(n_columns)
    place[first, second] = place[second, first] = np.arange(len(first))
    return np.asarray(grams[place[np.ix_(columns, columns)]])


class _ScoreGradient(NamedTuple):
    """Derivatives of ρ and of the importances of one layer in one fold, 1 + n_parts numbers.

    Attributes
    ----------
    products : (1 + n_parts, n_columns) by the products of the columns with the ranks
    variance : (1 + n_parts,) by the sum of the squared ranks
    spread : (1 + n_parts,) by w'Gw, through the score as it is
    permuted_spread : (n_parts,) by w'Gw with each part independent of the others
    weights : (1 + n_parts, n_columns) by the weights
    """

    products: FloatArray
    variance: FloatArray
    spread: FloatArray
    permuted_spread: FloatArray
    weights: FloatArray

    @classmethod
    def from_gram(
        cls,
        gram: FloatArray,
        with_ranks: FloatArray,
        variance: float,
        weights: FloatArray,
        of_part: FloatArray,
    ) -> _ScoreGradient:
        n_parts = len(of_part)
        predicted = gram @ weights
        spread = float(weights @ predicted)
        if not (spread > 0 and variance > 0):
            zero = np.zeros((1 + n_parts, len(weights)))
            return cls(zero, zero[:, 0], zero[:, 0], np.zeros(n_parts), zero)
        scale = np.sqrt(spread * variance)
        score = with_ranks @ weights / scale
        by_product = weights / scale
        by_spread = -score / (2 * spread)
        by_weights = with_ranks / scale + 2 * by_spread * predicted
        products = np.tile(by_product, (1 + n_parts, 1))
        by_variance = np.full(1 + n_parts, -score / (2 * variance))
        spreads, permuted_spreads = np.full(1 + n_parts, by_spread), np.zeros(n_parts)
        all_weights = np.tile(by_weights, (1 + n_parts, 1))
        for part, own in enumerate(of_part):
            # Products of a part that is permuted, with the ranks and with the others, are 0.
            apart = np.where(own[:, None] == own, gram, 0.0) @ weights
            permuted_spread = float(weights @ apart)
            others = np.where(own, 0.0, with_ranks)
            if not permuted_spread > 0:
                continue
            permuted_scale = np.sqrt(permuted_spread * variance)
            permuted = others @ weights / permuted_scale
            permuted_spreads[part] = permuted / (2 * permuted_spread)
            products[1 + part] -= np.where(own, 0.0, weights) / permuted_scale
            by_variance[1 + part] += permuted / (2 * variance)
            all_weights[1 + part] -= others / permuted_scale - permuted / permuted_spread * apart
        return cls(products, by_variance, spreads, permuted_spreads, all_weights)


def _weight_sensitivity(
    columns: PairColumns, gram: FloatArray, moment: FloatArray, weights: FloatArray, strength: float
) -> FloatArray:
    """(n_columns, n_columns) derivatives of ridge weights by `moment`, those of 0 held.

    Parameters
    ----------
    gram : (n_columns, n_columns)
    moment, weights : (n_columns,)
    strength : see `mlem_core.estimators.registry.Solution`
    """
    K = len(weights)
    if strength == NOT_APART:
        # One weight a feature; what its penalty was follows from the equations that it solves.
        merged = np.zeros((K, len(columns.features)))
        merged[np.arange(K), columns.part] = columns.as_distance
        by_feature = (weights @ merged) / np.maximum((merged**2).sum(axis=0), 1e-300)
        alpha = float(by_feature @ (merged.T @ (moment - gram @ weights)))
        alpha = max(alpha, 0.0) / float(by_feature @ by_feature)
        own = merged[:, by_feature > 0]
        return np.asarray(
            own @ np.linalg.pinv(own.T @ gram @ own + alpha * np.eye(own.shape[1])) @ own.T
        )
    penalty = penalty_matrices(columns, [strength])[0]
    padded = penalty.copy()
    padded[:K, :K] += gram
    # Where features are coded by value, what their weights are shrunk towards follows from these.
    aims = -penalty[K:, :K] @ weights / np.diag(penalty)[K:]
    active = np.flatnonzero(np.concatenate((weights, aims)) > 0)
    inverse = np.linalg.pinv(padded[np.ix_(active, active)], hermitian=True)
    sensitivity = np.zeros((K, K))
    n_weights = int((active < K).sum())
    fitted = active[:n_weights]
    sensitivity[np.ix_(fitted, fitted)] = inverse[:n_weights, :n_weights]
    return sensitivity

"""Contributions: the RSA correlation of two layers as a sum over features.

v(S) is the covariance of the ranks of two layers A and B that the columns of the features S
explain, between disjoint sets of stimuli: β_A is fitted to the ranks of A over the pairs outside a
fold, its covariance with the ranks of B is taken over the pairs that test the fold, and both
directions are averaged, in units of the spreads of both ranks inside the folds. A feature of pure
noise adds 0 on average. Shapley values divide v over the features; the rest of the RSA correlation
is not explained by the additive metric.

With L the Cholesky factor of the Gram matrix of the columns S outside the fold,

    v(S) = β_A' c_B = (L⁻¹ c_A,outside)' (L⁻¹ c_B,inside),

a sum over columns in which a further column only adds a term. All sets of features are therefore
visited by adding one feature at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtrs

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import one_thread_each
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import PairColumns

# Up to this many features every set of them is visited.
EXACT_FEATURES = 12
# Beyond, this many random orders of the features, each with its reverse.
ORDERS = 20
# Part of a column's sum of squares that is added to it, which keeps equations of columns that
# follow from each other (those of a feature that is coded by value) solvable.
STABLE = 1e-6


class FoldEquations(NamedTuple):
    """Equations of the ranks of n_layers layers: fitted outside a fold, tested inside it.

    Attributes
    ----------
    gram : (n_columns, n_columns) of the columns outside the fold, with what keeps it regular
    outside, inside : (n_columns, n_layers) covariances of the columns with the ranks
    rank_covariances : (n_layers, n_layers) inside the fold
    """

    gram: FloatArray
    outside: FloatArray
    inside: FloatArray
    rank_covariances: FloatArray


def fold_equations(moments: PairMoments) -> list[FoldEquations]:
    """The equations of each fold.

    Raises InputError: one fold only, so that nothing is outside it.
    """
    if moments.n_folds < 2:
        raise InputError(
            "found 1 fold; contributions are fitted on some folds and taken on others, so at least "
            "2 are needed."
        )
    equations = []
    for fold in range(moments.n_folds):
        outside, inside = moments.within(moments.training(fold)), moments.inside_fold(fold)
        gram = outside.gram.copy()
        diagonal = np.diagonal(gram)
        # A column that is constant outside the fold explains nothing.
        constant = ~(diagonal > 0)
        gram[np.diag_indices_from(gram)] += np.where(constant, 1.0, STABLE * diagonal)
        with_outside = np.where(constant[:, None], 0.0, outside.with_ranks.T)
        covariances = moments.rank_covariances(moments.tested(fold), fold)
        equations.append(FoldEquations(gram, with_outside, inside.with_ranks.T, covariances))
    return equations


def rank_scale(equations: Sequence[FoldEquations]) -> FloatArray:
    """(n_layers, n_layers) factor from covariances inside folds to parts of a correlation.

    One over the spreads of both layers inside the folds; 0 for a layer without any.
    """
    squares = np.sum([np.diag(fold.rank_covariances) for fold in equations], axis=0)
    factor = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    return np.outer(factor, factor)


class FeatureSubset(NamedTuple):
    """A set of features in one fold.

    Attributes
    ----------
    members : numbers of the features, in the order in which they were added
    chosen : (n_chosen,) their columns, in the order of the factor
    factor : (n_chosen, n_chosen) lower Cholesky factor of their Gram matrix
    outside, inside : (n_chosen, n_layers) L⁻¹ c outside and inside the fold
    explained : (n_layers, n_layers) v, the mean of both directions
    """

    members: tuple[int, ...]
    chosen: IntArray
    factor: FloatArray
    outside: FloatArray
    inside: FloatArray
    explained: FloatArray


def subsets(
    columns: PairColumns, equations: FoldEquations, subset: FeatureSubset
) -> Iterator[FeatureSubset]:
    """A set of features in one fold, and every one that later features are added to it for."""
    yield subset
    for feature in range(max(subset.members, default=-1) + 1, len(columns.features)):
        yield from subsets(columns, equations, with_feature(columns, equations, subset, feature))


def no_features(equations: FoldEquations) -> FeatureSubset:
    """The empty set of features."""
    n_layers = equations.outside.shape[1]
    empty = np.zeros((0, n_layers))
    return FeatureSubset(
        (), np.empty(0, dtype=np.int64), np.zeros((0, 0)), empty, empty, np.zeros((n_layers,) * 2)
    )


def with_feature(
    columns: PairColumns, equations: FoldEquations, subset: FeatureSubset, feature: int
) -> FeatureSubset:
    """A set of features and one more."""
    members = (*subset.members, feature)
    is_member = np.zeros(len(columns.features), dtype=bool)
    is_member[list(members)] = True
    # The columns of the further feature, and its products with the others.
    first, second = columns.first_feature, columns.second_feature
    of_feature = (first == feature) | (second == feature)
    new = np.flatnonzero(of_feature & is_member[first] & is_member[second])
    chosen, n_old = np.concatenate((subset.chosen, new)), len(subset.chosen)
    factor = np.zeros((len(chosen), len(chosen)))
    factor[:n_old, :n_old] = subset.factor
    crossed = np.zeros((0, len(new)))
    if n_old:
        crossed = _solve(subset.factor, equations.gram[subset.chosen[:, None], new])
    factor[n_old:, :n_old] = crossed.T
    own, failed = dpotrf(equations.gram[new[:, None], new] - crossed.T @ crossed, lower=1)
    if failed:
        raise np.linalg.LinAlgError("the columns of these features have no Cholesky factor")
    factor[n_old:, n_old:] = own
    both = np.concatenate((equations.outside[new], equations.inside[new]), axis=1)
    both -= crossed.T @ np.concatenate((subset.outside, subset.inside), axis=1)
    solved, n_layers = _solve(own, both), len(subset.explained)
    outside, inside = solved[:, :n_layers], solved[:, n_layers:]
    one_way = outside.T @ inside
    return FeatureSubset(
        members,
        chosen,
        factor,
        np.concatenate((subset.outside, outside)),
        np.concatenate((subset.inside, inside)),
        subset.explained + (one_way + one_way.T) / 2,
    )


def _solve(lower: FloatArray, right: FloatArray, *, transposed: bool = False) -> FloatArray:
    """Solution of equations with a lower triangular matrix.

    By LAPACK itself: SciPy's functions take ten times as long to call it for so few numbers.
    """
    return np.asarray(dtrtrs(lower, right, lower=1, trans=int(transposed))[0])


def shapley_shares(members: Sequence[int], n_features: int) -> FloatArray:
    """(n_features,) how much the value of a set counts in the Shapley value of each feature.

    A set counts for its members as the larger one, for the others as the smaller one.
    """
    size = len(members)
    shares = np.zeros(n_features)
    if size < n_features:
        outside = factorial(size) * factorial(n_features - size - 1) / factorial(n_features)
        shares[:] = -outside
    if size:
        inside = factorial(size - 1) * factorial(n_features - size) / factorial(n_features)
        shares[list(members)] = inside
    return shares


class WeightedSubset(NamedTuple):
    """A set of features and how much its value counts.

    Attributes
    ----------
    draw : number of the order of features that it belongs to; 0 where every set is visited
    shares : (n_features,) how much its value counts in the Shapley value of each feature
    """

    draw: int
    subset: FeatureSubset
    shares: FloatArray


def weighted_subsets(
    columns: PairColumns, equations: FoldEquations, seed: int = 0
) -> Iterator[WeightedSubset]:
    """Sets of features in one fold, whose values times their shares add up to Shapley values.

    Every set up to `EXACT_FEATURES`. With more, the sets along `ORDERS` random orders of the
    features and their reverses, which are the same for all folds; a set may then come up again.
    """
    n_features = len(columns.features)
    if n_features <= EXACT_FEATURES:
        for subset in subsets(columns, equations, no_features(equations)):
            yield WeightedSubset(0, subset, shapley_shares(subset.members, n_features))
        return
    rng = np.random.default_rng(seed)
    for draw in range(ORDERS):
        order = rng.permutation(n_features)
        for direction in (order, order[::-1]):
            # The value of a set counts for the feature that was added last, and is taken from what
            # the next one adds.
            subset = no_features(equations)
            for place, feature in enumerate(direction.tolist()):
                subset = with_feature(columns, equations, subset, feature)
                shares = np.zeros(n_features)
                shares[feature] = 0.5 / ORDERS
                shares[direction[place + 1 : place + 2]] = -0.5 / ORDERS
                yield WeightedSubset(draw, subset, shares)


def shapley_coefficients(
    columns: PairColumns, equations: FoldEquations, feature: int
) -> FloatArray:
    """Coefficients that a feature adds to those of other features, averaged as Shapley values are.

    A set of features has coefficients of its columns, fitted to the ranks outside a fold. What the
    feature adds to them predicts, inside the fold, what the feature contributes there.

    Parameters
    ----------
    columns : of the pairs
    equations : of the fold
    feature : its number

    Returns
    -------
    (n_layers, n_columns)
    """
    coefficients = np.zeros((equations.outside.shape[1], len(columns)))
    with one_thread_each():
        for _, subset, shares in weighted_subsets(columns, equations):
            if shares[feature] and len(subset.chosen):
                solved = _solve(subset.factor, subset.outside, transposed=True)
                coefficients[:, subset.chosen] += shares[feature] * solved.T
    return coefficients

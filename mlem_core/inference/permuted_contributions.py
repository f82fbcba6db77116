"""Contributions of a feature whose values are permuted over the stimuli, from moments of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dposv

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.measures.contributions import (
    EXACT_FEATURES,
    STABLE,
    FeatureSubset,
    FoldEquations,
    fold_equations,
    no_features,
    rank_scale,
    shapley_shares,
    subsets,
    with_feature,
)
from mlem_core.pairs.moments import PairMoments, SetMoments
from mlem_core.pairs.permuted_moments import ColumnSums, PermutedFeature, Target

# All sets of the other features are visited where their number, the columns of the feature and the
# square of all columns multiply to no more than this; beyond, the empty set and that of all others.
MOST_WORK = 2**23
# Numbers of the products of columns that are in memory together.
CHUNK = 2**18
# Systems of so many equations are solved one by one.
LARGE = 64


@dataclass(frozen=True)
class PermutedContributions:
    """Contributions of features whose values are permuted, to the RSA of n_layers layers.

    Attributes
    ----------
    moments : of the true values
    ranks : for each layer (n_pairs,) twice the average ranks of the pairs, in condensed order
    equations, outside, inside : of the folds, with moments over the pairs outside and inside them
    most_work : see `MOST_WORK`
    beyond_all : what the feature adds to all others alone, in the place of its Shapley value
    """

    moments: PairMoments
    ranks: Sequence[Target]
    equations: Sequence[FoldEquations]
    outside: Sequence[SetMoments]
    inside: Sequence[SetMoments]
    most_work: float = MOST_WORK
    beyond_all: bool = False

    @classmethod
    def of(
        cls,
        moments: PairMoments,
        ranks: Sequence[Target],
        most_work: float = MOST_WORK,
        *,
        beyond_all: bool = False,
    ) -> PermutedContributions:
        """Raises InputError: moments of one fold."""
        folds = range(moments.n_folds)
        return cls(
            moments,
            ranks,
            fold_equations(moments),
            [moments.within(moments.training(fold)) for fold in folds],
            [moments.inside_fold(fold) for fold in folds],
            most_work,
            beyond_all,
        )

    def is_exact(self, feature: int) -> bool:
        """Whether contributions of a feature are over all sets of the others."""
        columns = self.moments.columns
        n_features = len(columns.features)
        n_columns = int(
            ((columns.first_feature == feature) | (columns.second_feature == feature)).sum()
        )
        work = 2.0 ** (n_features - 1) * n_columns * len(columns) ** 2
        return not self.beyond_all and n_features <= EXACT_FEATURES and work <= self.most_work

    def of_feature(self, feature: int, givers: IntArray) -> FloatArray:
        """(n_permutations, n_layers, n_layers) contribution of a feature under permutations.

        It is what `mlem_core.measures.decomposition.decompose` gives for permuted values,
        exactly where visiting all sets of the other features is little work. Elsewhere it is the
        mean of what the feature adds to no other and to all others: its permuted columns have
        little to do with theirs, so that both are nearly the same.

        Parameters
        ----------
        feature : by number
        givers : (n_permutations, n_stimuli) the stimulus whose value each has
        """
        moments = self.moments
        permuted = PermutedFeature(moments.columns, feature, givers, moments.block)
        folds = range(moments.n_folds)
        sets = [moments.training(fold) for fold in folds] + [moments.tested(fold) for fold in folds]
        sums = permuted.target_sums(np.stack(sets), self.ranks)
        terms = np.zeros((len(givers), moments.n_layers, moments.n_layers))
        is_exact = self.is_exact(feature)
        few = [] if is_exact else [self._two_sets(fold, feature) for fold in folds]
        step = max(1, CHUNK // (len(permuted.numbers) * len(moments.columns)))
        for start in range(0, len(givers), step):
            some = slice(start, start + step)
            of_columns = list(sums.of_columns(some))
            for fold in folds:
                outside = _regular(self.outside[fold], of_columns[fold])
                of_tested = of_columns[moments.n_folds + fold]
                inside = _inside(moments, fold, of_tested, self.inside[fold].rank_means)
                of_fold = self._every_set(fold, feature) if is_exact else few[fold]
                for subset, share in of_fold:
                    terms[some] += share * _added(permuted, subset, outside, inside)
        return terms * rank_scale(self.equations)

    def _every_set(self, fold: int, feature: int) -> Iterator[tuple[FeatureSubset, float]]:
        """Sets of the other features, each with how much what the feature adds to it counts."""
        columns = self.moments.columns
        for subset in subsets(columns, self.equations[fold], without=feature):
            shares = shapley_shares(subset.members, len(columns.features))
            yield subset, -float(shares[feature])

    def _two_sets(self, fold: int, feature: int) -> list[tuple[FeatureSubset, float]]:
        """The empty set and that of all other features; with `beyond_all` the latter alone."""
        columns, equations = self.moments.columns, self.equations[fold]
        empty = others = no_features(equations)
        for other in range(len(columns.features)):
            if other != feature:
                others = with_feature(columns, equations, others, other)
        return [(others, 1.0)] if self.beyond_all else [(empty, 0.5), (others, 0.5)]


class _FeatureEquations(NamedTuple):
    """Equations of the columns of a permuted feature outside a fold, as those of `FoldEquations`.

    gram : (n_permutations, n_columns, n_columns)
    with_others : (n_permutations, n_columns, n_others)
    with_ranks : (n_permutations, n_columns, n_layers)
    """

    gram: FloatArray
    with_others: FloatArray
    with_ranks: FloatArray


def _regular(moments: SetMoments, sums: ColumnSums) -> _FeatureEquations:
    """Equations from sums over the pairs outside a fold; `moments` are those of the true values."""
    columns, gram, with_others = sums.columns(), sums.gram(), sums.with_others()
    gram -= columns[:, :, None] / max(sums.n_pairs, 1.0) * columns[:, None]
    diagonal = np.einsum("poo->po", gram)
    constant = ~(diagonal > 0)
    diagonal += np.where(constant, 1.0, STABLE * diagonal)
    with_others -= columns[:, :, None] * moments.means[sums.permuted.others.numbers]
    centred = _centred(columns, sums.with_targets, moments.rank_means)
    return _FeatureEquations(gram, with_others, np.where(constant[:, :, None], 0.0, centred))


def _inside(
    moments: PairMoments, fold: int, sums: ColumnSums, rank_means: FloatArray
) -> FloatArray:
    """(n_permutations, n_columns, n_layers) centred products over the pairs that test a fold."""
    columns, with_ranks = sums.columns(), sums.with_targets
    if moments.untested is not None:
        permuted = sums.permuted.of_permutations(sums.some)
        inside = moments.folds[moments.untested.first] == fold
        first, second = moments.untested.first[inside], moments.untested.second[inside]
        of_pairs = permuted.sums_of_pairs(first, second, moments.untested.ranks[:, inside])
        columns, with_ranks = columns - of_pairs[0], with_ranks - of_pairs[1]
    return _centred(columns, with_ranks, rank_means)


def _centred(columns: FloatArray, with_ranks: FloatArray, rank_means: FloatArray) -> FloatArray:
    """(n_permutations, n_columns, n_layers) products with ranks of means (n_layers,), centred.

    Parameters
    ----------
    columns : (n_permutations, n_columns) sums
    with_ranks : (n_permutations, n_layers, n_columns) sums of products with the ranks
    """
    centred = with_ranks - rank_means[:, None] * columns[:, None]
    return centred.transpose(0, 2, 1)


def _added(
    permuted: PermutedFeature,
    subset: FeatureSubset,
    equations: _FeatureEquations,
    inside: FloatArray,
) -> FloatArray:
    """(n_permutations, n_layers, n_layers) what the feature adds to what others explain.

    Of the equations of both, the Schur complement of the others' is left.
    """
    columns = permuted.columns
    members = [*subset.members, permuted.feature]
    first, second = (
        columns.first_feature[permuted.numbers],
        columns.second_feature[permuted.numbers],
    )
    gram, with_ranks, with_others = equations.gram, equations.with_ranks, equations.with_others
    new = np.flatnonzero(np.isin(first, members) & np.isin(second, members))
    if len(new) < len(first):
        gram, with_others = gram[:, new[:, None], new], with_others[:, new]
        with_ranks, inside = with_ranks[:, new], inside[:, new]
    if len(subset.chosen):
        others = np.searchsorted(permuted.others.numbers, subset.chosen)
        if not np.array_equal(others, np.arange(len(permuted.others.numbers))):
            with_others = with_others[:, :, others]
        flat = with_others.reshape(-1, len(others))
        solved = solve_triangular(subset.factor, flat.T, lower=True, check_finite=False)
        projected = solved.T.reshape(with_others.shape)
        gram = gram - projected @ projected.transpose(0, 2, 1)
        with_ranks = with_ranks - projected @ subset.outside
        inside = inside - projected @ subset.inside
    one_way = with_ranks.transpose(0, 2, 1) @ _solutions(gram, inside)
    return np.asarray((one_way + one_way.transpose(0, 2, 1)) / 2)


def _solutions(gram: FloatArray, right: FloatArray) -> FloatArray:
    """(n, n_columns, n_right) solutions of n systems with positive definite matrices."""
    if gram.shape[1] < LARGE:
        return np.asarray(np.linalg.solve(gram, right))
    # By Cholesky factors, in half of the time.
    return np.stack([dposv(*system)[1] for system in zip(gram, right, strict=True)])

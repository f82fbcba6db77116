"""Contributions of features whose values are permuted over the stimuli, from moments of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dposv

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.measures.contributions import (
    STABLE,
    FeatureSubset,
    FoldEquations,
    fold_equations,
    no_features,
    rank_scale,
    with_feature,
)
from mlem_core.pairs.columns import FeatureColumn
from mlem_core.pairs.moment_sums import Target
from mlem_core.pairs.moments import LeftOutPairs, PairMoments, SetMoments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.permuted_moments import ColumnSums, PermutedFeature

# Numbers of the products of columns that are in memory together.
CHUNK = 2**20
# Systems of so many equations are solved one by one.
LARGE = 64


@dataclass(frozen=True)
class PermutedContributions:
    """Contributions of features whose values are permuted, to the RSA of n_layers layers.

    They are Shapley values beside all other features as one: the mean of what a feature adds to no
    other and to all others. Permuted columns have little to do with those of the others, so that
    the values beside each of these (`mlem_core.measures.decomposition`) are nearly the same.

    Attributes
    ----------
    columns : of the features
    moments : of the true values; they may be without the last features, which are then permuted
    ranks : for each layer (n_pairs,) twice the average ranks of the pairs, in condensed order
    equations, outside, inside : of the folds, with moments over the pairs outside and inside them
    beyond_all : what features add to all others alone, in the place of the mean
    """

    columns: PairColumns
    moments: PairMoments
    ranks: Sequence[Target]
    equations: Sequence[FoldEquations]
    outside: Sequence[SetMoments]
    inside: Sequence[SetMoments]
    beyond_all: bool = False

    @classmethod
    def from_moments(
        cls, moments: PairMoments, ranks: Sequence[Target], *, beyond_all: bool = False
    ) -> PermutedContributions:
        """Raises InputError: moments of one fold."""
        folds = range(moments.n_folds)
        return cls(
            moments.columns,
            moments,
            ranks,
            fold_equations(moments),
            [moments.within(moments.training(fold)) for fold in folds],
            [moments.inside_fold(fold) for fold in folds],
            beyond_all,
        )

    def with_feature(self, feature: FeatureColumn, missing: str) -> PermutedContributions:
        """With one more feature, the last one, which is to be permuted.

        Raises as `mlem_core.pairs.pair_columns.PairColumns.with_feature`.
        """
        return replace(self, columns=self.columns.with_feature(feature, missing))

    def select_layers(self, places: Sequence[int]) -> PermutedContributions:
        """Of some of the layers."""
        ranks = [self.ranks[place] for place in places]
        return self.from_moments(
            self.moments.select_layers(places), ranks, beyond_all=self.beyond_all
        )

    def feature_contributions(self, features: Sequence[int], givers: IntArray) -> FloatArray:
        """(n_permutations, n_layers, n_layers) contribution of features under permutations.

        Parameters
        ----------
        features : by number; several are permuted together, and contribute as one
        givers : (n_permutations, n_stimuli) the stimulus whose values each has
        """
        moments = self.moments
        permuted = PermutedFeature(self.columns, tuple(features), givers, moments.block)
        folds = range(moments.n_folds)
        sets = [moments.training(fold) for fold in folds] + [moments.tested(fold) for fold in folds]
        sums = permuted.target_sums(np.stack(sets), self.ranks)
        terms = np.zeros((len(givers), moments.n_layers, moments.n_layers))
        beside = [self._other_sets(fold, features) for fold in folds]
        left_out = [moments.left_out_among(sets[fold]) for fold in folds]
        left_out += [moments.left_out_among(sets[moments.n_folds + fold], fold) for fold in folds]
        step = max(1, CHUNK // (len(permuted.numbers) * len(self.columns)))
        for start in range(0, len(givers), step):
            some = slice(start, start + step)
            of_columns = list(sums.select_columns(some))
            for fold in folds:
                tests = moments.n_folds + fold
                outside = _regular(self.outside[fold], of_columns[fold], left_out[fold])
                inside = _inside(of_columns[tests], left_out[tests], self.inside[fold].rank_means)
                for subset in beside[fold]:
                    added = _added(permuted, subset, *outside, inside)
                    terms[some] += added / len(beside[fold])
        return terms * rank_scale(self.equations)

    def _other_sets(self, fold: int, features: Sequence[int]) -> list[FeatureSubset]:
        """The empty set and that of all other features; with `beyond_all` the latter alone."""
        columns, equations = self.moments.columns, self.equations[fold]
        empty = others = no_features(equations)
        for other in range(len(columns.features)):
            if other not in features:
                others = with_feature(columns, equations, others, other)
        return [others] if self.beyond_all else [empty, others]


def _regular(
    moments: SetMoments, sums: ColumnSums, left_out: LeftOutPairs
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Equations of the columns of permuted features, as those of `FoldEquations`.

    From sums over the pairs outside a fold, without those that are left out there; `moments` are
    those of the true values.

    Returns
    -------
    gram (n_permutations, n_columns, n_columns); products with the other columns (n_permutations,
    n_columns, n_others), and with the ranks (n_permutations, n_columns, n_layers)
    """
    gram, with_others, n_pairs = sums.gram(), sums.with_others(), sums.n_pairs
    columns, with_ranks = _without_pairs(sums, left_out)
    if len(left_out.first):
        permuted = replace(sums.permuted, givers=sums.permuted.givers[sums.some])
        of_pairs = permuted.grams_of_pairs(left_out.first, left_out.second)
        gram, with_others = gram - of_pairs[0], with_others - of_pairs[1]
        n_pairs -= len(left_out.first)
    gram -= columns[:, :, None] / max(n_pairs, 1.0) * columns[:, None]
    diagonal = np.einsum("poo->po", gram)
    constant = ~(diagonal > 0)
    diagonal += np.where(constant, 1.0, STABLE * diagonal)
    with_others -= columns[:, :, None] * moments.means[sums.permuted.others.numbers]
    centred = _centred(columns, with_ranks, moments.rank_means)
    return gram, with_others, np.where(constant[:, :, None], 0.0, centred)


def _inside(sums: ColumnSums, left_out: LeftOutPairs, rank_means: FloatArray) -> FloatArray:
    """(n_permutations, n_columns, n_layers) centred products over the pairs that test a fold."""
    return _centred(*_without_pairs(sums, left_out), rank_means)


def _without_pairs(sums: ColumnSums, left_out: LeftOutPairs) -> tuple[FloatArray, FloatArray]:
    """Sums of the columns, and of their products with the ranks, without pairs of the same set."""
    columns, with_ranks = sums.columns(), sums.of_pairs.with_targets
    if not len(left_out.first):
        return columns, with_ranks
    permuted = replace(sums.permuted, givers=sums.permuted.givers[sums.some])
    ranks = left_out.targets[len(left_out.targets) // 2 :]
    of_pairs = permuted.sums_of_pairs(left_out.first, left_out.second, ranks)
    return columns - of_pairs[0], with_ranks - of_pairs[1]


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
    gram: FloatArray,
    with_others: FloatArray,
    with_ranks: FloatArray,
    inside: FloatArray,
) -> FloatArray:
    """(n_permutations, n_layers, n_layers) what the features add to what others explain.

    Of the equations of both, the Schur complement of the others' is left.
    """
    columns = permuted.columns
    members = [*subset.members, *permuted.features]
    first = columns.first_feature[permuted.numbers]
    second = columns.second_feature[permuted.numbers]
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

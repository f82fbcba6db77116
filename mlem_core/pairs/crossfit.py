"""Cross-fitted means: what patterns of feature differences say of pairs of other stimuli.

A mean over the pairs of a pattern follows the noise of these very pairs, the more the fewer there
are. So the pairs inside a fold are compared with means over the pairs of stimuli outside that fold,
which have no stimulus in common with them. Where no pair outside the fold has the pattern, the mean
is that of a coarser pattern: without the last feature in the layer's order of priority, without the
last two, and so on, down to the mean of all pairs. The priority of a feature is what it alone
explains in the layer, so it does not depend on which other layers are looked at.

Arrays of sums are (n_patterns, 2, 1 + n_layers, n_folds, n_draws): of the pairs inside each fold
(0) and of those outside it (1), their number and the sums of their ranks in each layer, the ranks
centred on their mean inside and outside each fold. n_draws is 1, but for resampled stimuli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import each, if_large
from mlem_core.pairs.patterns import tested_blocks
from mlem_core.pairs.tables import PairTables, group_rows, summed

# What features explain is compared to so many decimals: copies of a feature stay in their order.
_DECIMALS = 9
# Sums of so many numbers (128 MB) are looked at together: each layer's are its own.
_AT_ONCE = 2**24


@dataclass(frozen=True)
class FeatureSet:
    """Some of the features, and the sums by the patterns that they tell apart.

    features : (n_chosen,) which, by number
    codes : (n_groups, n_chosen) their distinct patterns
    sums : (n_groups, n) what was summed, by these patterns
    group : (n_patterns,) which of them each pattern of all features falls into
    """

    features: IntArray
    codes: IntArray
    sums: FloatArray
    group: IntArray

    @classmethod
    def of(cls, codes: IntArray, sums: FloatArray) -> FeatureSet:
        """All features, from sums (n_patterns, n) by pattern (n_patterns, n_features)."""
        return cls(np.arange(codes.shape[1]), codes, sums, np.arange(len(codes)))

    def only(self, places: IntArray) -> FeatureSet:
        """The features at some places of these; patterns that they do not tell apart add up."""
        first, merged = group_rows(self.codes[:, places])
        codes, sums = self.codes[first][:, places], summed(merged, self.sums)
        return FeatureSet(self.features[places], codes, sums, merged[self.group])


@dataclass(frozen=True)
class CrossFit:
    """Sums of n_layers layers by fold and pattern, and what follows from them.

    codes : (n_patterns, n_features) a number for each level of each feature distance
    sums : (n_patterns, 2, 1 + n_layers, n_folds, n_draws), see the module
    spread : (n_draws, n_layers) root mean square of the centred ranks of all pairs
    priority : (n_layers, n_features) place of each feature in the order in which features are
        dropped last: 0 for the one that explains most
    """

    codes: IntArray
    sums: FloatArray
    spread: FloatArray
    priority: IntArray

    @classmethod
    def of(cls, tables: PairTables, priority: IntArray | None = None) -> CrossFit:
        """The sums of pair tables; raises as `of_draws`.

        `priority` is by default what each feature alone explains in these tables.
        """
        squares = tables.rank_squares[None]
        return cls.of_draws(tables, tables.counts[None], tables.rank_sums[None], squares, priority)

    @classmethod
    def of_draws(
        cls,
        tables: PairTables,
        counts: FloatArray,
        rank_sums: FloatArray,
        squares: FloatArray,
        priority: IntArray | None,
    ) -> CrossFit:
        """Cross-fitted sums of draws of the stimuli, by the cells of the tables.

        Parameters
        ----------
        tables : of the layers, or of any; their cells, codes and folds count
        counts : (n_draws, n_cells) weight of the pairs of each cell
        rank_sums : (n_draws, n_layers, n_cells) sums of their centred average ranks
        squares : (n_draws, n_layers) sum of the squared ranks of all pairs
        priority : as in `of`; by default that of the first draw

        Raises InputError: fewer than two folds.
        """
        if tables.n_folds < 2:
            raise InputError(
                "found one fold; what features explain is computed between the stimuli of "
                "different folds, so it needs at least two."
            )
        total = np.maximum(counts.sum(axis=1), 1.0)
        sums = _fold_sums(tables, counts, rank_sums)
        return cls.of_sums(tables.codes, sums, np.sqrt(squares / total[:, None]), priority)

    @classmethod
    def of_sums(
        cls, codes: IntArray, sums: FloatArray, spread: FloatArray, priority: IntArray | None = None
    ) -> CrossFit:
        """Cross-fitted sums from arrays; the priority is by default that of the first draw."""
        if priority is not None:
            return cls(codes, sums, spread, priority)
        none = np.zeros((sums.shape[2] - 1, codes.shape[1]), dtype=np.int64)
        made = cls(codes, sums, spread, none)
        return replace(made, priority=places(explained_alone(made, range(codes.shape[1]))))

    @property
    def whole(self) -> FeatureSet:
        """All features, with the sums as rows, which can be added up."""
        return FeatureSet.of(self.codes, self.sums.reshape(len(self.sums), -1))

    def means(self, chosen: FeatureSet) -> FloatArray:
        """Mean centred rank, outside each fold, of the patterns of a set of features of `whole`.

        Returns (n_groups, n_layers, n_folds, n_draws); 0 where it is not needed: where no pair,
        neither inside the fold nor outside it, has the pattern.
        """
        from mlem_core.pairs.kernels.cells import fill_missing

        features, n = chosen.features, len(chosen.sums)
        both = chosen.sums.reshape(n, *self.sums.shape[1:])
        pairs = both[:, 1, :1]
        found = np.divide(both[:, 1, 1:], pairs, out=np.zeros_like(both[:, 1, 1:]), where=pairs > 0)
        missing = (both[:, 1, 0] <= 0) & (both[:, 0, 0] > 0)
        if not len(features) or not missing.any():
            return found
        missing = missing.reshape(n, -1)
        orders, own = np.unique(
            np.argsort(self.priority[:, features], axis=1), axis=0, return_inverse=True
        )

        def fill(number: int) -> None:
            layers = np.flatnonzero(own.ravel() == number)
            sums = both.reshape(n, 2, -1, missing.shape[1])
            place, shared = _sorted(chosen.codes, orders[number])
            means = found.reshape(n, -1, missing.shape[1])
            fill_missing(place, shared, len(features), layers, sums, missing, means)

        each(fill, range(len(orders)), if_large(chosen.sums.size))
        return found

    def explained(self, chosen: FeatureSet) -> FloatArray:
        """Part of the correlation of every two layers that some features explain, in units of ρ.

        The mean over the folds (that have pairs), and over both ways of choosing the layer whose
        means are taken: Σ_p m_p(A, outside) · Σ ranks of B inside / number of pairs inside.

        Returns (n_draws, n_layers, n_layers).
        """
        means, ranks, weight = _compared(self, chosen)
        products = _products(means, ranks)
        return both_ways(np.einsum("kabd,kd->dab", products, weight)[:, None], self.spread)[:, 0]


def _compared(fit: CrossFit, chosen: FeatureSet) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means outside each fold, ranks inside it, and the weights of their products."""
    inside = chosen.sums.reshape(len(chosen.sums), *fit.sums.shape[1:])[:, 0]
    pairs = inside[:, 0].sum(axis=0)
    # To the mean over the folds that have pairs.
    weight = (pairs > 0) / np.maximum((pairs > 0).sum(axis=0), 1) / np.maximum(pairs, 1.0)
    return fit.means(chosen), inside[:, 1:], weight


def both_ways(one_way: FloatArray, spread: FloatArray) -> FloatArray:
    """The mean of both ways of choosing the layer whose means are taken, in units of ρ.

    Parameters
    ----------
    one_way : (n_draws, n, n_layers, n_layers) products with the means of the first layer
    spread : (n_draws, n_layers), see `CrossFit`
    """
    scale = (spread[:, :, None] * spread[:, None, :])[:, None]
    both = one_way + one_way.swapaxes(2, 3)
    return np.divide(both, 2 * scale, out=np.zeros_like(both), where=scale > 0)


def _products(means: FloatArray, ranks: FloatArray) -> FloatArray:
    """Sums over the patterns of means times ranks, of every two layers.

    Of two (n_groups, n_layers, n_folds, n_draws) one (n_folds, n_layers, n_layers, n_draws).
    """
    if ranks.shape[-1] == 1:
        one, other = np.moveaxis(means[..., 0], 2, 0), np.moveaxis(ranks[..., 0], 2, 0)
        return np.matmul(one.transpose(0, 2, 1), other)[..., None]
    _, n_layers, n_folds, n_draws = ranks.shape
    products = np.empty((n_folds, n_layers, n_layers, n_draws))
    for a in range(n_layers):
        for b in range(n_layers):
            products[:, a, b] = np.einsum("gkd,gkd->kd", means[:, a], ranks[:, b])
    return products


def explained_alone(fit: CrossFit, features: Sequence[int]) -> FloatArray:
    """(n_layers, n_chosen) what each of some features alone explains of a layer, in one draw."""
    whole, squares = fit.whole, fit.spread[0] ** 2

    def explain(f: int) -> FloatArray:
        alone = _compared(fit, whole.only(np.array([f])))
        means, ranks, weight = (one[..., 0] for one in alone)
        explained = np.einsum("glk,glk,k->l", means, ranks, weight)
        own = np.divide(explained, squares, out=np.zeros_like(explained), where=squares > 0)
        return np.round(own, _DECIMALS)

    return np.stack(each(explain, features, if_large(fit.sums.size)), axis=1)


def places(explained: FloatArray) -> IntArray:
    """(n_layers, n_features) the priority of features by what each explains alone."""
    order = np.argsort(-explained, axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable")


def outside_cells(tables: PairTables, fold: int) -> IntArray:
    """The cells of the pairs that train the model that a fold tests."""
    return np.flatnonzero(tables.trains[fold, tables.cell_block])


def share_alone(tables: PairTables) -> float:
    """The share of the pairs inside folds whose pattern no pair outside the fold has."""
    without, pairs = 0.0, 0.0
    for fold in range(tables.n_folds):
        at, outside = tables.held_out(fold), outside_cells(tables, fold)
        known = np.isin(tables.cell_pattern[at], tables.cell_pattern[outside])
        without += tables.counts[at][~known].sum()
        pairs += tables.counts[at].sum()
    return float(without / max(pairs, 1.0))


def _fold_sums(tables: PairTables, counts: FloatArray, rank_sums: FloatArray) -> FloatArray:
    """(n_patterns, 2, 1 + n_layers, n_folds, n_draws) centred sums, see the module.

    In memory the draws come first, so that what is computed of one is in one place.
    """
    from mlem_core.pairs.kernels.cells import fold_sums

    n_draws, n_layers, _ = rank_sums.shape
    found = np.empty((n_draws, len(tables.codes), 2, 1 + n_layers, tables.n_folds))
    side_of = np.where(tables.trains.T, 1, -1)
    side_of[tested_blocks(tables.n_folds), range(tables.n_folds)] = 0
    fold_sums(
        np.ascontiguousarray(counts),
        np.ascontiguousarray(rank_sums),
        tables.cell_pattern,
        tables.cell_block,
        side_of,
        found,
    )
    return np.moveaxis(found, 0, -1)


def _sorted(codes: IntArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Sort distinct rows (n, n_columns), the first column in the order counting most.

    Returns (n,) which row stands at each place, and (n + 1,) in how many leading columns the row at
    a place agrees with the one before it; -1 at both ends.
    """
    from mlem_core.pairs.kernels.cells import leading_alike

    keys: list[NDArray[np.int64]] = []
    key, size = np.zeros(len(codes), dtype=np.int64), 1
    for column in codes.T[order]:
        levels = int(column.max(initial=0)) + 1
        if size * levels >= 2**62:
            keys.append(key)
            key, size = np.zeros(len(codes), dtype=np.int64), 1
        key, size = key * levels + column, size * levels
    place = np.lexsort((key, *reversed(keys)))
    shared = np.full(len(codes) + 1, -1)
    leading_alike(codes, place, order, shared)
    return place, shared


def outside_means(tables: PairTables) -> list[FloatArray]:
    """Mean rank, outside each fold, of the (coarse) patterns of the pairs inside it.

    Returns for each fold (n_layers, n_cells of the pairs inside it), in standard deviations of the
    ranks of all pairs; 0 in tables of one fold, or without ranks of all pairs.
    """
    folds, group = range(tables.n_folds), tables.coarser.group
    patterns = [group[tables.cell_pattern[tables.held_out(fold)]] for fold in folds]
    found = [np.zeros((tables.n_layers, len(own))) for own in patterns]
    if tables.n_folds < 2 or not tables.rank_squares.any():
        return found
    tables = tables.coarse
    step = max(1, _AT_ONCE // (2 * len(tables.codes) * tables.n_folds))
    for start in range(0, tables.n_layers, step):
        some = slice(start, start + step)
        layers = range(*some.indices(tables.n_layers))
        fit = CrossFit.of(tables if step >= tables.n_layers else tables.of_layers(layers))
        means = fit.means(fit.whole)[..., 0]
        spread = fit.spread[0][:, None]
        for fold, own in enumerate(found):
            mean = means[patterns[fold], :, fold].T
            np.divide(mean, spread, out=own[some], where=spread > 0)
    return found


def fold_ceilings(tables: PairTables) -> FloatArray:
    """The cross-fitted feature ceiling of each layer in each fold: (n_layers, n_folds).

    √ of what the means of the pairs outside a fold explain of the ranks among the pairs inside it,
    by all features. It is 0 where they explain nothing, or less, and in tables without ranks of all
    pairs.
    """
    ceilings = np.zeros((tables.n_layers, tables.n_folds))
    for fold, means in enumerate(outside_means(tables)):
        at = tables.held_out(fold)
        pairs, squares = tables.counts[at].sum(), tables.within_squares[:, fold]
        ceilings[:, fold] = ceiling_inside(means, tables.within_sums[:, at], squares, pairs)
    return ceilings


def ceiling_inside(
    means: FloatArray, rank_sums: FloatArray, squares: FloatArray, pairs: FloatArray | float
) -> FloatArray:
    """The ceiling of the pairs inside a fold: (...).

    Parameters
    ----------
    means : (..., n_cells) of `outside_means`
    rank_sums : (..., n_cells) sums of the ranks of the pairs inside the fold, centred
    squares, pairs : (...) sum of the squared ranks, and how many pairs there are
    """
    shared = (means * rank_sums).sum(axis=-1)
    scale = np.sqrt(squares * pairs)
    part = np.divide(shared, scale, out=np.zeros_like(shared), where=scale > 0)
    return np.sqrt(np.maximum(part, 0.0))

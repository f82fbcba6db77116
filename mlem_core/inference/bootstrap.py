"""Terms and scores of layers in draws of the stimuli, a row of weights each.

What is resampled is the sentence (the group of stimuli), never the pair: a row of weights says how
often each counts. With the coefficients as they are, draws of the test stimuli say how sure the
score of *these* models is. How a score, an importance or a profile would come out with other
stimuli altogether, training included, takes a fit without each block (`without_each`); from the
sums by cell it takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.base.work import cores, on_all_cores
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.decomposition import ceilings_of, divide
from mlem_core.measures.importance import feature_distribution
from mlem_core.measures.shapley import FEWEST_ORDERS, of_feature, sampled_orders
from mlem_core.pairs.crossfit import CrossFit, ceiling_inside, fold_ceilings, outside_means
from mlem_core.pairs.ranks import tied_order
from mlem_core.pairs.resampling_units import Draws, RankedPairs, Weights
from mlem_core.pairs.tables import HeldOut, PairTables, group_rows, summed, without_training_ranks


def term_replicates(
    pairs: RankedPairs, tables: PairTables, weights: Weights, progress: Counted | None = None
) -> FloatArray:
    """Cross-fitted decompositions of two layers, in replicates: (n_replicates, n_features + 4).

    The terms, "unexplained", the RSA correlation, and the ceilings of all pairs of both layers.

    Parameters
    ----------
    pairs : of two layers, by cells of the tables
    tables : of these layers. Features keep the priority that they have there
    weights : (n_replicates, n_groups) how often each sentence counts
    """
    tables, priority = without_training_ranks(tables), CrossFit.of(tables).priority
    return of_two_layers(decompositions(pairs, tables, priority, True, weights, progress))


def contribution_replicates(
    pairs: RankedPairs, tables: PairTables, feature: int, order: IntArray, weights: Weights
) -> FloatArray:
    """Contribution of one feature to the RSA of two layers, along an order: (n_replicates,).

    Parameters
    ----------
    pairs, tables, weights : as in `term_replicates`
    feature : by number
    order : of the features, see `mlem_core.measures.shapley.of_feature`
    """
    priority, parts = CrossFit.of(tables).priority, []
    for sums in pairs.draw(weights):
        fit = CrossFit.of_draws(tables, sums.counts, sums.sums, sums.squares, priority)
        parts.append(of_feature(fit.whole, fit.explained, feature, order)[:, 0, 1])
    return np.concatenate(parts)


def of_two_layers(draws: FloatArray) -> FloatArray:
    """Terms, "unexplained", similarity and both ceilings of two layers: (n_draws, n_features + 4).

    Parameters
    ----------
    draws : (n_draws, n_features + 2, 2, 2) of `decompositions`; (n_draws, 1, 2, 2) of a similarity
        alone gives (n_draws, 1)
    """
    similarity = draws[:, -1, 0, 1]
    if draws.shape[1] == 1:
        return similarity[:, None]
    explained = draws[:, -2]
    rest = similarity - explained[:, 0, 1]
    return np.column_stack((draws[:, :-2, 0, 1], rest, similarity, ceilings_of(explained)))


def decompositions(
    pairs: RankedPairs,
    tables: PairTables,
    priority: IntArray | None,
    many: bool,
    weights: Weights,
    progress: Counted | None = None,
) -> FloatArray:
    """RSA of layers and its terms in each draw: (n_draws, n_features + 2, n_layers, n_layers).

    The terms of the features, then what all of them explain, then RSA.

    Parameters
    ----------
    pairs : by cells of the tables
    priority : of the features, see `mlem_core.pairs.crossfit.CrossFit`; None is RSA alone
    many : whether many draws are divided together, as few layers allow
    weights : (n_draws, n_groups)
    """
    parts: list[FloatArray] = []
    # The same orders in all draws: how far these are apart depends little on how many there are.
    orders = sampled_orders(tables.codes, FEWEST_ORDERS)
    for sums in pairs.draw(weights, products=True, progress=progress):
        rsa = sums.rsa()[:, None]
        if priority is None:
            parts.append(rsa)
            continue

        def split(at: IntArray, sums: Draws = sums) -> FloatArray:
            drawn = (sums.counts[at], sums.sums[at], sums.squares[at])
            divided = divide(CrossFit.of_draws(tables, *drawn, priority), orders)
            return np.concatenate((divided.terms, divided.whole[None])).swapaxes(0, 1)

        n = len(rsa)
        shares = np.array_split(np.arange(n), min(cores(), n) if many else n)
        terms = np.concatenate(on_all_cores(split, shares))
        parts.append(np.concatenate((terms, rsa), axis=1))
    return np.concatenate(parts)


def score_replicates(
    pairs: LayerPairs,
    coefficients: FloatArray,
    importance: bool,
    weights: Weights,
) -> FloatArray:
    """ρ, ceiling and importances on the held-out pairs of each replicate, the models as they are.

    So are the means by pattern of the pairs outside a fold, with which the ceiling compares. A fold
    with fewer than two stimuli in a replicate counts as 0 there.

    Parameters
    ----------
    coefficients : (n_layers, n_folds, n_columns) weights of the models, see
        `mlem_core.estimators.registry.FoldFits`
    importance : False leaves it 0, which is quicker
    weights : (n_replicates, n_groups) how often each sentence counts, such as
        `mlem_core.pairs.resampling_units.StimulusUnits.bootstrap` gives

    Returns
    -------
    (n_replicates, n_layers, 2 + n_parts), means over folds
    """
    means = outside_means(pairs.tables)
    folds: list[FloatArray] = []
    for fold, inside in enumerate(pairs.inside):
        held_out, parts = pairs.tables.inside(fold), []
        for sums in inside.draw(weights[:, pairs.groups_in(fold)]):
            pairs_inside = sums.counts.sum(axis=1)[:, None]
            ceilings = ceiling_inside(means[fold], sums.sums, sums.squares, pairs_inside)

            def scores_of(
                layer: int, fold: int = fold, held_out: HeldOut = held_out, sums: Draws = sums
            ) -> FloatArray:
                return _scores(held_out, coefficients[layer, fold], sums, layer, importance)

            scores = np.stack(on_all_cores(scores_of, range(len(coefficients))), axis=1)
            columns = (scores[..., :1], ceilings[..., None], scores[..., 1:])
            parts.append(np.concatenate(columns, axis=-1))
        folds.append(np.concatenate(parts))
    mean: FloatArray = np.mean(folds, axis=0)
    return mean


def _scores(
    held_out: HeldOut, coefficients: FloatArray, sums: Draws, layer: int, importance: bool
) -> FloatArray:
    """(n_replicates, 1 + n_parts) ρ of a layer's model in one fold, and its drops."""
    codes, n = held_out.codes, len(sums.counts)
    found = np.zeros((n, 1 + codes.shape[1]))
    used = np.unique(held_out.terms.part[coefficients != 0])
    if not len(used):
        return found
    stacked = np.concatenate((sums.counts, sums.sums[:, layer])).T
    squares = sums.squares[:, layer]

    def merged(parts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predictions, and counts and sums (n_replicates, n_groups), by patterns of parts."""
        first, group = group_rows(codes[:, parts])
        both = summed(group, stacked).T
        terms = held_out.terms.only(parts).of(first)
        predicted = terms.predictions(coefficients[held_out.columns_of(parts)])
        return predicted, np.ascontiguousarray(both[:n]), np.ascontiguousarray(both[n:])

    predicted, counts, rank_sums = merged(used)
    rho = _rho(predicted, counts, rank_sums, np.ones((n, 1)), squares)
    found[:, 0] = rho
    for f in used if importance else ():
        rest, counts, rank_sums = merged(used[used != f])
        own = np.array([f])
        added = held_out.terms.only(own).predictions(coefficients[held_out.columns_of(own)])
        values, shares = feature_distribution(added, codes[:, f], sums.counts, len(rest))
        permuted = rest[:, None] + values
        found[:, 1 + f] = rho - _rho(permuted, counts, rank_sums, shares, squares)
    return found


def _rho(
    predicted: FloatArray,
    counts: FloatArray,
    rank_sums: FloatArray,
    shares: FloatArray,
    squares: FloatArray,
) -> FloatArray:
    """ρ (n_replicates,) of predictions (n_patterns, n_levels), see `kernels.cell_scores`."""
    from mlem_core.pairs.kernels.scores import cell_scores

    order, begins = tied_order(predicted.ravel())
    pattern, level = np.divmod(order, shares.shape[1])
    shares, rho = np.ascontiguousarray(shares), np.empty(len(counts))
    cell_scores(pattern, level, begins, counts, rank_sums, shares, squares, rho)
    return rho


def tables_without(pairs: LayerPairs, kept: Weights) -> Iterator[PairTables]:
    """The pair tables without each block, one after the other; cells without pairs are left out.

    The target is scaled as on all stimuli. There are no ranks among training pairs.

    Parameters
    ----------
    kept : (n_blocks, n_groups) 1, or 0 where the block leaves the group out
    """
    from mlem_core.pairs.kernels.weighted import gone_sums

    tables = pairs.tables
    n_layers, n_cells = tables.n_layers, len(tables.counts)
    distances = np.stack(pairs.squared)
    bins = tables.coarser
    for row in kept:
        counts, targets = np.zeros(n_cells), np.zeros((n_layers, n_cells))
        gone = row[pairs.groups] == 0
        gone_sums(pairs.design.rows, gone, pairs.cells, distances, counts, targets)
        counts, targets = tables.counts - counts, tables.target_sums - targets
        (of_all,) = pairs.whole.draw(row[None])
        within = np.zeros((n_layers, n_cells))
        squares = np.zeros((n_layers, tables.n_folds))
        for fold, inside in enumerate(pairs.inside):
            (sums,) = inside.draw(row[None, pairs.groups_in(fold)])
            within[:, tables.held_out(fold)] = sums.sums[0]
            squares[:, fold] = sums.squares[0]
        filled = counts > 0
        without = replace(
            tables,
            cell_block=tables.cell_block[filled],
            cell_pattern=tables.cell_pattern[filled],
            counts=counts[filled],
            target_sums=targets[:, filled],
            rank_sums=of_all.sums[0][:, filled],
            rank_squares=of_all.squares[0],
            within_sums=within[:, filled],
            within_squares=squares,
            train_sums=None,
            train_squares=None,
        )
        # Patterns are the same, and so are their bins.
        vars(without)["coarser"] = bins
        yield without


def without_each(
    pairs: LayerPairs,
    statistic: Callable[[PairTables], FloatArray],
    kept: Weights,
    progress: Counted | None = None,
) -> FloatArray:
    """A statistic (n_blocks, ...) of the pair tables without each block.

    Parameters
    ----------
    statistic : such as `mlem_core.measures.importance.mean_scores` with an estimator that can be
        refitted, see `mlem_core.estimators.registry.EstimatorSpec`
    kept : as in `tables_without`. In a bootstrap replicate models would see a third of the
        sentences fewer
    """
    found = []
    for done, tables in enumerate(tables_without(pairs, kept), 1):
        found.append(statistic(tables))
        if progress is not None:
            progress(done, len(kept))
    return np.stack(found)


def mean_ceilings(tables: PairTables) -> FloatArray:
    """(n_layers,) cross-fitted ceilings, means over folds; no model is fitted."""
    ceilings: FloatArray = fold_ceilings(tables).mean(axis=1)
    return ceilings

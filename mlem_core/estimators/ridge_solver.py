"""Non-negative ridge regression on pair tables, its strength chosen by nested cross-validation.

A held-out ρ is of the pairs inside a fold. Pairs of stimuli of two folds are in no such score, so
that what is chosen on them, as between ridge and ridge on ranks, is not chosen by the score that is
then reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import each, if_large
from mlem_core.estimators.normal_equations import (
    NOT_APART,
    Moments,
    held_out_correlations,
    moments,
    penalty_matrices,
    rank_equations,
    ridge_weights,
    training_blocks,
    value_weights,
)
from mlem_core.estimators.registry import Solution, Solver, check_numbers, held_out_scores
from mlem_core.estimators.ridge_of_moments import ALPHAS as ALPHAS
from mlem_core.estimators.ridge_of_moments import BETAS as BETAS
from mlem_core.estimators.ridge_of_moments import first_best, fit_ridge
from mlem_core.pairs.ranks import few_at_once, score_patterns
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.pairs.tables import PairTables

TARGETS = ("distance", "rank")
# Where telling values apart gains less correlation than this, ρ decides whether it is done: it has
# to gain so much.
CLOSE, LEAD = 0.05, 0.01


class RidgeSolver(Solver):
    """Fits the model of `mlem_core.estimators.base.RidgeMLEM`, whose parameters these are.

    Parameters
    ----------
    target : "distance" or "rank"

    Attributes
    ----------
    alphas, betas : strengths to choose from
    """

    alphas: Sequence[float] = ALPHAS
    betas: Sequence[float] = BETAS

    def __init__(self, target: str = "distance") -> None:
        self.target = target

    @property
    def needs_training_ranks(self) -> bool:
        return self.target == "rank"

    def check(self) -> None:
        check_choice("target", self.target, TARGETS)
        check_numbers("alphas", self.alphas, 0, NOT_APART)
        check_numbers("betas", self.betas, 0, NOT_APART)

    def weights(self, tables: PairTables, equations: Moments) -> FloatArray:
        """(n_layers, n_sets, n_strengths, n_columns) for each α; or β, and α beside several."""
        if not tables.resolved:
            return ridge_weights(equations, penalty_matrices(tables, tuple(self.alphas)))
        alphas = self.alphas if len(self.betas) > 1 else ()
        return value_weights(tables, equations, self.betas, alphas)

    def solve(
        self, tables: PairTables | PairStatistics, left_out: Sequence[int | None]
    ) -> Solution:
        """Fit every layer on several training sets, each with its own α (or β).

        For a training set, α is the one with the highest mean ρ when each other fold in turn is
        left out too; of those that score the same the smallest is taken. With the target "rank"
        the ranks are those among the pairs that leave out the tested fold; the pairs that choose α
        have a part in them, the tested ones have none.

        Raises InputError: fewer than three folds for nested cross-validation; ranks that the tables
        lack.
        """
        if isinstance(tables, PairStatistics):
            fit = fit_ridge(
                tables.moments,
                tables.tests,
                left_out,
                target=self.target,
                alphas=self.alphas,
                betas=self.betas,
            )
            return Solution(fit.coef, fit.intercept, fit.alpha, fit.choice, fit.inner_rho)
        alphas = tuple(self.alphas)
        if tables.resolved:
            apart = [NOT_APART] * (len(alphas) if len(self.betas) > 1 else 0)
            alphas = (*self.betas, *apart)
        several, ranked = len(alphas) > 1, self.target == "rank"
        n_folds = tables.n_folds
        if several and n_folds < 3 and any(out is not None for out in left_out):
            raise InputError(
                f"found {n_folds} folds; nested cross-validation needs at least 3, since one is "
                "left out to test and one to choose α."
            )

        def without(*folds: int | None) -> tuple[int, ...]:
            """A training set by the folds that it leaves out; ranks are those without the first."""
            given = [fold for fold in folds if fold is not None]
            return tuple(given if ranked else sorted(given))

        inner = [without(k, j) for k in left_out for j in range(n_folds * several) if j != k]
        sets = list(dict.fromkeys([*inner, *(without(k) for k in left_out)]))
        blocks = training_blocks(tables, sets)
        equations = (
            rank_equations(tables, blocks, [folds[0] if folds else None for folds in sets])
            if ranked
            else moments(tables, blocks)
        )
        fitted = self.weights(tables, equations)

        def inner_weights(i: int, j: int) -> FloatArray:
            """(n_layers, n_alphas, n_columns) without the i-th fold left out, and fold j."""
            return fitted[:, sets.index(without(left_out[i], j))]

        best = np.zeros((len(left_out), tables.n_layers), dtype=np.int64)
        if several:
            best = _Nested(tables, left_out, inner_weights).best(np.asarray(alphas) < NOT_APART)
        best = best.T
        at = [sets.index(without(k)) for k in left_out]
        coef = np.take_along_axis(fitted[:, at], best[:, :, None, None], axis=2)[:, :, 0]
        predicted = np.einsum("si,lsi->ls", equations.x_mean[at], coef)
        return Solution(coef, equations.y_mean[:, at] - predicted, np.asarray(alphas)[best], best)

    def refit(self, tables: PairTables, held: Solution | None = None) -> FloatArray:
        if held is None or held.choice is None or self.target == "rank":
            return super().refit(tables)
        used, place = np.unique(held.choice, return_inverse=True)
        n_betas = len(self.betas) if tables.resolved else 0
        betas = [self.betas[number] for number in used if number < n_betas]
        alphas = [self.alphas[number - n_betas] for number in used if number >= n_betas]
        equations = moments(tables, training_blocks(tables, [(k,) for k in range(tables.n_folds)]))
        if tables.resolved:
            fitted = value_weights(tables, equations, betas, alphas)
        else:
            fitted = ridge_weights(equations, penalty_matrices(tables, alphas))
        at = place.reshape(held.choice.shape)[:, :, None, None]
        return np.take_along_axis(fitted, at, axis=2)[:, :, 0]


@dataclass(frozen=True)
class _Nested:
    """The choice among n_alphas strengths within training sets.

    tables : of n_layers layers
    left_out : for each of n_sets training sets the fold that it is without, or None
    weights : called with the number of a training set and another fold, those (n_layers, n_alphas,
        n_columns) that are fitted without it too
    """

    tables: PairTables
    left_out: Sequence[int | None]
    weights: Callable[[int, int], FloatArray]

    def best(self, apart: NDArray[np.bool_]) -> IntArray:
        """(n_sets, n_layers) which strength is the best; of those that are equally good the first.

        Where features are resolved, the best by the correlation of the predictions with ranks; but
        where telling values apart gains little by this, it is done if it gains enough by ρ.

        `apart` says (n_alphas,) whether features are coded by value, where they are resolved.
        """

        def rho(tables: PairTables, weights: FloatArray, fold: int) -> FloatArray:
            return held_out_scores(tables, weights, fold).rho

        if not self.tables.resolved:
            return first_best(self._scores(rho))
        by = self._scores(held_out_correlations)
        best = first_best(by)
        if apart.all():
            return best
        close = by.max(axis=-1) - by[..., ~apart].max(axis=-1) < CLOSE
        layers = np.flatnonzero(close.any(axis=0))
        if len(layers):
            own = first_best(by[..., apart])[:, layers]

            def few(i: int, j: int) -> FloatArray:
                weights = self.weights(i, j)[layers]
                resolved = weights[np.arange(len(layers)), own[i]]
                return np.concatenate((weights[:, ~apart], resolved[:, None]), axis=1)

            tables = self.tables.of_layers(layers.tolist())
            by_rho = _Nested(tables, self.left_out, few)._scores(rho)
            by_rho[..., -1] -= LEAD
            found = first_best(by_rho)
            places = np.append(np.flatnonzero(~apart), 0)[found]
            chosen = np.where(found == (~apart).sum(), own, places)
            best[:, layers] = np.where(close[:, layers], chosen, best[:, layers])
        return best

    def _scores(self, score: Callable[[PairTables, FloatArray, int], FloatArray]) -> FloatArray:
        """(n_sets, n_layers, n_alphas) means over the other folds."""

        def tests(j: int) -> tuple[list[int], FloatArray]:
            # Every model that saw nothing of fold j, at once: they order its pairs nearly alike.
            others = [i for i, k in enumerate(self.left_out) if k != j]
            weights = np.stack([self.weights(i, j) for i in others], axis=1)
            n_layers, n_others, n_alphas, n_columns = weights.shape
            found = score(self.tables, weights.reshape(n_layers, -1, n_columns), j)
            return others, found.reshape(n_layers, n_others, n_alphas).swapaxes(0, 1)

        n_folds = self.tables.n_folds
        parts = each(tests, range(n_folds), if_large(self.tables.within_sums.size))
        sums = np.zeros((len(self.left_out), *parts[0][1].shape[1:]))
        for others, found in parts:
            sums[others] += found
        n_tested = np.array([n_folds - (k is not None) for k in self.left_out])
        return np.asarray(sums / n_tested[:, None, None])


# Two folds to test between, and two to train between.
FEWEST_TO_CHOOSE = 4
# How much ρ a choice has to gain that differs from the papers'.
GAIN = 0.01


def across_folds(tables: PairTables, ranked: bool = False) -> FloatArray:
    """Mean ρ (n_layers,) of ridge on the pairs across two folds, trained across the others.

    Each layer has the strength α (or β) of the highest mean. Ranks are those among all pairs, and
    so is their spread: ρ is up to a factor close to 1, the same for all models of these pairs, what
    `scipy.stats.spearmanr` gives.

    Parameters
    ----------
    tables : of n_layers layers and at least `FEWEST_TO_CHOOSE` folds
    ranked : whether ridge is fitted to the ranks
    """
    out, pairs = ~tables.trains, list(itertools.combinations(range(tables.n_folds), 2))
    n_out = out.sum(axis=0)
    blocks = training_blocks(tables, pairs) & (n_out > 1)
    on_ranks = rank_equations(tables, blocks, [None] * len(pairs)) if ranked else None
    weights = RidgeSolver().weights(tables, on_ranks or moments(tables, blocks))
    rho = np.zeros((tables.n_layers, weights.shape[2]))
    for number, (a, b) in enumerate(pairs):
        block = int(np.flatnonzero(out[a] & out[b] & (n_out == 2))[0])
        at = slice(*tables.block_edges[block : block + 2])
        counts, sums = tables.counts[at], tables.rank_sums[:, at]
        n = max(float(counts.sum()), 1.0)
        sums = sums - counts * (sums.sum(axis=1, keepdims=True) / n)
        squares = tables.rank_squares * (n / tables.n_pairs)
        terms = tables.terms.of(tables.cell_pattern[at])
        for some in few_at_once(len(rho), rho.shape[1] * len(counts)):
            predicted = terms.predictions(weights[some, number])
            rho[some] += score_patterns(predicted, counts, sums[some], squares[some]).rho
    best: FloatArray = rho.max(axis=1) / len(pairs)
    return best

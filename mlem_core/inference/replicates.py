"""A statistic of all stimuli with its bootstrap and jackknife replicates, and its interval.

Confidence intervals combine two ways of resampling. The delete-block jackknife, of sentences and,
where words recur, of words (`mlem_core.pairs.units`), gives the standard error: the bootstrap's
own is too large here, because a bootstrap replicate counts the noise of a pair three times where
the jackknife counts it twice. The bootstrap of the sentences gives the shape: its quantiles,
brought to the jackknife's standard error, around the value. `make validate` measures how often such
intervals hold the truth, see docs/validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import Counted, FloatArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import (
    score_replicates,
    term_replicates,
    transfer_replicates,
)
from mlem_core.inference.jackknife import (
    BLOCKS,
    REFITS,
    Estimate,
    fewest,
    jackknife,
    shaped,
    standard_error,
    t_quantile,
)
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.refits import (
    refitted_scores,
    refitted_transfers,
    replicated_ceilings,
)
from mlem_core.pairs.resampling import RankedPairs, Weights, multinomial
from mlem_core.pairs.units import Blocks


class Replicates(NamedTuple):
    """One statistic of all stimuli, in bootstrap replicates, and without blocks of them.

    value : (...)
    bootstrap : (n_replicates, ...)
    left_out : (n_blocks, ...)
    sizes : how many of the blocks are of each kind of unit, see
        `mlem_core.inference.jackknife.standard_error`
    """

    value: FloatArray
    bootstrap: FloatArray
    left_out: FloatArray
    sizes: tuple[int, ...] | None = None

    def less(self, other: Replicates) -> Replicates:
        """The difference to another statistic of the same replicates and blocks."""
        return Replicates(
            self.value - other.value,
            self.bootstrap - other.bootstrap,
            self.left_out - other.left_out,
            self.sizes,
        )

    def at(self, layer: int) -> Replicates:
        """The statistic of one layer, which its first dimension counts."""
        return Replicates(
            self.value[layer], self.bootstrap[:, layer], self.left_out[:, layer], self.sizes
        )

    def made_into(self, change: Callable[[FloatArray], FloatArray]) -> Replicates:
        """What follows from the statistic, in the same replicates and without the same blocks."""
        return Replicates(
            change(self.value), change(self.bootstrap), change(self.left_out), self.sizes
        )

    def around(self, value: FloatArray) -> Replicates:
        """The same around the value (...) from more pairs of the same stimuli."""
        shift = value - self.value
        return Replicates(value, self.bootstrap + shift, self.left_out + shift, self.sizes)

    @property
    def error(self) -> FloatArray:
        """(...) the standard error, of the jackknife."""
        return standard_error(self.left_out, self.sizes)

    def estimate(self, *, above: bool = False) -> Estimate:
        """Its interval, the bootstrap's quantiles at the scale of the jackknife, and its test.

        `above` as in `mlem_core.inference.jackknife.by_error`.
        """
        # A little further out for few blocks.
        reach = self.error * t_quantile(fewest(self.left_out, self.sizes))
        lower, upper = shaped(self.value, self.bootstrap, reach)
        found = jackknife(self.value, self.left_out, self.sizes, above=above)
        return found._replace(lower=lower, upper=upper)

    def rescaled(self) -> FloatArray:
        """(n_replicates, ...) around the value, with the jackknife's standard error."""
        spread = self.bootstrap.std(axis=0, ddof=1)
        varies = spread > 1e-12
        ratio = np.divide(self.error, spread, out=np.zeros_like(spread), where=varies)
        around: FloatArray = self.value + (self.bootstrap - self.bootstrap.mean(axis=0)) * ratio
        return around


def _check(pairs: LayerPairs, n_replicates: int) -> None:
    if n_replicates < 20:
        raise InputError(
            f"found {n_replicates} bootstrap replicates; an interval needs at least 20, a good one "
            "1000."
        )
    if pairs.n_groups < 10:
        raise InputError(f"found {pairs.n_groups} sentences; intervals over them need at least 10.")


def resampled_terms(
    pairs: LayerPairs, n_replicates: int = 1000, seed: int = 0, progress: Counted | None = None
) -> Replicates:
    """The terms of two layers, "unexplained", their RSA and both ceilings: (n_features + 6,).

    The last two are what the features explain of each layer with itself.

    Raises
    ------
    InputError
        Too few replicates or sentences.
    """
    _check(pairs, n_replicates)
    rng, n = np.random.default_rng(seed), pairs.n_groups
    weights = np.concatenate((np.ones((1, n), dtype=np.uint16), multinomial(n, n_replicates, rng)))
    blocks = pairs.blocks(BLOCKS, rng)
    total = len(weights) + len(blocks.weights)

    def values(whole: RankedPairs, weights: Weights, before: int) -> FloatArray:
        def counted(done: int, _: int) -> None:
            if progress is not None:
                progress(before + done, total)

        terms = term_replicates(whole, pairs.tables, weights, counted)
        return np.column_stack((terms.values, terms.rsa, terms.ceilings, terms.own))

    drawn = values(pairs.whole, weights, 0)
    left_out = values(pairs.whole.by_stimulus, blocks.weights, len(weights))
    return Replicates(drawn[0], drawn[1:], left_out, blocks.sizes)


def resampled_scores(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
    blocks: Blocks | None = None,
) -> Replicates:
    """ρ, ceiling, and importances of each layer, means over folds: (n_layers, 2 + n_columns).

    The models keep their weights, but the standard errors of importances are those of models that
    are fitted anew where blocks are left out (see `caveats.FITTED` for the estimators that cannot
    be), and those of ceilings of means by pattern that are made anew.

    Parameters
    ----------
    estimator : one of `mlem_core.estimators.registry.ESTIMATORS`
    blocks : of stimuli, to be left out in turn; None draws them

    Raises
    ------
    InputError
        Too few replicates or sentences; an unknown estimator.
    """
    _check(pairs, n_replicates)
    entry = estimator_named(estimator)
    fit, rng, n = entry.model().cross_validate, np.random.default_rng(seed), pairs.n_groups
    coefficients = fit(pairs.tables).weights
    drawn = pairs.bootstrap_weights(n_replicates, rng)
    weights = np.concatenate((np.ones((1, n), dtype=np.uint16), drawn))
    values = score_replicates(pairs, coefficients, weights).values
    blocks, alone = blocks or pairs.blocks(REFITS, rng), pairs.by_stimulus
    left_out = score_replicates(
        alone, coefficients, blocks.weights, importance=not entry.refitted
    ).values
    # Weights are near the best for ρ, which does not notice how they vary; importances do. So does
    # the ceiling notice how the means by pattern vary, with which it compares.
    if entry.refitted:
        again = refitted_scores(alone, blocks.weights, fit, progress)
        left_out[..., 1:] = again.values[..., 1:]
    else:
        left_out[..., 1] = replicated_ceilings(alone, blocks.weights)
    return Replicates(values[0], values[1:], left_out, blocks.sizes)


def resampled_transfers(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
) -> Replicates:
    """What the metrics of two layers make of each other: `TRANSFERS` (6,).

    The metrics keep their weights in the bootstrap, but the standard errors are those of metrics
    that are fitted anew where blocks are left out: the weights of one layer need not be near the
    best for another. Not with the estimators that cannot be, see `caveats.FITTED`.

    Raises
    ------
    InputError
        Too few replicates or sentences; an unknown estimator.
    """
    _check(pairs, n_replicates)
    entry, rng = estimator_named(estimator), np.random.default_rng(seed)
    fit, ones = entry.model().cross_validate, np.ones((1, pairs.n_groups), dtype=np.uint16)
    coefficients = fit(pairs.tables).weights
    drawn = np.concatenate((ones, pairs.bootstrap_weights(n_replicates, rng)))
    values = transfer_replicates(pairs, coefficients, drawn)
    blocks, alone = pairs.blocks(REFITS, rng), pairs.by_stimulus
    if entry.refitted:
        left_out = refitted_transfers(alone, blocks.weights, fit, progress)
    else:
        left_out = transfer_replicates(alone, coefficients, blocks.weights)
    return Replicates(values[0], values[1:], left_out, blocks.sizes)

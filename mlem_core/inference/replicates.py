"""Replicates of terms and scores of layers, and intervals of any similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.similarities import check_comparable, layer_input
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer
from mlem_core.data.levels import exchanges
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import (
    contribution_replicates,
    mean_ceilings,
    of_two_layers,
    score_replicates,
    term_replicates,
    without_each,
)
from mlem_core.inference.chance import Chance, chance_at_level
from mlem_core.inference.intervals import PERMUTATIONS
from mlem_core.inference.layer_pairs import LayerPairs, Relabelled
from mlem_core.inference.resample import (
    Estimate,
    Replicates,
    check_enough,
    in_parts,
    jackknife,
    t_quantile,
)
from mlem_core.measures.decomposition import divide, with_sums
from mlem_core.measures.importance import mean_scores
from mlem_core.measures.shapley import FEWEST_ORDERS, sampled_orders
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.designs import resampled_part
from mlem_core.pairs.layer_sums import PairCells, SimilaritySums, of_some
from mlem_core.pairs.resampling_units import Blocks, Weights
from mlem_core.pairs.similarities import Similarity
from mlem_core.storage.store import Store

# Permutations of the labels of each feature behind the interval of an identity, and blocks of each
# kind that are left out of each.
LABELS, LABELLED_BLOCKS = 3, 16
# Features below this part of an identity are not permuted for its interval.
SMALL_PART = 0.1
# Without so many blocks of each kind of unit penalties are chosen anew.
CHOSEN_ANEW = 12


def resampled_terms(pairs: LayerPairs, progress: Counted | None = None) -> Replicates:
    """The terms of two layers, "unexplained", their RSA and both ceilings: (n_features + 4,).

    By blocks that are left out alone, as for all layers at once.

    Raises InputError: too few sentences.
    """
    check_enough(pairs.n_groups)
    pairs, blocks = pairs.coarse, pairs.units.blocks()
    weights = _after_all(blocks.weights)
    values = term_replicates(pairs.whole.by_stimulus, pairs.tables, weights, progress)
    return Replicates(values[0], values[:0], values[1:], blocks.sizes)


def resampled_scores(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
) -> Replicates:
    """ρ, ceiling, and importances of each layer, means over folds: (n_layers, 2 + n_columns).

    The models keep their weights, but the standard errors of importances are those of models that
    are fitted anew where blocks are left out (see `resample.FITTED` for the estimators that cannot
    be), and those of ceilings of means by pattern that are made anew.

    Raises InputError: too few replicates or sentences; an unknown estimator.

    Parameters
    ----------
    estimator : one of `mlem_core.estimators.registry.ESTIMATORS`
    """
    check_enough(pairs.n_groups, n_replicates)
    entry, blocks = estimator_named(estimator), pairs.units.blocks()
    coefficients, rows = entry.model().cross_validate(pairs.tables).weights, blocks.weights
    weights = _after_all(pairs.units.bootstrap(n_replicates, np.random.default_rng(seed)))
    drawn = score_replicates(pairs, coefficients, True, weights)
    alone = pairs.by_stimulus
    left_out = score_replicates(alone, coefficients, not entry.refitted, rows)
    # Weights are near the best for ρ, which does not notice how they vary; importances do. So does
    # the ceiling notice how the means by pattern vary, with which it compares.
    if entry.refitted:
        anew = fitted_anew(pairs, mean_scores, estimator, blocks, progress)
        left_out[..., 1:] = anew[..., 1:]
    else:
        left_out[..., 1] = without_each(alone, mean_ceilings, rows)
    return Replicates(drawn[0], drawn[1:], left_out, blocks.sizes)


def fitted_anew(
    pairs: LayerPairs,
    statistic: Callable[..., FloatArray],
    estimator: str,
    blocks: Blocks,
    progress: Counted | None = None,
) -> FloatArray:
    """A statistic (n_blocks, ...) of metrics that are fitted without each block.

    Penalties are chosen anew without `CHOSEN_ANEW` blocks of each kind, and held elsewhere, which
    spares nearly all fits. What choosing changes there is added to the others, block by block, so
    that the jackknife's variance has that of the choice too.

    Parameters
    ----------
    statistic : of tables, and by name of `estimator` and `held`, such as `mean_scores`
    """
    held = estimator_named(estimator).model().solve(pairs.tables, range(pairs.tables.n_folds))
    kinds = np.split(np.arange(len(blocks.weights)), np.cumsum(blocks.sizes)[:-1])
    some = np.concatenate([kind[:CHOSEN_ANEW] for kind in kinds])
    total, alone = len(blocks.weights) + len(some), pairs.by_stimulus

    def without(rows: Weights, before: int, **how: Any) -> FloatArray:
        def counted(done: int, _: int) -> None:
            if progress is not None:
                progress(before + done, total)

        of = partial(statistic, estimator=estimator, **how)
        return without_each(alone, of, rows, counted)

    left_out = without(blocks.weights, 0, held=held)
    off = without(blocks.weights[some], len(left_out)) - left_out[some]
    turns = [np.resize(np.searchsorted(some, kind[:CHOSEN_ANEW]), len(kind)) for kind in kinds]
    return left_out + off[np.concatenate(turns)]


def _after_all(weights: Weights) -> Weights:
    """Bootstrap weights, after a draw in which each sentence counts once."""
    return np.concatenate((np.ones_like(weights[:1]), weights))


def identity_reach(pairs: LayerPairs, chance: Chance, stimuli: StimulusSet) -> FloatArray:
    """Half-widths of the 95 % intervals of word and sentence identity: (n_identities,).

    Labels are permuted `LABELS` times, and `LABELLED_BLOCKS` blocks of each kind are left out of
    what features contribute then. One permutation varies more than the mean of all does: what its
    own labels are has no part in the covariance of two. Features with a small part of the identity
    stand in by those with a large one.

    Parameters
    ----------
    pairs : all pairs of the stimuli, in two layers
    chance : of these
    stimuli : of the analysis
    """
    blocks, rng = pairs.units.blocks(LABELLED_BLOCKS), np.random.default_rng(0)
    pairs, some = pairs.coarse, pairs.stimuli_of(stimuli)
    sampled = sampled_orders(pairs.tables.codes) > 0
    ends, reach = np.cumsum(blocks.sizes)[:-1], []
    for identity in chance.identities:
        level = identity.partition(" ")[0]
        mean = np.where(np.array(chance.levels) == level, chance.mean[:, 0, -1], 0.0)
        chosen = np.flatnonzero(np.abs(mean) > SMALL_PART * np.abs(mean).sum())
        left = np.zeros((len(blocks.weights), LABELS))
        for f in chosen.tolist():
            ways = exchanges(some, pairs.folds, chance.features[f])
            way = next(way for way in ways if way.level == level)
            for at, givers in enumerate(way.draw(LABELS, rng)):
                labelled, tables = Relabelled.of(pairs, f).ranked(givers)
                own = labelled.by_stimulus, tables
                if sampled:
                    order = rng.permutation(len(tables.features))
                    left[:, at] += contribution_replicates(*own, f, order, blocks.weights)
                else:
                    left[:, at] += term_replicates(*own, blocks.weights)[:, f]
        left *= np.abs(mean).sum() / max(np.abs(mean[chosen]).sum(), 1e-12)
        apart = ~np.eye(LABELS, dtype=bool)
        of_kinds = [
            (len(part) - 1) * np.cov(part.T, bias=True)[apart].mean()
            for part in np.split(left, ends)
        ]
        both = of_kinds[0] + of_kinds[1] - of_kinds[2] if len(of_kinds) > 1 else 0.0
        reach.append(np.sqrt(max(0.0, both, *of_kinds[:2])) * t_quantile(min(blocks.sizes)))
    return np.array(reach)


class Comparison(NamedTuple):
    """Layers of some stimuli that are compared by a similarity, with all of these or without some.

    What is left without a block of sentences or words is compared anew, as if the others had never
    been there: squared distances of the remaining stimuli are U-centred again, neighbours are
    looked for among them, and one layer is turned onto the other by them (the components stay those
    of all stimuli). The interval is that of the jackknife by t. Repeated stimuli have no place in
    most statistics (a stimulus would be its own nearest neighbour), so there is no bootstrap.

    pairs : all pairs of the stimuli, with no need of ranks; without any for a similarity that is no
        sum over pairs
    similarity : which
    layers : what it compares of each layer, see `mlem_core.pairs.layer_sums.LayerInput`
    """

    pairs: LayerPairs
    similarity: Similarity
    layers: Sequence[FloatArray]

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        similarity: Similarity,
        layers: Sequence[Layer],
        features: Sequence[str],
        store: Store,
    ) -> Comparison:
        """Layers of an analysis, from the representations in the store.

        Raises as `mlem_core.analysis.similarities.compared`; more pairs than are compared again.
        """
        check_comparable(analysis, similarity)
        if not similarity.divides:
            pairs = LayerPairs.without_pairs(analysis, layers)
        elif resampled_part(analysis.design, analysis.folds).is_complete:
            pairs = LayerPairs.of(analysis, layers, store, features, ranked=False).coarse
        else:
            raise InputError(
                f"found {analysis.design.n_pairs:,} pairs of stimuli; intervals of the "
                f"{similarity.called} compare all pairs again without each block, so choose fewer "
                "stimuli (--sample)."
            )
        inputs = [layer_input(analysis, similarity, layer, store)() for layer in layers]
        return cls(pairs, similarity, inputs)

    def sums(self, kept: NDArray[np.bool_] | None = None) -> tuple[FloatArray, SimilaritySums]:
        """Pairs of each cell, and the sums, of the stimuli that are kept (None: of all)."""
        pairs = self.pairs
        every = np.ones(len(pairs.groups), dtype=bool)
        division = PairCells(pairs.cells, len(pairs.tables.counts), pairs.folds)
        return of_some(self.similarity, self.layers, division, every if kept is None else kept)

    def draws(self, kept: NDArray[np.bool_], progress: Counted | None = None) -> FloatArray:
        """The similarity and its terms, of all stimuli and then of those that each row keeps.

        Parameters
        ----------
        kept : (n_rows, n_stimuli)
        progress : called with the number of rows done and their total

        Returns
        -------
        (1 + n_rows, n_features + 2, n_layers, n_layers), as `bootstrap.decompositions` has them;
        the similarity alone, (1 + n_rows, 1, ...), where there are no terms or more than 12
        features
        """
        whole = self.sums()
        tables, priority = self.pairs.tables, None
        orders = sampled_orders(tables.codes, FEWEST_ORDERS)
        if self.similarity.divides and (len(self.layers) == 2 or orders == 0):
            tables = with_sums(tables, whole[1])
            priority = CrossFit.of(tables).priority

        def divided(counts: FloatArray, sums: SimilaritySums, order: IntArray | None) -> FloatArray:
            if order is None:
                return sums.similarity[None, None]
            drawn = counts[None], sums.sums[None], sums.squares[None]
            split = divide(CrossFit.of_draws(tables, *drawn, order), orders)
            return np.concatenate((split.terms[:, 0], split.whole, sums.similarity[None]))[None]

        def left_out(rows: NDArray[np.bool_]) -> FloatArray:
            return divided(*self.sums(rows[0]), priority)

        return np.concatenate(
            (divided(*whole, priority), in_parts(left_out, kept, progress=progress))
        )

    def interval(self, progress: Counted | None = None) -> Estimate:
        """Terms of two layers, "unexplained", their similarity and ceilings, (n_features + 4,).

        The similarity alone, (1,), where it has no terms.

        Raises InputError: too few sentences, or too few stimuli without a block.

        Parameters
        ----------
        progress : called with the number of blocks left out and their total
        """
        check_enough(self.pairs.n_groups)
        blocks = self.pairs.units.blocks()
        values = of_two_layers(self.draws(blocks.weights > 0, progress))
        within = (-np.inf, np.inf) if self.similarity.divides else (-1.0, 1.0)
        return jackknife(values[0], values[1:], blocks.sizes, within)

    def chance(
        self,
        stimuli: StimulusSet,
        progress: Counted | None = None,
        n_permutations: int = PERMUTATIONS,
    ) -> Chance:
        """Contributions of each feature by chance, see `mlem_core.inference.chance`.

        Parameters
        ----------
        stimuli : of the analysis
        """
        pairs = replace(self.pairs, tables=with_sums(self.pairs.tables, self.sums()[1]))
        values = [self.similarity.of(layer) for layer in self.layers]
        centred = np.stack([of_pairs.mean(axis=0) - mean for of_pairs, mean in values])
        return chance_at_level(pairs, stimuli, n_permutations, values=centred, progress=progress)

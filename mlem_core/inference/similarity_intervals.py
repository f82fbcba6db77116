"""Intervals of any similarity of layers, and chance for its terms, by stimuli that are left out.

What is left without a block of sentences or words is compared anew, as if the others had never been
there: squared distances of the remaining stimuli are U-centred again, neighbours are looked for
among them, and one layer is turned onto the other by them (the components stay those of all
stimuli). The interval is that of the jackknife by t. Repeated stimuli have no place in most
statistics (a stimulus would be its own nearest neighbour), so there is no bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.similarities import check_comparable, layer_input
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.bootstrap import of_two_layers
from mlem_core.inference.chance import Chance, chance_at_level
from mlem_core.inference.intervals import PERMUTATIONS
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import Estimate, check_enough, in_parts, jackknife
from mlem_core.measures.decomposition import divide, with_sums
from mlem_core.measures.shapley import FEWEST_ORDERS, sampled_orders
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.designs import resampled_part
from mlem_core.pairs.layer_sums import PairCells, SimilaritySums, of_some
from mlem_core.pairs.similarities import Similarity
from mlem_core.storage.store import Store


class Comparison(NamedTuple):
    """Layers of some stimuli that are compared by a similarity, with all of these or without some.

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

        Raises
        ------
        InputError
            As `mlem_core.analysis.similarities.compared`; more pairs than are compared again.
        """
        check_comparable(analysis, similarity)
        if not similarity.divides:
            pairs = LayerPairs.without_pairs(analysis, layers)
        elif resampled_part(analysis.design, analysis.folds).is_complete:
            pairs = LayerPairs.unranked(analysis, layers, store, features).coarse
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

        Parameters
        ----------
        progress : called with the number of blocks left out and their total

        Raises
        ------
        InputError
            Too few sentences, or too few stimuli without a block.
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

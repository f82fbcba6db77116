"""Intervals and chance for the terms of similarities that are not of ranks.

What is left without a block of sentences or words is compared anew, as if the others had never been
there: squared distances of the remaining stimuli are U-centred again, neighbours are looked for
among them. The interval is that of the jackknife by t. Repeated stimuli have no place in either
statistic (a stimulus would be its own nearest neighbour), so there is no bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.similarities import check_pairs, squared_of
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Counted, FloatArray, Layer
from mlem_core.inference.jackknife import REFITS, Estimate, jackknife
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation import chance_terms, permuted_terms
from mlem_core.inference.resample import check_enough, in_parts
from mlem_core.measures.decomposition import ceilings_of, divide, with_sums
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.similarities import Similarity, SimilaritySums, of_some
from mlem_core.storage.store import Store


def terms_by_chance(
    pairs: LayerPairs, similarity: Similarity, squared: Sequence[FloatArray], seed: int = 0
) -> FloatArray:
    """How large a term of two layers must be to be more than chance, see `chance_terms`.

    Parameters as of `terms_interval`.
    """
    own = replace(pairs, tables=with_sums(pairs.tables, _of_all(pairs, similarity, squared)))
    given = [similarity.of(layer) for layer in squared]
    centred = np.stack([one.values.mean(axis=0) - one.mean for one in given])
    return chance_terms(permuted_terms(own, seed=seed, values=centred))


def terms_interval(
    pairs: LayerPairs,
    similarity: Similarity,
    squared: Sequence[FloatArray],
    seed: int = 0,
    progress: Counted | None = None,
) -> Estimate:
    """Terms of two layers, "unexplained", their similarity and both ceilings: (n_features + 4,).

    Parameters
    ----------
    pairs : of two layers, all pairs of their stimuli
    squared : of each layer (n_pairs,) the squared distances that the similarity is of
    progress : called with the number of blocks left out and their total

    Raises
    ------
    InputError
        Too few sentences, or too few stimuli without a block.
    """
    check_enough(pairs.n_groups)
    n_cells = len(pairs.tables.counts)
    blocks = pairs.units.blocks(REFITS, np.random.default_rng(seed))
    found = _of_all(pairs, similarity, squared)
    tables = with_sums(pairs.tables, found)
    priority = CrossFit.of(tables).priority

    def values(counts: FloatArray, sums: SimilaritySums) -> FloatArray:
        drawn = (counts[None], sums.sums[None], sums.squares[None])
        divided = divide(CrossFit.of_draws(tables, *drawn, priority))
        whole, alike = divided.whole[0], sums.similarity[0, 1]
        terms = divided.terms[:, 0, 0, 1]
        return np.array([*terms, alike - whole[0, 1], alike, *ceilings_of(whole)])

    def left_out(rows: NDArray[np.bool_]) -> FloatArray:
        return values(*of_some(similarity, squared, pairs.cells, n_cells, rows[0]))[None]

    without = in_parts(left_out, blocks.weights > 0, progress=progress)
    return jackknife(values(pairs.tables.counts, found), without, blocks.sizes)


def _of_all(
    pairs: LayerPairs, similarity: Similarity, squared: Sequence[FloatArray]
) -> SimilaritySums:
    every = np.ones(len(pairs.groups), dtype=bool)
    return of_some(similarity, squared, pairs.cells, len(pairs.tables.counts), every)[1]


def of_analysis(
    analysis: Analysis,
    similarity: Similarity,
    layers: Sequence[Layer],
    features: Sequence[str],
    store: Store,
) -> tuple[LayerPairs, list[FloatArray]]:
    """What `similarity_intervals` takes, from the representations in the store.

    Raises
    ------
    InputError
        As `mlem_core.analysis.similarities.compared`.
    """
    check_pairs(analysis, similarity)
    pairs = LayerPairs.of(analysis, layers, store, features)
    if not pairs.design.is_complete:
        raise InputError(
            f"found {analysis.design.n_pairs:,} pairs of stimuli; intervals of the "
            f"{similarity.called} compare all pairs again without each block, so choose fewer "
            "stimuli (--sample)."
        )
    return pairs, [squared_of(analysis, similarity, layer, store)() for layer in layers]

"""Moments of what a similarity other than RSA compares, in the place of those of ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.moment_sums import blocks_of_folds, layer_moments, products_of_layers
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, NumbersInFile, correlations
from mlem_core.pairs.similarities import NOTHING, Similarity

# Gives what a similarity compares of a layer: the squared distances (n_pairs,) of all pairs, in
# condensed order; or, where it is no sum over pairs, its components (n_stimuli, n_components).
LayerInput = Callable[[], FloatArray]


@dataclass(frozen=True)
class SimilarityMoments:
    """Similarities of n_layers layers and, where they are sums over pairs, moments of these.

    Attributes
    ----------
    values : (n_layers, n_layers)
    products : (n_layers, n_blocks, n_blocks, n_products) sums of what a layer gives the pairs with
        the columns that are sums of products; of a pair with two values, of their mean
    sums : (n_layers, n_blocks, n_blocks)
    pairwise_products : (n_pairwise, n_layers, n_blocks, n_blocks)
    value_products : (n_blocks, n_blocks, n_layers, n_layers) of two layers
    """

    values: FloatArray
    products: FloatArray
    sums: FloatArray
    pairwise_products: FloatArray
    value_products: FloatArray

    def replace_ranks(self, moments: PairMoments) -> PairMoments:
        """Moments whose contributions are those to this similarity, from others of these pairs.

        With folds over items, pairs of one item test their fold too.
        """
        start = moments.n_pairwise + moments.n_layers
        return replace(
            moments,
            products=np.concatenate((moments.products[:start], self.products)),
            sums=np.concatenate((moments.sums[:start], self.sums)),
            pairwise_products=np.concatenate(
                (moments.pairwise_products[:, :start], self.pairwise_products), axis=1
            ),
            rank_products=self.value_products,
            untested=None,
        )


def similarity_moments(
    similarity: Similarity,
    layers: Sequence[LayerInput],
    columns: PairColumns,
    folds: IntArray,
    *,
    folder: Path | None = None,
    progress: Counted | None = None,
) -> SimilarityMoments:
    """Layers compared by what each gives all pairs of stimuli, or one turned onto the other.

    Parameters
    ----------
    columns : of all pairs
    folds : (n_stimuli,) the fold that tests each stimulus
    folder : for a temporary file, where the values of all layers are too many for the memory
    progress : called with the number of layers done and their total

    Raises InputError: too few stimuli.
    """
    count = progress or (lambda *_: None)
    if similarity.aligned is not None:
        values = aligned_similarities(similarity, layers, folds, count)
        nothing = np.zeros((len(layers), 0, 0))
        return SimilarityMoments(
            values, nothing[..., None][..., :0], nothing, nothing[None][:0], np.zeros((0, 0, 0, 0))
        )
    block = blocks_of_folds(folds)
    with tempfile.TemporaryFile(dir=folder) as file:
        in_file = file if 8 * len(layers) * len(folds) ** 2 / 2 > IN_MEMORY_BYTES else None
        of_layers, sides, centre = [], [], 0.0
        for done, layer in enumerate(layers, 1):
            values, centre = similarity.pair_values(layer())
            mean_of_sides = np.asarray(values, dtype=np.float64).mean(axis=0) - centre
            # Moments of ranks mean nothing here.
            no_ranks = np.zeros(len(mean_of_sides), dtype=np.uint32)
            of_layers.append(layer_moments(columns, folds, mean_of_sides, no_ranks))
            flat: Any = np.ascontiguousarray(values, dtype=np.float64).ravel()
            sides.append(flat if in_file is None else NumbersInFile.from_values(flat, in_file))
            count(done, len(layers))
        n_sides = len(values)
        value_products = _value_products(block, sides, n_sides, centre)
    total = value_products[np.triu_indices(len(value_products))].sum(axis=0)
    squares, off = np.diag(total), centre**2 * len(mean_of_sides)
    # Where all pairs have one value, nothing but rounding is left of it.
    equal = squares <= NOTHING * off
    value_products[:, :, equal], value_products[:, :, :, equal] = 0.0, 0.0
    total[equal], total[:, equal] = 0.0, 0.0
    products, sums, pairwise_products, *_ = map(np.stack, zip(*of_layers, strict=True))
    for of_equal in (products, sums, pairwise_products):
        of_equal[equal] = 0.0
    return SimilarityMoments(
        correlations(total),
        products[:, 0],
        sums[:, 0],
        pairwise_products[:, :, 0].swapaxes(0, 1),
        value_products,
    )


def aligned_similarities(
    similarity: Similarity,
    layers: Sequence[LayerInput],
    folds: IntArray,
    count: Counted = lambda *_: None,
) -> FloatArray:
    """(n_layers, n_layers) similarities of layers, one of two turned onto the other.

    Stimuli of a fold below 0 have no part in it. Raises InputError: too few stimuli.
    """
    assert similarity.aligned is not None
    similarity.check_enough(int((folds >= 0).sum()))
    components: list[FloatArray] = []
    products = np.eye(len(layers))
    for at, layer in enumerate(layers):
        components.append(layer())
        # A layer without any component has nothing in common, not even with itself.
        products[at, at] = float(components[at].size > 0)
        for other in range(at):
            value = similarity.aligned(components[at], components[other], folds)
            products[at, other] = products[other, at] = value
        count(at + 1, len(layers))
    return correlations(products)


def _value_products(
    block: IntArray, sides: Sequence[Any], n_sides: int, centre: float
) -> FloatArray:
    """(n_blocks, n_blocks, n_layers, n_layers) sums of products of the centred values."""
    design = PairDesign.complete(len(block))
    products = []
    for side in range(n_sides):
        offset = side * design.n_pairs

        def read(layer: int, first: int, last: int, offset: int = offset) -> NDArray[Any]:
            return np.asarray(sides[layer][offset + first : offset + last])

        products.append(products_of_layers(block, len(sides), read, design, centre))
    return np.asarray(sum(products) / n_sides)

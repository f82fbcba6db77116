"""Layers compared by a similarity: all stimuli, or some of them as if there were no others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.pairs.designs import pairs_among
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, correlations
from mlem_core.pairs.similarities import NOTHING, Aligned, Similarity

# Pairs that are multiplied at once.
BAND = 2**16
# What gives what a similarity compares of a layer: the squared distances (n_pairs,) of all pairs,
# in condensed order; or, where it is no sum over pairs, its components (n_stimuli, n_components).
LayerInput = Callable[[], FloatArray]


class PairCells(NamedTuple):
    """Cells and folds of some stimuli and their pairs.

    cells : (n_pairs,) the cell of each pair; none where a similarity is no sum over pairs
    n_cells : how many cells there are
    folds : (n_stimuli,) the fold that leaves a stimulus out; one below 0 has no part
    """

    cells: NDArray[np.integer]
    n_cells: int
    folds: IntArray


class SimilaritySums(NamedTuple):
    """Sums of the values that n_layers layers give the pairs, by cell.

    sums : (n_layers, n_cells) of the centred values; of a pair with two, of their mean
    squares : (n_layers,) sums of their squares over all pairs
    products : (n_layers, n_layers) sums of their products; without pairs, the similarities
    """

    sums: FloatArray
    squares: FloatArray
    products: FloatArray

    @property
    def similarity(self) -> FloatArray:
        """(n_layers, n_layers) within −1 and 1; 0 for a layer whose values are all equal."""
        return correlations(self.products)


def similarity_sums(
    similarity: Similarity,
    layers: Sequence[LayerInput],
    division: PairCells,
    *,
    folder: Path | None = None,
    progress: Counted | None = None,
) -> SimilaritySums:
    """Compare layers by what each gives all pairs of the stimuli, or one turned onto the other.

    Parameters
    ----------
    folder : for a temporary file, where the values of all layers are too many for the memory
    progress : called with the number of layers done and their total

    Raises
    ------
    InputError
        Too few stimuli.
    """
    told = progress or (lambda *_: None)
    if similarity.aligned is not None:
        similarity.check_enough(len(division.folds))
        products = _of_every_two(similarity.aligned, layers, division.folds, told)
        return SimilaritySums(np.zeros((len(layers), 0)), np.diag(products).copy(), products)
    with tempfile.TemporaryFile(dir=folder) as file:
        return _over_pairs(similarity, layers, division, file, told)


def _over_pairs(
    similarity: Similarity,
    layers: Sequence[LayerInput],
    division: PairCells,
    file: Any,
    told: Counted,
) -> SimilaritySums:
    from scipy.sparse import csr_array

    from mlem_core.pairs.kernels.distances import sum_values

    cells, n_cells, _ = division
    counts = np.bincount(cells, minlength=n_cells)
    sums, squares = np.zeros((len(layers), n_cells)), np.zeros(len(layers))
    kept: list[Any] = []
    many = 8 * len(layers) * len(cells) > IN_MEMORY_BYTES
    mean, n_sides = 0.0, 1
    for at, squared in enumerate(layers):
        values, mean = similarity.of(squared())
        n_sides = len(values)
        squares[at] = sum_values(values, cells, sums[at]) / n_sides
        sums[at] = sums[at] / n_sides - counts * mean
        if similarity.sparse:
            kept.append(csr_array(values.reshape(1, -1)))
        else:
            kept.append(_in_file(values, file) if many else values.ravel())
        told(at + 1, len(layers))
    off = mean**2 * len(cells)
    products = (_sparse_products if similarity.sparse else _products)(kept) / n_sides - off
    squares -= off
    # Where all pairs have one value, nothing but rounding is left of it.
    equal = squares <= NOTHING * off
    sums[equal], squares[equal], products[equal], products[:, equal] = 0.0, 0.0, 0.0, 0.0
    return SimilaritySums(sums, squares, products)


def _in_file(values: NDArray[Any], file: Any) -> NDArray[Any]:
    start = file.seek(0, 2)
    file.write(values.data)
    file.flush()
    return np.memmap(file, values.dtype, "r", start, (values.size,))


def _products(layers: Sequence[NDArray[Any]]) -> FloatArray:
    """(n_layers, n_layers) sums of products of some numbers (n,) of each layer."""
    products = np.zeros((len(layers), len(layers)))
    for start in range(0, len(layers[0]), BAND):
        band = np.stack([values[start : start + BAND] for values in layers]).astype(np.float64)
        products += band @ band.T
    return products


def _sparse_products(layers: Sequence[Any]) -> FloatArray:
    """(n_layers, n_layers) sums of products of sparse rows (1, n) of each layer."""
    from scipy.sparse import vstack

    rows = vstack(layers, format="csr")
    products: FloatArray = (rows @ rows.T).toarray()
    return products


def _of_every_two(
    aligned: Aligned, layers: Sequence[LayerInput], folds: IntArray, told: Counted
) -> FloatArray:
    """The similarity of every two layers (n_layers, n_layers), symmetric."""
    components: list[FloatArray] = []
    similarities = np.eye(len(layers))
    for at, layer in enumerate(layers):
        components.append(layer())
        # A layer without any component has nothing in common, not even with itself.
        similarities[at, at] = float(components[at].size > 0)
        for other in range(at):
            value = aligned(components[at], components[other], folds)
            similarities[at, other] = similarities[other, at] = value
        told(at + 1, len(layers))
    return similarities


def of_some(
    similarity: Similarity,
    layers: Sequence[FloatArray],
    division: PairCells,
    kept: NDArray[np.bool_],
) -> tuple[FloatArray, SimilaritySums]:
    """Pairs of each cell (n_cells,), and the sums, of some of the stimuli only.

    Components stay those of all stimuli.

    Parameters
    ----------
    layers : what is compared of each, of all stimuli
    kept : (n_stimuli,) whether a stimulus is one of them
    """
    cells, n_cells, folds = division
    if similarity.aligned is not None:
        some = division._replace(folds=np.where(kept, folds, -1))
        return np.zeros(n_cells), similarity_sums(similarity, [_given(x) for x in layers], some)
    places = pairs_among(np.flatnonzero(kept), len(kept))
    some = PairCells(cells[places], n_cells, folds[kept])
    sums = similarity_sums(similarity, [_given(x, places) for x in layers], some)
    return np.bincount(some.cells, minlength=n_cells).astype(np.float64), sums


def _given(layer: FloatArray, places: Any = slice(None)) -> LayerInput:
    return lambda: layer[places]

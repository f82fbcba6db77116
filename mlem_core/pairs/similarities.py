"""What two layers are compared by: a number for every pair of stimuli; the one registry of these.

A similarity of two layers is the correlation, over all pairs of stimuli, of a number that each
layer gives a pair: the rank of its distance (RSA), its U-centred squared distance (debiased linear
CKA), or whether one is among the nearest neighbours of the other (mutual nearest neighbours). Sums
of that number by cell take the place of sums of ranks in the pair tables, so that whatever divides
RSA over the features (`mlem_core.measures.decomposition`) divides the others as well.

Each is 0 on average for layers that have nothing to do with each other: the numbers of a layer add
up to 0 over all pairs, however the stimuli of the other layer are ordered.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, each
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed
from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.pairs.alignments import COMPONENTS, STIMULI_A_COMPONENT, Aligned, cca, procrustes
from mlem_core.pairs.designs import pairs_among
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, correlations, pair_ranks

# Of each stimulus so many others are its neighbours.
NEIGHBOURS = 10
# Distances that differ by less than this part of themselves are equal, as they are for ranks.
TIE = 1e-9
# What is below this part of what it is the difference of is rounding.
NOTHING = 1e-12
# Pairs that are multiplied at once.
BAND = 2**16


class PairValues(NamedTuple):
    """What a layer gives the pairs of some stimuli.

    values : (n_sides, n_pairs) in condensed order; two sides where (i, j) and (j, i) differ
    mean : of all values
    """

    values: NDArray[Any]
    mean: float = 0.0


@dataclass(frozen=True)
class Similarity:
    """A similarity of two layers.

    Attributes
    ----------
    name : how a user asks for it
    values : what a layer gives the pairs, from its squared distances (n_pairs,); None where it is
        no sum over pairs, and `aligned` gives it from what two layers are
    sparse : whether most of these are 0
    fewest : stimuli that it needs
    distance : the neural distance that it is of; None is that of the analysis
    aligned : see `mlem_core.pairs.alignments`
    short : how figures and short sentences call it
    label : how forms call it
    called : the same in a sentence, after "the"
    title, unit : what matrices of it are called, and what their numbers are
    statistic : what its numbers of a pair are, in a sentence
    source : where it is from
    """

    name: str
    values: Callable[[FloatArray], PairValues] | None
    fewest: int
    short: str
    label: str
    called: str
    title: str
    unit: str
    statistic: str
    source: str
    distance: str | None = None
    sparse: bool = False
    aligned: Aligned | None = None

    @property
    def divides(self) -> bool:
        """Whether it is a sum over pairs of stimuli, which features can divide."""
        return self.values is not None

    @property
    def meaning(self) -> str:
        """What it is, in a sentence."""
        over = "the correlation, over all pairs, of " if self.divides else ""
        return f"{over}{self.statistic}"

    @property
    def no_terms(self) -> str:
        """Why there are no terms by feature; empty where there are."""
        if self.divides:
            return ""
        return (
            f"The {self.called} is no sum over pairs of stimuli, so it has no terms by feature; "
            f"{listed([one.short for one in SIMILARITIES.values() if one.divides])} have some."
        )

    def check_divides(self) -> None:
        """Raise InputError where it has no terms by feature."""
        if not self.divides:
            names = [name for name, one in SIMILARITIES.items() if one.divides]
            raise InputError(
                f"found the similarity {self.name}, which is no sum over pairs of stimuli and has "
                f"no terms by feature; choose {listed(names, last='or')}."
            )

    def of(self, squared: FloatArray) -> PairValues:
        """What a layer gives the pairs of stimuli.

        Parameters
        ----------
        squared : (n_pairs,) squared distances of all pairs, in condensed order

        Raises
        ------
        InputError
            Too few stimuli; a similarity that is no sum over pairs.
        """
        self.check_divides()
        assert self.values is not None
        if (n := n_stimuli(len(squared))) < self.fewest:
            raise InputError(f"found {n} stimuli; the {self.called} needs at least {self.fewest}.")
        return self.values(squared)


def n_stimuli(n_pairs: int) -> int:
    """Of how many stimuli so many pairs are all."""
    return (1 + math.isqrt(1 + 8 * n_pairs)) // 2


def _ranks(squared: FloatArray) -> PairValues:
    doubled = pair_ranks(squared, threads=cores())
    return PairValues((doubled / 2 - (len(doubled) + 1) / 2)[None])


def _u_centred(squared: FloatArray) -> PairValues:
    from mlem_core.pairs.kernels.distances import u_centre

    found = np.empty((1, len(squared)))
    u_centre(squared, n_stimuli(len(squared)), found[0])
    if np.abs(found).max() <= NOTHING * squared.max():
        found[:] = 0.0
    return PairValues(found)


def nearest(squared: FloatArray, k: int = NEIGHBOURS) -> PairValues:
    """Whether stimuli are among the k nearest neighbours of others; equally near ones share.

    Where the k-th and later ones are equally near, each of them counts as likely as it would be
    taken at random, so that the order of the stimuli says nothing.
    """
    from mlem_core.pairs.kernels.distances import among_nearest

    n, found = n_stimuli(len(squared)), np.empty((2, len(squared)))
    edges = np.linspace(0, n, cores() + 1).astype(int)

    def fill(part: int) -> None:
        among_nearest(squared, n, k, TIE, int(edges[part]), int(edges[part + 1]), found)

    each(fill, range(len(edges) - 1), cores())
    return PairValues(found, k / (n - 1))


SIMILARITIES = Registry[Similarity]("similarity")
register = SIMILARITIES.register
similarity_named = SIMILARITIES.named


class SimilaritySums(NamedTuple):
    """What n_layers layers give the pairs, by cell.

    sums : (n_layers, n_cells) of the centred values; of a pair with two, of their mean
    squares : (n_layers,) sums of their squares over all pairs
    products : (n_layers, n_layers) sums of their products
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
    layers: Sequence[Callable[[], FloatArray]],
    cells: NDArray[np.integer],
    n_cells: int,
    *,
    folder: Path | None = None,
    progress: Counted | None = None,
) -> SimilaritySums:
    """Compare layers by what each gives all pairs of the stimuli.

    Parameters
    ----------
    layers : for each layer what gives its squared distances (n_pairs,), in condensed order
    cells : (n_pairs,) the cell of each pair
    folder : for a temporary file, where the values of all layers are too many for the memory
    progress : called with the number of layers done and their total

    Raises
    ------
    InputError
        Too few stimuli.
    """
    from scipy.sparse import csr_array

    from mlem_core.pairs.kernels.distances import sum_values

    counts = np.bincount(cells, minlength=n_cells)
    sums, squares = np.zeros((len(layers), n_cells)), np.zeros(len(layers))
    kept: list[Any] = []
    many = 8 * len(layers) * len(cells) > IN_MEMORY_BYTES
    mean, n_sides = 0.0, 1
    with tempfile.TemporaryFile(dir=folder) as file:
        for at, squared in enumerate(layers):
            values, mean = similarity.of(squared())
            n_sides = len(values)
            squares[at] = sum_values(values, cells, sums[at]) / n_sides
            sums[at] = sums[at] / n_sides - counts * mean
            if similarity.sparse:
                kept.append(csr_array(values.reshape(1, -1)))
            else:
                kept.append(_in_file(values, file) if many else values.ravel())
            if progress is not None:
                progress(at + 1, len(layers))
        off = mean**2 * len(cells)
        of_all = _sparse_products if similarity.sparse else _products
        products = of_all(kept) / n_sides - off
        del kept
    squares -= off
    # Where all pairs have one value, nothing but rounding is left of it.
    alike = squares <= NOTHING * off
    sums[alike], squares[alike], products[alike], products[:, alike] = 0.0, 0.0, 0.0, 0.0
    return SimilaritySums(sums, squares, products)


def _in_file(values: NDArray[Any], file: Any) -> NDArray[Any]:
    start = file.seek(0, 2)
    file.write(values.data)
    file.flush()
    return np.memmap(file, values.dtype, "r", start, (values.size,))


def _products(layers: Sequence[NDArray[Any]]) -> FloatArray:
    """(n_layers, n_layers) sums of products of some numbers (n,) of each layer."""
    found = np.zeros((len(layers), len(layers)))
    for start in range(0, len(layers[0]), BAND):
        band = np.stack([own[start : start + BAND] for own in layers]).astype(np.float64)
        found += band @ band.T
    return found


def _sparse_products(layers: Sequence[Any]) -> FloatArray:
    """The same of sparse rows (1, n)."""
    from scipy.sparse import vstack

    rows = vstack(layers, format="csr")
    found: FloatArray = (rows @ rows.T).toarray()
    return found


def of_some(
    similarity: Similarity,
    squared: Sequence[FloatArray],
    cells: NDArray[np.integer],
    n_cells: int,
    kept: NDArray[np.bool_],
) -> tuple[FloatArray, SimilaritySums]:
    """The same of some of the stimuli only: the pairs of each cell (n_cells,), and the sums.

    Parameters
    ----------
    squared : of each layer, (n_pairs,)
    kept : (n_stimuli,) whether a stimulus is one of them
    """
    stimuli: IntArray = np.flatnonzero(kept)
    places = pairs_among(stimuli, len(kept))
    own = cells[places]
    found = similarity_sums(
        similarity,
        [lambda layer=layer: layer[places] for layer in squared],  # type: ignore[misc]
        own,
        n_cells,
    )
    return np.bincount(own, minlength=n_cells).astype(np.float64), found


_TURNED = (
    f"how far, in the first {COMPONENTS} principal components of each and in stimuli that were "
    "left out, {}"
)

for _similarity in (
    Similarity(
        "rsa",
        _ranks,
        2,
        short="RSA",
        label="RSA: ranks of the distances",
        called="RSA correlation",
        title="by neural distances (RSA)",
        unit="Spearman ρ",
        statistic="the rank of the distance",
        source="Salle et al. 2024, section 4",
    ),
    Similarity(
        "cka",
        _u_centred,
        4,
        short="CKA",
        label="CKA: debiased, linear",
        called="debiased linear CKA",
        title="by squared distances",
        unit="debiased linear CKA",
        statistic="the squared Euclidean distance, U-centred",
        source="Song et al. 2012; Székely and Rizzo 2014; Kornblith et al. 2019",
        distance="euclidean",
    ),
    Similarity(
        "neighbours",
        nearest,
        NEIGHBOURS + 2,
        short="overlap",
        label="Nearest neighbours: overlap",
        called="calibrated overlap of nearest neighbours",
        title="by nearest neighbours",
        unit="calibrated overlap",
        statistic=f"being among the {NEIGHBOURS} nearest neighbours",
        source="Huh et al. 2024",
        sparse=True,
    ),
    Similarity(
        "procrustes",
        None,
        2 * STIMULI_A_COMPONENT,
        short="Procrustes",
        label="Procrustes: one layer turned onto the other",
        called="held-out Procrustes similarity",
        title="by rotation (Procrustes)",
        unit="held-out Procrustes similarity",
        statistic=_TURNED.format("the layers are alike when one is turned onto the other"),
        source="Schönemann 1966",
        aligned=procrustes,
    ),
    Similarity(
        "cca",
        None,
        2 * STIMULI_A_COMPONENT,
        short="CCA",
        label="CCA: directions that go together",
        called="held-out mean canonical correlation",
        title="by canonical correlations (CCA)",
        unit="held-out canonical correlation",
        statistic=_TURNED.format("the directions of the layers that go together do so"),
        source="Hotelling 1936; Raghu et al. 2017",
        aligned=cca,
    ),
):
    register(_similarity)

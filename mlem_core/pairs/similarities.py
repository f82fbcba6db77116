"""Similarities of two layers: an entry each, in one registry.

Most are the correlation, over all pairs of stimuli, of a number that each layer gives a pair: the
rank of its distance (RSA), its U-centred squared distance (debiased linear CKA), or whether one is
among the nearest neighbours of the other (mutual nearest neighbours). Moments of that number take
the place of moments of ranks (`mlem_core.pairs.similarity_moments`), so that whatever divides RSA
over the features (`mlem_core.measures.decomposition`) divides the others as well.

Procrustes and CCA turn one layer onto the other. The rotation (of Procrustes), or the directions of
either layer that go together (of CCA), are those of the training stimuli; the similarity is then
measured on the stimuli of the fold that is left out. In-sample either is large for any two
layers with many units. 1 is one layer, however turned (and, for CCA, scaled). A layer is its first
principal components, as many as the stimuli can tell. No pair of stimuli has a part in either, so
there are no terms by feature.

Each is 0 on average for layers that have nothing to do with each other: the numbers of a layer add
up to 0 over all pairs, however the stimuli of the other layer are ordered, and what a rotation
gains from chance in the training stimuli, no other stimuli share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, each
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extending import entry_modules
from mlem_core.pairs.ranks import pair_ranks

# Of each stimulus so many others are its neighbours.
NEIGHBOURS = 10
# Distances that differ by less than this part of themselves are equal, as they are for ranks.
TIE = 1e-9
# What is below this part of what it is the difference of is rounding.
NOTHING = 1e-12
# Of each layer so many principal components are turned, but at most one for so many stimuli.
COMPONENTS, STIMULI_A_COMPONENT = 50, 10
# A component of less than this part of the variance of the largest is rounding.
_FLAT = 1e-10

# What gives the similarity of the components (n_stimuli, n_a) and (n_stimuli, n_b) of two layers,
# by the fold (n_stimuli,) that leaves each stimulus out.
Aligned = Callable[[FloatArray, FloatArray, IntArray], float]


class PairValues(NamedTuple):
    """Values that a layer gives the pairs of some stimuli.

    values : (n_sides, n_pairs) in condensed order; two sides where (i, j) and (j, i) differ
    mean : of all values
    """

    values: NDArray[Any]
    mean: float = 0.0


@dataclass(frozen=True)
class Similarity:
    """A similarity of two layers, and what can be had of it.

    Attributes
    ----------
    name : how a user asks for it
    values : what a layer gives the pairs, from its squared distances (n_pairs,); None where it is
        no sum over pairs
    fewest : stimuli that it needs
    short : how figures and short sentences call it
    label : how forms call it
    called : the same in a sentence, after "the"
    title, unit : what matrices of it are called, and what their numbers are
    statistic : what its numbers of a pair are, in a sentence
    source : where it is from
    distance : the neural distance that it is of; None is that of the analysis
    sparse : whether most values of pairs are 0
    aligned : the similarity of the components of two layers, where it is no sum over pairs
    of_ranks : whether it is of the ranks that the moments of pairs have. It comes with every
        analysis, also of some of the pairs; any other is computed from all pairs (or the
        representations) once it is needed
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
    of_ranks: bool = False

    @property
    def divides(self) -> bool:
        """Whether it is a sum over pairs of stimuli, which features can divide."""
        return self.values is not None

    @property
    def depends_on_distance(self) -> bool:
        """Whether the neural distance that is chosen for an analysis has a part in it."""
        return self.divides and self.distance is None

    @property
    def several(self) -> str:
        """Several of them, in the family of their tests."""
        return f"{self.called}s" if self.of_ranks else f"values of the {self.called}"

    @property
    def meaning(self) -> str:
        """Definition of the similarity, in a sentence."""
        over = "the correlation, over all pairs, of " if self.divides else ""
        return f"{over}{self.statistic}"

    @property
    def no_terms(self) -> str:
        """Reason why there are no contributions by feature; empty where there are."""
        if self.divides:
            return ""
        return f"{self.short} is no sum over pairs and has no contributions by feature."

    def check_divides(self) -> None:
        """Raise InputError where it has no terms by feature."""
        if not self.divides:
            names = [name for name, one in SIMILARITIES.items() if one.divides]
            raise InputError(
                f"found the similarity {self.name}, which is no sum over pairs of stimuli and has "
                f"no terms by feature; choose {listed(names, last='or')}."
            )

    def check_enough(self, n: int) -> None:
        """Raise InputError for too few stimuli."""
        if n < self.fewest:
            raise InputError(f"found {n} stimuli; the {self.called} needs at least {self.fewest}.")

    def of(self, squared: FloatArray) -> PairValues:
        """Values that a layer gives the pairs of stimuli.

        `squared` is (n_pairs,) squared distances of all pairs, in condensed order.

        Raises InputError: too few stimuli; a similarity that is no sum over pairs.
        """
        self.check_divides()
        assert self.values is not None
        self.check_enough(n_stimuli(len(squared)))
        return self.values(squared)


def n_stimuli(n_pairs: int) -> int:
    """Number of stimuli that have so many pairs."""
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


def nearest(squared: FloatArray) -> PairValues:
    """Whether stimuli are among the k `NEIGHBOURS` nearest to others; equally near ones share.

    Where the k-th and later ones are equally near, each of them counts as likely as it would be
    taken at random, so that the order of the stimuli says nothing.
    """
    from mlem_core.pairs.kernels.distances import among_nearest

    n, k, found = n_stimuli(len(squared)), NEIGHBOURS, np.empty((2, len(squared)))
    edges = np.linspace(0, n, cores() + 1).astype(int)

    def fill(part: int) -> None:
        among_nearest(squared, n, k, TIE, int(edges[part]), int(edges[part + 1]), found)

    each(fill, range(len(edges) - 1), cores())
    return PairValues(found, k / (n - 1))


def components(rows: NDArray[np.floating]) -> FloatArray:
    """The first principal components (n_stimuli, n_components) of a layer (n_stimuli, n_units)."""
    from scipy.linalg import eigh

    centred = rows.astype(np.float64)
    centred -= centred.mean(axis=0)
    few_units = centred.shape[1] <= len(centred)
    products = centred.T @ centred if few_units else centred @ centred.T
    most = max(1, min(COMPONENTS, len(centred) // STIMULI_A_COMPONENT, len(products)))
    last = len(products) - 1
    values, vectors = eigh(products, subset_by_index=(last - most + 1, last))
    kept = values > _FLAT * max(float(values[-1]), 0.0)
    vectors = vectors[:, kept][:, ::-1]
    scores: FloatArray = centred @ vectors if few_units else vectors * np.sqrt(values[kept][::-1])
    return scores


def procrustes(one: FloatArray, other: FloatArray, folds: IntArray) -> float:
    """Procrustes similarity of two layers, in stimuli that the rotation was not fitted to.

    Parameters
    ----------
    one, other : (n_stimuli, n_components) of each
    folds : (n_stimuli,) the fold that leaves a stimulus out; one below 0 has no part

    Returns tr(A R Bᵀ) / (‖A‖ ‖B‖) of the stimuli that are left out, summed over the folds.
    """
    return _held_out(one, other, folds, _rotated)


def cca(one: FloatArray, other: FloatArray, folds: IntArray) -> float:
    """Similarity of two layers' canonical variates, of variance 1 in the training stimuli.

    So every direction counts alike, however little of a layer's variance lies along it. Parameters
    are those of `procrustes`.
    """
    return _held_out(one, other, folds, _canonical)


def _rotated(
    a: FloatArray, b: FloatArray, left_a: FloatArray, left_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    return left_a @ (u @ vt), left_b


def _canonical(
    a: FloatArray, b: FloatArray, left_a: FloatArray, left_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    (a, left_a), (b, left_b) = _whitened(a, left_a), _whitened(b, left_b)
    u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    return left_a @ u, left_b @ vt.T


def _whitened(rows: FloatArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    u, values, vt = np.linalg.svd(rows, full_matrices=False)
    kept = values > np.sqrt(_FLAT) * values.max(initial=0.0)
    return u[:, kept], left @ (vt[kept].T / values[kept])


def _held_out(
    one: FloatArray,
    other: FloatArray,
    folds: IntArray,
    turned: Callable[..., tuple[FloatArray, ...]],
) -> float:
    product, squares = 0.0, np.zeros(2)
    if not one.size or not other.size:
        return 0.0
    for fold in np.unique(folds[folds >= 0]):
        train, test = (folds >= 0) & (folds != fold), folds == fold
        means = [layer[train].mean(axis=0) for layer in (one, other)]
        a, b, left_a, left_b = (
            layer[where] - mean
            for where in (train, test)
            for layer, mean in zip((one, other), means, strict=True)
        )
        left_a, left_b = turned(a, b, left_a, left_b)
        product += float((left_a * left_b).sum())
        squares += [(left_a**2).sum(), (left_b**2).sum()]
    return product / float(np.sqrt(squares.prod())) if (squares > 0).all() else 0.0


SIMILARITIES = Registry[Similarity]("similarity", entry_modules)
# The one that comes with every analysis, and is looked at where nothing else is asked.
RSA = "rsa"
_TURNED = (
    f"how far, in the first {COMPONENTS} principal components of each and in stimuli that were "
    "left out, {}"
)

for _similarity in (
    Similarity(
        RSA,
        _ranks,
        2,
        short="RSA",
        label="RSA: ranks of the distances",
        called="RSA correlation",
        title="by neural distances",
        unit="RSA, ρ",
        statistic="the rank of the distance",
        source="Salle et al. 2024, section 4",
        of_ranks=True,
    ),
    Similarity(
        "cka",
        _u_centred,
        4,
        short="CKA",
        label="CKA: debiased, linear",
        called="debiased linear CKA",
        title="by squared distances",
        unit="CKA",
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
    SIMILARITIES.register(_similarity)

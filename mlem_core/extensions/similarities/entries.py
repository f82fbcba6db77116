"""Entries of the registry of similarities: CKA, nearest neighbours, Procrustes, CCA."""

from __future__ import annotations

import numpy as np

from mlem_core.base.parallel import cores, each
from mlem_core.base.typing import FloatArray
from mlem_core.extensions.similarities.alignment import (
    COMPONENTS,
    STIMULI_A_COMPONENT,
    cca,
    components,
    procrustes,
)
from mlem_core.pairs.similarities import NOTHING, SIMILARITIES, PairValues, Similarity, n_stimuli

# Of each stimulus so many others are its neighbours.
NEIGHBOURS = 10
# Distances that differ by less than this part of themselves are equal, as they are for ranks.
TIE = 1e-9
# The keys of all four in the store have both.
_SETTINGS = (("neighbours", NEIGHBOURS), ("components", COMPONENTS))
_ALIGNED = (
    f"how far, in the first {COMPONENTS} principal components of each and in stimuli that were "
    "left out, {}"
)


def u_centred_distances(squared: FloatArray) -> PairValues:
    """U-centred squared distances of all pairs; 0 where nothing but rounding is left."""
    from mlem_core.extensions.similarities.kernels import u_centre

    centred = np.empty((1, len(squared)))
    u_centre(squared, n_stimuli(len(squared)), centred[0])
    if np.abs(centred).max() <= NOTHING * squared.max():
        centred[:] = 0.0
    return PairValues(centred)


def nearest_neighbours(squared: FloatArray) -> PairValues:
    """Whether stimuli are among the k `NEIGHBOURS` nearest to others; equally near ones share.

    Where the k-th and later ones are equally near, each of them counts as likely as it would be
    taken at random, so that the order of the stimuli says nothing.
    """
    from mlem_core.extensions.similarities.kernels import among_nearest

    n, k, shares = n_stimuli(len(squared)), NEIGHBOURS, np.empty((2, len(squared)))
    edges = np.linspace(0, n, cores() + 1).astype(int)

    def fill(part: int) -> None:
        among_nearest(squared, n, k, TIE, int(edges[part]), int(edges[part + 1]), shares)

    each(fill, range(len(edges) - 1), cores())
    return PairValues(shares, k / (n - 1))


for _similarity in (
    Similarity(
        "cka",  # Song et al. 2012; Székely and Rizzo 2014; Kornblith et al. 2019
        u_centred_distances,
        4,
        short="CKA",
        label="CKA: debiased, linear",
        called="debiased linear CKA",
        title="by squared distances",
        unit="CKA",
        statistic="the squared Euclidean distance, U-centred",
        distance="euclidean",
        settings=_SETTINGS,
    ),
    Similarity(
        "neighbours",  # Huh et al. 2024
        nearest_neighbours,
        NEIGHBOURS + 2,
        short="overlap",
        label="Nearest neighbours: overlap",
        called="calibrated overlap of nearest neighbours",
        title="by nearest neighbours",
        unit="calibrated overlap",
        statistic=f"being among the {NEIGHBOURS} nearest neighbours",
        sparse=True,
        settings=_SETTINGS,
    ),
    Similarity(
        "procrustes",  # Schönemann 1966
        None,
        2 * STIMULI_A_COMPONENT,
        short="Procrustes",
        label="Procrustes: one layer turned onto the other",
        called="held-out Procrustes similarity",
        title="by rotation (Procrustes)",
        unit="held-out Procrustes similarity",
        statistic=_ALIGNED.format("the layers are alike when one is turned onto the other"),
        aligned=procrustes,
        components=components,
        settings=_SETTINGS,
    ),
    Similarity(
        "cca",  # Hotelling 1936; Raghu et al. 2017
        None,
        2 * STIMULI_A_COMPONENT,
        short="CCA",
        label="CCA: directions that go together",
        called="held-out mean canonical correlation",
        title="by canonical correlations (CCA)",
        unit="held-out canonical correlation",
        statistic=_ALIGNED.format("the directions of the layers that go together do so"),
        aligned=cca,
        components=components,
        settings=_SETTINGS,
    ),
):
    SIMILARITIES.register(_similarity)

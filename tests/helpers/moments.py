"""Moments and test pairs of arrays, for the tests of what follows from them."""

from typing import Any, NamedTuple

import numpy as np

from helpers.explicit import random_features, random_folds, random_layer, squared
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.moment_sums import (
    blocks_of_folds,
    column_moments,
    layer_moments,
    products_of_layers,
)
from mlem_core.pairs.moments import PairMoments, Untested, pair_moments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.scored_pairs import FoldPairsIndex, ScoredPairs
from mlem_core.pairs.unit_sums import UnitSums, unit_sums


class Made(NamedTuple):
    """Moments of made-up layers, and what they were made of.

    Attributes
    ----------
    distances : (n_layers, n_pairs) squared distances
    """

    moments: PairMoments
    tests: ScoredPairs
    distances: Any
    folds: Any

    def unit_sums(self, is_member) -> UnitSums:
        """Sums of units, (n_units, n_stimuli)."""
        ranks = [pair_ranks(own) for own in self.distances]
        return unit_sums(self.moments, is_member, ranks, self.distances)


def moments_of(
    features, layers, folds, *, by_value=(), missing="ignore", interactions=False, items=None
):
    """Moments and test pairs of layers (n_stimuli, n_units); two of one item test no fold."""
    own = feature_columns(features, resolved=by_value)
    return moments_of_columns(
        PairColumns.from_features(own, missing, interactions), layers, folds, items
    )


def moments_of_columns(columns, layers, folds, items=None, design=None):
    """The same of columns that are there; of all pairs, or those of a design."""
    design = design or PairDesign.complete(len(folds), items)
    places = pair_places(*design.pairs(), len(folds))
    distances = np.stack([squared(layer)[places] for layer in layers])
    doubled = [pair_ranks(own) for own in distances]
    parts = [
        layer_moments(columns, folds, own, ranks, design)
        for own, ranks in zip(distances, doubled, strict=True)
    ]
    products = products_of_layers(
        blocks_of_folds(folds),
        len(layers),
        lambda layer, first, last: doubled[layer][first:last],
        design,
        design.n_pairs + 1.0,
    )
    products /= 4
    untested = None
    if items is not None:
        i, j = design.pairs()
        own = (items[i] == items[j]) & (folds[i] == folds[j]) & (folds[i] >= 0)
        ranks = (np.stack(doubled)[:, own] - (len(i) + 1.0)) / 2
        untested = Untested(i[own], j[own], ranks)
    of_columns = column_moments(columns, folds, design)
    moments = pair_moments(columns, folds, parts, products, untested, of_columns)
    tested = []
    for fold in range(moments.n_folds):
        index = FoldPairsIndex.from_columns(columns, np.flatnonzero(folds == fold), design)
        sums = [index.rank_sums(own[index.places]) for own in distances]
        rank_sums, squares = zip(*sums, strict=True)
        tested.append(index.with_layers(np.stack(rank_sums), np.stack(squares)))
    return Made(moments, ScoredPairs(tuple(tested)), distances, folds)


def made_up(n=60, n_layers=2, n_folds=5, **more):
    """Moments of layers that depend on two of four features, some of them missing."""
    features = random_features(n)
    layers = [random_layer(features, seed) for seed in range(1, n_layers + 1)]
    return moments_of(features, layers, random_folds(n, n_folds), **more)

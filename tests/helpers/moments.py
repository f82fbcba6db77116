"""Moments and test pairs of arrays, for the tests of what follows from them."""

from typing import Any, NamedTuple

import numpy as np

from helpers.explicit import random_features, random_folds, random_layer, squared
from helpers.inputs import for_each
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import PairRanks, pair_ranks
from mlem_core.pairs.scored_pairs import ScoredPairs
from mlem_core.pairs.statistics import ComparedPairs
from mlem_core.pairs.unit_sums import UnitSums, unit_sums

CODINGS = for_each(
    "more",
    {},
    {"missing": "level"},
    {"by_value": ("kind", "length")},
    {"by_value": ("gender",), "missing": "level"},
    {"interactions": True},
    {"interactions": True, "missing": "level"},
)


def close(got, expected):
    """Hold numbers to be equal but for rounding."""
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


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
    features,
    layers,
    folds,
    *,
    by_value=(),
    missing="ignore",
    interactions=False,
    items=None,
    times=None,
):
    """Moments and test pairs of layers (n_stimuli, n_units); two of one item test no fold."""
    own = feature_columns(features, resolved=by_value)
    columns = PairColumns.from_features(own, missing, interactions)
    return moments_of_columns(columns, layers, folds, items, times=times)


def moments_of_columns(columns, layers, folds, items=None, design=None, times=None):
    """The same of columns that are there; of all pairs, or those of a design."""
    design = design or PairDesign.complete(len(folds), items, times)
    places = pair_places(*design.pairs(), len(folds))
    distances = np.stack([squared(layer)[places] for layer in layers])
    compared = ComparedPairs.from_columns(columns, folds, design)
    ranks, parts = PairRanks(len(layers), design.n_pairs), []
    for layer, layer_distances in enumerate(distances):
        ranks.put(layer, pair_ranks(layer_distances))
        doubled = ranks.read(layer, 0, design.n_pairs)
        parts.append(compared.layer_statistics(layer_distances, doubled))
    products = compared.rank_products(ranks, range(len(layers)))
    statistics = compared.together(parts, products)
    return Made(statistics.moments, statistics.tests, distances, folds)


def made_up(n=60, n_layers=2, n_folds=5, **more):
    """Moments of layers that depend on two of four features, some of them missing."""
    features = random_features(n)
    layers = [random_layer(features, seed) for seed in range(1, n_layers + 1)]
    return moments_of(features, layers, random_folds(n, n_folds), **more)

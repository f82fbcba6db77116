"""Permutation importance: how much the held-out ρ drops when a feature is permuted.

Where the pairs of a fold are grouped (`mlem_core.pairs.scored_pairs`) the drop is computed and
not drawn: permuting a feature makes its columns independent of everything else, so that the
permuted predictions are those of every row of the other columns with every row of the feature's, as
often as the product of the two distributions says. Elsewhere the feature is permuted over the
stimuli of the fold, with seeds that are common to all layers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlem_core.base.typing import FloatArray
from mlem_core.pairs.ranks import score_patterns
from mlem_core.pairs.scored_pairs import FoldPairs, ScoredPairs
from mlem_core.pairs.tables import group_rows, sums_by

# Permutations of the stimuli where the drop is drawn.
PERMUTATIONS = 10
# What permuting changes is known to so many decimals: beyond them is how sums were rounded, which
# must not order features that change nothing.
DECIMALS = 12


class Importance(NamedTuple):
    """Importances of n_parts parts (features; with interactions columns) in n_layers layers.

    Attributes
    ----------
    drop : (n_layers, n_folds, n_parts) drop of the held-out ρ
    error : (n_layers, n_folds, n_parts) its standard error from drawing permutations; 0 where it is
        computed
    """

    drop: FloatArray
    error: FloatArray


def permutation_importance(
    tests: ScoredPairs, weights: FloatArray, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> Importance:
    """Drop of the held-out ρ of each fold when a part of the columns is permuted.

    Parameters
    ----------
    tests : the pairs that test each fold, with the ranks of n_layers layers
    weights : (n_layers, n_folds, n_columns) of the metric that each fold tests
    permutations : how often a part is permuted where the drop is drawn
    seed : of the permutations

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
    shape = *weights.shape[:2], len(tests.columns.parts)
    drop, error = np.zeros(shape), np.zeros(shape)
    for fold, pairs in enumerate(tests.folds):
        own = weights[:, fold]
        whole = pairs.score(pairs.predictions(own)[:, None]).rho[:, 0]
        for part in range(shape[2]):
            used = (own[:, tests.columns.part == part] != 0).any(axis=1)
            # Permuting what has no weight changes nothing.
            layers = np.flatnonzero(used)
            if not len(layers):
                continue
            chosen = pairs.of_layers(layers.tolist())
            if pairs.codes is not None:
                permuted = _computed_rho(chosen, own[layers], part)
            else:
                rng = np.random.default_rng([seed, fold, part])
                drawn = _drawn_rho(chosen, own[layers], part, permutations, rng)
                permuted = drawn.mean(axis=0)
                spread = drawn.std(axis=0, ddof=1) if permutations > 1 else np.nan
                error[layers, fold, part] = spread / np.sqrt(permutations)
            drop[layers, fold, part] = whole[layers] - permuted
    drop = drop.round(DECIMALS)
    drop[drop == 0] = 0.0  # no zero with a sign
    return Importance(drop, error)


def _computed_rho(pairs: FoldPairs, weights: FloatArray, part: int) -> FloatArray:
    """(n_layers,) ρ under the product of the distributions of a part and of the others."""
    assert pairs.codes is not None
    own, own_number = group_rows(pairs.codes[:, [part]])
    rest, rest_number = group_rows(np.delete(pairs.codes, part, axis=1))
    columns = pairs.columns.part == part
    share = np.bincount(own_number, pairs.counts) / pairs.counts.sum()
    counts = np.bincount(rest_number, pairs.counts)
    sums = sums_by(rest_number, pairs.rank_sums)
    added = pairs.of_groups(own).predictions(np.where(columns, weights, 0.0))
    others = pairs.of_groups(rest).predictions(np.where(columns, 0.0, weights))
    found = np.empty(len(weights))
    every = np.outer(counts, share).ravel()
    for layer in range(len(weights)):
        predicted = (others[layer][:, None] + added[layer]).reshape(1, 1, -1)
        shared = np.outer(sums[layer], share).reshape(1, -1)
        score = score_patterns(predicted, every, shared, pairs.rank_squares[[layer]])
        found[layer] = score.rho[0, 0]
    return found


def _drawn_rho(
    pairs: FoldPairs, weights: FloatArray, part: int, permutations: int, rng: np.random.Generator
) -> FloatArray:
    """(n_permutations, n_layers) ρ with a part permuted over the stimuli of the fold."""
    n = len(pairs.stimuli)
    orders = np.stack([rng.permutation(n) for _ in range(permutations)])
    of_part = np.where(pairs.columns.part == part, weights, 0.0)
    found = np.empty((permutations, len(weights)))
    for layer, own in enumerate(of_part):
        square = pairs.columns.predictions(own[None], pairs.stimuli)[0]
        others = pairs.predictions(weights[layer]) - square[pairs.first, pairs.second]
        for number, order in enumerate(orders):
            permuted = others + square[order[pairs.first], order[pairs.second]]
            found[number, layer] = pairs.drawn_score(layer, permuted)
    return found

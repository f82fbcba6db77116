"""Squared distances of systems, cross-validated over halves of the stimuli.

What noise adds to a difference of two systems is in its square, so that systems which are measured
less well seem to lie apart. The difference in one half of the stimuli times that in the other has
noise of its own in either half: products are 0 on average where two systems are equal, and may be
below 0 (as the crossnobis distance of Walther et al. 2016, with halves for its runs). Halves are of
whole sentences (or whatever stays together in a fold), and their metrics are fitted apart.

Pairs of stimuli are in one half only, so that ranks of their distances cannot be subtracted across
halves. Their products with the ranks of a third system can: the RSA of a system with all others.
These are taken in proportion, since noise in a system lowers all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext, Stage, selection_key
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.typing import FloatArray, IntArray, counted, counting, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.extensions.systems.model_groups import (
    Members,
    Squares,
    model_similarity,
    symmetric_matrix,
)
from mlem_core.inference.intervals import Left
from mlem_core.inference.layer_pairs import selected_columns
from mlem_core.measures.importance import fitted
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.resampling_units import StimulusUnits, draw_halves
from mlem_core.pairs.similarities import RSA
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics
from mlem_core.stimuli.folds import FEWEST_TESTED, tested

FEWEST = 3  # systems that are compared
# Divisions into halves, and stimuli of a half; random whole sentences where it has more.
DRAWS, MOST = 3, 500


class Halves(NamedTuple):
    """Profiles and similarity of n_layers layers in halves of the stimuli, drawn n_draws times.

    profiles : (n_draws, 2, n_layers, n_parts) held-out importances, means over folds
    rsa : (n_draws, 2, n_layers, n_layers)
    """

    profiles: FloatArray
    rsa: FloatArray


def compute_halves(context: SelectionContext) -> Halves:
    """Profiles and RSA of all layers in the halves of the stimuli of `draw_all_halves`.

    Estimators that are slow are replaced by ridge. Progress counts halves.

    Raises InputError: representations that are no longer there.
    """
    analysis, selection = context.analysis, context.selection
    halves = draw_all_halves(analysis)
    estimator = "ridge" if estimator_named(selection.estimator).slow else selection.estimator
    columns, design_of_all = selected_columns(analysis, selection), analysis.design
    models = dict.fromkeys(model for model, _ in analysis.layers)
    sources = {
        model: get_representations(analysis, model, context.required_store) for model in models
    }
    profiles, rsa = [], []
    progress = counting(context.report, "halves of the stimuli", "halves")
    for rows in counted(halves, len(halves), progress):
        design = PairDesign.complete(
            len(rows),
            None if design_of_all.items is None else design_of_all.items[rows],
            None if design_of_all.times is None else design_of_all.times[rows],
        )
        statistics = pair_statistics(
            ComparedPairs.from_columns(columns.select_stimuli(rows), analysis.folds[rows], design),
            [partial(sources[model].rows, layer, rows) for model, layer in analysis.layers],
            names=[layer_name(layer) for layer in analysis.layers],
            distance=[analysis.spec.neural_distance(model) for model, _ in analysis.layers],
        )
        profiles.append(fitted(statistics, estimator).mean_scores[:, 1:])
        rsa.append(statistics.moments.rsa)
    shape = (DRAWS, 2, len(analysis.layers), -1)
    return Halves(np.reshape(profiles, shape), np.reshape(rsa, shape))


def _halves_key(context: SelectionContext) -> dict[str, Any]:
    return selection_key(context.all_layers.reselect(similarity=RSA))


def _select_layers(context: SelectionContext, halves: Halves) -> Halves:
    at = [context.analysis.layers.index(layer) for layer in context.selection.layers]
    return Halves(halves.profiles[:, :, at], halves.rsa[:, :, at][..., at])


HALVES = Stage[Halves]("halves", 1, Halves, compute_halves, key=_halves_key, unpack=_select_layers)


def draw_all_halves(analysis: Analysis) -> list[IntArray]:
    """Stimuli of each half of each draw; none of one or two systems, or of too few stimuli.

    Nor are there any where pairs have no distance.
    """
    units = StimulusUnits.from_stimuli(analysis.stimuli, analysis.folds).together
    rng, n_folds = np.random.default_rng(analysis.spec.seed), int(analysis.folds.max()) + 1
    halves = list[IntArray]()
    for _ in range(DRAWS):
        halves += draw_halves(units, analysis.folds, 2 * MOST, rng)
    smallest = min(tested(analysis.folds[rows], n_folds).min() for rows in halves)
    n_models = len({model for model, _ in analysis.layers})
    enough = n_models >= FEWEST and smallest >= FEWEST_TESTED and not analysis.lacks_pairs
    return halves if enough else []


def cross_validated(
    square: Callable[[FloatArray, FloatArray], FloatArray],
    halves: FloatArray,
    total: FloatArray,
    left: Left | None,
) -> Squares:
    """Cross-validated squared distances, means over draws of halves (n_draws, 2, n_layers, n).

    Without a block of stimuli they change as the squared distances over all stimuli do. `square`
    gives products of differences in one array (..., n_layers, n) and in another.
    """
    values = square(halves[:, 0], halves[:, 1]).mean(axis=0)
    if left is None:
        return Squares(values)
    change = square(left.without, left.without) - square(total, total)
    return Squares(values, Left(values + change, left.sizes))


def profile_squares(first: FloatArray, second: FloatArray, members: Members) -> FloatArray:
    """Squared distances (..., n_systems, n_systems): means over layers of the same relative depth.

    Profiles in either half are (..., n_layers, n_parts). Layers are not aligned by them: noise
    would choose the alignment.
    """

    def square(a: int, b: int) -> FloatArray:
        i, j = members.matched(a, b)
        products = (first[..., i, :] - first[..., j, :]) * (second[..., i, :] - second[..., j, :])
        return np.asarray(products.sum(axis=-1).mean(axis=-1))

    return symmetric_matrix(square, len(members.members), first.shape[:-2], 0.0)


def relation_squares(first: FloatArray, second: FloatArray, members: Members) -> FloatArray:
    """Squared distances (..., n_systems, n_systems) of similarities with all other systems.

    Similarities in either half are (..., n_layers, n_layers). Those of systems a and b with the
    others, as vectors of length 1, are subtracted.
    """
    s, t = (np.nan_to_num(model_similarity(half, members)) for half in (first, second))
    # Without each other system in turn: entry (a, b) is of a without b.
    lengths = [np.sqrt((half**2).sum(axis=-1)[..., None] - half**2) for half in (s, t)]
    length, other = (np.maximum(values, 1e-12) for values in lengths)
    with_itself = ((s * t).sum(axis=-1)[..., None] - s * t) / (length * other)
    crossed = s @ t.swapaxes(-2, -1) / (length * other.swapaxes(-2, -1))
    square = with_itself - crossed
    return (square + square.swapaxes(-2, -1)) * (1.0 - np.eye(square.shape[-1]))

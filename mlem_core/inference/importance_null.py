"""Importances and ρ that permuted labels have, for all layers.

Of an importance: chance at the level of each feature. Of ρ, a test: under the hypothesis that a
layer has nothing to do with the features, sentences of the same fold and of as many stimuli can
change their labels (all feature values, word by word). Of stimuli in time all labels are shifted
inside runs, so that what lasts still does. Where folds are over items (words), it is
items that do; where they are over both, the stimuli that an item has in a part of the folds. For
each permutation the model is fitted and scored anew with the whole cross-validation: with the
weights of the true labels the test would find far more than 5 in 100, because folds that test one
model have trained the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.context import SelectionContext, Stage, selection_key
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import one_thread_each
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer, counting, split_progress
from mlem_core.estimators.registry import FoldFits, Solution, Solver, estimator_named
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.inference.intervals import PERMUTATIONS, SIGNIFICANT, check_permutations
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import corrected_p, farthest_exchange, permutation_null
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.moment_sums import Target
from mlem_core.pairs.permuted_moments import PermutedFeature
from mlem_core.pairs.scored_pairs import FoldPairsIndex, ScoredPairs
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.stimuli.folds import untested_items
from mlem_core.stimuli.levels import TimeExchange, exchanges, time_exchanges
from mlem_core.stimuli.presentation import are_in_time
from mlem_core.storage.store import Packed

# Numbers of pairs that are in memory together.
CHUNK_NUMBERS = 2**27
# Permutations of a feature, and of all labels, whose moments are in memory together.
AT_ONCE = 40


class ImportanceNull(NamedTuple):
    """Importances when the labels of a feature are permuted at its level.

    table : model, layer, feature, unit, moved, importance, chance (mean over permutations), excess,
        p (corrected over the features of a layer); NaN in the last three where too few stimuli
        change their labels
    draws : (1 + n_permutations, n_features, n_layers) with the true labels first; the same
        permutations for all layers
    """

    table: pd.DataFrame
    draws: Annotated[FloatArray, Packed(np.float32)]


def compute_importance_null(
    context: SelectionContext, permutations: int = PERMUTATIONS
) -> ImportanceNull:
    """Importances when the labels of a feature are permuted at its level.

    The models are fitted anew for each permutation of each feature, with the penalties that were
    chosen for the true labels: one feature of several hardly changes them. With an estimator that
    is slow it takes hours.

    Raises InputError: interactions; fewer than 20 permutations; representations that are no longer
    in the store.
    """
    check_permutations(permutations)
    if context.selection.interactions:
        raise InputError(
            "importances by chance are of single features; found interactions, so choose an "
            "analysis without them."
        )
    analysis, selection, tables, all_draws = context.analysis, context.selection, [], []
    size = max(1, CHUNK_NUMBERS // (2 * analysis.pairs.n_pairs))
    starts, features = range(0, len(selection.layers), size), selection.features
    progress = counting(context.report, "importances by permuted labels", "permutations")
    total, done = len(starts) * len(features) * permutations, count()
    progress(0, total)
    for start in starts:
        some = replace(selection, layers=selection.layers[start : start + size])
        pairs = LayerPairs.from_analysis(analysis, some, context.required_store)
        stimuli = pairs.select_stimuli(analysis.stimuli)
        model = estimator_named(selection.estimator).model()
        importances, nulls = PermutedImportances.from_pairs(pairs, model), []
        for feature, name in enumerate(features):
            # The same permutations for all layers.
            rng = np.random.default_rng([feature, permutations])
            ways = exchanges(stimuli, pairs.folds, name)
            pilot = partial(importances.feature_importances, feature)
            drawn = partial(pilot, progress=lambda *_: progress(min(next(done), total), total))
            values = stimuli.values(name)
            nulls.append(permutation_null(ways, values, drawn, permutations, rng, pilot))
        draws = np.stack([null.draws for null in nulls], axis=1)
        known = np.array([not null.unknown for null in nulls])
        importance = draws[0].T
        chance = np.where(known[:, None], draws[1:].mean(axis=0), np.nan).T
        units = pd.DataFrame({"feature": features})
        units["unit"] = [null.unit for null in nulls]
        units["moved"] = [null.moved for null in nulls]
        of_layers = pd.DataFrame(some.layers, columns=["model", "layer"])
        table = of_layers.merge(units, how="cross").assign(
            importance=importance.ravel(),
            chance=chance.ravel(),
            excess=(importance - chance).ravel(),
            p=corrected_p(draws, known).T.ravel(),
        )
        tables.append(table)
        all_draws.append(draws)
    return ImportanceNull(pd.concat(tables, ignore_index=True), np.concatenate(all_draws, axis=-1))


def exceeds_chance(table: pd.DataFrame | None, layer: Layer, feature: str) -> bool | None:
    """Whether a feature matters more in a layer than permuted labels; None where it is not known.

    Parameters
    ----------
    table : of `ImportanceNull`
    """
    if table is None:
        return None
    at = (table["model"] == layer[0]) & (table["layer"] == layer[1])
    p = table.loc[at & (table["feature"] == feature), "p"]
    return bool(p.iloc[0] < SIGNIFICANT) if len(p.dropna()) else None


@dataclass(frozen=True)
class PermutedImportances:
    """Importances of features whose values are permuted, in n_layers layers.

    Attributes
    ----------
    pairs : of the true values
    model : fitted for each permutation
    solution : that of the true values, whose penalties are held
    tests : the pairs that test each fold, one by one
    """

    pairs: LayerPairs
    model: Solver
    solution: Solution
    tests: ScoredPairs

    @classmethod
    def from_pairs(cls, pairs: LayerPairs, model: Solver) -> PermutedImportances:
        """Fit the true values.

        Raises InputError: as the model does.
        """
        statistics = pairs.statistics
        design = _design(pairs)
        tests = []
        for fold in range(statistics.n_folds):
            stimuli = np.flatnonzero(pairs.folds == fold)
            index = replace(
                FoldPairsIndex.from_columns(statistics.columns, stimuli, design), groups=None
            )
            of_layers = [index.rank_sums(squared[index.places]) for squared in pairs.squared]
            ranks, squares = zip(*of_layers, strict=True)
            tests.append(index.with_layers(np.stack(ranks), np.stack(squares)))
        solution = _solve(model, pairs, statistics)
        return cls(pairs, model, solution, ScoredPairs(tuple(tests)))

    def feature_importances(
        self, feature: int, givers: IntArray, progress: Counted | None = None
    ) -> FloatArray:
        """(n_permutations, n_layers) importance of a feature under permutations, means over folds.

        Parameters
        ----------
        feature : by number
        givers : (n_permutations, n_stimuli) the stimulus whose value each has
        progress : called with the number of permutations done and their total
        """
        moments, drops = self.pairs.statistics.moments, []
        # For each fold, whether its test pairs can be grouped by the other features.
        can_group, columns = [True] * len(self.tests.folds), self.tests.columns
        others = [number for number in range(len(columns.features)) if number != feature]
        if others:
            rest = columns.select_features(others).columns
            can_group = [pairs.select_columns(rest).is_grouped for pairs in self.tests.folds]
        targets: list[Target] = [*self.pairs.squared, *self.pairs.ranks]
        for start in range(0, len(givers), AT_ONCE):
            some = givers[start : start + AT_ONCE]
            permuted = PermutedFeature(moments.columns, (feature,), some, moments.block)
            with one_thread_each():
                of_permutations = list(permuted.moments(moments, targets))
            for of_permutation in of_permutations:
                columns, folds = of_permutation.columns, []
                for pairs, is_grouped in zip(self.tests.folds, can_group, strict=True):
                    permuted_pairs = replace(pairs, columns=columns)
                    folds.append(
                        permuted_pairs.select_columns(columns) if is_grouped else permuted_pairs
                    )
                tests = ScoredPairs(tuple(folds))
                statistics = PairStatistics(of_permutation, tests)
                weights = _solve(self.model, self.pairs, statistics, self.solution).coef
                drop = permutation_importance(tests, weights, parts=[feature]).drop
                drops.append(drop[:, :, feature].mean(axis=1))
                if progress is not None:
                    progress(len(drops), len(givers))
        return np.stack(drops)


def _design(pairs: LayerPairs) -> PairDesign:
    """All pairs of the stimuli, with those that test no fold."""
    items = untested_items(pairs.folds, pairs.groups, pairs.items)
    return PairDesign.complete(len(pairs.folds), items, pairs.times)


def _solve(
    model: Solver, pairs: LayerPairs, statistics: PairStatistics, held: Solution | None = None
) -> Solution:
    """Metrics without each fold, of statistics of these pairs; with the penalties of another."""
    model.check()
    folds = range(statistics.n_folds)
    if model.needs_pairs:
        return model.solve(statistics, folds, training_pairs(pairs, statistics))
    if held is None:
        return model.solve(statistics, folds)
    return Solution(model.refit(statistics, held))


def training_pairs(pairs: LayerPairs, statistics: PairStatistics) -> TrainingPairs:
    """Pairs for estimators that are fitted to single ones, with the columns of statistics."""
    squared = pairs.squared
    return TrainingPairs.from_columns(
        statistics.columns, pairs.folds, len(squared), lambda layer: squared[layer], _design(pairs)
    )


def permuted_pairs(pairs: LayerPairs, layer: int, labels: IntArray) -> LayerPairs:
    """The pairs of one layer under permuted labels, a permutation in a layer's place.

    Labels change places with others of the same folds, so that it is the distances that do, between
    stimuli whose features, and so the columns of their pairs, stay. When a stimulus came goes with
    its distances: with a lag there can be one permutation only.

    Parameters
    ----------
    layer : by position
    labels : (n_permutations, n_stimuli) the stimulus whose labels each has, see
        `mlem_core.pairs.resampling_units.StimulusUnits.permuted`
    """
    n = len(pairs.folds)
    first, second = np.triu_indices(n, 1)
    squared, times = [], pairs.times
    for row in labels:
        place = np.empty(n, dtype=np.int64)
        place[row] = np.arange(n)
        times = None if pairs.times is None else pairs.times[place]
        squared.append(pairs.squared[layer][pair_places(place[first], place[second], n)])
    return LayerPairs.from_distances(
        [(pairs.layers[layer][0], number) for number in range(len(labels))],
        squared,
        pairs.statistics.columns,
        pairs.folds,
        pairs.groups,
        pairs.items,
        untested_items=_design(pairs).items,
        times=times,
    )


def score_above_chance(
    pairs: LayerPairs,
    model: Solver,
    *,
    n_permutations: int = 999,
    seed: int = 0,
    observed: FloatArray | None = None,
    in_time: Sequence[TimeExchange] = (),
    progress: Counted | None = None,
) -> pd.DataFrame:
    """Test each layer's held-out ρ (mean over folds) against permuted labels.

    Models are fitted and scored anew for each permutation, with the choice of their penalties.

    Parameters
    ----------
    observed : (n_layers,) ρ of the true labels where each fold has chosen the model; by default
        that of the model
    in_time : ways in which labels move in time, in the place of permutations inside folds, see
        `mlem_core.stimuli.levels.time_exchanges`; the one with the larger chance counts
    progress : called with the number of permutations done and their total, of all layers

    Returns
    -------
    model, layer, rho, chance (mean of the permuted ρ), p
    """
    observed = _fits(model, pairs).rho.mean(axis=1) if observed is None else observed
    rng = np.random.default_rng(seed)
    parts, rows = split_progress(progress, len(pairs.layers)), []
    of_units = pairs.units.permuted(n_permutations, rng) if not in_time else None
    for layer, (name, number) in enumerate(pairs.layers):
        rho = partial(_permuted_scores, model, pairs, layer)
        labels = of_units
        if labels is None:
            labels = in_time[farthest_exchange(in_time, rho, rng)].draw(n_permutations, rng)
        chance = rho(labels, parts[layer])
        above = int((chance >= observed[layer] - 1e-12).sum())
        p = (1 + above) / (1 + n_permutations)
        rows.append((name, number, observed[layer], np.mean(chance), p))
    return pd.DataFrame(rows, columns=["model", "layer", "rho", "chance", "p"])


def _permuted_scores(
    model: Solver,
    pairs: LayerPairs,
    layer: int,
    labels: IntArray,
    progress: Counted | None = None,
) -> FloatArray:
    """(n_permutations,) held-out ρ, mean over folds, of one layer under permuted labels."""
    scores: list[float] = []
    step = AT_ONCE if pairs.times is None else 1
    for start in range(0, len(labels), step):
        permuted = permuted_pairs(pairs, layer, labels[start : start + step])
        scores += _fits(model, permuted).rho.mean(axis=1).tolist()
        if progress is not None:
            progress(len(scores), len(labels))
    return np.array(scores)


def _fits(model: Solver, pairs: LayerPairs) -> FoldFits:
    needed = training_pairs(pairs, pairs.statistics) if model.needs_pairs else None
    return model.cross_validate(pairs.statistics, needed)


def compute_score_chance(
    context: SelectionContext, permutations: int = PERMUTATIONS
) -> pd.DataFrame:
    """`score_above_chance` of a selection; with an estimator that is slow it takes hours.

    Raises InputError: representations that are no longer in the store.
    """
    analysis, store = context.analysis, context.required_store
    progress = counting(context.report, "permuting labels", "permutations")
    parts = split_progress(progress, len(context.selection.layers))
    entry, tables = estimator_named(context.selection.estimator), []
    for layer, part in zip(context.single_layers, parts, strict=True):
        part(0, permutations)
        selection = layer.selection
        fits = None if entry.of_pairs else analysis.compute_fits(selection).fits
        pairs = LayerPairs.from_analysis(analysis, selection, store)
        stimuli = pairs.select_stimuli(analysis.stimuli)
        moves_in_time = analysis.spec.folds_over == "sentences" and are_in_time(stimuli)
        table = score_above_chance(
            pairs,
            entry.model(),
            n_permutations=permutations,
            observed=None if fits is None else fits.rho.mean(axis=1),
            in_time=time_exchanges(stimuli) if moves_in_time else (),
            progress=part,
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _chance_key(context: SelectionContext, permutations: int = PERMUTATIONS) -> dict[str, Any]:
    return selection_key(context, permutations=permutations)


def _null_of_layers(context: SelectionContext, null: ImportanceNull) -> ImportanceNull:
    """What is known of the selected layers, of that of all layers."""
    layers = context.selection.layers
    at = [context.analysis.layers.index(layer) for layer in layers]
    n_features = null.draws.shape[1]
    rows = np.concatenate([np.arange(n_features) + n_features * place for place in at])
    return ImportanceNull(null.table.iloc[rows].reset_index(drop=True), null.draws[..., at])


IMPORTANCE_NULL = Stage[ImportanceNull](
    "importance-null",
    1,
    ImportanceNull,
    compute_importance_null,
    key=_chance_key,
    narrow=_null_of_layers,
)
IMPORTANCE_CHANCE = Stage[pd.DataFrame](
    "importance-chance",
    3,
    pd.DataFrame,
    lambda context, permutations=PERMUTATIONS: (
        IMPORTANCE_NULL.get(context, permutations=permutations).table
    ),
    key=_chance_key,
)
SCORE_CHANCE = Stage[pd.DataFrame](
    "score-chance", 5, pd.DataFrame, compute_score_chance, key=_chance_key
)

"""Systems of an analysis: their distances and second level, which a store keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.grouped import Member, labels_of
from mlem_core.analysis.methods import keep_fits
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.analysis.similarities import LayerSimilarity, of_tables
from mlem_core.base.labels import Names
from mlem_core.base.typing import FloatArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.groups.members import (
    BEST,
    FEATURES,
    PROFILES,
    Measured,
    Members,
    model_similarity,
    of_best_match,
    of_explained_parts,
    of_profiles,
    of_similarity,
)
from mlem_core.groups.noise_ceilings import FEWEST, fold_similarity
from mlem_core.groups.profiles import layer_scores, layer_scores_left
from mlem_core.groups.properties import Properties
from mlem_core.groups.second_level import SecondLevel, second_level
from mlem_core.inference.chance import Chance
from mlem_core.inference.intervals import LayerIntervals, Left
from mlem_core.inference.layer_intervals import LEFT, known_intervals
from mlem_core.measures.partial import explained_parts
from mlem_core.pairs.similarities import RSA, SIMILARITIES, Similarity
from mlem_core.storage.store import Stage, Store

T = TypeVar("T")
DISTANCES = Stage("system-distances", 1, Measured)
SECOND_LEVEL = Stage("second-level", 1, SecondLevel)


@dataclass(frozen=True)
class SystemsSummary:
    """Summary of the models of an analysis as systems; each part is computed at its first use.

    Attributes
    ----------
    analysis : its models, in groups and trajectories
    results : of the selection
    selection : None is all of the analysis
    bounds : of the same layers and features, for the spread of profiles over stimuli; None:
        their intervals are over models alone
    left : of `mlem_core.inference.layer_intervals.stimuli_left`, for that of similarities
    names : what features are called
    compared : all layers by the similarity that models are compared by, as is `left`; None is RSA
    chance : of contributions to that similarity, which they are beyond then
    folds : RSA in each fold, (n_folds, n_layers, n_layers) of all layers; None: no best match
    store : that may have distances and second level of the systems; None: they are computed
    keeps : whether they are kept there
    """

    analysis: Analysis
    results: Results
    selection: Selection | None = None
    bounds: LayerIntervals | None = None
    left: Left | None = None
    names: Names = field(default_factory=Names)
    compared: LayerSimilarity | None = None
    chance: Chance | None = None
    folds: FloatArray | None = None
    store: Store | None = None
    keeps: bool = False

    @property
    def by(self) -> Similarity:
        """The similarity that models are compared by."""
        return SIMILARITIES[RSA] if self.compared is None else self.compared.similarity

    @cached_property
    def chosen(self) -> Selection:
        """The selection."""
        return self.selection or self.analysis.select()

    @cached_property
    def scores(self) -> tuple[FloatArray, list[str], Left | None]:
        """ρ and importances of the layers, their columns, and without blocks of stimuli."""
        values, columns = layer_scores(self.results, self.chosen)
        return values, columns, layer_scores_left(self.bounds, self.chosen, columns)

    @cached_property
    def of_layers(self) -> LayerSimilarity:
        """The layers of the selection by the similarity, with tables of its features."""
        whole = (self.compared or of_tables(self.analysis)).of(self.analysis, self.chosen)
        return replace(whole, tables=whole.tables.of_features(self.chosen.features))

    @property
    def terms_left(self) -> FloatArray | None:
        """Terms and similarity without each block of stimuli, where they are of these features."""
        left, n = self.left, len(self.of_layers.tables.features) + 2
        return left.without if left is not None and left.without.shape[1] == n else None

    @cached_property
    def system_distances(self) -> tuple[dict[str, Measured], Members]:
        """Distances of every two models by each measure; none with fewer than three models."""
        return _distances(self)

    @cached_property
    def properties(self) -> Properties | None:
        """Properties of the models of `system_distances`; None where there are none."""
        labels = labels_of_models(self.analysis, self.system_distances[1].members)
        if not labels:
            return None
        spec = self.analysis.spec
        return Properties.of_cells(labels, spec.property_groups, spec.property_kinds)

    @cached_property
    def second_level(self) -> SecondLevel | None:
        """What of the properties of models explains their distances; None without properties."""
        return _second_level(self)


def _kept(summary: SystemsSummary, stage: Stage[T], make: Callable[[], T], **more: Any) -> T:
    """What the summary's store has of its systems, else what `make` gives, kept if it is to be."""
    if summary.store is None:
        return make()
    beside = {name: getattr(summary, name) is not None for name in ("bounds", "left", "folds")}
    key = summary.analysis.key(summary.chosen, by=summary.by.name, **beside, **more)
    if summary.keeps:
        return stage.get(summary.store, key, make)
    found = stage.find(summary.store, key)
    return make() if found is None else found


def _distances(summary: SystemsSummary) -> tuple[dict[str, Measured], Members]:
    """Distances of every two models by each measure; none with fewer than three models."""
    layers, left = summary.chosen.layers, summary.left
    models = dict.fromkeys(model for model, _ in layers)
    members = Members.of([Member(model, model) for model in models], layers)
    if len(models) < FEWEST:
        return {}, members

    def of_all() -> Left | None:
        bounds = summary.bounds
        if left is not None:
            return Left(left.without[:, -1], left.sizes)
        if bounds is None or bounds.similarity != summary.by.name:
            return None
        at = bounds.places(layers)
        return Left(bounds.values_without[:, at][:, :, at], bounds.sizes)

    def best(folds: FloatArray) -> Measured:
        at = [summary.analysis.layers.index(layer) for layer in layers]
        values = summary.of_layers.values
        return of_best_match(folds[:, at][:, :, at], members, values, of_all())

    def in_explained() -> Measured:
        found, without = explained_parts(summary.of_layers.tables)[0][None], summary.terms_left
        if without is None or left is None:
            return of_explained_parts(found, members)
        found = np.concatenate((found, without[:, :-2].sum(axis=1)))
        return of_explained_parts(found, members, left.sizes)

    made: dict[str, Callable[[], Measured]] = {
        PROFILES: lambda: of_profiles(summary.results, layers, members, summary.scores[2]),
        summary.by.name: lambda: of_similarity(
            model_similarity(summary.of_layers.values, members), by_model(of_all(), members)
        ),
    }
    if (folds := summary.folds) is not None and summary.by.of_ranks:
        made[BEST] = lambda: best(folds)
    if summary.by.divides:
        made[FEATURES] = in_explained
    return {
        name: _kept(summary, DISTANCES, make, measure=name) for name, make in made.items()
    }, members


def by_model(left: Left | None, members: Members) -> Left | None:
    """Similarities of models without each block of stimuli, from those of layers."""
    return None if left is None else Left(model_similarity(left.without, members), left.sizes)


def labels_of_models(analysis: Analysis, models: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Of each factor the labels of these models, empty where unknown."""
    spec = analysis.spec
    every = [*spec.models, *(name for name, _ in spec.representations)]
    at = [every.index(model) for model in models]
    of_every = labels_of(spec.groups, spec.labels, every)
    return {factor: tuple(values[i] for i in at) for factor, values in of_every.items()}


def groups_of_systems(summary: SystemsSummary) -> tuple[str, ...]:
    """(n_systems,) the group of each model of `system_distances`, or its family.

    Families are the values of the property whose models are left out together; a model without one
    is a group of its own.
    """
    spec, names = summary.analysis.spec, summary.system_distances[1].members
    families = labels_of_models(summary.analysis, names).get(spec.resampled_whole)
    return tuple(
        family or spec.group_of.get(name, name)
        for name, family in zip(names, families or ("",) * len(names), strict=True)
    )


def _second_level(summary: SystemsSummary) -> SecondLevel | None:
    """What of the properties of models explains their distances; None without properties."""
    spec, (measured, members) = summary.analysis.spec, summary.system_distances
    properties = summary.properties
    if not measured or properties is None:
        return None
    groups = [spec.group_of.get(name, name) for name in members.members]
    families = groups_of_systems(summary) if spec.resampled_whole else ()
    units: dict[str, Any] = {"groups": groups, "families": families, "seed": spec.seed}
    labels = labels_of_models(summary.analysis, members.members)
    return _kept(
        summary,
        SECOND_LEVEL,
        lambda: second_level(measured, properties, **units),
        labels=labels,
        parts=spec.property_groups,
        kinds=spec.property_kinds,
        **units,
    )


def keep_systems(analysis: Analysis, store: Store, selection: Selection | None = None) -> None:
    """Keep what the page of systems reads: fits, distances, second level; none of one or two.

    Raises as `mlem_core.groups.noise_ceilings.fold_similarity`.
    """
    chosen, folds = selection or analysis.select(), fold_similarity(analysis, store)
    if folds is None or estimator_named(chosen.estimator).slow:
        return
    results, bounds = keep_fits(analysis, store, chosen), known_intervals(analysis, store, chosen)
    left = analysis.kept(LEFT, store, chosen)
    beside: dict[str, Any] = {"bounds": bounds, "left": left, "folds": folds, "store": store}
    _ = SystemsSummary(analysis, results, chosen, keeps=True, **beside).second_level

"""Systems of an analysis: their distances and second level, which a store keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.fit_cache import fitted_results
from mlem_core.analysis.grouped import Member, labels_of
from mlem_core.analysis.results import Results
from mlem_core.analysis.similarities import LayerSimilarity, rsa_of
from mlem_core.base.typing import FloatArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.groups.halves import (
    FEWEST,
    Halves,
    cross_validated,
    keep_halves,
    known_halves,
    profile_squares,
    relation_squares,
)
from mlem_core.groups.members import (
    BEST,
    PROFILES,
    Measured,
    Members,
    model_similarity,
    of_best_match,
    of_profiles,
    of_similarity,
)
from mlem_core.groups.profiles import layer_scores
from mlem_core.groups.properties import Properties
from mlem_core.groups.second_level import SecondLevel, second_level
from mlem_core.inference.chance import Chance
from mlem_core.inference.intervals import LayerIntervals, Left
from mlem_core.inference.layer_intervals import LEFT, known_intervals
from mlem_core.pairs.similarities import RSA, SIMILARITIES, Similarity
from mlem_core.storage.store import Stage, Store

T = TypeVar("T")
DISTANCES = Stage("system-distances", 2, Measured)
SECOND_LEVEL = Stage("second-level", 3, SecondLevel)


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
    compared : all layers by the similarity that models are compared by, as is `left`; None is RSA
    chance : of contributions to that similarity, which they are beyond then
    store : that keeps distances and second level of the systems, which else are computed, and
        halves of the stimuli (`keep_halves`), without which there is no best match and no second
        level
    """

    analysis: Analysis
    results: Results
    selection: Selection | None = None
    bounds: LayerIntervals | None = None
    left: Left | None = None
    compared: LayerSimilarity | None = None
    chance: Chance | None = None
    store: Store | None = None

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
        bounds = self.bounds
        if bounds is None or list(bounds.columns) != columns:
            return values, columns, None
        left = bounds.scores_without[:, bounds.places(self.chosen.layers)]
        return values, columns, Left(left, bounds.sizes)

    @cached_property
    def of_layers(self) -> LayerSimilarity:
        """The layers of the selection by the similarity, with tables of its features."""
        whole = (self.compared or rsa_of(self.analysis)).of(self.analysis, self.chosen)
        return replace(whole, pairs=whole.pairs.of_features(self.chosen.features))

    @property
    def terms_left(self) -> FloatArray | None:
        """Terms and similarity without each block of stimuli, where they are of these features."""
        left, n = self.left, len(self.of_layers.pairs.features) + 2
        return left.without if left is not None and left.without.shape[1] == n else None

    @cached_property
    def system_distances(self) -> tuple[dict[str, Measured], Members]:
        """Distances of every two models by each measure; none with fewer than three models."""
        layers = self.chosen.layers
        models = dict.fromkeys(model for model, _ in layers)
        members = Members.of([Member(model, model) for model in models], layers)

        def profiles() -> Measured:
            scores, _, left = self.scores
            parts = None if left is None else Left(left.without[..., 1:], left.sizes)
            square = partial(profile_squares, members=members)
            return of_profiles(self.results, layers, members, left)._replace(
                squares=halves and cross_validated(square, halves.profiles, scores[:, 1:], parts)
            )

        def similarity() -> Measured:
            square = partial(relation_squares, members=members)
            crossed = halves and cross_validated(square, halves.rsa, values, self._all_left)
            return of_similarity(
                model_similarity(values, members), by_model(self._all_left, members)
            )._replace(squares=crossed if self.by.name == RSA else None)

        halves, values = self.halves, self.of_layers.values
        made: dict[str, Callable[[], Measured]] = {PROFILES: profiles, self.by.name: similarity}
        if halves is not None and self.by.of_ranks:
            made[BEST] = lambda: of_best_match(halves.rsa, members, values, self._all_left)
        if len(models) < FEWEST:
            made = {}
        found = {name: self._kept(DISTANCES, make, measure=name) for name, make in made.items()}
        return found, members

    @cached_property
    def halves(self) -> Halves | None:
        """Profiles and RSA in halves of the stimuli, where the store has them."""
        return known_halves(self.analysis, self.store, self.chosen)

    @property
    def _all_left(self) -> Left | None:
        """The similarity of layers without each block of stimuli."""
        if self.left is not None:
            return Left(self.left.without[:, -1], self.left.sizes)
        bounds = self.bounds
        if bounds is None or bounds.similarity != self.by.name:
            return None
        at = bounds.places(self.chosen.layers)
        return Left(bounds.values_without[:, at][:, :, at], bounds.sizes)

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
        spec, (measured, members) = self.analysis.spec, self.system_distances
        properties = self.properties
        if not measured or properties is None:
            return None
        squares = {name: of.squares for name, of in measured.items() if of.squares is not None}
        units: dict[str, Any] = {
            "groups": [spec.group_of.get(name, name) for name in members.members],
            "families": groups_of_systems(self) if spec.resampled_whole else (),
            "seed": spec.seed,
        }
        return self._kept(
            SECOND_LEVEL,
            lambda: second_level(squares, properties, **units),
            labels=labels_of_models(self.analysis, members.members),
            parts=spec.property_groups,
            kinds=spec.property_kinds,
            measures=list(squares),
            **units,
        )

    def _kept(self, stage: Stage[T], make: Callable[[], T], **more: Any) -> T:
        """What the store has of these systems, else what `make` gives, which is then kept."""
        beside = {name: getattr(self, name) is not None for name in ("bounds", "left", "halves")}
        key = self.analysis.key(self.chosen, by=self.by.name, **beside, **more)
        return make() if self.store is None else stage.get(self.store, key, make)


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


def keep_systems(analysis: Analysis, store: Store, selection: Selection | None = None) -> None:
    """Keep what the page of systems reads: fits, distances, second level; none of one or two.

    Raises as `keep_halves`.
    """
    chosen = selection or analysis.select()
    keep_halves(analysis, store, chosen)
    few = len({model for model, _ in analysis.layers}) < FEWEST
    if few or estimator_named(chosen.estimator).slow:
        return
    results = fitted_results(analysis, store, chosen)
    bounds = known_intervals(analysis, store, chosen)
    left = analysis.kept(LEFT, store, chosen)
    beside: dict[str, Any] = {"bounds": bounds, "left": left, "store": store}
    _ = SystemsSummary(analysis, results, chosen, **beside).second_level

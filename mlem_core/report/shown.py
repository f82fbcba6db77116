"""What the figures of an analysis are drawn from: its tables, and what was computed beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis import in_words, similarities
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.analysis.similarities import Compared
from mlem_core.base.labels import Names
from mlem_core.base.typing import Layer, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference import all_layers, tables
from mlem_core.inference.bootstrap import REPLICATES
from mlem_core.inference.corrections import FamilyOfTests
from mlem_core.inference.explained import Explanation
from mlem_core.inference.explanation import explain
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.recipes import Recipes, recipes
from mlem_core.measures import correlated
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import coding
from mlem_core.pairs.units import Units
from mlem_core.robustness import audit as auditing
from mlem_core.robustness import flags
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.finding import explanation_of
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class Drawing:
    """How figures are drawn.

    Attributes
    ----------
    pair : the two layers that are compared; by default those of `Analysis.most_alike`
    store : where representations, intervals and the audit may be; without one there are no maps of
        the stimuli, and figures show spreads over folds
    images : whether the figures of a capsule are SVG and PDF (which takes a browser, and seconds a
        figure) or HTML; by default what this machine can do
    narrow : whether panels stand below each other, for one column of a journal
    flags : whether what an audit flags is marked
    names : how features and models are called
    replicates : of the confidence intervals, where they are in the store
    options : what else one chooses of a figure, by name: "feature" (whose values are told apart),
        "similarity" (in the place of RSA, where it is in the store),
        "partial" (see `mlem_core.report.similar_in`),
        "layer" ("model:layer", of the large matrix of values), "color" (the feature that colours
        the stimuli), "within" (the one that divides them again), "order" (of the layers of the
        matrices: "model" or "clustering"),
        "depth" (of trajectories, see `mlem_core.report.of_groups`),
        "correction" (of p-values), "claim" (see `mlem_core.robustness.claims`)
    """

    pair: tuple[Layer, Layer] | None = None
    store: Store | None = None
    images: bool | None = None
    narrow: bool = False
    flags: bool = True
    names: Names = field(default_factory=Names)
    options: Mapping[str, str] = field(default_factory=dict)
    replicates: int = REPLICATES


@dataclass(frozen=True)
class Drawn:
    """A figure with what belongs to it.

    Attributes
    ----------
    figure : what is drawn
    title : in a few words
    caption : for print: what one sees, how it was computed, and on how much
    data : the table that it is drawn from
    table : the numbers as a paper prints them, where it is not `data`
    """

    figure: go.Figure
    title: str
    caption: str
    data: pd.DataFrame
    table: pd.DataFrame | None = None

    @property
    def printed(self) -> pd.DataFrame:
        """The table for a paper."""
        return self.data if self.table is None else self.table


@dataclass(frozen=True)
class Shown:
    """What figures are drawn from: the analysis, what is selected of it, and its tables."""

    analysis: Analysis
    selection: Selection
    results: Results
    drawing: Drawing

    @cached_property
    def names(self) -> Names:
        """What features and models are called, and the names that layers of the analysis have."""
        return replace(self.drawing.names, layers=self.analysis.names.layers)

    @property
    def all_features(self) -> list[str]:
        """Of the analysis, in its order; their place decides the colours."""
        return [feature.name for feature in self.analysis.stimuli.features]

    @property
    def terms(self) -> list[str]:
        """All features, and the interactions that matter most."""
        return figures.with_interactions(self.results.importance, self.all_features)

    @property
    def across(self) -> int:
        """How many panels, one a model, stand beside each other."""
        models = {model for model, _ in self.selection.layers}
        return 2 if self.drawing.narrow and len(models) <= 6 else 3

    @property
    def several(self) -> bool:
        """Whether there are two layers to compare."""
        return len(self.selection.layers) > 1

    @property
    def basis(self) -> str:
        """How and on how much the results were computed."""
        return basis(self.analysis, self.selection, self.results, self.coding)

    @property
    def coding(self) -> str:
        """How the features are coded, in words."""
        tables = self.analysis.tables.of_features(self.selection.features)
        return coding(tables.kinds, tables.resolved, self.names)

    @property
    def computed_on(self) -> str:
        """The same of what no metric model was fitted for."""
        counts = self.results.n_stimuli, self.results.n_pairs, self.results.n_folds
        on = in_words.computed_on(*counts, held_out(self.analysis))
        return f"{in_words.coded(self.coding)} {on}"

    @cached_property
    def pair(self) -> tuple[Layer, Layer]:
        """The two layers that are compared."""
        return self.drawing.pair or self.analysis.most_alike(self.selection.layers)

    @property
    def pair_names(self) -> tuple[str, str]:
        """Both as "model:layer"."""
        return layer_name(self.pair[0]), layer_name(self.pair[1])

    @property
    def called(self) -> tuple[str, str]:
        """What both are called."""
        a, b = self.pair_names
        return self.names.layer(a), self.names.layer(b)

    @property
    def correction(self) -> str:
        """How p-values are corrected."""
        return self.drawing.options.get("correction", "bh")

    @cached_property
    def intervals(self) -> LayerIntervals | None:
        """Confidence intervals of what is selected, where they have been computed."""
        if (store := self.drawing.store) is None:
            return None
        n_replicates = self.drawing.replicates
        return all_layers.find(self.analysis, store, self.selection, n_replicates=n_replicates)

    @property
    def over(self) -> str:
        """What the intervals are over; empty where there are none."""
        return "" if self.intervals is None else self.intervals.units.over

    @cached_property
    def score_tests(self) -> FamilyOfTests | None:
        """Scores and importances of all layers with intervals and tests."""
        if self.intervals is None:
            return None
        return tables.score_table(self.intervals, self.selection.layers, self.correction)

    @cached_property
    def similarity_tests(self) -> FamilyOfTests | None:
        """Both similarities of every two layers with intervals and tests."""
        if self.intervals is None or not self.several:
            return None
        return tables.similarity_table(self.intervals, self.selection.layers, self.correction)

    @cached_property
    def other_importances(self) -> pd.DataFrame:
        """Importance where features correlate, see `correlated.importances`."""
        own, _ = self.analysis.subset(self.selection)
        fits, _ = fitted(own, self.selection.estimator)
        layers = list(self.selection.layers)
        return correlated.importances(own, layers, fits, self.selection.estimator)

    @cached_property
    def audit(self) -> Audit | None:
        """The audit of the analysis, where it has been made."""
        store = self.drawing.store
        return None if store is None else auditing.find(self.analysis, store)

    @cached_property
    def flagged(self) -> pd.DataFrame | None:
        """What the audit flags, see `mlem_core.robustness.flags.flags`."""
        return None if self.audit is None else flags.flags(self.audit)

    @cached_property
    def recipes(self) -> Recipes | None:
        """What is known of groups of models; None where nothing is said of models."""
        of, store = (self.analysis, self.selection), self.drawing.store
        if not self.analysis.spec.of_population or not self.several:
            return None
        left = None if store is None else all_layers.find_left(of[0], store, of[1])
        return recipes(of[0], self.results, of[1], bounds=self.intervals, left=left)

    def reasons(self, measure: str) -> dict:
        """Why layers, or pairs of them, are flagged in a measure, where flags are drawn."""
        if self.flagged is None or not self.drawing.flags:
            return {}
        return dict(flags.reasons(self.flagged, measure))

    @cached_property
    def compared(self) -> Compared | None:
        """What is selected by the similarity that is chosen; None where it is RSA, or not there."""
        name, store = self.drawing.options.get("similarity", similarities.RSA), self.drawing.store
        if store is None or name == similarities.RSA:
            return None
        found = similarities.find(self.analysis, name, store)
        return None if found is None else found.of(self.analysis, self.selection)

    @cached_property
    def why(self) -> Explanation:
        """Why the two layers are alike; with intervals where those of all layers have them."""
        intervals = self.intervals
        if intervals is not None and len(intervals.terms):
            return explanation_of(intervals, *self.pair, self.coding)
        return explain(self.analysis, *self.pair, features=self.selection.features)


def basis(analysis: Analysis, selection: Selection, results: Results, coding: str) -> str:
    """How and on how much results were computed: the last part of their figures' captions.

    Parameters
    ----------
    coding : of the features, see `mlem_core.pairs.columns.coding`
    """
    fitted = in_words.fitted(
        estimator_named(selection.estimator).caption,
        selection.interactions,
        analysis.spec.missing if analysis.stimuli.has_missing else None,
        coding,
    )
    counts = results.n_stimuli, results.n_pairs, results.n_folds
    return f"{fitted} {in_words.computed_on(*counts, held_out(analysis))}"


def held_out(analysis: Analysis) -> str:
    """What an analysis tests, in words."""
    return Units.of(analysis.stimuli).held_out(analysis.spec.folds_over)

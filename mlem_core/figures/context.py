"""Context of an analysis' figures: its tables, and what was computed beside them."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis import flags
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.planning import said_of_choice
from mlem_core.analysis.similarities import SIMILARITY, LayerSimilarity, compute_rsa
from mlem_core.base.labels import Names
from mlem_core.base.parameters import Registry
from mlem_core.base.typing import Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.extending import Band, entry_modules, functions
from mlem_core.figures import captions
from mlem_core.inference.explanation import best_known, explain
from mlem_core.inference.explanation_text import Explanation, tested_similarities
from mlem_core.inference.importance_null import IMPORTANCE_CHANCE
from mlem_core.inference.intervals import FamilyOfTests, LayerIntervals, score_table
from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
from mlem_core.inference.permutation_null import ContributionNull
from mlem_core.pairs.columns import coding
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES


@dataclass(frozen=True)
class FigureOptions:
    """Choices for drawing figures.

    Attributes
    ----------
    pair : the two layers that are compared; by default those of `Analysis.most_alike`
    narrow : whether panels stand below each other, for one column of a journal
    names : how features and models are called
    options : what else one chooses of a figure, by name: "feature" (coded by value),
        "similarity" (in the place of RSA, where it is in the store), "color" (the feature that
        colours the stimuli), "order" (of the layers of the matrices: "model" or "clustering"),
        "mapped" (the model whose layers are mapped),
        and those of the figures of extensions
    screen : whether they stand on a screen beside others: panels below each other where there is
        little room
    """

    pair: tuple[Layer, Layer] | None = None
    narrow: bool = False
    names: Names = field(default_factory=Names)
    options: Mapping[str, str] = field(default_factory=dict)
    screen: bool = False


@dataclass(frozen=True)
class RenderedFigure:
    """A figure with what belongs to it.

    Attributes
    ----------
    figure : what is drawn
    caption : for print: what one sees, how it was computed, and on how much
    data : the table that it is drawn from
    table : the numbers as a paper prints them, where it is not `data`
    title : in a few words, where it is not that of its kind
    """

    figure: go.Figure
    caption: str
    data: pd.DataFrame
    table: pd.DataFrame | None = None
    title: str = ""

    @property
    def printed(self) -> pd.DataFrame:
        """The table for a paper."""
        return self.data if self.table is None else self.table


@dataclass(frozen=True)
class FigureContext(SelectionContext):
    """Context of figures: a selection of an analysis, and choices for drawing.

    Without a store there are no maps of the stimuli, and figures show spreads over folds.
    """

    drawing: FigureOptions = field(default_factory=FigureOptions)

    @cached_property
    def names(self) -> Names:
        """Display names of features and models, names of layers, and the groups of models."""
        groups = {one: name for name, of in self.analysis.spec.groups for one in of}
        own = self.analysis.names
        return replace(self.drawing.names, layers=own.layers, axes=own.axes, groups=groups)

    @property
    def all_features(self) -> list[str]:
        """Features of the analysis, in its order; their place decides the colours."""
        return [feature.name for feature in self.analysis.stimuli.features]

    @property
    def terms(self) -> list[str]:
        """All features, and the interactions that matter most."""
        return with_interactions(self.results.importance, self.all_features)

    @property
    def across(self) -> int:
        """Number of panels, one a model, that stand beside each other."""
        models = {model for model, _ in self.selection.layers}
        few = self.drawing.screen or len(models) <= 6
        return 2 if self.drawing.narrow and few else 3

    @property
    def along(self) -> str:
        """What the layers of the selection are, for a title: "the layers", "time"."""
        words = {self.names.axis(model) for model, _ in self.selection.layers}
        word, unit, _ = (words.pop() if len(words) == 1 else "layer").partition(" (")
        return word if unit else f"the {word}s"

    @property
    def several(self) -> bool:
        """Whether there are two layers to compare."""
        return len(self.selection.layers) > 1

    @property
    def basis(self) -> str:
        """Basis of the results, n and computation: the last part of captions."""
        chosen = self.selection
        fit = estimator_named(chosen.estimator).caption
        fit += said_of_choice(self.analysis.manifest, chosen.estimator, "chosen")
        fit += " with interactions" * chosen.interactions
        level = self.analysis.spec.missing == "level" and self.analysis.stimuli.has_missing
        return self._sample_sentence(fit + "; missing values are a value of their own" * level)

    @property
    def coding(self) -> str:
        """Coding of the features, in words."""
        columns = self.analysis.pairs.columns
        of_feature = dict(zip(columns.features, columns.kinds, strict=True))
        features = self.selection.features
        by_value = [name for name in columns.by_value if name in features]
        return coding([of_feature[name] for name in features], by_value, self.names)

    @property
    def basis_sentence(self) -> str:
        """Sentence on n and method for results that need no fitted metric model."""
        return self._sample_sentence()

    def _sample_sentence(self, fit: str = "") -> str:
        counts = self.results.n_stimuli, self.results.n_pairs, self.results.n_folds
        return captions.basis_sentence(*counts, self.coding, fit)

    @cached_property
    def pair(self) -> tuple[Layer, Layer]:
        """The two layers that are compared."""
        return self.drawing.pair or self.analysis.most_alike(self.selection.layers)

    @property
    def called(self) -> tuple[str, str]:
        """Display names of the two compared layers."""
        a, b = map(self.names.layer_title, self.pair)
        return a, b

    def find_intervals(self, similarity: str) -> LayerIntervals | None:
        """Confidence intervals of what is selected, where they have been computed."""
        return LAYER_INTERVALS.find(self.reselect(similarity=similarity))

    @cached_property
    def intervals(self) -> LayerIntervals | None:
        """Confidence intervals by the similarity of the selection."""
        return self.find_intervals(self.selection.similarity)

    @property
    def over(self) -> str:
        """Resampling units of the intervals, in words; empty where there are none."""
        return "" if self.intervals is None else self.intervals.units.over

    @cached_property
    def score_tests(self) -> FamilyOfTests | None:
        """Scores and importances of all layers with intervals and tests."""
        if (intervals := self.intervals) is None:
            return None
        return self.once("score tests", lambda: score_table(intervals, self.selection.layers))

    @cached_property
    def similarity_tests(self) -> FamilyOfTests | None:
        """Both similarities of every two layers with intervals and tests."""
        if (intervals := self.intervals) is None or not self.several:
            return None
        asked = self.analysis, intervals, self.selection.layers
        return self.once("similarity tests", lambda: tested_similarities(*asked))

    @cached_property
    def importance_chance(self) -> pd.DataFrame | None:
        """Importances under permuted labels, where they have been computed."""
        return IMPORTANCE_CHANCE.find(self)

    @cached_property
    def extension_bands(self) -> list[Band]:
        """Grey bands of extensions behind the importances."""
        return [band for bands in functions("bands") for band in bands(self)]

    @cached_property
    def bands(self) -> list[Band]:
        """Grey bands behind the importances: the largest by chance, and those of extensions."""
        bands = self.extension_bands
        if (chance := self.importance_chance) is None:
            return bands
        largest = chance.groupby(["model", "layer"], as_index=False)["chance"].max()
        ends = largest.assign(lower=0.0, upper=largest["chance"].clip(lower=0.0))
        name, caption = "chance (largest of the features)", "Grey: largest with permuted labels."
        return [Band(name, caption, ends.dropna()), *bands]

    @cached_property
    def marks(self) -> pd.DataFrame:
        """Flags of each run by the shares of variance, and those of extensions."""
        of_extensions = [audit_flags(self) for audit_flags in functions("flags")]
        return pd.concat((flags.variance_flags(self.analysis.variance), *of_extensions))

    def reasons(self, measure: str) -> dict:
        """Reasons why layers, or pairs of them, are flagged in a measure."""
        return dict(flags.reasons(self.marks, measure))

    @cached_property
    def layer_flags(self) -> dict[Layer, str]:
        """Why layers are to be read with care in their importances or scores."""
        reasons = {measure: self.reasons(measure) for measure in ("profiles", "scores")}
        return flags.layer_reasons(reasons, self.selection.layers)

    @cached_property
    def _compared(self) -> LayerSimilarity | None:
        """All layers by the similarity that is chosen; None where it is RSA, or not there."""
        name = self.drawing.options.get("similarity", RSA)
        return None if name == RSA else SIMILARITY.find(self, name=name)

    @property
    def layer_similarity(self) -> LayerSimilarity:
        """All layers by the chosen similarity; by RSA where it is not computed."""
        found = self._compared
        return compute_rsa(self.analysis) if found is None else found

    @cached_property
    def compared(self) -> LayerSimilarity | None:
        """Selected layers by the chosen similarity; None where it is RSA, or not computed."""
        found = self._compared
        return None if found is None else found.select(self.analysis, self.selection)

    def find_contribution_null(self, similarity: str) -> ContributionNull | None:
        """Contributions to all layers under permuted labels, where they are known."""
        return LAYER_CHANCE.find(self.reselect(similarity=similarity))

    @property
    def chance(self) -> ContributionNull | None:
        """Contributions under permuted labels, by the chosen similarity, where they are known."""
        return self.find_contribution_null(self.layer_similarity.similarity.name)

    @cached_property
    def why(self) -> Explanation:
        """Explanation of the two layers' similarity, with the best intervals that there are now."""
        chosen, compared = self.selection, self.layer_similarity
        name, of = compared.similarity.name, (self.analysis, *self.pair, chosen.features)
        key = "why", self.pair, name
        why = self.all_layers.once(key, lambda: explain(*of, compared=compared))
        why = best_known(why, self, self.find_intervals(name), self.chance)
        return replace(why, names=self.names, coding=self.coding)


Draw = Callable[[FigureContext], RenderedFigure | None]
D = TypeVar("D", bound=Draw)


@dataclass(frozen=True)
class FigureRecord:
    """A figure of an analysis.

    Attributes
    ----------
    name : of its file
    title : what kind of figure it is, in a few words
    draw : draws it with its caption and its table; None where there is nothing to draw
    line : what a screen says below it, or gives that; empty where none shows it, but as a file
    offered : whether the page Report offers it; the others are added where they are seen
    tab : the part of a screen that shows it; empty where it has a place of its own
    place : where it stands among those of the tab; of equal ones by name
    """

    name: str
    title: str
    draw: Draw
    line: str | Callable[[FigureContext], str] = ""
    offered: bool = False
    tab: str = ""
    place: int = 0

    def below(self, context: FigureContext) -> str:
        """Line below the figure on a screen."""
        return self.line if isinstance(self.line, str) else self.line(context)


def _modules(kind: str) -> list[str]:
    """Modules that register figures: all of this package, so that a file more is a figure more."""
    package = Path(__file__).parent
    names = [f"{__package__}.{module.name}" for module in pkgutil.iter_modules([str(package)])]
    return [*names, *entry_modules(kind)]


FIGURES = Registry[FigureRecord]("figure", _modules)


def figure(
    name: str,
    title: str,
    line: str | Callable[[FigureContext], str] = "",
    by_similarity: Literal["", "any", "of terms"] = "",
    **more: Any,
) -> Callable[[D], D]:
    """A decorator that registers what draws a figure; see `FigureRecord`, also for `more`.

    Parameters
    ----------
    by_similarity : whether the figure is registered for each other similarity in the place of RSA
        too, or for those that have terms, with the name of the similarity at its end
    """

    def register(draw: D) -> D:
        FIGURES.register(FigureRecord(name, title, draw, line, **more))
        for other in SIMILARITIES.values() if by_similarity else ():
            if other.name != RSA and (other.divides or by_similarity == "any"):
                draw_other = partial(_draw_by_similarity, draw, other.name)
                FIGURES.register(FigureRecord(f"{name}_{other.name}", title, draw_other))
        return draw

    return register


def _draw_by_similarity(
    draw: Draw, similarity: str, context: FigureContext
) -> RenderedFigure | None:
    """A figure with another similarity in the place of RSA; None where that is not computed."""
    options = {**context.drawing.options, "similarity": similarity}
    changed = replace(context, drawing=replace(context.drawing, options=options))
    return None if changed.compared is None else draw(changed)


def some_layers(layers: Sequence[Layer], most: int) -> list[Layer]:
    """The first, the last, and others between them, at most so many."""
    places = np.linspace(0, len(layers) - 1, min(most, len(layers))).round().astype(int)
    return [layers[place] for place in np.unique(places)]


def with_interactions(
    importance: pd.DataFrame, features: Sequence[str], most: int = 4
) -> list[str]:
    """The features, then the interactions that matter most in any layer (`most` of them).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance
    features : all features of the analysis; what else is in the table is an interaction
    """
    others = importance[~importance["feature"].isin(list(features))]
    if others.empty:
        return list(features)
    means = others.groupby(["feature", "model", "layer"])["importance"].mean()
    strongest = means.groupby("feature").max().nlargest(most)
    return [*features, *strongest.index]


def held_out(analysis: Analysis) -> str:
    """Stimuli that an analysis holds out, in words."""
    return Units.from_stimuli(analysis.stimuli).held_out(analysis.spec.folds_over)

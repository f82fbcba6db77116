"""The figures of an analysis from Python: `analysis.plot.profiles()`, `results.plot.similarity()`.

Each gives a Plotly figure, the one that the app shows and a capsule has; `analysis.plot.figure`
draws any of them by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import check_layers
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, Layers
from mlem_core.figures.naming import naming_layers
from mlem_core.inference.explanation import layer_of
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class ResultsPlots:
    """Figures of results, which `results.plot` is.

    Why two layers are alike needs the analysis: `analysis.plot.why`.
    """

    results: Results
    all_features: tuple[str, ...] = ()
    layers: Mapping[str, str] = field(default_factory=dict)

    def profiles(self) -> go.Figure:
        """Importance of each feature over the layers, with the held-out ρ and its ceiling."""
        results = self.results
        features = self.all_features or tuple(results.feature_correlations.index)
        shown = figures.with_interactions(results.importance, features)
        with naming_layers(self.layers):
            return figures.profiles(results.importance, results.scores, shown)

    def similarity(self) -> go.Figure:
        """Weighted Kendall τ of the profiles, and RSA, of every two layers."""
        results = self.results
        with naming_layers(self.layers):
            return figures.similarity_matrices(results.similarity_profiles, results.similarity_rsa)


@dataclass(frozen=True)
class AnalysisPlots:
    """Figures of an analysis, which `analysis.plot` is.

    `features` and `layers` as in `Analysis.select`; an InputError says what there is not. A feature
    has the same colour in every figure, whichever are chosen. With a `store` they show what is in
    it: confidence intervals, what the audit flags, maps of the stimuli.
    """

    analysis: Analysis

    def figure(
        self,
        name: str,
        features: Sequence[str] | None = None,
        layers: Layers | None = None,
        *,
        pair: tuple[Layer | str, Layer | str] | None = None,
        store: Store | None = None,
        **options: str,
    ) -> go.Figure:
        """A figure by its name, one of `mlem_core.report.figures.FIGURES`.

        Parameters
        ----------
        pair : the two layers of figures that compare two
        options : of the figure, see `mlem_core.report.shown.Drawing`

        Raises
        ------
        InputError
            An unknown figure; one of which there is nothing to draw.
        """
        from mlem_core.report.figures import Drawing, Shown, draw

        chosen = self.analysis.select(features, layers)
        two = None if pair is None else (layer_of(pair[0]), layer_of(pair[1]))
        check_layers(two or (), chosen.layers)
        results = self.analysis.results_of(chosen)
        drawing = Drawing(two, store, options=options)
        drawn = draw(name, Shown(self.analysis, chosen, results, drawing))
        if drawn is None:
            raise InputError(
                f"there is nothing to draw for the figure {name}: it needs other layers, or what "
                "has not been computed, or a store where that is."
            )
        return drawn.figure

    def profiles(
        self,
        features: Sequence[str] | None = None,
        layers: Layers | None = None,
        store: Store | None = None,
    ) -> go.Figure:
        """Importance of each feature over the layers, with the held-out ρ and its ceiling."""
        return self.figure("profiles", features, layers, store=store)

    def similarity(
        self,
        features: Sequence[str] | None = None,
        layers: Layers | None = None,
        store: Store | None = None,
    ) -> go.Figure:
        """Weighted Kendall τ of the profiles, and RSA, of every two layers."""
        return self.figure("similarity", features, layers, store=store)

    def why(
        self,
        a: Layer | str,
        b: Layer | str,
        features: Sequence[str] | None = None,
        store: Store | None = None,
    ) -> go.Figure:
        """The RSA correlation of two layers as a sum over the features, and what is unexplained.

        Parameters
        ----------
        a, b : ("minilm", 3) or "minilm:3"
        """
        return self.figure("why", features, pair=(a, b), store=store)

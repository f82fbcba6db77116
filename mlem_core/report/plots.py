"""The figures of an analysis from Python: `analysis.plot.profiles()`, `results.plot.similarity()`.

Each gives a Plotly figure, the one that the app shows and a capsule has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.base.typing import Layer, Layers
from mlem_core.figures.naming import naming_layers
from mlem_core.inference.explanation import explain


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
    has the same colour in every figure, whichever are chosen.
    """

    analysis: Analysis

    def profiles(
        self, features: Sequence[str] | None = None, layers: Layers | None = None
    ) -> go.Figure:
        """Importance of each feature over the layers, with the held-out ρ and its ceiling."""
        return self._of(features, layers).profiles()

    def similarity(
        self, features: Sequence[str] | None = None, layers: Layers | None = None
    ) -> go.Figure:
        """Weighted Kendall τ of the profiles, and RSA, of every two layers."""
        return self._of(features, layers).similarity()

    def why(
        self, a: Layer | str, b: Layer | str, features: Sequence[str] | None = None
    ) -> go.Figure:
        """The RSA correlation of two layers as a sum over the features, and what is unexplained.

        Parameters
        ----------
        a, b : ("minilm", 3) or "minilm:3"
        """
        terms = explain(self.analysis, a, b, features).terms
        return figures.waterfall(terms, self.analysis.tables.features)

    def _of(self, features: Sequence[str] | None, layers: Layers | None) -> ResultsPlots:
        results = self.analysis.results(features, layers)
        return ResultsPlots(results, self.analysis.tables.features, self.analysis.names.layers)

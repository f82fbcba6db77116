"""The figures of an analysis, drawn by their names: from what is shown, and from Python.

`analysis.plot.profiles()` and `results.plot.similarity()` give a Plotly figure, the one that the
app shows and a capsule has; `analysis.plot.figure` draws any of them by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import check_layers
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, Layers, Progress, Report, layer_name
from mlem_core.figures.naming import naming_layers
from mlem_core.inference.explanation import layer_of
from mlem_core.pairs.similarities import RSA, SIMILARITIES

# Each registers its figures.
from mlem_core.report import all_layers, by_method, of_groups, of_values, partial_rsa, two_layers
from mlem_core.report.shown import (
    FIGURES,
    Draw,
    Drawing,
    FigureContext,
    FigureRecord,
    RenderedFigure,
    basis,
    held_out,
)
from mlem_core.storage.store import Store

__all__ = [
    "FIGURES", "AnalysisPlots", "Drawing", "FigureContext", "RenderedFigure", "ResultsPlots",
    "all_figures", "all_layers", "basis", "by_method", "draw", "held_out", "of_groups",
    "of_values", "partial_rsa", "two_layers",
]  # fmt: skip


def _by(similarity: str, draw: Draw) -> Draw:
    """What draws a figure with another similarity in the place of RSA, where it was computed."""

    def drawn(shown: FigureContext) -> RenderedFigure | None:
        options = {**shown.drawing.options, "similarity": similarity}
        chosen = replace(shown, drawing=replace(shown.drawing, options=options))
        return None if chosen.compared is None else draw(chosen)

    return drawn


# Those that have another similarity in the place of RSA.
for _similarity, _entry in SIMILARITIES.items():
    for _name in ("similarity", "why", "why_layers") if _entry.divides else ("similarity",):
        if _similarity != RSA:
            _of_rsa, _new = FIGURES[_name], f"{_name}_{_similarity}"
            _draw = _by(_similarity, _of_rsa.draw)
            FIGURES.register(FigureRecord(_new, _of_rsa.title, _of_rsa.line, _draw))


# By name, so that no import elsewhere decides their order in a capsule.
_by_name = sorted(FIGURES.items())
FIGURES.clear()
FIGURES.update(_by_name)


def draw(name: str, shown: FigureContext) -> RenderedFigure | None:
    """A figure of the registry, with the names that `shown` has; None where there is none.

    The table for print has these names too; `data` keeps the identifiers.

    Raises
    ------
    InputError
        An unknown figure.
    """
    record = FIGURES.named(name)
    with figures.naming(shown.names):
        made = record.draw(shown)
    if made is None:
        return None
    return replace(made, table=_named(made.printed, shown))


def _named(table: pd.DataFrame, shown: FigureContext) -> pd.DataFrame:
    """A table whose features, models and layers are called as in the figure."""
    heads = {one: shown.names.layer(one) for one in map(layer_name, shown.selection.layers)}
    return shown.names.table(table, shown.terms).rename(columns=heads)


def all_figures(shown: FigureContext, progress: Report | None = None) -> dict[str, RenderedFigure]:
    """Every figure of the registry that there is of what is shown.

    Parameters
    ----------
    progress : called before each
    """
    drawn = {}
    for done, name in enumerate(FIGURES):
        if progress is not None:
            progress(Progress("drawing", None, done, len(FIGURES), "figures"))
        made = draw(name, shown)
        if made is not None:
            drawn[name] = made
    return drawn


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
        """A figure by its name, one of `FIGURES`.

        Parameters
        ----------
        pair : the two layers of figures that compare two
        options : of the figure, see `mlem_core.report.shown.Drawing`

        Raises
        ------
        InputError
            An unknown figure; one of which there is nothing to draw.
        """
        chosen = self.analysis.select(features, layers)
        two = None if pair is None else (layer_of(pair[0]), layer_of(pair[1]))
        check_layers(two or (), chosen.layers)
        results = self.analysis.results_of(chosen)
        drawing = Drawing(two, store, options=options)
        drawn = draw(name, FigureContext(self.analysis, chosen, results, drawing))
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

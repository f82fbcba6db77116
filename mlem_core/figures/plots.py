"""The figures of an analysis by their names, for whoever draws them: `FIGURES` has a record each.

`analysis.plot.profiles()` gives a Plotly figure, the one that the app shows and *Download all* has;
`analysis.plot.figure` draws any of them by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import plotly.graph_objects as go

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, Layers, Progress, Report, layer_name
from mlem_core.figures.context import FIGURES, FigureContext, FigureOptions, RenderedFigure
from mlem_core.figures.naming import naming
from mlem_core.inference.explanation import parse_one_layer
from mlem_core.storage.store import Store

__all__ = [
    "FIGURES", "AnalysisPlots", "FigureContext", "FigureOptions", "RenderedFigure", "all_figures",
    "draw",
]  # fmt: skip


def draw(name: str, context: FigureContext) -> RenderedFigure | None:
    """A figure of the registry, with the names that `context` has; None where there is none.

    The table for print has these names too; `data` keeps the identifiers.

    Raises
    ------
    InputError
        An unknown figure.
    """
    record = FIGURES.named(name)
    with naming(context.names):
        drawn = record.draw(context)
    if drawn is None:
        return None
    layers = map(layer_name, context.selection.layers)
    table = context.names.table(drawn.printed, context.terms)
    heads = {layer: context.names.layer(layer) for layer in layers}
    title = drawn.title or record.title
    return replace(drawn, table=table.rename(columns=heads), title=title)


def all_figures(context: FigureContext, progress: Report) -> dict[str, RenderedFigure]:
    """Every figure of the registry that there is of an analysis.

    Parameters
    ----------
    progress : called before each
    """
    figures = {}
    # By name, so that no order of imports decides that of the figures in an archive.
    for done, name in enumerate(sorted(FIGURES)):
        progress(Progress("drawing", None, done, len(FIGURES), "figures"))
        drawn = draw(name, context)
        if drawn is not None:
            figures[name] = drawn
    return figures


@dataclass(frozen=True)
class AnalysisPlots:
    """Figures of an analysis, which `analysis.plot` is.

    Each figure of `FIGURES` is a method that takes what `figure` does: `analysis.plot.profiles()`.
    `features` and `layers` as in `Analysis.select`; an InputError says what there is not. A feature
    has the same colour in every figure, whichever are chosen. With a `store` they show what is in
    it: confidence intervals, what the audit flags, maps of the stimuli.
    """

    analysis: Analysis
    store: Store | None = None

    def __getattr__(self, name: str) -> Callable[..., go.Figure]:
        if name not in FIGURES:
            raise AttributeError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}.")
        return partial(self.figure, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *FIGURES]

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
        options : of the figure, see `mlem_core.figures.context.FigureOptions`

        Raises
        ------
        InputError
            An unknown figure; one for which there is nothing to draw.
        """
        selection = self.analysis.select(features, layers)
        two = None if pair is None else (parse_one_layer(pair[0]), parse_one_layer(pair[1]))
        check_layers(two or (), selection.layers)
        drawing = FigureOptions(two, options=options)
        drawn = draw(
            name, FigureContext(self.analysis, selection, store or self.store, drawing=drawing)
        )
        if drawn is None:
            raise InputError(
                f"there is nothing to draw for the figure {name}: it needs other layers, or what "
                "has not been computed, or a store where that is."
            )
        return drawn.figure

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

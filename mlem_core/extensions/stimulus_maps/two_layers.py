"""The importances of two layers and both their maps in one figure."""

from __future__ import annotations

import plotly.graph_objects as go

from mlem_core.extensions.stimulus_maps.figures import (
    color_feature,
    draw_side,
    panel_parts,
    sample_sentence,
    small_trace,
)
from mlem_core.figures.captions import joined
from mlem_core.figures.compare import draw_compare
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.style import SIZE, once_in_legend, panel_ref, panel_title, quiet_layout


def two_layers(
    scatter: go.Figure, maps: tuple[go.Figure, go.Figure], *, narrow: bool = False
) -> go.Figure:
    """The importances of two layers and both their maps in one (figure 4 of Salle et al. 2024).

    Parameters
    ----------
    scatter : of `importance_scatter`
    maps : of `stimulus_map`, of the layer on the x axis and of that on the y axis, coloured by one
        feature
    narrow : the maps below the scatter, for one column of a journal, instead of beside it
    """
    domains, height = _NARROW if narrow else _WIDE
    layout = quiet_layout(height)
    traces, headings = [], []
    for place, (part, domain) in enumerate(zip((scatter, *maps), domains, strict=True)):
        ref = panel_ref(place)
        panel_traces, axes, notes = panel_parts(part, ref)
        if place:
            panel_traces = [
                small_trace(trace, place == 1, narrow) | {"legend": "legend2"}
                for trace in panel_traces
            ]
        traces += panel_traces
        for name, ends in zip("xy", domain, strict=True):
            # Both sides of a panel are cut to the square that fits, from the outside.
            side = {"constrain": "domain", "constraintoward": "left" if name == "x" else "top"}
            axes[f"{name}axis{ref}"] |= {"domain": ends, **side}
        if narrow and not place:
            title = axes["yaxis"]["title"]
            title["text"] = title["text"].replace(") in ", ")<br>in ")
        layout |= axes
        text = part.layout.title.text
        if narrow and place:
            text = text.replace(" layer ", "<br>layer ")
        headings += [panel_title(text, ref) | {"font": {"size": SIZE}}, *notes]
    title = {"text": maps[0].layout.legend.title.text, "font": {"size": SIZE}}
    beside = layout["legend"] | {"x": 1.02}
    layout |= {
        "annotations": headings,
        "margin": {"l": 60, "r": 12, "t": 40, "b": 56 if not narrow else 40},
        "legend": beside | {"y": 1, "yanchor": "top"},
        "legend2": beside | {"y": 0, "yanchor": "bottom", "title": title},
    }
    return go.Figure(once_in_legend(traces), layout)


# x and y of the scatter and of the two maps, as shares of the plot, and the height.
_WIDE = (([0, 0.6], [0, 1]), ([0.7, 1], [0.55, 1]), ([0.7, 1], [0, 0.45])), 540
_NARROW = (([0, 1], [0.46, 1]), ([0, 0.47], [0, 0.3]), ([0.53, 1], [0, 0.3])), 560


@figure(
    "two_layers",
    "Figure 4: scatter and maps of two layers",
    "Two layers: which features matter in each, and how each lays out the stimuli.",
    offered=True,
)
def draw_two_layers(context: FigureContext) -> RenderedFigure | None:
    """The importances of both layers and their maps in one figure."""
    scatter, map_a, map_b = draw_compare(context), draw_side(context, 0), draw_side(context, 1)
    if scatter is None or map_a is None or map_b is None:
        return None
    a, b = context.called
    color = context.names.feature(color_feature(context))
    return RenderedFigure(
        two_layers(scatter.figure, (map_a.figure, map_b.figure), narrow=context.drawing.narrow),
        f"{a} and {b}: importances and maps of the stimuli",
        joined(
            f"(a) {scatter.caption} (b, c) Metric MDS of the neural distances, coloured by "
            f"{color}.",
            sample_sentence(len(map_a.data), len(context.analysis.stimuli)),
        ),
        scatter.data,
        scatter.table,
    )

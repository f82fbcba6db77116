"""Maps of the stimuli: of a layer, of many layers, and of two with their importances.

Source: figures 3 and 4 of Salle et al. (2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.errors import InputError
from mlem_core.base.text import sentence_case
from mlem_core.base.typing import Layer
from mlem_core.extensions.stimulus_maps.computation import LAYOUTS, MAP, map_table
from mlem_core.figures.captions import basis_sentence, joined, stress_sentence
from mlem_core.figures.compare import draw_compare
from mlem_core.figures.context import FigureContext, RenderedFigure, figure, some_layers
from mlem_core.figures.maps import frame_map, heading
from mlem_core.figures.naming import feature_labels, feature_name
from mlem_core.figures.stimuli import common_levels
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    SYMBOLS,
    Trace,
    bar_title,
    once_in_legend,
    panel_layout,
    panel_ref,
    panel_title,
    place_in_panel,
    plain,
    quiet,
    quiet_layout,
    scatter,
    short,
)

LEVELS = 8  # of a nominal feature; of more, seven have a colour and the others are grey
_HEIGHT = 200  # px of a panel of several, which is a square


def stimulus_map(points: pd.DataFrame, color: str, kind: str, title: str) -> go.Figure:
    """Stimuli of one layer as points, coloured by a feature.

    Parameters
    ----------
    points : stimulus, x, y, label (for hovering) and the column `color`
    kind : "ordered", or another one, whose values have a colour each; missing values are grey
    """
    values, label = points[color], feature_labels([color], LEGEND)[0]
    if kind == "ordered":
        values = pd.to_numeric(values, errors="coerce")
        known = values.notna()
        bar = {"title": bar_title(label), "thickness": 12, "outlinewidth": 0}
        marker = {"color": values[known], "size": 7, "opacity": 0.85, "colorscale": SEQUENTIAL}
        marker |= {"showscale": bool(known.any()), "colorbar": bar}
        groups = [(feature_name(color), known, marker)]
    else:
        groups = _levels(values)
    if values.isna().any():
        faint = {"color": GREY, "size": 5, "opacity": 0.5, "symbol": "circle-open"}
        groups.insert(0, ("missing", values.isna(), faint))
    figure = go.Figure()
    for name, in_group, marker in groups:
        shown = points[in_group]
        hover = [
            f"{plain(label, 80)}<br>{_named(feature_name(color), value)}"
            for label, value in zip(shown["label"], shown[color], strict=True)
        ]
        trace = scatter(shown["x"], shown["y"], hover, name=name, marker=marker)
        if kind == "ordered" and name != "missing":
            trace["showlegend"] = False
        figure.add_trace(go.Scatter(trace))
    quiet(figure, height=460)
    frame_map(figure, points)
    legend = {"x": 0, "y": 0, "yanchor": "bottom"} if kind == "ordered" else {"title_text": label}
    return figure.update_layout(title=heading(plain(title, 60)), margin={"t": 44}, legend=legend)


def _named(feature: str, value: Any) -> str:
    text = short(float(value)) if isinstance(value, float | np.floating) else str(value)
    return f"{feature}: {'missing' if pd.isna(value) else plain(text)}"


# Name, which stimuli, and how their points look.
_Group = tuple[str, pd.Series, dict[str, Any]]


def _levels(values: pd.Series) -> list[_Group]:
    """The stimuli of each common level of a nominal feature, and the others together."""
    texts = values.map(lambda value: None if pd.isna(value) else str(value))
    shown, other = common_levels(values, LEVELS)
    groups = []
    for i, level in enumerate(shown):
        marker = {"size": 7, "opacity": 0.85, "color": PALETTE[i], "symbol": SYMBOLS[i]}
        groups.append((plain(level), texts == level, marker))
    if other:
        marker = {"color": GREY, "size": 6, "symbol": "hexagon-open"}
        groups.append((f"{len(other)} other values", texts.isin(other), marker))
    return groups


def layer_points(context: FigureContext, layer: Layer) -> tuple[pd.DataFrame, float]:
    """The map of the stimuli in a layer (stimulus, x, y), and how far it is off.

    Raises as `stimulus_map` of `computation`; there is no store.
    """
    if context.store is None:
        raise InputError("maps of the stimuli need a store, where the representations are.")
    layer_map = MAP.get(context, layer=layer, layout=selected_layout(context))
    return map_table(context.analysis, layer_map), layer_map.stress


def selected_layout(context: FigureContext) -> str:
    """How stimuli are laid out, one of `LAYOUTS`: the choice "layout", else metric MDS."""
    return str(context.drawing.options.get("layout", "mds"))


def color_feature(context: FigureContext) -> str:
    """The feature that colours the stimuli: the one chosen, else the easiest to read.

    A nominal one, as a few colours are read more easily than a scale, and seldom missing.
    """
    color = context.drawing.options.get("color", "")
    if color in context.all_features:
        return str(color)
    stimuli = context.analysis.stimuli
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    return min(
        context.selection.features,
        key=lambda name: (kinds[name] != "nominal", stimuli.table[name].isna().sum()),
    )


def _coloured_map(context: FigureContext, layer: Layer) -> RenderedFigure | None:
    """The stimuli in a layer, coloured by a feature; None where they cannot be had."""
    stimuli, color = context.analysis.stimuli, color_feature(context)
    try:
        points, stress = layer_points(context, layer)
    except InputError:
        return None  # there is no store, or the representations are no longer in it
    shown = stimuli.take(points["stimulus"].to_numpy())
    labels = shown.sentences
    if shown.word_index is not None:
        words = zip(shown.words, labels, strict=True)
        labels = [f"{word} in: {sentence}" for word, sentence in words]
    points = points.assign(**{"label": labels, color: shown.table[color].to_numpy()})
    title = context.names.layer_title(layer)
    kind = next(feature.kind for feature in stimuli.features if feature.name == color)
    return RenderedFigure(
        stimulus_map(points, color, kind, title),
        map_caption(
            len(points),
            len(stimuli),
            context.names.feature(color),
            selected_layout(context),
            stress,
        ),
        points,
        title=f"Stimuli in {title}",
    )


def draw_side(context: FigureContext, side: int) -> RenderedFigure | None:
    """The stimuli in one of the two layers; None where they cannot be had."""
    return _coloured_map(context, context.pair[side]) if context.several else None


for _side, _place in enumerate("ab"):
    figure(f"stimulus_map_{_place}", "Map of the stimuli")(partial(draw_side, side=_side))


def map_caption(n_shown: int, n_stimuli: int, color: str, layout: str, *stresses: float) -> str:
    """Caption of the stimuli of layers as points.

    Parameters
    ----------
    color : the feature that colours them; empty where another sentence names it
    layout : one of `LAYOUTS`
    stresses : of the maps
    """
    return joined(
        f"{sentence_case(LAYOUTS[layout])} of the neural distances: stimuli that lie close are "
        "represented similarly.",
        "Distances between groups mean little." * (layout == "umap"),
        sample_sentence(n_shown, n_stimuli),
        f"Coloured by {color}." if color else "",
        stress_sentence(*stresses),
        basis_sentence(n_stimuli),
    )


def sample_sentence(n_shown: int, n_stimuli: int) -> str:
    """Sentence on the sample that a map shows; empty where it shows all stimuli."""
    return f"Shown: a random sample of {n_shown:,} stimuli." if n_shown < n_stimuli else ""


def map_panels(maps: Sequence[go.Figure], across: int = 4) -> go.Figure:
    """Maps of the stimuli, a panel each, with one legend for all.

    Parameters
    ----------
    maps : of `stimulus_map`, coloured by one feature
    across : panels beside each other
    """
    titles = [layer_map.layout.title.text for layer_map in maps]
    layout, places = panel_layout(titles, height=_HEIGHT, across=across, apart=0.03, below=56)
    traces: list[Trace] = []
    for place, (layer_map, (ref, _)) in enumerate(zip(maps, places, strict=True)):
        panel_traces, axes, notes = panel_parts(layer_map, ref)
        traces += [small_trace(trace, first=place == 0) for trace in panel_traces]
        layout["annotations"] += notes
        for name, axis in axes.items():
            layout[name] |= axis
    legend = layout["legend"] | {"itemsizing": "constant"}
    legend["title"] = {"text": maps[0].layout.legend.title.text, "font": {"size": SIZE}}
    height = (_HEIGHT + 56) * math.ceil(len(maps) / across) + 60
    layout |= {"legend": legend, "height": height, "margin": {"l": 56, "r": 16, "t": 36, "b": 32}}
    return go.Figure(once_in_legend(traces), layout)


def panel_parts(drawn: go.Figure, ref: str) -> tuple[list[Trace], dict[str, Any], list[Trace]]:
    """Traces, axes and notes of a figure of one panel, for the panel `ref` of another one."""
    axes = {}
    for name, other in (("x", "y"), ("y", "x")):
        axis = drawn.layout[f"{name}axis"].to_plotly_json()
        axes[f"{name}axis{ref}"] = axis | {"anchor": other + ref}
    axes[f"yaxis{ref}"]["scaleanchor"] = f"x{ref}"
    notes = [note.to_plotly_json() for note in drawn.layout.annotations]
    for note in notes:
        note |= {f"{name}ref": note[f"{name}ref"].replace(name, name + ref) for name in "xy"}
    return place_in_panel(ref, (trace.to_plotly_json() for trace in drawn.data)), axes, notes


def small_trace(trace: Trace, first: bool, narrow: bool = False) -> Trace:
    """A trace of a map that stands beside others: smaller points, one legend for all maps.

    Parameters
    ----------
    first : whether it is of the first of them, which has the scale
    narrow : the scale below the maps
    """
    marker = {**trace["marker"], "size": 4}
    if "colorbar" in marker:
        bar = {"lenmode": "pixels", "len": 150, "x": 1.02, "xanchor": "left"}
        bar |= {"y": 0, "yanchor": "bottom"}
        if narrow:
            bar |= {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.02, "yanchor": "top"}
        marker |= {"colorbar": {**marker["colorbar"], **bar}}
        marker["showscale"] = first and marker["showscale"]
    return trace | {"marker": marker, "legendgroup": f"stimuli {trace['name']}"}


# Layers of a model that are drawn: each map takes some seconds when it is drawn first.
MOST = 12


@figure(
    "map_panels",
    "The stimuli in the layers of a model",
    "How the layers of a model lay out the stimuli, from the first to the last.",
)
def draw_map_panels(context: FigureContext) -> RenderedFigure | None:
    """The maps of the layers of the model that is chosen; None where they cannot be had.

    Where none is chosen they are left out: each map takes seconds, and what happens to be kept must
    not decide what is in an archive.
    """
    store, model = context.store, context.drawing.options.get("mapped", "")
    layers = [layer for layer in context.selection.layers if layer[0] == model]
    drawn = some_layers(layers, MOST)
    if store is None or not drawn:
        return None
    layer_maps = [_coloured_map(context, layer) for layer in drawn]
    available = [layer_map for layer_map in layer_maps if layer_map is not None]
    if len(available) < len(drawn):
        return None
    tables = [
        layer_map.data.drop(columns="label").assign(model=model, layer=layer)
        for layer_map, (_, layer) in zip(available, drawn, strict=True)
    ]
    n, color = len(tables[0]), context.names.feature(color_feature(context))
    some = ""
    if len(drawn) < len(layers):
        some = f" {len(drawn)} of the {len(layers)} layers are drawn."
    return RenderedFigure(
        map_panels(
            [layer_map.figure for layer_map in available], 2 if context.drawing.narrow else 4
        ),
        f"The stimuli in the layers of one model, coloured by {color}.{some} "
        f"{map_caption(n, len(context.analysis.stimuli), '', selected_layout(context))}",
        pd.concat(tables, ignore_index=True),
        title=f"Stimuli in the layers of {context.names.model(model)}",
    )


# x and y of the scatter and of the two maps, as shares of the plot, and the height.
_WIDE = (([0, 0.6], [0, 1]), ([0.7, 1], [0.55, 1]), ([0.7, 1], [0, 0.45])), 540
_NARROW = (([0, 1], [0.46, 1]), ([0, 0.47], [0, 0.3]), ([0.53, 1], [0, 0.3])), 560


def two_layers(
    importances: go.Figure, maps: tuple[go.Figure, go.Figure], *, narrow: bool = False
) -> go.Figure:
    """The importances of two layers and both their maps in one (figure 4 of Salle et al. 2024).

    Parameters
    ----------
    importances : of `importance_scatter`
    maps : of `stimulus_map`, of the layer on the x axis and of that on the y axis, coloured by one
        feature
    narrow : the maps below the scatter, for one column of a journal, instead of beside it
    """
    domains, height = _NARROW if narrow else _WIDE
    layout = quiet_layout(height)
    traces, headings = [], []
    for place, (part, domain) in enumerate(zip((importances, *maps), domains, strict=True)):
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


@figure("two_layers", "Figure 4: scatter and maps of two layers", offered=True)
def draw_two_layers(context: FigureContext) -> RenderedFigure | None:
    """The importances of both layers and their maps in one figure."""
    compared, map_a, map_b = draw_compare(context), draw_side(context, 0), draw_side(context, 1)
    if compared is None or map_a is None or map_b is None:
        return None
    a, b = context.called
    color = context.names.feature(color_feature(context))
    return RenderedFigure(
        two_layers(compared.figure, (map_a.figure, map_b.figure), narrow=context.drawing.narrow),
        joined(
            f"(a) {compared.caption} (b, c) {LAYOUTS[selected_layout(context)]} of the neural "
            f"distances, coloured by {color}.",
            sample_sentence(len(map_a.data), len(context.analysis.stimuli)),
        ),
        compared.data,
        compared.table,
        title=f"{a} and {b}: importances and maps of the stimuli",
    )

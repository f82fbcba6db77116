"""Figures of how far apart the values of a feature are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core import figures
from mlem_core.base.typing import Layer, layer_name
from mlem_core.measures import value_distances
from mlem_core.report.captions import STRESS
from mlem_core.report.shown import Draw, FigureContext, RenderedFigure, figure

MOST_MATRICES = 6
# In one column of a journal: matrices one below the other, and values of two beside each other.
MOST_BELOW, FEW_VALUES = 4, 8
_UNITS = (
    "in units of the fitted target (squared neural distances, or their ranks, scaled to [0, 1] in "
    "each layer)"
)


def _of_feature(shown: FigureContext) -> tuple[pd.DataFrame, str] | None:
    """The table, and the feature that is chosen of those with values told apart.

    Without a choice the one that matters most; None where no values are told apart.
    """
    results, chosen = shown.results, shown.drawing.options.get("feature", "")
    if not results.resolved:
        return None
    if chosen not in results.resolved:
        chosen = results.most_important(results.resolved)
    return results.value_distances, chosen


def matrices_caption(feature: str, basis: str) -> str:
    """Caption of the distances of every two values as a matrix, or a matrix a layer."""
    return (
        f"Squared distance of every two values of {feature} in the metric model (mean over folds), "
        f"{_UNITS}. Rings: the distance of two stimuli of one value, beyond what all pairs share. "
        f"Crosses: values that no pair of stimuli has, where the penalty alone decides. {basis}"
    )


def table_caption(feature: str) -> str:
    """Caption of the table behind these figures."""
    return (
        f"The values of {feature}: distance (squared, {_UNITS}) and its standard deviation over "
        "folds, separation (its part between the means of the two values) and the pairs of stimuli "
        "that it is seen in."
    )


def _own(table: pd.DataFrame, feature: str) -> pd.DataFrame:
    return table[table["feature"] == feature]


@figure(
    "values",
    "Distances of the values",
    "How far apart every two values of the feature are.",
)
def one_matrix(shown: FigureContext) -> RenderedFigure | None:
    """The distance of every two values in one layer."""
    values = _of_feature(shown)
    if values is None:
        return None
    layer = _chosen_layer(shown)
    own, name = _own(*values), shown.names.feature(values[1])
    return RenderedFigure(
        figures.value_matrices(*values, [layer]),
        f"Distances of the values of {name} in {shown.names.layer(layer_name(layer))}",
        matrices_caption(name, shown.basis),
        own[(own["model"] == layer[0]) & (own["layer"] == layer[1])],
    )


@figure(
    "values_matrices",
    "Distances of the values",
    "How far apart every two values of the feature are.",
)
def matrices(shown: FigureContext) -> RenderedFigure | None:
    """The distance of every two values, a matrix a layer, of some layers."""
    values = _of_feature(shown)
    if values is None or not shown.several:
        return None
    own, narrow = _own(*values), shown.drawing.narrow
    across = 2 if shown.drawing.screen else 3
    if narrow:
        across = 1 if own["value_a"].nunique() > FEW_VALUES else 2
    layers = _spaced(list(shown.selection.layers), MOST_MATRICES if across > 1 else MOST_BELOW)
    some = ""
    if len(layers) < len(shown.selection.layers):
        some = f"{len(layers)} of the {len(shown.selection.layers)} layers are drawn. "
    name = shown.names.feature(values[1])
    return RenderedFigure(
        figures.value_matrices(*values, layers, across),
        f"Distances of the values of {name}",
        matrices_caption(name, some + shown.basis),
        own,
    )


def _spaced(layers: list[Layer], most: int) -> list[Layer]:
    """At most so many of the layers, evenly spaced."""
    at = np.linspace(0, len(layers) - 1, min(len(layers), most)).round().astype(int)
    return [layers[i] for i in dict.fromkeys(at.tolist())]


@figure(
    "values_layers",
    "Distances of the values",
    "How far apart the values are, layer by layer.",
)
def lines(shown: FigureContext) -> RenderedFigure | None:
    """The distances of the values over the layers."""
    values = _of_feature(shown)
    if values is None or not shown.several:
        return None
    own, name = _own(*values), shown.names.feature(values[1])
    return RenderedFigure(
        figures.value_lines(*values),
        f"Distances of the values of {name} over the layers",
        f"Squared distance of every two values of {name} over the layers (mean over folds), "
        f"{_UNITS}. Named are the pairs furthest apart on average. {shown.basis}",
        own[own["value_a"] != own["value_b"]],
    )


def value_map(shown: FigureContext, layer: Layer) -> RenderedFigure | None:
    """The values in one layer as points."""
    values = _of_feature(shown)
    if values is None:
        return None
    names = shown.names
    title, name = names.layer_title(layer), names.feature(values[1])
    points = value_distances.value_map(*values, layer)
    stress = value_distances.value_map_stress(*values, layer)
    return RenderedFigure(
        figures.value_map(points, title, stress),
        f"Values of {name} in {title}",
        f"Metric MDS of the values of {name}: near where the means of their representations are "
        "near (square root of the separation w_ab). The wider a ring, the more the stimuli of the "
        "value differ among themselves. The axes have no meaning of their own. "
        f"{STRESS} {shown.basis}",
        points,
    )


def _chosen_layer(shown: FigureContext) -> Layer:
    """The layer that is chosen; else the one in the middle."""
    layers, chosen = list(shown.selection.layers), shown.drawing.options.get("layer", "")
    names = [layer_name(one) for one in layers]
    return layers[names.index(chosen) if chosen in names else len(layers) // 2]


def _of_side(side: int) -> Draw:
    """The map of the values in one of the two layers."""
    return lambda shown: value_map(shown, shown.pair[side]) if shown.several else None


for _name, _draw in (
    ("values_map", lambda shown: value_map(shown, _chosen_layer(shown))),
    ("values_map_a", _of_side(0)),
    ("values_map_b", _of_side(1)),
):
    figure(_name, "Map of the values", "Values that lie close together are represented alike.")(
        _draw
    )


@figure(
    "values_compared",
    "Distances of the values",
    "How far apart every two values are in the two layers.",
)
def compared(shown: FigureContext) -> RenderedFigure | None:
    """The distances of the values in two layers against each other."""
    values = _of_feature(shown)
    if values is None or not shown.several:
        return None
    found = value_distances.compare_layers(*values, *shown.pair)
    (a, b), name = shown.called, shown.names.feature(values[1])
    return RenderedFigure(
        figures.value_scatter(found.table, shown.pair, found.rho),
        f"Distances of the values of {name} in {a} and {b}",
        f"Squared distance of every two values of {name} in the two layers (mean over folds), "
        f"{_UNITS}: compare the order of the pairs, which Spearman's ρ does. In blue and named: "
        f"the pairs furthest apart, and those whose rank differs most. {shown.basis}",
        found.table,
    )

"""Systems (models, subjects): how far apart they are, what sets them apart, their profiles.

The kinds of figures are those of the third version of Salle et al. (arXiv:2406.12620v3, 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.text import listed, many, percent
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.extensions.systems.mean_profiles import layer_scores
from mlem_core.extensions.systems.model_groups import BEST, PROFILES, Measured, warping_path
from mlem_core.extensions.systems.stage import Systems, compared_systems, measures
from mlem_core.figures.captions import joined, stress_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.maps import frame_map, uncrowded
from mlem_core.figures.matrix import Order, grid
from mlem_core.figures.naming import (
    layer_title,
    model_called,
    model_colors,
    model_labels,
    model_name,
    naming_layers,
)
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import Matrix, Measure, matrix_figure, set_scale
from mlem_core.figures.style import (
    DIVERGING,
    FAINT,
    GREY,
    LEGEND,
    PALETTE,
    SIZE,
    Trace,
    as_number,
    faded,
    interval_bars,
    note,
    quiet,
    quiet_layout,
    scatter,
    upper_half,
)
from mlem_core.measures.similarity import map_stress, mds_map

_BAR, _BUTTONS = 64, 28  # px below a matrix for its colour bar, and above it
ALONE = "·"  # the name of a system that is called as its group
DrawSystems = Callable[[FigureContext, Systems], RenderedFigure | None]
# Properties by which systems of a group are joined, from small to large; the first that is known.
_SIZES = ("parameters", "layers")


def _describe_distance(of: Systems) -> str:
    """Meaning of the distances, in a sentence."""
    by = of.summary.by
    return {
        PROFILES: "Distance: importance profiles over layers, aligned by dynamic time warping "
        "(mean over folds).",
        by.name: f"Distance: 1 − mean {by.short} of layers at equal relative depth.",
        BEST: "Distance: 1 − mean RSA of layers matched by it in the other half of the stimuli.",
    }[of.measure]


def system_figure(
    name: str, title: str, line: str | Callable[[FigureContext], str]
) -> Callable[[DrawSystems], DrawSystems]:
    """A decorator that registers what draws a figure of systems; None where none are compared."""

    def register(draw: DrawSystems) -> DrawSystems:
        def draw_systems(context: FigureContext) -> RenderedFigure | None:
            systems = compared_systems(context)
            return None if systems is None else draw(context, systems)

        figure(name, title, line, offered=True)(draw_systems)
        return draw

    return register


def _count_systems(of: Systems) -> str:
    groups = len({*of.groups})
    systems = many(len(of.names), "subject" if of.summary.only_subjects else "system")
    return systems + f" in {many(groups, 'group')}" * (groups < len(of.names))


@system_figure(
    "system_distances",
    "Distance of every two systems",
    "Small distance: similar systems. Click a cell to compare its two systems.",
)
def draw_system_distances(context: FigureContext, of: Systems) -> RenderedFigure:
    """Matrix of distances, by group or by clustering."""
    order: Order = "clustering" if context.drawing.options.get("order") == "clustering" else "model"
    data = of.summary.distance_table
    expected = np.mean(of.distances.chance)
    return RenderedFigure(
        _matrix(of, order, of.pair if context.drawing.screen else None),
        joined(
            _describe_distance(of),
            f"With permuted stimuli: {as_number(float(expected), 2)}.",
            f"{_count_systems(of)}.",
            context.basis,
        ),
        data[data["measure"] == of.measure].reset_index(drop=True),
    )


def _matrix(of: Systems, order: Order, pair: tuple[str, str] | None) -> go.Figure:
    cells, rows = system_cells(of)
    values = of.distances.values[np.ix_(rows, rows)]
    called = {
        layer_name(cell): model_called(of.names[row])
        if order == "clustering"
        else _member_name(model_called(of.names[row]), cell[0])
        for cell, row in zip(cells, rows, strict=True)
    }
    measure = Measure(of.measure, "distance", "distance", "similarity")
    place = {of.names[row]: cell for cell, row in zip(cells, rows, strict=True)}
    with naming_layers(called):
        drawn = matrix_figure(
            grid(cells, order, 1.0 - values),
            [Matrix(measure, values)],
            "alone",
            None if pair is None else (place[pair[0]], place[pair[1]]),
        )
    if order == "model":
        # Rows are named; the same names below would take more room than the matrix.
        drawn.layout.height -= drawn.layout.margin.b - _BAR
        drawn.layout.margin.b = _BAR
        drawn.layout.annotations = [a for a in drawn.layout.annotations if a.yref != "y domain"]
        drawn.update_xaxes(showticklabels=False)
    # Room for the buttons that a screen lays over the upper right corner.
    drawn.layout.height += _BUTTONS
    drawn.layout.margin.t += _BUTTONS
    points = drawn.data[1]
    points.hovertext = [text.replace(f" {ALONE}", "") for text in points.hovertext]
    most = float(values.max()) or 1.0
    ticks = {0.0: "0", most / 2: "distance", most: as_number(most, 2)}
    set_scale(drawn, ticks, upper_half(DIVERGING))
    return drawn


def system_cells(of: Systems) -> tuple[list[Layer], list[int]]:
    """Systems as (group, number in it), group by group, and the place of each among them."""
    alone = len({*of.groups}) == len(of.groups)
    groups = ("",) * len(of.groups) if alone else of.groups
    rows = [
        row for name in dict.fromkeys(groups) for row, group in enumerate(groups) if group == name
    ]
    numbers = [groups[:row].count(groups[row]) for row in rows]
    return [(groups[row], n) for row, n in zip(rows, numbers, strict=True)], rows


def _member_name(name: str, group: str) -> str:
    """Name of a system beside that of its group."""
    rest = name.removeprefix(group).lstrip("@-_ ")
    return rest or (ALONE if name == group else name)


@system_figure("system_map", "Map of systems", "Similar systems lie close together.")
def draw_system_map(context: FigureContext, of: Systems) -> RenderedFigure:
    """Metric MDS of the distances of systems."""
    points, around = system_points(of.distances)
    table = pd.DataFrame({"system": of.names, "group": of.groups, "x": points[:, 0]})
    table["y"] = points[:, 1]
    return RenderedFigure(
        _map(of, table, around),
        joined(
            f"Metric MDS. {_describe_distance(of)}",
            "Ellipses: one standard deviation over folds, whose maps are turned onto this one."
            * (around is not None),
            stress_sentence(map_stress(of.distances.values, points)),
            f"{_count_systems(of)}.",
            context.basis,
        ),
        table,
    )


def system_points(distances: Measured) -> tuple[FloatArray, FloatArray | None]:
    """Map of systems, (n_systems, 2), and those of folds, (n_folds, n_systems, 2), turned onto it.

    A fold's map is turned and mirrored (orthogonal Procrustes), not stretched.
    """
    points = mds_map(distances.values)
    if distances.folds is None or len(points) < 3:
        return points, None
    from scipy.linalg import orthogonal_procrustes

    maps = list(map(mds_map, distances.folds))
    return points, np.stack([fold @ orthogonal_procrustes(fold, points)[0] for fold in maps])


def _map(of: Systems, table: pd.DataFrame, around: FloatArray | None) -> go.Figure:
    drawn = go.Figure()
    quiet(drawn, height=380)
    points = table[["x", "y"]].to_numpy()
    span = float(np.ptp(points, axis=0).max()) or 1.0
    labelled = [g if g not in of.groups[:at] else "" for at, g in enumerate(of.groups)]
    names = dict(zip(of.groups, model_labels(of.groups, LEGEND), strict=True))
    texts, places = uncrowded(
        (points - points.min(axis=0)) / span, [names[g] if g else "" for g in labelled]
    )
    for rows, name, color in _group_systems(of):
        if around is not None:
            x, y = _ellipses(around[:, rows], points[rows])
            look = {"fill": "toself", "fillcolor": faded(color, 0.18), "line": {"width": 0}}
            drawn.add_trace(scatter(x, y, mode="lines", showlegend=False, name="ellipse", **look))
        joined_up = _order_of_size(of, rows)
        hover = [f"<b>{model_name(of.names[row])}</b><br>{model_name(name)}" for row in joined_up]
        mode = "lines+markers+text" if joined_up is not rows else "markers+text"
        drawn.add_trace(
            scatter(points[joined_up, 0], points[joined_up, 1], hover, mode)
            | {
                "name": name,
                "marker": {"color": color, "size": 9},
                "line": {"color": faded(color, 0.5), "width": 1.5},
                "text": [texts[row] for row in joined_up],
                "textposition": [places[row] for row in joined_up],
                "textfont": {"color": color},
                "cliponaxis": False,
                "showlegend": False,
            }
        )
    ends = points if around is None else np.concatenate((points, *around))
    frame_map(drawn, pd.DataFrame(ends, columns=["x", "y"]))
    return drawn


def _group_systems(of: Systems) -> Iterator[tuple[IntArray, str, str]]:
    """Systems of each group, by number, its name and its colour."""
    groups = list(dict.fromkeys(of.groups))
    for name, color in zip(groups, model_colors(groups), strict=True):
        yield np.flatnonzero(np.array(of.groups) == name), name, color


def _order_of_size(of: Systems, rows: IntArray) -> IntArray:
    """The systems of a group from small to large; as they are where no size tells them apart."""
    for name in _SIZES:
        sizes = of.summary.properties.values.get(name) if of.summary.properties else None
        if isinstance(sizes, np.ndarray) and len({*sizes[rows]}) > 1:
            return rows[np.argsort(sizes[rows], kind="stable")]
    return rows


def _ellipses(around: FloatArray, points: FloatArray) -> FloatArray:
    """(2, ...) outlines of one standard deviation over folds about points, NaN after each."""
    turn = np.linspace(0, 2 * np.pi, 33)
    circle = np.stack((np.cos(turn), np.sin(turn)))
    rings = []
    for by_fold, centre in zip(np.moveaxis(around, 1, 0), points, strict=True):
        values, axes = np.linalg.eigh(np.cov(by_fold.T))
        ring = centre[:, None] + axes @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)
        rings.append(np.column_stack((ring, (np.nan, np.nan))))
    return np.concatenate(rings, axis=1)


@system_figure(
    "system_paths",
    "Paths of profiles over depth",
    "Each line is a system, from its first layer (small) to its last (large).",
)
def draw_system_paths(context: FigureContext, of: Systems) -> RenderedFigure | None:
    """Principal components of the importance profiles of all layers; None of subjects alone."""
    if of.summary.only_subjects:
        return None
    values, columns = layer_scores(context.results, context.selection)
    centred = values[:, 1:] - values[:, 1:].mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(centred), 2))
    places[:, : min(2, len(axes))] = centred @ axes[:2].T
    shares = np.append(sizes**2 / max((sizes**2).sum(), 1e-300), (0.0, 0.0))[:2]
    layers = list(context.selection.layers)
    table = pd.DataFrame(layers, columns=["model", "layer"]).assign(x=places[:, 0], y=places[:, 1])
    drawn = go.Figure()
    quiet(drawn, height=420)
    for rows, group, color in _group_systems(of):
        for place, row in enumerate(rows):
            at = of.members.places[row]
            hover = [f"<b>{layer_title(layers[place])}</b>" for place in at]
            drawn.add_trace(
                scatter(places[at, 0], places[at, 1], hover, "lines+markers")
                | {
                    "line": {"color": faded(color, 0.5), "width": 1.5},
                    "marker": {"color": color, "size": np.linspace(3, 9, len(at))},
                    "name": model_labels([group], LEGEND)[0],
                    "legendgroup": group,
                    "showlegend": place == 0,
                }
            )
    for axis, share, number in zip("xy", shares, (1, 2), strict=True):
        title = f"component {number} ({percent(share)} of variance)"
        drawn.update_layout({f"{axis}axis": {"title": {"text": title}, "gridcolor": FAINT}})
    return RenderedFigure(
        drawn,
        joined(
            f"Principal components of the importances ({listed(columns, most=3)}) of all layers; "
            "a line joins the layers of a system, small marks first.",
            f"{_count_systems(of)}.",
            context.basis,
        ),
        table,
        title="Paths of importance profiles over depth",
    )


@system_figure(
    "system_importance",
    "What sets systems apart",
    "Drop in held-out ρ when systems exchange a property. Bars: 95 % CI.",
)
def draw_system_importance(context: FigureContext, of: Systems) -> RenderedFigure | None:
    """Importances of properties in the distances of systems; None without a second level."""
    second = of.summary.second_level
    if second is None or second.importances.empty:
        return None
    table = second.importances[second.importances["measure"] == of.measure]
    if table.empty:
        return None
    scores = second.scores[second.scores["measure"] == of.measure]
    rows = table.sort_values("importance", ascending=False)
    names = [str(name).replace("_", " ") for name in rows["property"]]
    drawn = interval_bars(names, *(rows[end] for end in ("importance", "lower", "upper")))
    drawn.update_xaxes(title_text="importance (drop in ρ)", zeroline=True)
    return RenderedFigure(
        drawn,
        joined(
            "Drop in ρ on held-out pairs of systems when systems exchange a property.",
            f"Held-out ρ {as_number(scores['rho'].mean(), 2)}.",
            f"Squared distance by {measures(of.summary)[of.measure]}, cross-validated over halves "
            "of the stimuli.",
            "95 % CI over systems" + " and stimuli" * (of.distances.left is not None) + ".",
            f"{_count_systems(of)}.",
        ),
        table.reset_index(drop=True),
    )


@system_figure(
    "property_correlations",
    "Properties that go together",
    "Correlation of the distances by every two properties: what one explains may be due to the "
    "other.",
)
def draw_property_correlations(context: FigureContext, of: Systems) -> RenderedFigure | None:
    """Correlations of the distances by properties, similar ones together."""
    properties = of.summary.properties
    if properties is None or len(properties.values) < 3:
        return None
    names, table = list(properties.values), properties.correlations()
    r = np.eye(len(names))
    r[np.triu_indices(len(names), 1)] = table["r"]
    r = np.nan_to_num(np.triu(r) + np.triu(r, 1).T)
    cells: list[Layer] = [("", at) for at in range(len(names))]
    labels = {layer_name(cell): n.replace("_", " ") for cell, n in zip(cells, names, strict=True)}
    measure = Measure("r", "correlation", "r", "r")
    with naming_layers(labels):
        drawn = matrix_figure(grid(cells, "clustering", r), [Matrix(measure, r)], "alone", None)
    return RenderedFigure(
        drawn,
        "Pearson correlation of the distances of systems by every two properties, ordered by "
        f"average linkage on 1 − r. {many(len(of.names), 'system')}.",
        table,
    )


@system_figure(
    "system_profiles",
    "Profiles of two systems",
    lambda context: f"Importance of each feature over the layers of {_two(context)}.",
)
def draw_system_profiles(context: FigureContext, of: Systems) -> RenderedFigure:
    """The importance profiles of two systems side by side."""
    layers = [layer for layer in context.selection.layers if layer[0] in of.pair]
    importance = _rows_of_two(context.results.importance, of.pair)
    scores = _rows_of_two(context.results.scores[["model", "layer", "fold"]], of.pair)
    tested = context.score_tests
    data = None if tested is None else _rows_of_two(tested.table, of.pair)
    spread = "± 1 sd over folds" if tested is None else f"95 % CI over {context.over}"
    return RenderedFigure(
        profiles(
            importance,
            scores,
            context.terms,
            across=1 if context.drawing.narrow else 2,
            intervals=data,
        ),
        joined(
            f"Drop in held-out ρ when a feature is permuted, in {len(layers)} layers (mean over "
            f"folds). Bands: {spread}.",
            context.basis,
        ),
        importance if data is None else data,
        title=f"Importance profiles of {_two(context)}",
    )


def _rows_of_two(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    return pd.concat([table[table["model"] == name] for name in pair], ignore_index=True)


def _two(context: FigureContext) -> str:
    of = compared_systems(context)
    return "two systems" if of is None else " and ".join(map(model_called, of.pair))


@system_figure(
    "system_alignment",
    "Layers that match",
    "Layers that dynamic time warping puts together. Strong lines: similar profiles.",
)
def draw_system_alignment(context: FigureContext, of: Systems) -> RenderedFigure | None:
    """The alignment of two systems' profiles by dynamic time warping; None with a subject."""
    if {*of.pair} & of.summary.subjects:
        return None
    values, layers = layer_scores(context.results, context.selection)[0], context.selection.layers
    places = [of.members.places[of.names.index(name)] for name in of.pair]
    first, second = (values[at, 1:] for at in places)
    path = warping_path(first, second)
    cost = np.linalg.norm(first[path[:, 0]] - second[path[:, 1]], axis=1)
    ends = [[layers[at[k]] for k in path[:, side]] for side, at in enumerate(places)]
    table = pd.DataFrame({"first": map(layer_name, ends[0]), "second": map(layer_name, ends[1])})
    return RenderedFigure(
        _alignment(of.pair, [[layers[k] for k in at] for at in places], path, cost),
        joined(
            "Layers that dynamic time warping of the importance profiles (mean over folds) puts "
            "together. Darker lines: smaller distance of their profiles.",
            context.basis,
        ),
        table.assign(distance=cost),
        title=f"Layers of {_two(context)} that match",
    )


def _alignment(
    pair: tuple[str, str], layers: Sequence[Sequence[Layer]], path: IntArray, cost: FloatArray
) -> go.Figure:
    across = [np.linspace(0, 1, len(row)) if len(row) > 1 else np.array([0.5]) for row in layers]
    strength = 1 - 0.85 * cost / (float(cost.max()) or 1.0)
    traces = list[Trace]()
    for (i, j), strong in zip(path, strength, strict=True):
        line = {"color": faded(PALETTE[0], float(strong)), "width": 2}
        traces.append(scatter([across[0][i], across[1][j]], [1, 0], mode="lines", line=line))
    layout: dict[str, Any] = quiet_layout(190) | {"annotations": [], "showlegend": False}
    for name, row, x, y in zip(pair, layers, across, (1, 0), strict=True):
        hover = [f"<b>{layer_title(layer)}</b>" for layer in row]
        labelled = np.linspace(0, len(row) - 1, min(len(row), 7)).round()
        marks = scatter(x, np.full(len(x), y), hover, "markers+text") | {
            "marker": {"color": GREY, "size": 7},
            "text": [str(layer[1]) if at in labelled else "" for at, layer in enumerate(row)],
            "textposition": "top center" if y else "bottom center",
            "textfont": {"size": SIZE - 2, "color": GREY},
            "cliponaxis": False,
        }
        traces.append(marks)
        label = model_labels([name], LEGEND)[0]
        layout["annotations"].append(note(label, 0, y, within="x", xanchor="right", xshift=-12))
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": ""}
    layout["xaxis"] |= bare | {"range": [-0.02, 1.02], "showline": False}
    layout["yaxis"] |= bare | {"range": [-0.35, 1.35], "showline": False}
    layout["margin"] = {"l": 160, "r": 16, "t": 8, "b": 8}
    return go.Figure(traces, layout)

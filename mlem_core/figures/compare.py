"""Two layers against each other (figure 4 of Salle et al. 2024), and two analyses."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.results import Results
from mlem_core.base.text import listed
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.figures.captions import FOLDS, joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.maps import heading, uncrowded
from mlem_core.figures.naming import feature_labels, feature_name, layer_title
from mlem_core.figures.profiles import profile_lines
from mlem_core.figures.style import (
    LEGEND,
    LINE,
    PALETTE,
    SYMBOLS,
    Trace,
    as_number,
    error_bar,
    faded,
    feature_colors,
    note,
    quiet,
    round_ticks,
    scatter,
)
from mlem_core.inference.intervals import score_table


def importance_scatter(
    importance: pd.DataFrame,
    pair: tuple[Layer, Layer],
    features: Sequence[str],
    tau: float,
    rsa: float,
    intervals: pd.DataFrame | None = None,
) -> go.Figure:
    """Importances of two layers against each other (figure 4 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    pair : (model, layer) on the x and on the y axis
    features : all features of the analysis, which decide the colours
    tau, rsa : similarity of the two layers, weighted Kendall τ and RSA's Spearman ρ
    intervals : model, layer, quantity, feature, lower, upper (see
        `mlem_core.inference.intervals.score_table`), drawn in place of ± 1 standard deviation over
        folds
    """
    own = _rows_of_pair(importance, pair)
    tested = None if intervals is None else _rows_of_pair(intervals, pair)
    lines = profile_lines(own, own[["model", "layer"]], tested)
    drawn = [name for name in features if name in {*own["feature"]}]
    sides: dict[str, list[Any]] = {
        name: [lines[model, "importance", name].at(n) for model, n in pair] for name in drawn
    }
    values = np.array([[side[:3] for side in sides[name]] for name in drawn], dtype=np.float64)
    values = values.reshape(-1, 2, 3)
    points, reach = values[:, :, 0].copy(), [*values[:, :, [0, 2]].ravel(), 0.0]
    low, high = min(reach), max(*reach, 1e-3)
    room = 0.08 * (high - low)
    span = [low - room, high + room]
    titles = [layer_title(layer) for layer in pair]
    # Marks on one spot are set apart a little and have one line to all their names.
    between = np.linalg.norm(points[:, None] - points, axis=2) + high * np.eye(len(points))
    far = between.min(axis=1, initial=np.inf) > 0.03 * high
    covered, turn = points[~far], np.arange(int((~far).sum()))
    ring = np.column_stack((np.cos(2.4 * turn), np.sin(2.4 * turn))) * np.sqrt(turn)[:, None]
    points[~far] += 0.018 * (high - low) * ring
    called = dict(zip(features, feature_labels(features, LEGEND), strict=True))
    labels = [called[name] if named else "" for name, named in zip(drawn, far, strict=True)]
    labels, places = uncrowded((points - span[0]) / (span[1] - span[0]), labels)
    colors = feature_colors(features)
    diagonal = {"line": {"color": LINE, "width": 1, "dash": "dash"}, "name": "equal importance"}
    figure = go.Figure([scatter(span, span, mode="lines", showlegend=False, **diagonal)])
    for i, name in enumerate(drawn):
        color, place = colors[name], features.index(name)
        hovers = [f"{title}: FI = {as_number(side[0])}{side[3]}"
                for title, side in zip(titles, sides[name], strict=True)]  # fmt: skip
        thin = {"thickness": 1, "width": 0, "color": faded(color, 0.6)}
        bars = {
            f"error_{axis}": error_bar(*values[i, at][:, None], **thin)
            for at, axis in enumerate("xy")
        }
        hover = ["<br>".join((f"<b>{feature_name(name)}</b>", *hovers))]
        look = {
            "color": color,
            "size": 11 if far[i] else 8,
            # Where colours come again, marks are open.
            "symbol": SYMBOLS[place % len(SYMBOLS)] + "-open" * (place // len(PALETTE) % 2),
        }
        named = {"name": called[name], "text": [labels[i]], "textposition": places[i]}
        x, y = points[i][:, None]
        point = scatter(x, y, hover, "markers+text", marker=look, **bars, **named)
        figure.add_trace(point | {"cliponaxis": False, "showlegend": False})
    if len(covered) > 1:
        near = [called[name] for name, named in zip(drawn, far, strict=True) if not named]
        figure.add_annotation(_leader(near, points, covered.mean(axis=0), span[1]))
    quiet(figure, height=480)
    axis = {"range": span, "zeroline": True, "constrain": "domain", **round_ticks(*span)}
    figure.update_xaxes(title_text=f"importance (drop in ρ) in {titles[0]}", **axis)
    figure.update_yaxes(
        title_text=f"importance (drop in ρ) in {titles[1]}", scaleanchor="x", **axis
    )
    # Short, as it is centred over the panel, which a legend makes narrow.
    similarity = f"weighted Kendall τ = {as_number(tau, 2)}   ·   RSA ρ = {as_number(rsa, 2)}"
    figure.update_layout(title=heading(similarity), margin={"t": 48, "b": 60})
    return figure


def _leader(names: Sequence[str], points: np.ndarray, at: np.ndarray, end: float) -> Trace:
    """The names of points that cover each other, with a line to them, below or above the others."""
    places = np.array([[0.4, 0.2], [0.1, 0.6]]) * end
    x, y = max(places, key=lambda place: np.linalg.norm(points - place, axis=1).min())
    line = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": LINE}
    tail = {"ax": x, "ay": y, "axref": "x", "ayref": "y", "align": "left", "xanchor": "left"}
    lines = textwrap.wrap(listed(names), 26)
    return note("<br>".join(lines), *at, **tail) | line


@figure("compare", "Importances of two layers", offered=True)
def draw_compare(context: FigureContext) -> RenderedFigure | None:
    """The importances of both layers."""
    if not context.several:
        return None
    results = context.results
    a, b = map(layer_name, context.pair)
    intervals = None
    if context.intervals is not None:
        intervals = score_table(context.intervals, list(dict.fromkeys(context.pair))).table
    return RenderedFigure(
        importance_scatter(
            results.importance,
            context.pair,
            context.terms,
            float(results.similarity_profiles.loc[a, b]),
            float(results.similarity_rsa.loc[a, b]),
            intervals,
        ),
        compare_caption(context),
        _rows_of_pair(results.importance, context.pair) if intervals is None else intervals,
        mean_importance(results, a, b),
        title=f"Importances in {context.called[0]} and {context.called[1]}",
    )


def compare_caption(context: FigureContext) -> str:
    """Caption of two layers against each other."""
    spread = f"95 % CI over {context.over}" if context.over else FOLDS
    return joined(
        f"Importance of each feature in the two layers: mean over folds, bars are {spread}.",
        context.basis,
    )


def _rows_of_pair(importance: pd.DataFrame, pair: tuple[Layer, Layer]) -> pd.DataFrame:
    at = list(zip(importance["model"], importance["layer"], strict=True))
    return importance[[layer in pair for layer in at]]


def mean_importance(results: Results, a: str, b: str) -> pd.DataFrame:
    """Mean importance of each feature in two layers "model:layer"; the largest in `a` first."""
    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    table = means.mean()
    columns = {name: table.loc[parse_layer(name)] for name in dict.fromkeys((a, b))}
    return pd.DataFrame(columns).sort_values(a, ascending=False).reset_index()

"""Two layers against each other (figure 4 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.figures.style import (
    GREY,
    LEVELS,
    LINE,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    SYMBOLS,
    as_number,
    as_text,
    as_value,
    bare_axes,
    common_levels,
    faded,
    feature_colors,
    label_places,
    plain,
    quiet,
    warning_marks,
    wrapped,
)


def importance_scatter(
    importance: pd.DataFrame,
    a: tuple[str, int],
    b: tuple[str, int],
    features: Sequence[str],
    tau: float,
    rsa: float,
    intervals: pd.DataFrame | None = None,
    marks: Mapping[str, str] | None = None,
) -> go.Figure:
    """Importances of two layers against each other (figure 4 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    a, b : (model, layer) on the x and on the y axis
    features : all features of the analysis, which decide the colours
    tau, rsa : similarity of the two layers, weighted Kendall τ and RSA's Spearman ρ
    intervals : model, layer, quantity, feature, lower, upper, see
        `mlem_core.inference.jackknife.score_table`; bars are these, or ± 1 standard
        deviation over folds
    marks : why the profile of "a" or "b", or the similarity of "both", is to be read with care; a
        triangle at the end of the axis, or of the diagonal, says so
    """
    colors = feature_colors(features)
    sides = []
    for model, layer in (a, b):
        own = importance[(importance["model"] == model) & (importance["layer"] == layer)]
        side = own.groupby("feature")["importance"].agg(["mean", "std"]).fillna(0.0)
        side["lower"], side["upper"] = side["mean"] - side["std"], side["mean"] + side["std"]
        if intervals is not None:
            at = (intervals["model"] == model) & (intervals["layer"] == layer)
            bounds = intervals[at & (intervals["quantity"] == "importance")].set_index("feature")
            side[["lower", "upper"]] = bounds.loc[side.index, ["lower", "upper"]]
        sides.append(side)
    drawn = [name for name in features if name in sides[0].index and name in sides[1].index]
    x, y = (side.loc[drawn] for side in sides)
    label_a, label_b = (f"{plain(model)} layer {layer}" for model, layer in (a, b))
    both = np.concatenate([x["mean"], y["mean"], x["upper"], y["upper"], [0]])
    low, high = float(both.min()), max(float(both.max()), 1e-3)
    room = 0.08 * (high - low)
    span = [low - room, high + room]
    points = np.column_stack([x["mean"], y["mean"]]).astype(np.float64)
    # The many near 0 would cover each other's names; the legend has them all.
    far = points.max(axis=1, initial=0.0) > 0.08 * high
    labels = [plain(name) if named else "" for name, named in zip(drawn, far, strict=True)]
    places = label_places((points - span[0]) / (span[1] - span[0]), labels)
    figure = go.Figure(
        go.Scatter(
            x=span,
            y=span,
            mode="lines",
            line={"color": LINE, "width": 1, "dash": "dash"},
            hoverinfo="skip",
            showlegend=False,
            name="equal importance",
        )
    )
    for i, name in enumerate(drawn):
        place = features.index(name)
        bars, told = [], []
        for side, label in ((x, label_a), (y, label_b)):
            mean, sd, low, high = side.iloc[i][["mean", "std", "lower", "upper"]].astype(float)
            bars.append({"array": [high - mean], "arrayminus": [mean - low], "symmetric": False})
            spread = f"± {sd:.3f} (sd)" if intervals is None else f"[{low:.3f}, {high:.3f}]"
            told.append(f"{label}: FI = {mean:.3f} {spread}")
        bar = {"thickness": 1, "width": 0, "color": faded(colors[name], 0.6)}
        figure.add_trace(
            go.Scatter(
                x=[points[i, 0]],
                y=[points[i, 1]],
                error_x=bars[0] | bar,
                error_y=bars[1] | bar,
                mode="markers+text",
                marker={
                    "color": colors[name],
                    "size": 11,
                    "symbol": SYMBOLS[place % len(SYMBOLS)]
                    + ("-open" if place // len(PALETTE) % 2 else ""),
                },
                text=[labels[i]],
                textposition=places[i],
                cliponaxis=False,
                name=plain(name),
                hovertext=["<br>".join((f"<b>{plain(name)}</b>", *told))],
                hoverinfo="text",
            )
        )
    if marks:
        low, high = span
        ends = {"a": (high, low), "b": (low, high), "both": (high, high)}
        titles = {"a": label_a, "b": label_b, "both": f"{label_a} and {label_b}"}
        figure.add_trace(
            warning_marks(
                [ends[side][0] for side in marks],
                [ends[side][1] for side in marks],
                [f"<b>{titles[side]}</b><br>audit: {wrapped(why)}" for side, why in marks.items()],
                legend=True,
            )
        )
    quiet(figure, height=480)
    axis = {"range": span, "zeroline": True, "constrain": "domain"}
    figure.update_xaxes(title_text=f"FI in {label_a}", **axis)
    figure.update_yaxes(title_text=f"FI in {label_b}", scaleanchor="x", **axis)
    figure.update_layout(
        title={
            "text": f"weighted Kendall τ = {as_number(tau, 2)}   ·   RSA Spearman ρ = "
            f"{as_number(rsa, 2)}",
            "font": {"size": SIZE + 1, "weight": 400},
            "x": 0.5,
            "xref": "paper",
            "xanchor": "center",
        },
        margin={"t": 48},
    )
    return figure


def stimulus_map(
    points: pd.DataFrame, color: str, kind: str, title: str, marked: Sequence[int] = ()
) -> go.Figure:
    """Stimuli of one layer as points (MDS of their distances), coloured by a feature.

    Parameters
    ----------
    points : stimulus, x, y, label (for hovering) and the column `color`
    kind : "nominal" or "ordered"; missing values are grey
    marked : stimuli to stand out; the others are then faint
    """
    figure = make_subplots(1, 1)
    values = points[color]
    if kind == "ordered":
        values = pd.to_numeric(values, errors="coerce")
        there = values.notna()
        numbers = {"color": values[there], "colorscale": SEQUENTIAL, "size": 7, "opacity": 0.85}
        numbers["colorbar"] = {
            "title": {"text": plain(color), "font": {"size": SIZE}},
            "thickness": 12,
            "outlinewidth": 0,
        }
        groups = [(plain(color), there, {**numbers, "showscale": bool(there.any())})]
    else:
        shown, other = common_levels(values, LEVELS)
        groups = [
            (
                plain(level),
                values.map(as_text) == level,
                {
                    "color": PALETTE[i % len(PALETTE)],
                    # The second eight have the same colours and open marks.
                    "symbol": SYMBOLS[i % len(SYMBOLS)] + ("-open" if i >= len(PALETTE) else ""),
                    "size": 7,
                    "opacity": 0.85,
                },
            )
            for i, level in enumerate(shown)
        ]
        if other:
            rest = values.map(as_text).isin(other)
            name = f"{len(other)} other values"
            groups.append((name, rest, {"color": GREY, "size": 6, "symbol": "hexagon-open"}))
    missing = values.isna()
    if missing.any():
        faint = {"color": GREY, "size": 5, "opacity": 0.5, "symbol": "circle-open"}
        groups.insert(0, ("missing", missing, faint))
    for name, chosen, marker in groups:
        own = points[chosen]
        if len(marked):
            there = own["stimulus"].isin(marked).to_numpy()
            marker = marker | {
                "opacity": np.where(there, 1.0, 0.12),
                "size": np.where(there, marker["size"] + 3, marker["size"]),
            }
        figure.add_trace(
            go.Scatter(
                x=own["x"],
                y=own["y"],
                mode="markers",
                name=name,
                marker=marker,
                # A list: the browser would report numbers of a packed array by another name.
                customdata=[[int(stimulus)] for stimulus in own["stimulus"]],
                hovertext=[
                    f"{plain(label, 80)}<br>{plain(color)}: {plain(as_value(value))}"
                    for label, value in zip(own["label"], points.loc[chosen, color], strict=True)
                ],
                hoverinfo="text",
                # What stands out says `marked`, in both maps alike.
                unselected={"marker": {"opacity": None}},
                showlegend=kind == "nominal" or name == "missing",
            )
        )
    quiet(figure, height=460)
    bare_axes(figure, points, 1, 1)
    figure.update_layout(
        title={
            "text": plain(title, 60),
            "font": {"size": SIZE + 1, "weight": 400},
            "x": 0.5,
            "xref": "paper",
            "xanchor": "center",
        },
        legend_title_text=plain(color) if kind == "nominal" else None,
        margin={"t": 44},
        # Dragging selects; the tool bar can still zoom.
        dragmode="lasso",
    )
    if kind == "ordered":
        figure.update_layout(legend={"x": 0, "y": 0, "yanchor": "bottom"})
    return figure

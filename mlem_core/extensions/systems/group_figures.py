"""Groups of models: profiles over depth or training, a matrix of groups, universality; systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.subjects import subject_layers
from mlem_core.base.text import many
from mlem_core.extending import Band
from mlem_core.extensions.systems.stage import grouped_models, trainings
from mlem_core.extensions.systems.summary import sizes
from mlem_core.figures.captions import chance_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import axis_title, feature_name, layer_in_model, named_layers
from mlem_core.figures.profiles import grey_band, line_with_band
from mlem_core.figures.style import (
    GREY,
    SIZE,
    Trace,
    as_number,
    escape_text,
    feature_colors,
    heatmap,
    interval,
    interval_bars,
    names_along,
    once_in_legend,
    panel_layout,
    place_in_panel,
    plain,
    quiet_layout,
    short_names,
    similarity_axis,
    whole_layers,
)
from mlem_core.pairs.similarities import RSA, SIMILARITIES

_DEPTH = "relative depth"
_NAMES = {"rsa": "RSA"}
# Groups up to which a cell has room for its interval, and for its value.
_INTERVALS, _VALUES = 6, 12
_CELL = 58  # px; how high a cell is
_WIDE = 0.18  # how wide, as a part of the figure


def group_profiles(
    profiles: pd.DataFrame,
    features: Sequence[str],
    *,
    across: int = 3,
    bands: Sequence[Band] = (),
    subjects: Mapping[str, str] | None = None,
) -> go.Figure:
    """Mean importance of each feature over relative depth, a panel a group; bands over members.

    Parameters
    ----------
    profiles : group, members, layer, depth, feature, importance, lower, upper
    features : of all analyses that are to have the same colours
    bands : grey ones, whose tables have the columns group, layer, lower and upper
    subjects : by the group of subjects, one whose layers have the names of all of them: the axis
        says these
    """
    groups = list(dict.fromkeys(profiles["group"]))
    members = profiles.groupby("group", sort=False)["members"].first()
    titles = [f"{plain(name, 18)} (n = {members[name]})" for name in groups]
    layout, places = panel_layout(titles, height=300, across=across)
    colors, named, traces = feature_colors(features), subjects or {}, list[Trace]()
    for group, (ref, first) in zip(groups, places, strict=True):
        rows = profiles[profiles["group"] == group].rename(columns={"importance": "value"})
        subject, drawn = named.get(group, ""), list[Trace]()
        for name, line in rows.groupby("feature", sort=False):
            at = [layer_in_model((subject, n)) for n in line["layer"]]
            drawn += feature_line(line, at, line["depth"], str(name), colors)
        depth = rows.drop_duplicates("layer").set_index("layer")["depth"]
        for band in bands:
            of_group = band.table[band.table["group"] == group].drop_duplicates("layer")
            of_group = of_group.assign(depth=of_group["layer"].map(depth)).dropna(subset="depth")
            drawn += grey_band(of_group, band.name, "depth")
        traces += place_in_panel(ref, drawn)
        layout[f"xaxis{ref}"] |= {"range": [-0.03, 1.03]}
        if subject:
            layers = depth.index.to_series()
            axis = named_layers(whole_layers(layers), subject, layers)
            ticks = [int(n) for n in axis["tickvals"] if n in depth.index]
            axis = {"ticktext": ticks} | axis | {"tickvals": depth[ticks].tolist(), "range": None}
            layout[f"xaxis{ref}"] |= axis
        layout[f"xaxis{ref}"]["title"]["text"] = axis_title(subject) if subject else _DEPTH
        layout[f"yaxis{ref}"] |= {"matches": "y", "showticklabels": first}
        layout[f"yaxis{ref}"]["title"]["text"] = "importance (drop in ρ)" if first else None
    return go.Figure(once_in_legend(traces), layout)


def feature_line(
    line: pd.DataFrame, at: Sequence[str], x: Any, feature: str, colors: Mapping[str, str]
) -> list[Trace]:
    """The line of a feature over x, or of the held-out ρ (""), with its band.

    `line` has the columns value, lower, upper; `at` is each point's name on hovering.
    """
    called = feature_name(feature) if feature else "held-out ρ"
    ends = line["lower"], line["upper"]
    hover = [
        f"{called}, {place}: {as_number(value)}"
        + ("" if np.isnan(low) else f"<br>{interval(low, high)}")
        for place, value, low, high in zip(at, line["value"], *ends, strict=True)
    ]
    look = {"name": called, "legendgroup": feature or "rho", "dash": "solid" if feature else "dash"}
    return line_with_band(x, line["value"], ends, hover, colors.get(feature, GREY), **look)


def group_similarity(table: pd.DataFrame, *, narrow: bool = False) -> go.Figure:
    """Mean RSA within each group (on the diagonal) and between every two, with intervals.

    Columns of the table: group_a, group_b, pairs (of different models), rsa, lower, upper; each
    pair of groups once. The cell of a group of one is empty. `narrow` is one column of a journal.
    """
    groups = list(dict.fromkeys((*table["group_a"], *table["group_b"])))
    place, n = {name: at for at, name in enumerate(groups)}, len(groups)
    values = np.full((n, n), np.nan)
    hover, texts = (np.full((n, n), "", dtype=object) for _ in range(2))
    for row in table[table["rsa"].notna()].to_dict("records"):
        # The later group up the side: the matrix is its lower left half.
        at = tuple(sorted((place[row["group_a"]], place[row["group_b"]]), reverse=True))
        values[at], hover[at] = row["rsa"], _hover(row)
        texts[at] = "" if n > _VALUES else as_number(row["rsa"], 2)
        if n <= _INTERVALS and pd.notna(row["lower"]):
            low, high = (as_number(row[end], 2) for end in ("lower", "upper"))
            between = f"{low} to<br>{high}" if narrow else f"{low} to {high}"
            small = f"<span style='font-size:{SIZE - 3}px'>{between}</span>"
            texts[at] = f"<b>{texts[at]}</b><br>{small}"
    labels = {"text": texts, "texttemplate": "%{text}", "textfont": {"size": SIZE - 2 * narrow}}
    cells = heatmap(values, hover, coloraxis="coloraxis", xgap=2, ygap=2, **labels)
    # Names that lie flat take less.
    flat = n < 3 or (not narrow and n <= _INTERVALS)
    below, wide = 90 if flat else 150, 1.0 if narrow else min(1.0, _WIDE * n)
    layout = quiet_layout((_CELL if n <= _INTERVALS else 34) * n + 16 + below)
    scale = similarity_axis(layout["height"], wide / 2, 0.8 * wide, SIMILARITIES[RSA].unit)
    layout |= {"coloraxis": scale, "margin": {"l": 56, "r": 16, "t": 16, "b": below}}
    names, angle = names_along(short_names(groups, 17)), 0 if flat else -35
    layout["xaxis"] |= names | {"range": [-0.5, n - 0.5], "tickangle": angle, "domain": [0, wide]}
    layout["yaxis"] |= names | {"range": [n - 0.5, -0.5]}
    return go.Figure([cells], layout)


def _hover(row: Mapping[Any, Any]) -> str:
    a, b = (escape_text(row[name]) for name in ("group_a", "group_b"))
    which = f"within {a}" if a == b else f"{a} and {b}"
    ends = "no interval" if pd.isna(row["lower"]) else interval(row["lower"], row["upper"])
    pairs = f"{many(row['pairs'], 'pair')} of members"
    return f"{which}<br>RSA {as_number(row['rsa'])}, {ends}<br>{pairs}"


def universality(table: pd.DataFrame) -> go.Figure:
    """Bar chart of the universality of each term that has one: between groups over within.

    Columns of the table: term, universality, universality_lower, universality_upper.
    """
    known = table[table["universality"].notna()]
    names = [_NAMES.get(term) or feature_name(term) for term in map(str, known["term"])]
    ends = ("universality", "universality_lower", "universality_upper")
    figure = interval_bars(names, *(known[end] for end in ends))
    figure.add_vline(x=1, line={"color": GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="universality (between / within groups)", rangemode="tozero")
    return figure


def _place(step: Any, first: int) -> Any:
    """Place of a training step: logarithmic, and linear before the first step after 0."""
    return np.log10(1 + step / first)


def _ticks(steps: Sequence[int], first: int) -> dict[str, list[Any]]:
    """Places and texts of the ticks: each step where there are few, else powers of ten, and 0."""
    labelled = list(steps)
    if len(labelled) > 5:
        powers = [10**k for k in range(16) if first <= 10**k < steps[-1]]
        labelled = sorted({steps[0], *powers, steps[-1]})
    places = _place(np.array(labelled), first).tolist()
    span, apart = places[-1] - places[0] or 1.0, list[int]()
    for at, place in enumerate(places):
        if not apart or (place - places[apart[-1]]) / span > 0.11:
            apart.append(at)
    return {"tickvals": [places[k] for k in apart], "ticktext": [f"{labelled[k]:,}" for k in apart]}


def trajectories(table: pd.DataFrame, features: Sequence[str], *, across: int = 3) -> go.Figure:
    """Importance of each feature and held-out ρ over the steps of training; bands over seeds.

    Columns of the table: trajectory, step, seeds, quantity, feature, value, lower, upper. Features
    are those of all analyses that are to have the same colours.
    """
    names = list(dict.fromkeys(table["trajectory"]))
    seeds = table.groupby("trajectory", sort=False)["seeds"].agg(["min", "max"])
    titles = [f"{plain(name, 18)} ({_seeds(*seeds.loc[name])})" for name in names]
    layout, places = panel_layout(titles, height=300, across=across)
    steps = sorted(map(int, table["step"].unique()))
    start = next((step for step in steps if step), 1)
    colors, ticks, traces = feature_colors(features), _ticks(steps, start), list[Trace]()
    low, high = (float(_place(step, start)) for step in (steps[0], steps[-1]))
    around = 0.04 * (high - low or 1.0)
    for name, (ref, first) in zip(names, places, strict=True):
        rows = table[table["trajectory"] == name].sort_values("step", kind="stable")
        for (_, feature), line in rows.groupby(["quantity", "feature"], sort=False):
            called = [f"step {step:,}" for step in line["step"]]
            drawn = feature_line(line, called, _place(line["step"], start), str(feature), colors)
            traces += place_in_panel(ref, drawn)
        layout[f"xaxis{ref}"] |= {**ticks, "range": [low - around, high + around]}
        layout[f"xaxis{ref}"]["title"]["text"] = "training step"
        layout[f"yaxis{ref}"] |= {"matches": "y", "showticklabels": first}
        layout[f"yaxis{ref}"]["title"]["text"] = "importance (drop in ρ), ρ" if first else None
    return go.Figure(once_in_legend(traces), layout)


def _seeds(least: int, most: int) -> str:
    if least != most:
        return f"{least} to {most} seeds"
    return "one run" if most == 1 else f"{most} seeds"


@figure(
    "group_profiles",
    "Mean profiles of the groups",
    "The mean importance profile of each group, and the spread over its members.",
    tab="groups",
)
def draw_group_profiles(context: FigureContext) -> RenderedFigure | None:
    """The mean importance profile of each group."""
    summary = grouped_models(context)
    if summary is None:
        return None
    across = 2 if context.drawing.narrow else 3
    bands = [band for band in context.extension_bands if "group" in band.table]
    layers, axes = subject_layers(context.analysis), context.names.axes
    subjects = {group: every[0][0] for (group, _), every in layers.items() if every[0][0] in axes}
    along = context.along if {*summary.members.groups} <= {*subjects} else "relative depth"
    return RenderedFigure(
        group_profiles(
            summary.profiles, context.terms, across=across, bands=bands, subjects=subjects
        ),
        f"Mean importance of each feature over {along}, per group of {summary.called}. Bands: "
        f"95 % CI over {summary.over}, where n is two or more. "
        f"{''.join(f'{band.caption} ' for band in bands)}{sizes(summary)} {context.basis}",
        summary.profiles,
    )


@figure(
    "group_similarity",
    "Similarity within and between groups",
    "Similarity of members of one group (on the diagonal), and of two groups.",
    tab="groups",
)
def draw_group_similarity(context: FigureContext) -> RenderedFigure | None:
    """The mean RSA within and between groups, as a matrix."""
    summary = grouped_models(context)
    if summary is None or len(summary.members.members) < 2:
        return None
    return RenderedFigure(
        group_similarity(summary.similarity, narrow=context.drawing.narrow),
        f"Mean RSA of pairs of different {summary.called} at equal relative depth: within a group "
        f"on the diagonal, else between two. 95 % CI over {summary.over} (three {summary.member}s "
        f"a group or more). {sizes(summary)} {context.basis_sentence}",
        summary.similarity,
    )


@figure(
    "universality",
    "Universality of the contributions",
    "Similarity between groups as a fraction of similarity within groups, per feature.",
    tab="groups",
)
def draw_universality(context: FigureContext) -> RenderedFigure | None:
    """Figure of the terms' universality; None of subjects alone, or where no term is shared."""
    summary = grouped_models(context)
    if (
        summary is None
        or summary.only_subjects
        or summary.universality["universality"].isna().all()
    ):
        return None
    return RenderedFigure(
        universality(summary.universality),
        "Mean contribution between groups, over that within groups. 95 % CI over "
        f"{summary.over}. Left out: contributions within groups not clearly above 0. "
        f"{chance_sentence(summary.chance)} {sizes(summary)} {context.basis_sentence}",
        summary.universality,
    )


@figure(
    "trajectories",
    "Importance over training",
    "Importance of each feature, and held-out ρ, over training.",
    tab="groups",
    place=1,
)
def draw_trajectories(context: FigureContext) -> RenderedFigure | None:
    """Importances over the steps of training."""
    summary = trainings(context)
    if summary is None:
        return None
    table = summary.trajectories[summary.trajectories["layer"].isna()]
    return RenderedFigure(
        trajectories(table, context.terms, across=context.across),
        "Importance of each feature, and held-out ρ (dashed), over training steps; mean over "
        "layers and seeds. Bands: 95 % CI over seeds; a single run has none and does not "
        f"generalise to other runs. {context.basis}",
        table,
        title="Importance of each feature over training",
    )

"""The map of groups inside groups: what is drawn is what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.measures.nested import nested_groups, outlines

BY = ["<b>one</b>", "two"]


def points_of(n: int = 60, levels: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((n, 2)), columns=["x", "y"])
    first = [f"u{i}" for i in rng.integers(0, levels, n)]
    second = [f"v{i}" for i in rng.integers(0, 2, n)]
    table = table.assign(**dict(zip(BY, (first, second), strict=True)), stimulus=range(n))
    table.loc[::9, BY[1]] = None
    table.loc[::13, BY[0]] = None
    return table.assign(label="l <i>")


def drawn(points: pd.DataFrame) -> go.Figure:
    groups, around = nested_groups(points, BY), outlines(points, BY)
    figure = figures.nested_map(points, groups, BY, around, "t", 0.12)
    go.Figure(figure.to_dict())  # Plotly checks every property
    return figure


def test_every_stimulus_and_every_centre_is_drawn() -> None:
    points = points_of()
    figure = drawn(points)
    seen = {
        row[0]: (x, y)
        for trace in figure.data
        if trace.name == "stimuli"
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }
    assert len(seen) == len(points)
    np.testing.assert_array_equal([seen[i] for i in range(len(points))], points[["x", "y"]])
    groups = nested_groups(points, BY)
    (centres,) = [trace for trace in figure.data if trace.name == "centres"]
    np.testing.assert_array_equal(np.column_stack([centres.x, centres.y]), groups[["x", "y"]])
    ends = sum(sum(x is None for x in t.x) for t in figure.data if t.name == "branches")
    assert ends == (groups["depth"] == 2).sum() == 6
    assert len([trace for trace in figure.data if trace.name == "outline"]) == 3
    (said,) = [one.text for one in figure.layout.annotations]
    shares = groups.groupby("depth")["between"].first()
    shown = ", then ".join(f"{share:.0%}".replace("%", " %") for share in shares)
    assert said == f"stress 0.12 (fair)<br>between groups: {shown}".replace("-", "−")
    assert centres.hovertext[0] == f"<b>u0</b><br>{groups['n'].iloc[0]} stimuli"
    headings = {trace.legendgrouptitle.text for trace in figure.data if trace.showlegend is None}
    assert len(headings) == 2 and not any("<b>" in text for text in headings)


def test_rare_levels_are_grey_and_marked_stimuli_stand_out() -> None:
    points = points_of(400, levels=12).assign(marked=lambda t: t["stimulus"] == 5)
    stimuli = [trace for trace in drawn(points).data if trace.name == "stimuli"]
    colors = {trace.marker.color for trace in stimuli}
    assert figures.GREY in colors and len(colors) == 9
    sizes = {
        row[0]: size
        for trace in stimuli
        for row, size in zip(trace.customdata, trace.marker.size, strict=True)
    }
    assert [at for at, size in sizes.items() if size == 9] == [5]


def test_maps_of_many_layers_have_a_panel_each_and_one_legend() -> None:
    points = points_of(levels=2)
    maps = [
        figures.stimulus_map(points, BY[0], "nominal", f"layer {n}", stress=n / 10)
        for n in range(5)
    ]
    figure = figures.map_panels(maps, across=3)
    go.Figure(figure.to_dict())
    assert len(figure.data) == sum(len(one.data) for one in maps)
    assert {trace.xaxis for trace in figure.data} == {"x", "x2", "x3", "x4", "x5"}
    shown = [trace.name for trace in figure.data if trace.showlegend]
    assert sorted(shown) == sorted({trace.name for one in maps for trace in one.data})
    texts = [one.text for one in figure.layout.annotations]
    assert [text for text in texts if text.startswith("layer")] == [f"layer {n}" for n in range(5)]
    assert "stress 0.40 (poor)" in texts
    assert figure.layout.yaxis5.scaleanchor == "x5"
    assert figure.layout.xaxis4.range == maps[3].layout.xaxis.range
    scale = figures.stimulus_map(points.assign(n=1.0), "n", "ordered", "t")
    both = figures.map_panels([scale, scale])
    bars = [trace.marker.showscale for trace in both.data if trace.marker.colorbar.title.text]
    assert bars == [True, False]

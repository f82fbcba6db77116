"""Figures in a narrow window: what names the lines stands below them and takes no width."""

from __future__ import annotations

import plotly.graph_objects as go

from mlem_core import figures


def drawn(**layout: object) -> go.Figure:
    lines = [go.Scatter(x=[0, 1], y=[0, n], name=f"feature {n}") for n in range(6)]
    return go.Figure(lines, {"height": 300, **layout})


def test_legends_are_below_and_the_figure_is_as_much_higher() -> None:
    figure = drawn()
    narrow = figures.in_narrow_window(figure)
    assert narrow.layout.legend.orientation == "h" and narrow.layout.legend.yanchor == "bottom"
    added = narrow.layout.height - figure.layout.height
    assert added > 0 and narrow.layout.margin.b == 48 + added
    assert narrow.layout.width is None and figure.layout.height == 300
    go.Figure(narrow.to_dict())


def test_a_figure_without_a_legend_stays_as_it_is() -> None:
    assert figures.in_narrow_window(drawn(showlegend=False)) == drawn(showlegend=False)
    heat = go.Figure(go.Heatmap(z=[[1]]), {"height": 200})
    assert figures.in_narrow_window(heat).layout.height == 200

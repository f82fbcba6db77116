"""What print adds to a figure: near rows, letters of panels, names at lines for a legend."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from mlem_core.base.labels import width
from mlem_core.figures.style import SIZE, note

_ROWS = 55  # px between two rows: the numbers of one and the title of the next
_PAGE, _COLUMN = 800, 470  # px that rows take at most on a page, and in one column
_LINE = 15  # px between two names
_FEW, _SHARE = 3, 0.2  # lines that have their names at their ends, and of the width these take


def for_print(figure: go.Figure) -> None:
    """Set the rows of panels of lines near, name few lines directly, and letter the panels."""
    axes = zip(figure.select_xaxes(), figure.select_yaxes(), strict=True)
    used = {(getattr(trace, "xaxis", "") or "x")[1:] for trace in figure.data}
    panels = [(x, y) for x, y in axes if x.domain and x.plotly_name[5:] in used]
    of_lines = all(trace.type in ("scatter", "violin") for trace in figure.data)
    if panels and of_lines and not any(y.scaleanchor for _, y in panels):
        _name_lines(figure, panels)
        _near_rows(figure, panels)
    titles = [
        one.yref.removeprefix("y").removesuffix(" domain")
        for one in figure.layout.annotations
        if one.y == 1 and one.yshift == 6 and one.yref.endswith("domain") and one.text
    ]
    look = {"xanchor": "right", "yanchor": "bottom", "xshift": -6, "yshift": 6}
    look["font"] = {"size": SIZE + 2}
    if 1 < len(titles) <= 26:
        for place, ref in enumerate(titles):
            figure.add_annotation(note(f"<b>{chr(97 + place)}</b>", 0, 1, ref, "xy", **look))


def _inside(figure: go.Figure) -> tuple[float, float]:
    """px of the panels together: across and up."""
    layout, margin = figure.layout, figure.layout.margin
    return layout.width - margin.l - margin.r, layout.height - margin.t - margin.b


def _near_rows(figure: go.Figure, panels: list[tuple[Any, Any]]) -> None:
    """Set panels no higher than wide; what all rows say of their axes stands once."""
    rows = sorted({round(y.domain[0], 4) for _, y in panels}, reverse=True)
    if len(rows) < 2:
        return
    (across, up), (x, y), gaps = _inside(figure), panels[0], (len(rows) - 1) * _ROWS
    fits = np.ptp(y.domain) * up, 0.85 * np.ptp(x.domain) * across
    most = _COLUMN if figure.layout.width < 640 else _PAGE
    high = min(*fits, max(80, (most - gaps) / len(rows)))
    whole = len(rows) * high + gaps
    called = {y.title.text for _, y in panels} - {None}
    # Below the last panel of a column there is nothing.
    last = {round(x.domain[0], 4): place for place, (x, _) in enumerate(panels)}
    for place, (x, y) in enumerate(panels):
        if place not in last.values():
            x.title.text = None
        top = rows.index(round(y.domain[0], 4)) * (high + _ROWS)
        y.domain = [max(0.0, 1 - (top + high) / whole), 1 - top / whole]
        y.title.text = None if len(called) == 1 else y.title.text
    figure.layout.height = round(whole + figure.layout.height - up)
    if len(called) == 1:
        beside: dict[str, Any] = {"xref": "paper", "yref": "paper", "textangle": -90}
        figure.add_annotation(note(called.pop(), 0, 0.5, xanchor="right", xshift=-38, **beside))
        figure.layout.margin.l = max(figure.layout.margin.l, 62)


def _name_lines(figure: go.Figure, panels: list[tuple[Any, Any]]) -> None:
    """Set names at the ends of lines for a legend, while they are few and short."""
    shown = [t for t in figure.data if t.type == "scatter" and t.showlegend is not False and t.name]
    groups = {trace.legendgroup or trace.name: trace.name for trace in shown}
    room = 7 * max(map(width, groups.values()), default=0) + 12
    if not 0 < len(shown) <= _FEW or room > _SHARE * figure.layout.width:
        return
    # The last panel of the first row.
    x, y = max(panels, key=lambda panel: (round(panel[1].domain[1], 3), panel[0].domain[0]))
    ref, values = x.plotly_name.removeprefix("xaxis"), [0.0]
    ends = {}
    for trace in figure.data:
        values += [value for value in trace.y if value is not None]
        name = groups.get(trace.legendgroup or trace.name)
        line = trace.type == "scatter" and "lines" in (trace.mode or "") and not trace.fill
        if name and line and len(trace.x) > 1 and (trace.xaxis or "x") == f"x{ref}":
            ends[name] = (trace.x[-1], trace.y[-1], trace.line.color)
    if len(ends) < len(shown):
        return
    unit = 0.9 * _inside(figure)[1] * np.ptp(y.domain) / (np.nanmax(values) - np.nanmin(values))
    placed = -np.inf
    for name, (at, value, color) in sorted(ends.items(), key=lambda one: one[1][1]):
        placed = max(value * unit, placed + _LINE)
        look = {"xanchor": "left", "xshift": 8, "yshift": placed - value * unit}
        figure.add_annotation(note(name, at, value, ref, **look, font={"color": color}))
    figure.update_layout(showlegend=False, margin_r=room)

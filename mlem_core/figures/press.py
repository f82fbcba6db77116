"""What print adds to a figure: near rows, letters of panels, names at lines for a legend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mlem_core.base.labels import width
from mlem_core.figures.style import SIZE, note

_ROWS = 58  # px between two rows: the numbers of one and the title of the next
_PAGE = 480  # px that rows take at most, where panels stay 80 px high
_LINE = 15  # px between two names
_FEW = 3  # lines of a panel that have their names at their ends
_SHARE = 0.2  # of the width that names take at most


def for_print(figure: go.Figure) -> None:
    """Set the rows of panels of lines near, name few lines directly, and letter the panels."""
    if all(trace.type in ("scatter", "violin") for trace in figure.data):
        if not any(axis.scaleanchor for axis in figure.select_yaxes()):
            _name_lines(figure)
            _near_rows(figure)
    _letter(figure)


def _panels(figure: go.Figure) -> Iterator[tuple[Any, Any, str]]:
    """The axes of each panel, and what Plotly writes behind x and y for it."""
    for x in figure.select_xaxes():
        ref = x.plotly_name.removeprefix("xaxis")
        y = figure.layout[f"yaxis{ref}"]
        if x.domain and y.domain:
            yield x, y, ref


def _inside(figure: go.Figure) -> tuple[float, float]:
    """px of the panels together: across and up."""
    layout, margin = figure.layout, figure.layout.margin
    return layout.width - margin.l - margin.r, layout.height - margin.t - margin.b


def _near_rows(figure: go.Figure) -> None:
    """Panels no higher than wide, what all rows say of their axes once."""
    found = list(_panels(figure))
    rows = sorted({round(y.domain[0], 4) for _, y, _ in found}, reverse=True)
    if len(rows) < 2:
        return
    across, up = _inside(figure)
    x, y, _ = found[0]
    gaps = (len(rows) - 1) * _ROWS
    fits = (y.domain[1] - y.domain[0]) * up, 0.85 * (x.domain[1] - x.domain[0]) * across
    high = min(*fits, max(80, (_PAGE - gaps) / len(rows)))
    whole = len(rows) * high + gaps
    lowest: dict[float, float] = {}
    for x, y, _ in found:
        column = round(x.domain[0], 4)
        lowest[column] = min(lowest.get(column, 1.0), y.domain[0])
    called = {y.title.text for _, y, _ in found} - {None}
    for x, y, _ in found:
        if y.domain[0] > lowest[round(x.domain[0], 4)]:
            x.title.text = None
        top = rows.index(round(y.domain[0], 4)) * (high + _ROWS)
        y.domain = [max(0.0, 1 - (top + high) / whole), 1 - top / whole]
        if len(called) == 1:
            y.title.text = None
    figure.layout.height = round(whole + figure.layout.height - up)
    if len(called) == 1:
        beside: dict[str, Any] = {
            "xref": "paper",
            "yref": "paper",
            "xanchor": "right",
            "xshift": -38,
        }
        figure.add_annotation(note(called.pop(), 0, 0.5, **beside, textangle=-90))
        figure.layout.margin.l = max(figure.layout.margin.l, 62)


def _letter(figure: go.Figure) -> None:
    """A bold letter at the left of each panel's title, where there are several panels."""
    titles = [
        one.yref.removeprefix("y").removesuffix(" domain")
        for one in figure.layout.annotations
        if one.y == 1 and one.yshift == 6 and one.yref.endswith("domain") and one.text
    ]
    look = {"xanchor": "right", "yanchor": "bottom", "xshift": -6, "yshift": 6}
    font = {"size": SIZE + 2}
    if 1 < len(titles) <= 26:
        for place, ref in enumerate(titles):
            letter = f"<b>{chr(ord('a') + place)}</b>"
            figure.add_annotation(note(letter, 0, 1, ref, "xy", **look, font=font))


def _name_lines(figure: go.Figure) -> None:
    """Names at the ends of lines in place of a legend, while they are few and short."""
    shown = [t for t in figure.data if t.type == "scatter" and t.showlegend is not False and t.name]
    names = [trace.name for trace in shown]
    room = 7 * max(map(width, names), default=0) + 12
    panels = list(_panels(figure))
    if (
        not panels
        or not 0 < len(names) <= _FEW
        or room > _SHARE * figure.layout.width
        or "<" in "".join(names)
    ):
        return
    first = min(panels, key=lambda one: (-round(one[1].domain[1], 3), -one[0].domain[0]))
    groups = {trace.legendgroup or trace.name: trace.name for trace in shown}
    ends, values = {}, [0.0]
    for trace in figure.data:
        values += [value for value in trace.y if value is not None]
        name = groups.get(trace.legendgroup or trace.name)
        line = trace.type == "scatter" and "lines" in (trace.mode or "") and not trace.fill
        if name and line and len(trace.x) > 1 and (trace.xaxis or "x") == f"x{first[2]}":
            ends[name] = (trace.x[-1], trace.y[-1], trace.line.color)
    if len(ends) < len(names):
        return
    per_unit = (
        0.9 * _inside(figure)[1] * np.ptp(first[1].domain) / (np.nanmax(values) - np.nanmin(values))
    )
    placed = -np.inf
    for name, (at, value, color) in sorted(ends.items(), key=lambda one: one[1][1]):
        own = value * per_unit
        placed = max(own, placed + _LINE)
        look = {"xanchor": "left", "xshift": 8, "yshift": placed - own, "font": {"color": color}}
        figure.add_annotation(note(name, at, value, first[2], **look))
    figure.update_layout(showlegend=False, margin_r=room)

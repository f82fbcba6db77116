"""Rows of panels in print: near each other, low enough for a page, or parted over several."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mlem_core.base.labels import width
from mlem_core.base.typing import FloatArray
from mlem_core.figures.style import SIZE, note

_LEAST, _SMALLER = 80, 0.75  # px of a panel, and what is left of a square one, at least
_TITLE, _AXIS, _CLEAR = 26, 26, 8  # px: over a panel, below its numbers, between two rows
_LETTER = 0.55  # of a text's size
_REFS = ("xaxis", "yaxis", "xref", "yref", "axref", "ayref", "anchor", "scaleanchor")


@dataclass(frozen=True)
class Panel:
    """A panel of a figure: its two axes."""

    x: Any
    y: Any

    @property
    def ref(self) -> str:
        """Suffix of Plotly's x and y."""
        return str(self.x.plotly_name.removeprefix("xaxis"))

    def over(self, other: Panel) -> bool:
        """Whether one would stand over the other, were they in two rows."""
        (a, b), (c, d) = self.x.domain, other.x.domain
        return bool(min(b, d) - max(a, c) > 1e-6)


@dataclass(frozen=True)
class _Sizes:
    """Heights in px: of each row as it is and at least, between rows, and beside all of them."""

    rows: FloatArray
    least: FloatArray
    gaps: FloatArray
    beside: float

    def fit(self, most: float, which: Sequence[int]) -> bool:
        """Whether these rows can be set so low."""
        between = self.gaps[which[0] : which[-1]].sum()
        return bool(self.least[which].sum() + between + self.beside <= most + 0.5)

    def fitted(self, most: float) -> FloatArray:
        """Heights of the rows, lower where the figure would be higher than `most`."""
        over = self.rows.sum() + self.gaps.sum() + self.beside - most
        less = self.rows - self.least
        return self.rows - less * min(1.0, max(0.0, over) / (less.sum() or 1.0))


def panels_of(figure: go.Figure) -> list[Panel]:
    """Panels of a figure in which something is drawn."""
    used = {(getattr(trace, "xaxis", "") or "x")[1:] for trace in figure.data}
    axes = map(Panel, figure.select_xaxes(), figure.select_yaxes())
    return [one for one in axes if one.x.domain and one.y.domain and one.ref in used]


def rows_of(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Panels by rows, the uppermost first; none where they do not stand in rows."""
    tops = sorted({round(one.y.domain[1], 4) for one in panels}, reverse=True)
    rows = [[one for one in panels if round(one.y.domain[1], 4) == top] for top in tops]
    bottoms = [min(one.y.domain[0] for one in row) for row in rows]
    apart = all(low >= top - 1e-3 for low, top in zip(bottoms, tops[1:], strict=False))
    return rows if apart else []


def inside(figure: go.Figure) -> tuple[float, float]:
    """px of the panels together: across and up."""
    layout, margin = figure.layout, figure.layout.margin
    return layout.width - margin.l - margin.r, layout.height - margin.t - margin.b


def of_lines(figure: go.Figure) -> bool:
    """Whether all panels are of lines, each with a scale of its own."""
    free = not any(axis.scaleanchor for axis in figure.select_yaxes())
    return free and all(trace.type in ("scatter", "violin") for trace in figure.data)


def set_near(figure: go.Figure, rows: Sequence[Sequence[Panel]], most: float) -> None:
    """Set rows as near as their texts allow; panels become lower where the figure is too high.

    Parameters
    ----------
    rows : of `rows_of`
    most : px of the figure
    """
    full = len(rows) == 1 and np.ptp(rows[0][0].y.domain) > 0.99
    if not rows or (full and figure.layout.height <= most):
        return
    _say_once(figure, rows)
    sizes = _measured(figure, rows)
    heights = sizes.fitted(most)
    whole, top = float(heights.sum() + sizes.gaps.sum()), 0.0
    for row, high, gap in zip(rows, heights.tolist(), [*sizes.gaps.tolist(), 0.0], strict=True):
        for panel in row:
            panel.y.domain = [max(0.0, 1 - (top + high) / whole), 1 - top / whole]
        top += high + gap
    old, up, new = figure.layout.height, inside(figure)[1], round(whole + sizes.beside)
    figure.layout.height = new
    # What explains colours keeps its distance in px from the edge at which it stands.
    for name in ("coloraxis", "coloraxis2", "legend", "legend2"):
        if name not in figure.layout:
            continue
        one = figure.layout[name].colorbar if "axis" in name else figure.layout[name]
        if one.y is not None and one.yref == "container" and one.yanchor == "bottom":
            one.y *= old / new
        elif one.y is not None and one.yref != "container" and one.yanchor == "top":
            one.y = 1 - (1 - one.y) * up / whole


def parted(figure: go.Figure, rows: Sequence[Sequence[Panel]], most: float) -> list[list[Panel]]:
    """Panels of each page of at most `most` px; of one page, where all rows fit or there are none.

    Parameters
    ----------
    rows : as `set_near` has set them
    """
    if not rows:
        return [panels_of(figure)]
    sizes, all_rows = _measured(figure, rows), np.arange(len(rows))
    for n in range(1, len(rows) + 1):
        pages = [part.tolist() for part in np.array_split(all_rows, n)]
        if all(sizes.fit(most, page) for page in pages):
            break
    return [[panel for place in page for panel in rows[place]] for page in pages]


def of_panels(figure: go.Figure, panels: Sequence[Panel]) -> go.Figure:
    """Figure of some panels of another one, with the whole legend and the same scales."""
    kept = figure.to_plotly_json()
    new = {one.ref: str(place) if place > 1 else "" for place, one in enumerate(panels, 1)}
    layout = kept["layout"]
    of_axes = {key: layout.pop(key) for key in list(layout) if re.match("[xy]axis", key)}
    for name in ("xaxis", "yaxis"):
        for old, ref in new.items():
            axis = of_axes[name + old]
            if axis.pop("matches", None):
                axis.setdefault("range", _span(figure, name[0]))
            layout[name + ref] = _moved(axis, new)
    for key in ("annotations", "shapes"):
        moved = [_moved(one, new) for one in layout.get(key, ())]
        layout[key] = [one for one in moved if one is not None]
    whole = [_moved({"xaxis": "x", "yaxis": "y", **trace}, new) for trace in kept["data"]]
    traces = [trace for trace in whole if trace is not None]
    _explain(traces, kept["data"])
    page = go.Figure({"data": traces, "layout": layout})
    last = _lowest(panels_of(figure))
    for panel in _lowest(panels_of(page)):
        # Names that stand below the last row only.
        below = next((one for one in last if panel.over(one)), panel)
        panel.x.showticklabels = below.x.showticklabels
        panel.x.title.text = panel.x.title.text or below.x.title.text
    return page


def _moved(part: dict[str, Any], new: dict[str, str]) -> Any:
    """A part of a figure with the names that its axes have on a page; None: it is not there."""
    found = {key: re.fullmatch(r"([xy])(\d*)( domain)?", str(part.get(key, ""))) for key in _REFS}
    refs = {key: match for key, match in found.items() if match}
    if any(match[2] not in new for match in refs.values()):
        return None
    named = {key: f"{m[1]}{new[m[2]]}{m[3] or ''}" for key, m in refs.items()}
    return {**part, **named}


def _explain(traces: list[dict[str, Any]], whole: Sequence[dict[str, Any]]) -> None:
    """Show on a page, once, each name in the legend and each colour bar of the whole figure."""

    def called(trace: dict[str, Any]) -> tuple[Any, Any]:
        return trace.get("legend"), trace.get("legendgroup") or trace.get("name")

    def named(trace: dict[str, Any]) -> bool:
        return trace.get("showlegend") is not False

    there = {called(trace) for trace in whole if named(trace)}
    there -= {called(trace) for trace in traces if named(trace)}
    scaled = any(trace.get("marker", {}).get("showscale") for trace in whole)
    for trace in traces:
        if called(trace) in there:
            trace["showlegend"] = True
            there.remove(called(trace))
        if scaled and "colorbar" in trace.get("marker", {}):
            trace["marker"]["showscale"], scaled = True, False


def _span(figure: go.Figure, axis: str) -> list[float]:
    """Range of all values along an axis that the panels share."""
    values = [np.asarray(trace[axis], dtype=float) for trace in figure.data if len(trace[axis])]
    low, high = np.nanmin(np.concatenate(values)), np.nanmax(np.concatenate(values))
    room = 0.06 * (high - low)
    return [float(low - room), float(high + room)]


def _lowest(panels: Sequence[Panel]) -> list[Panel]:
    """Panels below which there is none."""
    return [
        one
        for one in panels
        if not any(one.over(other) and other.y.domain[1] <= one.y.domain[0] for other in panels)
    ]


def _say_once(figure: go.Figure, rows: Sequence[Sequence[Panel]]) -> None:
    """What all rows say of their axes stands once."""
    panels = [panel for row in rows for panel in row]
    lowest = _lowest(panels)
    for panel in panels:
        below = [one.x.title.text for one in lowest if one is not panel and panel.over(one)]
        if panel not in lowest and panel.x.title.text in below:
            panel.x.title.text = None
    called = {panel.y.title.text for panel in panels} - {None}
    if len(rows) > 1 and len(called) == 1 and all(row[0].y.title.text for row in rows):
        for panel in panels:
            panel.y.title.text = None
        beside: dict[str, Any] = {"xref": "paper", "yref": "paper", "textangle": -90}
        figure.add_annotation(note(called.pop(), 0, 0.5, xanchor="right", xshift=-38, **beside))
        figure.layout.margin.l = max(figure.layout.margin.l, 62)


def _measured(figure: go.Figure, rows: Sequence[Sequence[Panel]]) -> _Sizes:
    """Heights of rows with panels no higher than wide, and what stands between them."""
    (across, up), lines = inside(figure), of_lines(figure)
    across -= max(0.0, max(_names(one.y)[0] for one in rows[0]) - figure.layout.margin.l)
    high, least = [], []
    for row in rows:
        wide = across * max(np.ptp(one.x.domain) for one in row)
        square = any(one.y.scaleanchor for one in row)
        most = wide if square else 0.85 * wide if lines else np.inf
        high.append(min(most, up * max(np.ptp(one.y.domain) for one in row)))
        names = max(_names(one.y)[1] for one in row)
        least.append(min(high[-1], max(_LEAST, names, square * _SMALLER * high[-1])))
    gaps = [
        max(_below(figure, a) + _above(figure, b) for a in upper for b in lower if a.over(b))
        for upper, lower in itertools.pairwise(rows)
    ]
    beside = figure.layout.height - up
    return _Sizes(np.array(high), np.array(least), np.array(gaps) + _CLEAR, beside)


def _names(axis: Any) -> tuple[float, float]:
    """px of the names along an axis: of the longest one, and of all of them side by side."""
    if not axis.ticktext or axis.showticklabels is False:
        return 0.0, 0.0
    size = axis.tickfont.size or SIZE
    lines = [html.unescape(name).split("<br>") for name in axis.ticktext]
    return _LETTER * size * max(width(line) for name in lines for line in name), size * len(lines)


def _below(figure: go.Figure, panel: Panel) -> float:
    """px of the numbers, the title and the notes below a panel."""
    axis, said = panel.x, 0.0
    if axis.showticklabels is not False:
        turned, size = np.deg2rad(abs(axis.tickangle or 0)), axis.tickfont.size or SIZE
        said = float(np.sin(turned) * _names(axis)[0] + np.cos(turned) * 1.2 * size + 6)
    for one in figure.layout.annotations:
        if one.yref == f"y{panel.ref} domain" and one.y == 0 and one.yanchor == "top":
            said = max(said, 5 + 17 * (1 + one.text.count("<br>")))
    return said + (_AXIS if axis.title.text else 0)


def _above(figure: go.Figure, panel: Panel) -> float:
    """px of the title over a panel."""
    notes, ref = figure.layout.annotations, f"y{panel.ref} domain"
    over = [one.text.count("<br>") for one in notes if one.yref == ref and one.y == 1]
    return _TITLE + 16.0 * max(over) if over else 0.0

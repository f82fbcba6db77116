"""A figure on paper: its size, its type, its legends, the letters of its panels."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.labels import width
from mlem_core.figures.style import INK, PANEL_TITLE, SIZE, note

# One, one and a half and two columns of Nature, and nearly those of most journals.
WIDTHS_MM = {"one column": 89.0, "one and a half": 120.0, "two columns": 183.0}
# What is asked for, then fonts of the same widths that free systems have.
FONTS = {
    "Arial": "Arial, 'Liberation Sans', Helvetica, sans-serif",
    "Times": "'Times New Roman', 'Liberation Serif', Times, serif",
    "DejaVu Sans": "'DejaVu Sans', Verdana, sans-serif",
}
DPI = (300, 600)

PX_PER_MM = 96 / 25.4
_NARROW = 640  # px; on less than this the legend goes below the panels
_PHONE = 330  # px, about
_LEGEND_ROW = 20  # px
_BAR = 110  # px; a colour bar with its numbers
_TALL_MM = 170  # of a page above a caption
_LEAST, _SMALLER = 80, 0.75  # px of a panel, and what is left of a square one, at least
_TITLE, _AXIS, _CLEAR = 26, 26, 8  # px: over a panel, below its numbers, between two rows
_LETTER = 0.55  # of a text's size


@dataclass(frozen=True)
class Paper:
    """Typesetting of a figure in print.

    Attributes
    ----------
    width_mm : width of the figure in mm
    font : one of `FONTS`
    points : size of the text in points (1/72 inch); titles are a little larger
    dpi : pixels an inch of a PNG
    """

    width_mm: float = WIDTHS_MM["two columns"]
    font: str = "Arial"
    points: float = 7.0
    dpi: int = DPI[0]

    @property
    def scale(self) -> float:
        """Factor for all of a figure's lines, marks and texts."""
        return self.points * 96 / 72 / SIZE

    @property
    def width(self) -> float:
        """Width in the figure's own pixels, before scaling."""
        return self.width_mm * PX_PER_MM / self.scale

    @property
    def narrow(self) -> bool:
        """Whether panels should stand below each other."""
        return self.width < _NARROW

    @property
    def most(self) -> float:
        """Height of a page in the figure's own pixels: what a journal leaves above a caption."""
        return _TALL_MM * PX_PER_MM / self.scale

    def check(self) -> None:
        """Raise InputError for a size or font that cannot be."""
        check_choice("font", self.font, FONTS)
        if not 30 <= self.width_mm <= 500:
            raise InputError(f"found a width of {self.width_mm:g} mm; expected 30 to 500 mm.")
        if not 4 <= self.points <= 16:
            raise InputError(f"found text of {self.points:g} points; expected 4 to 16 points.")
        if not 72 <= self.dpi <= 1200:
            raise InputError(f"found {self.dpi} dpi; expected 72 to 1200.")


def print_copy(figure: go.Figure, paper: Paper) -> go.Figure:
    """A copy of a figure as it is printed: dark text on white, in the paper's font and width.

    Panels that make it higher than a page are set lower, as far as they can be read. It is
    `paper.width` pixels wide; multiplied by `paper.scale` it has the paper's size. So text, lines
    and marks keep their proportions at every size.

    Raises
    ------
    InputError
        A size or font that cannot be.
    """
    paper.check()
    copy = go.Figure(figure).update_layout(
        width=paper.width,
        height=int(figure.layout.height or 460),
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"family": FONTS[paper.font], "color": INK},
        title_font_weight=400,
    )
    _letter(copy)
    return _arrange(copy, paper)


def _arrange(figure: go.Figure, paper: Paper) -> go.Figure:
    """The figure, its panels near each other and its legends where they have room."""
    rows = panel_rows(drawn_panels(figure))
    set_near(figure, rows, np.inf)
    # A legend that is higher than the figure would be cut off.
    high = _LEGEND_ROW * max(map(len, _legend_names(figure).values()), default=0)
    below = paper.narrow or high > figure.layout.height - 80
    if below and figure.layout.showlegend is not False:
        _move_legends(figure)
    else:
        _center_square_panel(figure)
    set_near(figure, rows, paper.most)
    return figure


def _letter(figure: go.Figure) -> None:
    """Letter the panels that have a title; one that is too long for its panel has two lines."""
    titles, raised = [], 0
    for title in figure.layout.annotations:
        if title.name == PANEL_TITLE and title.text:
            ref = title.yref.removeprefix("y").removesuffix(" domain")
            titles.append(ref)
            room = inside(figure)[0] * np.ptp(figure.layout[f"xaxis{ref}"].domain or (0, 1))
            if _LETTER * SIZE * width(html.unescape(title.text)) > room - 12:
                title.text = title.text.replace(", ", "<br>", 1)
            high = 16 * title.text.count("<br>")
            if (figure.layout[f"yaxis{ref}"].domain or (0, 1))[1] > 0.99 and high > raised:
                figure.layout.margin.t += high - raised
                figure.layout.height += high - raised
                raised = high
    look = {"xanchor": "right", "yanchor": "bottom", "xshift": -6, "yshift": 6}
    look["font"] = {"size": SIZE + 2}
    if 1 < len(titles) <= 26:
        for place, ref in enumerate(titles):
            figure.add_annotation(note(f"<b>{chr(97 + place)}</b>", 0, 1, ref, "xy", **look))


def narrow_copy(figure: go.Figure) -> go.Figure:
    """A copy for a window of a phone: its legends below the panels, which keep the whole width."""
    copy = go.Figure(figure)
    if copy.layout.showlegend is False:
        return copy
    _move_legends(copy.update_layout(width=_PHONE, height=int(copy.layout.height or 460)))
    # The window says how wide it is.
    return copy.update_layout(width=None)


def _legend_names(figure: go.Figure) -> dict[str, list[str]]:
    """The names that stand in each legend."""
    names: dict[str, list[str]] = {}
    for trace in figure.data:
        if trace.type == "scatter" and trace.showlegend is not False:
            names.setdefault(trace.legend or "legend", []).append(str(trace.name))
    return names


def _wide(names: Sequence[str]) -> int:
    """Width of the entries of a legend in px."""
    lines = (html.unescape(line) for name in names for line in name.split("<br>"))
    return 7 * max(map(len, lines)) + 48


def _move_legends(figure: go.Figure) -> None:
    """Set each legend in rows below the panels, one below the other, and make room for them."""
    names = _legend_names(figure)
    room, places = 8, []
    for legend in sorted(names, reverse=True):  # from the bottom upwards
        wide = _wide(names[legend])
        across = max(1, int((figure.layout.width - 40) // wide))
        high = [name.count("<br>") + 1 for name in names[legend]]
        rows = sum(max(high[at : at + across]) for at in range(0, len(high), across))
        rows += bool(figure.layout[legend].title.text)
        places.append((legend, room, wide))
        room += rows * _LEGEND_ROW + 8
    if not places:
        return
    below = 48 if figure.layout.margin.b is None else figure.layout.margin.b
    figure.update_layout(margin_b=below + room, height=figure.layout.height + room)
    side = {"x": 0.5, "xanchor": "center"}
    if len(places) > 1:
        side = {"x": (figure.layout.margin.l or 0) / figure.layout.width, "xanchor": "left"}
    for legend, bottom, wide in places:
        place = {
            "orientation": "h",
            **side,
            "xref": "container",
            "y": bottom / figure.layout.height,
            "yanchor": "bottom",
            "yref": "container",
            "entrywidth": wide - 40,
            "title_side": "top",
        }
        figure.update_layout({legend: place})


def _center_square_panel(figure: go.Figure) -> None:
    """Bring a square panel into the middle, and what explains its colours next to it."""
    if "xaxis2" in figure.layout or figure.layout.yaxis.scaleanchor is None:
        return
    margin, names = figure.layout.margin, _legend_names(figure).get("legend", [])
    scales = [trace.marker.showscale for trace in figure.data if trace.type == "scatter"]
    has_bar = any(scales) or figure.layout.coloraxis.colorscale is not None
    right = max(margin.r, _wide(names) if names else 0, _BAR if has_bar else 0)
    side = figure.layout.height - margin.t - margin.b
    more = (figure.layout.width - margin.l - right - side) / 2
    if more > 0:
        figure.update_layout(margin={"l": margin.l + more, "r": right + more})


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


def drawn_panels(figure: go.Figure) -> list[Panel]:
    """Panels of a figure in which something is drawn."""
    used = {(getattr(trace, "xaxis", "") or "x")[1:] for trace in figure.data}
    axes = map(Panel, figure.select_xaxes(), figure.select_yaxes())
    return [one for one in axes if one.x.domain and one.y.domain and one.ref in used]


def panel_rows(panels: Sequence[Panel]) -> list[list[Panel]]:
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


def set_near(figure: go.Figure, rows: Sequence[Sequence[Panel]], most: float) -> None:
    """Set rows as near as their texts allow, and lower where the figure is over `most` px."""
    full = len(rows) == 1 and np.ptp(rows[0][0].y.domain) > 0.99
    if not rows or (full and figure.layout.height <= most):
        figure.layout.height = min(figure.layout.height, most)
        return
    _say_once(figure, rows)
    heights, gaps, beside = _heights(figure, rows, most)
    whole, top = sum(heights) + sum(gaps), 0.0
    for row, high, gap in zip(rows, heights, [*gaps, 0.0], strict=True):
        for panel in row:
            panel.y.domain = [max(0.0, 1 - (top + high) / whole), 1 - top / whole]
        top += high + gap
    old, up, new = figure.layout.height, inside(figure)[1], round(whole + beside)
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


def _heights(
    figure: go.Figure, rows: Sequence[Sequence[Panel]], most: float
) -> tuple[list[float], list[float], float]:
    """px of rows with panels no higher than wide, of what is between rows, and beside all of them.

    Rows are lower where the figure would be higher than `most`.
    """
    across, up = inside(figure)
    free = not any(axis.scaleanchor for axis in figure.select_yaxes())
    lines = free and all(trace.type in ("scatter", "violin") for trace in figure.data)
    across -= max(0.0, max(_names(one.y)[0] for one in rows[0]) - figure.layout.margin.l)
    high, least = [], []
    for row in rows:
        wide = across * max(np.ptp(one.x.domain) for one in row)
        square = any(one.y.scaleanchor for one in row)
        limit = wide if square else 0.85 * wide if lines else np.inf
        if all(one.x.visible is False for one in row):  # a list
            limit = max(_list_height(figure, one) for one in row)
        high.append(min(limit, up * max(np.ptp(one.y.domain) for one in row)))
        names = max(_names(one.y)[1] for one in row)
        least.append(min(high[-1], max(_LEAST, names, square * _SMALLER * high[-1])))
    gaps = [
        max(
            _footer_height(figure, a) + _title_height(figure, b)
            for a in upper
            for b in lower
            if a.over(b)
        )
        for upper, lower in itertools.pairwise(rows)
    ]
    beside = figure.layout.height - up
    gaps = [gap + _CLEAR for gap in gaps]
    over = max(0.0, sum(high) + sum(gaps) + beside - most)
    share = min(1.0, over / ((sum(high) - sum(least)) or 1.0))
    lower = [one - share * (one - low) for one, low in zip(high, least, strict=True)]
    return lower, gaps, beside


def _names(axis: Any) -> tuple[float, float]:
    """px of the names along an axis: of the longest one, and of all of them side by side."""
    if not axis.ticktext or axis.showticklabels is False:
        return 0.0, 0.0
    size = axis.tickfont.size or SIZE
    lines = [html.unescape(name).split("<br>") for name in axis.ticktext]
    return _LETTER * size * max(width(line) for name in lines for line in name), 1.2 * size * len(
        lines
    )


def _footer_height(figure: go.Figure, panel: Panel) -> float:
    """px of the numbers, the title and the notes below a panel."""
    axis, said = panel.x, 0.0
    if axis.showticklabels is not False:
        turned, size = np.deg2rad(abs(axis.tickangle or 0)), axis.tickfont.size or SIZE
        said = float(np.sin(turned) * _names(axis)[0] + np.cos(turned) * 1.2 * size + 6)
    for one in figure.layout.annotations:
        if one.yref == f"y{panel.ref} domain" and one.y == 0 and one.yanchor == "top":
            said = max(said, 5 + 17 * (1 + one.text.count("<br>")))
    return said + (_AXIS if axis.title.text else 0)


def _list_height(figure: go.Figure, panel: Panel) -> float:
    """px of the lines in a panel that has text alone."""
    within = [one for one in figure.layout.annotations if one.yref == f"y{panel.ref} domain"]
    return max((17.0 * (2 + one.text.count("<br>")) for one in within), default=0.0)


def _title_height(figure: go.Figure, panel: Panel) -> float:
    """px of the title over a panel."""
    notes, ref = figure.layout.annotations, f"y{panel.ref} domain"
    over = [one.text.count("<br>") for one in notes if one.yref == ref and one.y == 1]
    return _TITLE + 16.0 * max(over) if over else 0.0

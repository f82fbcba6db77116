"""Style of all figures: colours, quiet axes, ticks, labels and numbers as text."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from mlem_core.base.labels import isolated, shortened
from mlem_core.base.text import fraction, minus

# Okabe and Ito's colours, distinct with every common colour vision, in an order that sets
# neighbours far apart. Black (lost on a dark page) is a brown here and the yellow is darker.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#B8A500", "#9A6A4F")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot")
# Models are not features: other colours (after Paul Tol), so that nobody takes one for the other.
MODEL_COLORS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#AA3377", "#66CCEE")

# Cividis without its ends, which are lost on a dark page and on a white one.
SEQUENTIAL = sample_colorscale("Cividis", [0.12 + 0.085 * i for i in range(11)])

# Brown to blue over a light middle, for signed values, as on the canvas: distinct with every common
# colour vision, both ends neither lost on a dark page nor on a white one.
_SIGNED = (
    *("#1B4F8A", "#3B7DB8", "#7FB0D6", "#C3DAEA"),
    "#F5F3EF",
    *("#F6D3B3", "#E9A066", "#CB6A2B", "#963F0F"),
)
DIVERGING = [[at / 8, color] for at, color in enumerate(_SIGNED[::-1])]

# Of similarities, as on the canvas: from a light 0 to a dark 1, brown below 0.
_SIMILAR = ("#D7E6F3", "#8FBBDF", "#3B85BD", "#08406F")
SIMILARITY: list[list[Any]] = [[0.0, "#963F0F"], [0.25, "#E9A066"], [0.5, "#F3F5F8"]]
SIMILARITY += [[0.625 + at / 8, color] for at, color in enumerate(_SIMILAR)]
NOT_ABOVE_CHANCE = "#C9CDD3"

# On a dark page both ends are light.
_DARK = ("#C3DAEA", "#7FB0D6", "#3B7DB8", "#24486F", "#20262D", "#5E3A1C", "#A8642D", "#E9A066")
DARK = [[at / 8, color] for at, color in enumerate(("#F6D3B3", *_DARK[::-1]))]


def upper_half(scale: list[list[Any]]) -> list[list[Any]]:
    """The colours of a scale from its upper end to its middle, for distances from 0."""
    return [[2 - 2 * at, color] for at, color in scale[:3:-1]]


GREY = "#8C8C8C"
WARNING = "#D55E00"
INK = "#1A1A1A"  # on a light ground of its own, whatever the page
FAINT = "rgba(140,140,140,0.22)"
LINE = "rgba(140,140,140,0.55)"
SIZE = 13
BARS = 12
BAR_ROW = 34  # px
LEGEND = 26  # letters of a name in a legend
TITLE = 22  # letters of a name over a panel
SIGNIFICANT = 0.05
# Between a matrix and the names at its sides.
CLEAR: dict[str, Any] = {"ticks": "outside", "ticklen": 4, "tickcolor": "rgba(0,0,0,0)"}
Trace = dict[str, Any]  # as Plotly takes it
Point = tuple[float, float]


def scatter(x: Any, y: Any, hover: Any = None, mode: Any = "markers", **more: Any) -> Trace:
    """Points, or lines, with the texts of hovering over them; None: it says nothing."""
    hover_choices = (
        {"hoverinfo": "skip"} if hover is None else {"hovertext": hover, "hoverinfo": "text"}
    )
    return {"type": "scatter", "x": x, "y": y, "mode": mode, **hover_choices, **more}


def error_bar(value: Any, lower: Any, upper: Any, **more: Any) -> Trace:
    """The bars of intervals around values."""
    ends = {"array": upper - value, "arrayminus": value - lower}
    return {"type": "data", "symmetric": False, **ends, **more}


def curve(x: Any, y: Any, hover: Any, color: str, dash: str = "", **more: Any) -> Trace:
    """A `scatter` of points that a line of 2 px joins."""
    line = {"color": color, "width": 2} | ({"dash": dash} if dash else {})
    return scatter(x, y, hover, "lines+markers", line=line, **more)


def heatmap(z: Any, hover: Any, **more: Any) -> Trace:
    """Cells with the texts of hovering over them; one without a number says nothing."""
    hover_choices = {"hovertext": hover, "hoverinfo": "text", "hoverongaps": False}
    return {"type": "heatmap", "z": z, **hover_choices, **more}


def place_in_panel(ref: str, traces: Iterable[Trace], **more: Any) -> list[Trace]:
    """The traces in the panel with this `panel_ref`, with what is in `more` where they lack it."""
    return [{"xaxis": f"x{ref}", "yaxis": f"y{ref}", **more} | trace for trace in traces]


def names_along(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Axis with names at 0, 1, ..., and no lines of a grid; `more` is added."""
    places = list(range(len(names)))
    return {"tickvals": places, "ticktext": names, "showgrid": False, "zeroline": False, **more}


def square_axes(
    layout: dict[str, Any],
    ref: str,
    axis: Mapping[str, Any],
    x: Sequence[float],
    y: Sequence[float],
    angle: float = 0,
    *,
    below: bool = True,
    beside: bool = True,
) -> None:
    """Set the axes of a panel of a matrix, whose cells are as wide as high.

    Parameters
    ----------
    ref : `panel_ref` of the panel
    axis : the ticks of both axes
    x, y : from end to end
    angle : of the texts below the matrix
    below, beside : whether there are texts below the matrix, and to its left
    """
    axis = {**axis, "showgrid": False, "zeroline": False, "constrain": "domain"}
    across = {"range": list(x), "tickangle": angle, "showticklabels": below}
    up = {"range": list(y), "scaleanchor": f"x{ref}", "showticklabels": beside}
    layout[f"xaxis{ref}"] |= {**axis, **across}
    layout[f"yaxis{ref}"] |= {**axis, **up}


def feature_colors(features: Sequence[str]) -> dict[str, str]:
    """Colour of each feature of an analysis, by its place among *all* of them.

    Beyond eight features colours come again; line dashes then distinguish them.
    """
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(features)}


def plain(text: Any, longest: int = 28) -> str:
    """Text as Plotly shall show it: shortened, on one line, nothing in it taken for mark-up."""
    line = " ".join(str(text).split())
    return escape_text(line if len(line) <= longest else line[: longest - 1].rstrip() + "…")


def escape_text(text: str) -> str:
    """Text as Plotly shall show it, in full: on one line, nothing in it taken for mark-up or a
    formula, and without a hold on the direction of its neighbours."""
    line = " ".join(text.split())
    return isolated(html.escape(line, quote=False).replace("$", "&#36;"))


def short_names(names: Sequence[str], longest: int = 14) -> list[str]:
    """Names as labels of at most so many letters, all different."""
    return [escape_text(label) for label in shortened([str(name) for name in names], longest)]


def panel_layout(
    titles: Sequence[str],
    *,
    height: int,
    across: int = 3,
    apart: float = 0.05,
    below: float = 104,
    rows: Sequence[int] = (),
) -> tuple[dict[str, Any], list[tuple[str, bool]]]:
    """Layout of a figure with a panel a title, at most `across` in a row.

    Parameters
    ----------
    apart : what is between two panels, as a share of the width; more where each has numbers
    below : px between two rows, for ticks, the axis title and the next panel's title
    rows : number of panels in each row, where that is not `across`

    Returns
    -------
    the layout, and of each panel its `panel_ref` and whether it begins a row
    """
    columns = max(1, max(rows, default=min(len(titles), across)))
    rows = rows or [columns] * max(1, math.ceil(len(titles) / columns))
    cells = [(row, column) for row, n in enumerate(rows) for column in range(n)][: len(titles)]
    refs = list(map(panel_ref, range(len(titles))))
    layout = quiet_layout(height * len(rows) + 60, refs)
    gap = below / (height * len(rows) - 24)
    wide, high = (1 - apart * (columns - 1)) / columns, (1 - gap * (len(rows) - 1)) / len(rows)
    for (row, column), ref in zip(cells, refs, strict=True):
        left, top = column * (wide + apart), 1 - row * (high + gap)
        layout[f"xaxis{ref}"]["domain"] = [left, min(1.0, left + wide)]
        layout[f"yaxis{ref}"]["domain"] = [max(0.0, top - high), top]
    layout["annotations"] = list(map(panel_title, titles, refs))
    # Swatches of lines as they are drawn: their dashes distinguish features of one colour.
    layout["legend"]["itemsizing"] = "trace"
    return layout, [(ref, column == 0) for (_, column), ref in zip(cells, refs, strict=True)]


def panel_ref(place: int) -> str:
    """Suffix of Plotly's x and y for the panel at a place, counted from 0 row by row."""
    return "" if place == 0 else str(place + 1)


def quiet_layout(height: int, refs: Sequence[str] = ("",)) -> dict[str, Any]:
    """Layout that all figures share: no backgrounds, thin grey lines.

    Plotly checks each change of a figure anew; one that has to be quick is made in one step.

    Parameters
    ----------
    refs : `panel_ref` of each panel
    """
    lines = {
        "gridcolor": FAINT,
        "zerolinecolor": LINE,
        "zerolinewidth": 1,
        "automargin": True,
        "showline": False,
        "ticks": "",
        "labelalias": WITHOUT_ZERO,
    }
    axes: dict[str, Any] = {}
    for ref in refs:
        across = {"title": {"standoff": 10, "font": {"size": SIZE}}, "anchor": f"y{ref}"}
        up = {"title": {"standoff": 14, "font": {"size": SIZE}}, "anchor": f"x{ref}"}
        axes |= {f"xaxis{ref}": lines | {"zeroline": False} | across, f"yaxis{ref}": lines | up}
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": height,
        "font": {"size": SIZE},
        "margin": {"l": 56, "r": 16, "t": 36, "b": 48},
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": PALETTE[0]},
        "legend": {"tracegroupgap": 2, "itemsizing": "constant", "title": {"font": {"size": SIZE}}},
        **axes,
    }


def quiet(figure: go.Figure, height: int) -> None:
    """Give a figure the layout of `quiet_layout`."""
    refs = [axis.plotly_name.removeprefix("xaxis") for axis in figure.select_xaxes()]
    figure.update_layout(quiet_layout(height, refs or ("",)))


def once_in_legend(traces: Iterable[Trace]) -> list[Trace]:
    """The traces, with the first one of each group in the legend."""
    named: set[str] = set()
    names = []
    for trace in traces:
        group = str(trace.get("legendgroup", trace.get("name")))
        new = trace.get("showlegend", group not in named)
        names.append(trace | {"showlegend": new})
        named |= {group} if new else set()
    return names


def _panel_axes(ref: str, within: str) -> dict[str, str]:
    """The axes of a panel; `within` has those whose coordinates are shares of it: "x", "xy" ..."""
    return {f"{axis}ref": f"{axis}{ref}{' domain' * (axis in within)}" for axis in "xy"}


def note(text: str, x: float, y: float, ref: str = "", within: str = "", **more: Any) -> Trace:
    """The annotation with a text at a point of a panel, without an arrow."""
    return {"text": text, "x": x, "y": y, "showarrow": False, **_panel_axes(ref, within), **more}


def shape(
    kind: str, start: Point, end: Point, look: tuple[str, float], ref: str = "", within: str = ""
) -> dict[str, Any]:
    """A line or a rectangle from one point of a panel to another, of a colour and so many px."""
    ends = {"x0": start[0], "y0": start[1], "x1": end[0], "y1": end[1]}
    line = {"color": look[0], "width": look[1]}
    return {"type": kind, **ends, "line": line, **_panel_axes(ref, within)}


# Name of the annotations that are titles of panels.
PANEL_TITLE = "panel title"


def panel_title(text: str, ref: str) -> Trace:
    """The annotation that stands as a title over a panel."""
    look = {"yanchor": "bottom", "yshift": 6, "font": {"size": SIZE + 1}}
    return note(text, 0.5, 1, ref, "xy", name=PANEL_TITLE, **look)


def bar_title(text: str) -> dict[str, Any]:
    """The title of an upright colour bar: beside it, clear of the number at its upper end."""
    return {"text": text, "side": "right", "font": {"size": SIZE}}


def color_axis(
    low: float, high: float, ticks: Mapping[float, str], colors: Any = DIVERGING, **bar: Any
) -> dict[str, Any]:
    """A colour axis with its bar, thin and without a frame.

    Parameters
    ----------
    ticks : what stands beside which value
    bar : where the bar is, and what else there is to say of it
    """
    drawn = {"thickness": 10, "outlinewidth": 0, **bar}
    drawn |= {"tickvals": list(ticks), "ticktext": list(ticks.values())}
    return {"cmin": low, "cmax": high, "colorscale": colors, "colorbar": drawn}


def horizontal_colorbar(height: float, x: float, length: float) -> dict[str, Any]:
    """Place of a lying colour bar at the lower end of a figure.

    Parameters
    ----------
    height : px of the figure
    x, length : the middle of the bar, and how long it is, as shares of the width
    """
    across = {"orientation": "h", "x": x, "xanchor": "center", "len": length, "tickangle": 0}
    # Its lower end is that of its numbers and their unit.
    return across | {"y": 12 / height, "yref": "container", "yanchor": "bottom", "ypad": 0}


def similarity_axis(
    height: float, x: float, length: float, unit: str, low: int = -1
) -> dict[str, Any]:
    """The colour axis of similarities from `low`, which is −1 or 0, to 1; its unit is below it."""
    font, bar = {"size": SIZE - 1}, horizontal_colorbar(height, x, length)
    if low:
        ticks = {-1.0: "−1", 0.0: f"0<br>{unit}", 1.0: "1"}
        return color_axis(-1, 1, ticks, SIMILARITY, **bar, tickfont=font)
    ticks = {0.0: "0", 0.5: f".5<br>{unit}", 1.0: "1"}
    colors = [[2 * at - 1, color] for at, color in SIMILARITY[2:]]
    return color_axis(0, 1, ticks, colors, **bar, tickfont=font)


def whole_layers(layers: pd.Series) -> dict[str, Any]:
    """Whole numbers on an axis of layers: the first, the last, and few enough between them."""
    low, high = int(layers.min()), int(layers.max())
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 10**9) if (high - low) / s <= 4)
    between = range(low - low % step + step, high, step)
    ticks = {low, high, *(n for n in between if min(n - low, high - n) > 0.6 * step)}
    return {
        "tickvals": sorted(ticks),
        "range": [low - 0.5, high + 0.5] if high == low else None,
        "showgrid": False,
    }


def model_blocks(layers: Sequence[tuple[str, int]]) -> list[tuple[int, int, str]]:
    """First index, index after the last, and model of each run of layers of one model."""
    starts = [i for i, (m, _) in enumerate(layers) if i == 0 or layers[i - 1][0] != m]
    stops = [*starts[1:], len(layers)]
    return [(a, b, layers[a][0]) for a, b in zip(starts, stops, strict=True)]


def wrapped(text: str) -> str:
    """A sentence as Plotly shall show it, in lines of 60 letters."""
    return "<br>".join(escape_text(line) for line in textwrap.wrap(text, 60))


def short(value: float) -> str:
    """A number with three digits at most, without a 0 before the point: ".45", "−.05", "12"."""
    text = minus(f"{value:.3g}") if abs(value) < 1e4 else f"{value:.0f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


# What Plotly writes beside its own ticks, and what stands there instead: ".5", "−.05".
WITHOUT_ZERO = {
    minus(f"{sign * step * k:.3g}"): short(sign * step * k)
    for step, most in ((0.05, 19), (0.02, 10), (0.01, 10), (0.005, 10), (0.001, 10))
    for k in range(1, most + 1)
    for sign in (1, -1)
}


def round_ticks(low: float, high: float) -> dict[str, list[Any]]:
    """Places and texts of the ticks of an axis: round numbers, about five of them."""
    if not math.isfinite(high - low):
        return {"tickvals": [], "ticktext": []}
    least = (high - low) / 5 or 1.0
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= least)
    first, last = math.ceil(low / step), math.floor(high / step)
    places = [round(step * k, 12) for k in range(first, last + 1)]
    return {"tickvals": places, "ticktext": list(map(short, places))}


def as_number(value: float, digits: int = 3) -> str:
    if not np.isfinite(value):
        return "not defined"
    return fraction(value, digits)


def as_p(p: float) -> str:
    """A p-value with its sign of comparison: "= 0.012" or "< 0.001"."""
    return "< .001" if p < 0.001 else f"= {fraction(p, 3)}"


def interval(lower: float, upper: float) -> str:
    """An interval as hovering tells it."""
    return f"95 % CI {as_number(lower)} to {as_number(upper)}"


def as_numbers(values: np.ndarray) -> list[str]:
    """`as_number` of each of many values."""
    return [as_number(value) for value in values.tolist()]


def shade(color: str, place: int, n: int) -> str:
    """The shade at a place among n of one hue, from darker to lighter; of one the colour itself."""
    light = 0.75 * place / (n - 1) - 0.25 if n > 1 else 0.0
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])
    mixed = parts + abs(light) * ((255 if light > 0 else 0) - parts)
    return "#" + "".join(f"{round(part):02X}" for part in mixed)


def faded(color: str, opacity: float) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def interval_bars(
    names: Sequence[str], value: pd.Series, lower: pd.Series, upper: pd.Series
) -> go.Figure:
    """Bar of each value with its interval, below each other; faint where that includes 0."""
    hover = [
        f"<b>{escape_text(name)}</b><br>{as_number(x)}<br>{interval(low, high)}"
        for name, x, low, high in zip(names, value, lower, upper, strict=True)
    ]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": value,
        "y": list(range(len(names))),
        "marker": {"color": [PALETTE[0] if low > 0 else faded(PALETTE[0], 0.35) for low in lower]},
        "error_x": error_bar(value, lower, upper, color=GREY, thickness=1.5),
        "hovertext": hover,
        "hoverinfo": "text",
    }
    figure = go.Figure([bars])
    quiet(figure, height=BAR_ROW * len(names) + 110)
    labels = [plain(name, 24) for name in names]
    figure.update_yaxes(names_along(labels, autorange="reversed"))
    return figure

"""The axes of a matrix of layers: order, gaps, labels, a dendrogram, the outline of a pair."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.labels import width
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.figures.naming import layer_labels, model_colors, model_families, model_labels
from mlem_core.figures.style import (
    GREY,
    INK,
    SIZE,
    Trace,
    as_number,
    model_blocks,
    note,
    scatter,
    shape,
    short_names,
)
from mlem_core.measures.similarity import clustering

Order = Literal["model", "clustering"]

SIDE = 350  # px; of a matrix in a window of usual width
TICK = SIZE - 3
_LETTER, _TICK_LETTER, _LINE = 7, 6, 11  # px; width of a letter, of a small one, height of a tick
_NAME = 18  # letters of a model's name that are shown
_FEW_MODELS = 4  # whose layers are numbered
_LONG_TICK, _SHORT_TICK = 16, 8  # letters at a tick, where layers are few and where they are many
# Cells along a side of a heatmap, and layers whose cells answer to a pointer.
MOST_CELLS, MOST_POINTS = 500, 128
_ROOMY = 8  # layers of a matrix whose cells have room for a number
_GAPS = 0.12  # of a side, that gaps of one kind take at most
# In parts of a side: gaps between two models and between layers that do not follow each other,
# the strip with the models' colours, and the dendrogram.
_BETWEEN_MODELS, _BETWEEN_LAYERS, _STRIP, _TREE = 0.018, 0.005, 0.03, 0.24


@dataclass(frozen=True)
class Grid:
    """Places of layers on both axes of a matrix; a cell is 1 wide.

    Attributes
    ----------
    layers : (model, layer) in the order in which they are drawn
    rows : (n_layers,) where each stands in the table
    edges : (n_strips + 1,) of the cells and of the gaps between them
    cells : (n_layers,) which strips are cells
    tree : (n_layers - 1, 4) the linkage that they are ordered by, None where that is by model
    """

    layers: list[Layer]
    rows: IntArray
    edges: FloatArray
    cells: IntArray
    tree: FloatArray | None = None

    @property
    def centres(self) -> FloatArray:
        """(n_layers,) where the middle of each cell is."""
        return (self.edges[self.cells] + self.edges[self.cells + 1]) / 2

    @property
    def blocks(self) -> list[tuple[int, int, str]]:
        """First place, place after the last and model of the layers of each model that stand
        together."""
        return model_blocks(self.layers)

    @property
    def models(self) -> list[str]:
        """Each once, in the order of the table."""
        order = np.argsort(self.rows)
        return list(dict.fromkeys(self.layers[place][0] for place in order))

    @property
    def mixed(self) -> bool:
        """Whether layers of different models may stand beside each other."""
        return self.tree is not None and len(self.models) > 1

    @property
    def span(self) -> tuple[float, float]:
        """The ends of an axis: of the cells, and of the strip of colours before them."""
        before = 2 * _STRIP * len(self.layers) if self.mixed else 0.0
        return float(self.edges[0]) - before, float(self.edges[-1])

    def ordered(self, square: Any) -> Any:
        """(n_layers, n_layers) of the table, in the order in which layers are drawn."""
        return square[np.ix_(self.rows, self.rows)]

    def drawn(self, values: FloatArray) -> tuple[NDArray[np.float32], FloatArray]:
        """Values of the table as a heatmap has them, and the edges of its cells and gaps.

        Of more than `MOST_CELLS` layers, means over runs of them: a pixel would have several.
        """
        parts = runs(self, MOST_CELLS)
        starts = self.edges[self.cells[[run[0] for run in parts]]]
        ends = self.edges[self.cells[[run[-1] for run in parts]] + 1]
        gaps = np.flatnonzero(starts[1:] > ends[:-1]) + 1
        edges = np.concatenate((np.insert(starts, gaps, ends[gaps - 1]), ends[-1:]))
        at = np.arange(len(parts)) + np.searchsorted(gaps, np.arange(len(parts)), side="right")
        strips = np.full((len(edges) - 1,) * 2, np.nan, dtype=np.float32)
        strips[np.ix_(at, at)] = run_means(self.ordered(values), parts)
        return strips, edges


def grid(layers: Sequence[Layer], order: Order, rsa: FloatArray) -> Grid:
    """Layers in the order of the table, with gaps between models and where layers are left out; or
    ordered by clustering, without gaps."""
    n = len(layers)
    if order == "clustering":
        from scipy.cluster.hierarchy import leaves_list

        tree = clustering(rsa)
        rows = leaves_list(tree) if len(tree) else np.arange(n)
        edges = np.linspace(-0.5, n - 0.5, n + 1)
        return Grid([layers[int(row)] for row in rows], rows, edges, np.arange(n), tree)
    pairs = list(itertools.pairwise(layers))
    other_model = [a[0] != b[0] for a, b in pairs]
    skipped = [a[0] == b[0] and b[1] != a[1] + 1 for a, b in pairs]
    model_gap = n * min(_BETWEEN_MODELS, _GAPS / max(sum(other_model), 1))
    layer_gap = n * min(_BETWEEN_LAYERS, _GAPS / max(sum(skipped), 1))
    ends, cells = [-0.5, 0.5], [0]
    for between_models, between_layers in zip(other_model, skipped, strict=True):
        if between_models or between_layers:
            ends.append(ends[-1] + (model_gap if between_models else layer_gap))
        cells.append(len(ends) - 1)
        ends.append(ends[-1] + 1)
    return Grid(list(layers), np.arange(n), np.array(ends), np.array(cells))


def runs(of: Grid, most: int) -> list[IntArray]:
    """Places of layers of a grid that are drawn together, see `block_runs`."""
    n = len(of.layers)
    return block_runs([(0, n)] if of.tree is not None else [block[:2] for block in of.blocks], most)


def block_runs(blocks: Sequence[tuple[int, int]], most: int) -> list[IntArray]:
    """Runs of equal length in blocks of layers, at most so many; at least one a block.

    Parameters
    ----------
    blocks : first place and place after the last of each
    """
    n = blocks[-1][1]
    lengths = range(1, n + 1)
    length = next(k for k in lengths if k == n or sum(-(-(b - a) // k) for a, b in blocks) <= most)
    return [np.arange(i, min(i + length, b)) for a, b in blocks for i in range(a, b, length)]


def run_means(square: FloatArray, runs: Sequence[IntArray]) -> FloatArray:
    """(n_runs, n_runs) means of a matrix (n_layers, n_layers) over runs of its layers."""
    if len(runs) == len(square):
        return square
    starts = [run[0] for run in runs]
    known = np.isfinite(square)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(part, starts, axis=0), starts, axis=1)
        for part in (np.where(known, square, 0.0), known.astype(np.float64))
    )
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


@dataclass(frozen=True)
class Labels:
    """Labels along the axes of a matrix: ticks, and the names of models at their layers.

    Of few models the ticks are layers. Of many they are the seeds or steps of families, whose names
    stand once.

    Attributes
    ----------
    ticks : places and texts
    upright : whether the ticks below the matrix are turned
    names : middle and name of each model, or family
    lie : how names below the matrix do: flat, slanted or upright
    """

    ticks: dict[str, list[Any]]
    upright: bool
    names: list[tuple[float, str]]
    lie: Literal["flat", "slanted", "upright"]

    @property
    def tick_width(self) -> float:
        """px of the widest tick."""
        return _TICK_LETTER * max(map(width, self.ticks["ticktext"]), default=0)

    @property
    def name_width(self) -> float:
        """px of the widest name."""
        return _LETTER * max((width(name) for _, name in self.names), default=0)

    @property
    def left(self) -> int:
        """px to the left of a matrix."""
        return round(14 + self.tick_width + (8 + self.name_width if self.names else 0))

    @property
    def below(self) -> int:
        """px below a matrix."""
        ticks = self.tick_width if self.upright else _LINE
        high = {"flat": 8.0, "slanted": self.name_width / 2, "upright": self.name_width}
        return round(12 + ticks + (22 + high[self.lie] if self.names else 0))

    def annotations(self, ref: str, *, left: bool, below: bool = True) -> list[dict[str, Any]]:
        """The names below a matrix, and to its left."""
        ticks = self.tick_width if self.upright else _LINE
        # The page's theme sets ticks some px further away than print does.
        under: dict[str, Any] = {"yshift": -ticks - 28}
        if self.lie != "flat":
            under = {"textangle": -90, "yanchor": "top", "yshift": -ticks - 8}
        if self.lie == "slanted":
            under |= {"textangle": -30, "xanchor": "right", "xshift": 8}
        position: dict[str, Any] = {"xshift": -self.tick_width - 10, "xanchor": "right"}
        annotations = []
        for middle, text in self.names:
            if below:
                annotations.append(note(text, middle, 0, ref, "y", **under))
            if left:
                annotations.append(note(text, 0, middle, ref, "x", **position))
        return annotations


def labels(of: Grid, side: float = SIDE) -> Labels:
    """Labels for a matrix of so many px: those of all layers and models that have room."""
    n, centres = len(of.layers), of.centres
    pitch = side / max(float(of.edges[-1] - of.edges[0]), 1.0)
    if of.tree is None and len(of.blocks) > _FEW_MODELS:
        return _family_labels(of, pitch)
    roomy = n <= _ROOMY or of.tree is not None  # there, no names of models stand beside them
    texts = layer_labels(of.layers, _LONG_TICK if roomy else _SHORT_TICK)
    blocks = of.blocks if of.tree is None else [(0, n, "")]
    every = max(1, int(np.ceil(_LINE / pitch)))
    steps = [place for start, stop, _ in blocks for place in range(start, stop, every)]
    # The first layer of a model goes before those in the middle of another one.
    firsts = _apart([start for start, *_ in blocks], [], centres * pitch, _LINE)
    places = sorted(_apart(steps, firsts, centres * pitch, _LINE))
    ticks: dict[str, list[Any]] = {
        "tickvals": [float(centres[place]) for place in places],
        "ticktext": [texts[place] for place in places],
    }
    widest = _TICK_LETTER * max((width(texts[place]) for place in places), default=0) + 5
    upright = widest > pitch * every
    if of.tree is not None:
        return Labels(ticks, upright, [], "flat")
    middles = [float(centres[start] + centres[stop - 1]) / 2 for start, stop, _ in blocks]
    names = model_labels([model for *_, model in blocks], _NAME)
    return Labels(ticks, upright, *_names_with_room(middles, names, pitch))


def _family_labels(of: Grid, pitch: float) -> Labels:
    """The families of many models, with the seed or step of each model as its tick."""
    families = model_families(of.models)
    family = {model: name for name, models in families.items() for model in models}
    middles = [float(of.centres[start] + of.centres[stop - 1]) / 2 for start, stop, _ in of.blocks]
    ticks: dict[str, list[Any]] = {"tickvals": [], "ticktext": []}
    places: dict[str, list[float]] = {}
    for middle, (*_, model) in zip(middles, of.blocks, strict=True):
        places.setdefault(family[model], []).append(middle)
        variant = families[family[model]][model]
        if len(families[family[model]]) > 1 and variant:
            ticks["tickvals"].append(middle)
            ticks["ticktext"].append(variant.rpartition(" ")[2])
    at = np.array(ticks["tickvals"]) * pitch
    widest = _TICK_LETTER * max(map(width, ticks["ticktext"]), default=0) + 2
    upright = bool(len(at) > 1 and np.diff(at).min() < widest)
    middles = [float(np.mean(of_family)) for of_family in places.values()]
    names = short_names(list(places), _NAME)
    return Labels(ticks, upright, *_names_with_room(middles, names, pitch))


def _names_with_room(
    middles: Sequence[float], names: Sequence[str], pitch: float
) -> tuple[list[tuple[float, str]], Literal["flat", "slanted", "upright"]]:
    """The names that do not stand on each other, and how those below the matrix lie."""
    at = np.array(middles) * pitch
    kept = sorted(_apart(range(len(names)), [], at, _LINE + 3))
    found = [(middles[place], names[place]) for place in kept]
    wide = [_LETTER * width(names[place]) + 6 for place in kept]
    steps = np.diff(at[kept])
    if all(step >= (a + b) / 2 for step, a, b in zip(steps, wide, wide[1:], strict=False)):
        return found, "flat"
    return found, "slanted" if steps.min() >= 2 * _LINE + 6 else "upright"


def _apart(places: Iterable[int], taken: Sequence[int], at: FloatArray, least: float) -> list[int]:
    """The taken places, and of the others those that leave each that much room."""
    kept = list(taken)
    for place in places:
        if all(abs(at[place] - at[other]) >= least for other in kept):
            kept.append(place)
    return kept


def outline(of: Grid, pair: Sequence[Layer], value: float, ref: str) -> tuple[list, list]:
    """Shapes around the cells of two layers, and their value in the cell or beside a small one."""
    n, centres = len(of.layers), of.centres
    i, j = sorted(of.layers.index(layer) for layer in pair)
    x, y = float(centres[j]), float(centres[i])
    shapes = [
        shape("rect", (a - 0.5, b - 0.5), (a + 0.5, b + 0.5), (color, line), ref)
        for a, b in sorted({(x, y), (y, x)})
        for color, line in (("white", 5), (INK, 2))
    ]
    # The cell of the upper right half; a label beside it goes towards the middle of the matrix.
    right, low = j < (n - 1) / 2, i >= (n - 1) / 2
    look: dict[str, Any] = {"font": {"color": INK, "size": SIZE}, "borderpad": 2}
    look["bgcolor"] = "rgba(255,255,255,0.88)"
    if n > _ROOMY:
        x, y = x + (0.5 if right else -0.5), y + (-0.5 if low else 0.5)
        look |= {"xanchor": "left", "xshift": 3} if right else {"xanchor": "right", "xshift": -3}
        look |= {"yanchor": "bottom", "yshift": 3} if low else {"yanchor": "top", "yshift": -3}
    return shapes, [note(as_number(value, 2), x, y, ref, **look)]


def dendrogram(of: Grid) -> tuple[Trace, float]:
    """The tree beside a matrix, from 1 − RSA = 0 at the cells to the last merger, and where it
    ends on the x axis."""
    from scipy.cluster.hierarchy import dendrogram as drawn

    start = of.span[1] + 0.02 * len(of.layers)
    end = start + _TREE * len(of.layers)
    x: list[float | None] = []
    y: list[float | None] = []
    if of.tree is not None and len(of.tree):
        tree = drawn(of.tree, no_plot=True)
        highest = float(of.tree[-1, 2]) or 1.0
        # SciPy's leaves stand 10 apart, the first at 5.
        for heights, places in zip(tree["dcoord"], tree["icoord"], strict=True):
            x += [*(start + (end - start) * np.array(heights) / highest), None]
            y += [*((np.array(places) - 5) / 10), None]
    look = {"line": {"color": GREY, "width": 1}, "showlegend": False, "name": "dendrogram"}
    return scatter(x, y, mode="lines", **look), end + 0.01 * len(of.layers)


def model_strip(of: Grid) -> dict[str, Any]:
    """The models' colours beside the cells, where layers of different models are mixed."""
    n, models = len(of.layers), of.models
    start = float(of.edges[0])
    steps = [
        [(place + end) / len(models), color]
        for place, color in enumerate(model_colors(models))
        for end in (0, 1)
    ]
    return {
        "type": "heatmap",
        "z": [[models.index(model)] for model, _ in of.layers],
        "x": [start - 1.6 * _STRIP * n, start - 0.4 * _STRIP * n],
        "y": of.edges,
        "zmin": -0.5,
        "zmax": len(models) - 0.5,
        "colorscale": steps,
        "showscale": False,
        "hoverinfo": "skip",
        "name": "models",
    }


def model_key(of: Grid, longest: int) -> str:
    """Legend of the models' colours, in lines of about so many letters."""
    names = model_labels(of.models, _NAME)
    parts = [
        f'<span style="color:{color}">■</span> {name}'
        for name, color in zip(names, model_colors(of.models), strict=True)
    ]
    lines, room = [""], longest
    for part, name in zip(parts, names, strict=True):
        room -= width(name) + 8
        if room < 0 and lines[-1]:
            lines.append("")
            room = longest - width(name) - 8
        lines[-1] += f"   {part}" if lines[-1] else part
    return "<br>".join(lines)

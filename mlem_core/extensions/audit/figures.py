"""Figure of the audit of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.flags import marked
from mlem_core.base.typing import FloatArray, Layer, layer_name, parse_layer
from mlem_core.extensions.audit.flags import CONTROL, SAYS
from mlem_core.extensions.audit.stage import AUDIT, audit_flags
from mlem_core.figures.captions import basis_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.matrix import grid
from mlem_core.figures.matrix import labels as labels_of
from mlem_core.figures.naming import layer_title
from mlem_core.figures.style import (
    CLEAR,
    SEQUENTIAL,
    SIZE,
    Trace,
    as_number,
    color_axis,
    heatmap,
    names_along,
    plain,
    quiet_layout,
    scatter,
)

_NARROW = 200  # px; of the map in one column of a journal


def audit_map(layers: pd.DataFrame, changes: pd.DataFrame, flags: pd.DataFrame) -> go.Figure:
    """Heatmap of the size of each possible artefact in each layer, from 0 to 1; flags are dots.

    A row a quantity: the share of position 0 in the variance of the ranks, the share of outlier
    units in the variance, the mean cosine, for each variant the layer's largest change of RSA, and
    the share of ρ that random weights reach. A dot says that a conclusion about the layer changes.

    Parameters
    ----------
    layers, changes : of an `mlem_core.extensions.audit.flags.Audit`
    flags : of `mlem_core.extensions.audit.flags.flags`; only those of a layer alone are drawn
    """
    names = list(zip(layers["model"], layers["layer"], strict=True))
    rows = _rows(layers, changes, names)
    hover = [
        [f"{_head(layer)}{text}" for layer, text in zip(names, row.texts, strict=True)]
        for row in rows
    ]
    shares = np.clip(np.array([row.values for row in rows], dtype=np.float64), 0.0, 1.0)
    of = grid(names, "model", np.eye(len(names)))
    # Between models a column is empty.
    z, texts = (np.full((len(rows), len(of.edges) - 1), one, object) for one in (None, ""))
    z[:, of.cells], texts[:, of.cells] = shares, hover
    at = {"x": of.edges, "y": np.arange(len(rows)), "xgap": 1, "ygap": 3}
    cells = heatmap(z, texts, **at, coloraxis="coloraxis", name="quantities")
    around = labels_of(of, _NARROW)
    layout = quiet_layout(38 * len(rows) + around.below + 36)
    look = {"tickfont": {"size": SIZE - 1}, **CLEAR}
    layout["xaxis"] |= {"range": list(of.span), "showgrid": False, **around.ticks, **CLEAR}
    titles = [row.title.replace(": ", ":<br>") for row in rows]
    layout["yaxis"] |= names_along(titles, range=[len(rows) - 0.5, -0.5], **look)
    layout |= {
        "coloraxis": color_axis(0.0, 1.0, {0: "0", 0.5: ".5", 1: "1"}, SEQUENTIAL, len=0.9),
        "annotations": around.annotations("", left=False),
        "margin": {"l": 182, "r": 16, "t": 16, "b": around.below + 20},
    }
    dots = _flag_dots(flags, names, of.centres, [row.name for row in rows])
    return go.Figure([cells, dots], layout)


# The first rows of the map; then come the variants, with their flags.
_QUANTITIES = {
    "position0_ranks": "position 0: share of variance",
    "outlier_share": "outlier units: share of variance",
    "mean_cosine": "mean cosine",
}


class _Row(NamedTuple):
    """A row of the map: its title, and of each layer the value and what hovering says."""

    name: str
    title: str
    values: list[float]
    texts: list[str]


def _head(layer: Layer) -> str:
    return f"<b>{layer_title(layer)}</b><br>"


def _rows(layers: pd.DataFrame, changes: pd.DataFrame, names: Sequence[Layer]) -> list[_Row]:
    rows = []
    for name, title in _QUANTITIES.items():
        if name not in layers:
            continue
        values = layers[name].to_numpy(dtype=np.float64)
        texts = [f"{title} {as_number(value, 2)}" for value in values]
        if name == "outlier_share":
            units = zip(texts, layers["n_outliers"], layers["n_units"], strict=True)
            texts = [f"{text}<br>{n} of {of} units" for text, n, of in units]
        rows.append(_Row(name, title, list(values), texts))
    by = changes.set_index(["variant", "model", "layer"])
    for variant, label in SAYS.items():
        title = f"{label}: change of RSA"
        if variant == CONTROL:
            title = "random weights: share of ρ"
        cells = [
            _cell(by.loc[(variant, *layer)], label, variant == CONTROL)
            if (variant, *layer) in by.index
            else (np.nan, f"{label}: not known")
            for layer in names
        ]
        rows.append(_Row(variant, title, [v for v, _ in cells], [text for _, text in cells]))
    return rows


def _cell(change: pd.Series, label: str, is_control: bool) -> tuple[float, str]:
    """Value in the map of a variant's change in a layer, and its hover text."""
    before, after = change["rho_before"], change["rho"]
    text = f"{label} ρ {as_number(after, 2)} (before {as_number(before, 2)})"
    if is_control:
        return after / before if before > 0 else np.nan, text
    text = f"{text}, τ of the profiles {as_number(change['tau'], 2)}"
    if other := str(change["rsa_with"]):  # none where there is one layer
        text += f"<br>RSA changes most with {layer_title(parse_layer(other))}, "
        text += f"by {as_number(change['rsa_change'], 2)}"
    return abs(change["rsa_change"]), text


def _flag_dots(
    flags: pd.DataFrame, names: Sequence[Layer], x: FloatArray, rows: Sequence[str]
) -> Trace:
    """A dot in each cell whose variant changes a conclusion about its layer."""
    dots: dict[tuple[int, int], list[str]] = {}
    for flag in flags[flags["layer_b"] == -1].itertuples():
        layer = (flag.model_a, flag.layer_a)
        if layer in names and flag.variant in rows:
            place = names.index(layer), rows.index(flag.variant)
            dots.setdefault(place, []).append(flag.reason)
    # Those of two layers stand apart, in one column of a journal too.
    size = min(7.0, max(3.0, 0.8 * _NARROW / max(len(names), 1)))
    hover = [
        _head(names[place]) + "<br>".join(plain(reason, 120) for reason in reasons)
        for (place, _), reasons in dots.items()
    ]
    look = {"color": "white", "size": size, "line": {"color": "#444", "width": 1}}
    named = {"name": "a conclusion changes", "showlegend": False}
    places = [x[place] for place, _ in dots], [y for _, y in dots]
    return scatter(*places, hover, marker=look, **named)


def _line(context: FigureContext) -> str:
    known = AUDIT.find(context)
    line = "The size of each possible artefact per layer, from 0 to 1; a dot: a conclusion changes."
    return line if known is None else " ".join((line, *known.notices))


@figure("audit", "Audit of every layer", _line)
def draw_audit(context: FigureContext) -> RenderedFigure | None:
    """Figure of the size of each possible artefact; None where there is no audit."""
    audit, flagged, analysis = AUDIT.find(context), audit_flags(context), context.analysis
    if audit is None or flagged is None:
        return None
    on = basis_sentence(len(analysis.stimuli), analysis.pairs.n_pairs)
    at = zip(audit.layers["model"], audit.layers["layer"].astype(int), strict=True)
    return RenderedFigure(
        audit_map(audit.layers, audit.changes, marked(flagged)),
        "The size of each possible artefact (row) per layer (column), from 0 to 1. Dots: a "
        f"conclusion about the layer changes by at least twice the limit. {on}",
        audit.layers,
        audit.layers.assign(layer=list(map(layer_name, at)))[
            ["layer", "rho", "top", "position0_ranks", "mean_cosine", "outlier_share"]
        ],
    )

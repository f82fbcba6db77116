"""Figures of the audit of each layer, and of a claim over analysis variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.base.typing import FloatArray, Layer, layer_name, parse_layer
from mlem_core.figures.captions import computed_on
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.matrix import grid
from mlem_core.figures.matrix import labels as labels_of
from mlem_core.figures.naming import layer_title
from mlem_core.figures.style import (
    CLEAR,
    GREY,
    LINE,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    Trace,
    as_number,
    color_axis,
    heatmap,
    names_along,
    plain,
    quiet,
    quiet_layout,
    scatter,
    short_names,
    wrapped,
)
from mlem_core.robustness import multiverse
from mlem_core.robustness.claims import Claim, by_choice, curve, of_chance, verdict
from mlem_core.robustness.flags import CONTROL, SAYS, marked

_LABELS = 200  # px; to the left of a curve
HOLDS, FAILS = PALETTE[0], PALETTE[1]


def specification_curve(curve: pd.DataFrame, dimensions: Sequence[str], claim: str) -> go.Figure:
    """The margin of a claim in every universe, and below it the choices that each is made of.

    Parameters
    ----------
    curve : of `mlem_core.robustness.claims.curve`
    dimensions : the columns of choices
    claim : in words
    """
    by_universe = curve.sort_values("universe")
    rows = [(name, value) for name in dimensions for value in by_universe[name].unique()]
    dots = max(0.25, min(0.7, 0.05 * len(rows)))
    figure = make_subplots(
        2, 1, shared_xaxes=True, row_heights=[1 - dots, dots], vertical_spacing=0.04
    )
    figure.add_traces(_margins(curve, dimensions), rows=1, cols=1)
    figure.add_traces([_choice(curve, y, *row) for y, row in enumerate(rows)], rows=2, cols=1)
    quiet(figure, height=240 + 20 * len(rows) + 60)
    said = wrapped(f"{claim}: {int(curve['holds'].sum())} of {len(curve)}", 58)
    figure.add_hline(y=0, line={"color": LINE, "width": 1.5}, row=1, col=1)
    figure.update_xaxes(showticklabels=False, showgrid=False)
    figure.update_xaxes(title_text="analysis variants, by margin", row=2, col=1)
    figure.update_yaxes(title_text="margin", row=1, col=1)
    firsts = dict(reversed(rows))
    values = short_names([value for _, value in rows], 18)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[
            f"{_name(name)}  {label}" if firsts[name] == value else label
            for (name, value), label in zip(rows, values, strict=True)
        ],
        tickfont={"size": SIZE - 1},
        range=[len(rows) - 0.4, -0.6],
        zeroline=False,
        row=2,
        col=1,
    )
    figure.update_layout(
        # Over the whole figure: the panel alone is too narrow for it.
        title={"text": said, "x": 0.5, "xanchor": "center", "font": {"size": SIZE + 1}},
        title_y=0.955,
        title_yref="container",
        title_yanchor="top",
        margin={"l": _LABELS, "r": 16, "t": 26 + 19 * (said.count("<br>") + 1), "b": 56},
        # The curve rises, so that this corner is free.
        legend={"x": 0.01, "xanchor": "left", "y": 1.0, "yanchor": "top"},
        legend_font_size=SIZE - 1,
    )
    return figure


def _margins(curve: pd.DataFrame, dimensions: Sequence[str]) -> list[Trace]:
    """The universes in which the claim holds, those in which it does not, and a ring around the
    analysis as it is."""
    traces = []
    for holds, label, color in ((True, "holds", HOLDS), (False, "does not hold", FAILS)):
        shown = curve[curve["holds"] == holds]
        hover = []
        for _, universe in shown.iterrows():
            lines = [f"{_name(name)}: {plain(universe[name])}" for name in dimensions]
            head = f"<b>{label}</b>, margin {as_number(universe['margin'])}<br>"
            hover.append(head + "<br>".join(lines))
        at, named = (shown["place"], shown["margin"]), {"name": label, "showlegend": len(shown) > 0}
        traces.append(scatter(*at, hover, marker={"color": color, "size": 7}, **named))
    as_it_is = curve[curve["own"].to_numpy(dtype=bool)]
    ring = {"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": GREY, "width": 2}}
    at = as_it_is["place"], as_it_is["margin"]
    return [*traces, scatter(*at, marker=ring, name="this analysis")]


def _choice(curve: pd.DataFrame, y: int, name: str, value: str) -> Trace:
    """A square for each universe with this choice."""
    shown = curve[curve[name] == value]
    colors = list(np.where(shown["holds"], HOLDS, FAILS))
    look = {"color": colors, "size": 5, "symbol": "square"}
    hover = [f"{_name(name)}: {plain(value)}"] * len(shown)
    named = {"name": f"{name}={value}", "showlegend": False}
    return scatter(shown["place"], np.full(len(shown), y), hover, marker=look, **named)


def _name(dimension: str) -> str:
    return dimension.replace("_", " ")


@figure(
    "multiverse",
    "A claim in every analysis variant",
    "Whether the claim holds in every analysis variant; it does above 0.",
)
def draw_multiverse(context: FigureContext) -> RenderedFigure | None:
    """A claim in every universe; None where these have not been computed."""
    if not context.several:
        return None
    asked, found = claimed(context)
    if found is None:
        return None
    chance = context.importance_chance
    table, said = curve(asked, found, chance), verdict(asked, found, context.names, chance)
    return RenderedFigure(
        specification_curve(table, found.dimensions, asked.named(context.names)),
        said.partition(";")[0],
        f"Margin of the claim in each of {len(table)} analysis variants, in ascending order; the "
        "claim holds above 0. Below: the choices of each variant. "
        + (f"{of_chance(asked, chance, context.names)} " if asked.features else "")
        + computed_on(len(context.analysis.stimuli), 0, context.analysis.spec.folds),
        table,
        by_choice(asked, found, chance),
    )


def claimed(context: FigureContext) -> tuple[Claim, multiverse.Multiverse | None]:
    """The chosen claim, and the universes of its layers where they have been computed.

    Without one it is that the most important feature of the first layer is that in every universe.
    """
    a, b = context.pair
    means = context.results.importance.groupby(["model", "layer", "feature"])["importance"].mean()
    profile = means.loc[a][lambda one: one.index.isin(context.all_features)]
    asked = Claim("top", (a,), (str(profile.idxmax()),))
    if text := context.drawing.options.get("claim", ""):
        asked = Claim.parse(text)
    store = context.drawing.store
    if store is None:
        return asked, None
    # The page computes them for the two layers that it shows, and for a third of a claim.
    layers = [a, b, *(layer for layer in asked.layers if layer not in (a, b))]
    varied = multiverse.choices_of(context.analysis)
    pooled = {"pooling": multiverse.analysis_poolings(context.analysis)}
    for choices in (varied, varied | pooled):
        varying = context.analysis, layers, store, choices, asked.similarities
        found = multiverse.find_multiverse(*varying)
        if found is not None:
            return asked, found
    return asked, None


_NARROW = 200  # px; of the map in one column of a journal


def audit_map(
    layers: pd.DataFrame,
    changes: pd.DataFrame,
    flags: pd.DataFrame,
    labels: Mapping[str, str],
    control: str,
) -> go.Figure:
    """Heatmap of the size of each possible artefact in each layer, from 0 to 1; flags are dots.

    A row a quantity: the share of position 0 in the variance of the ranks, the share of outlier
    units in the variance, the mean cosine, for each variant the layer's largest change of RSA, and
    the share of ρ that random weights reach. A dot says that a conclusion about the layer changes.

    Parameters
    ----------
    layers, changes : of an `mlem_core.robustness.audit.Audit`
    flags : of `mlem_core.robustness.flags.flags`; only those of a layer alone are drawn
    labels : how each variant is called, in the order of the rows
    control : the variant with random weights
    """
    names = list(zip(layers["model"], layers["layer"], strict=True))
    rows = _rows(layers, changes, names, labels, control)
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
        "coloraxis": color_axis(0.0, 1.0, {0: "0", 0.5: "0.5", 1: "1"}, SEQUENTIAL, len=0.9),
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


def _rows(
    layers: pd.DataFrame,
    changes: pd.DataFrame,
    names: Sequence[Layer],
    labels: Mapping[str, str],
    control: str,
) -> list[_Row]:
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
    for variant, label in labels.items():
        title = f"{label}: change of RSA"
        if variant == control:
            title = "random weights: share of ρ"
        cells = [
            _cell(by.loc[(variant, *layer)], label, variant == control)
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
            at = names.index(layer), rows.index(flag.variant)
            dots.setdefault(at, []).append(flag.reason)
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


@figure(
    "audit",
    "Audit of every layer",
    "The size of each possible artefact per layer, from 0 to 1; a dot: a conclusion changes.",
)
def draw_audit(context: FigureContext) -> RenderedFigure | None:
    """Figure of the size of each possible artefact; None where there is no audit."""
    audit, flagged, analysis = context.audit, context.flagged, context.analysis
    if audit is None or flagged is None:
        return None
    on = computed_on(len(analysis.stimuli), analysis.tables.n_pairs)
    at = zip(audit.layers["model"], audit.layers["layer"].astype(int), strict=True)
    return RenderedFigure(
        audit_map(audit.layers, audit.changes, marked(flagged), SAYS, CONTROL),
        "Audit of every layer",
        "The size of each possible artefact (row) per layer (column), from 0 to 1. Dots: a "
        f"conclusion about the layer changes by at least twice the limit. {on}",
        audit.layers,
        audit.layers.assign(layer=list(map(layer_name, at)))[
            ["layer", "rho", "top", "position0_ranks", "mean_cosine", "outlier_share"]
        ],
    )

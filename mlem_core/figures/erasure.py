"""What erasing a feature from a layer changes, over the later layers, beside bands of controls."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import Names
from mlem_core.base.typing import layer_name, parse_layer
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.style import (
    GREY,
    PALETTE,
    Trace,
    as_number,
    curve,
    faded,
    in_panel,
    panel_ref,
    panels,
    plain,
    scatter,
    whole_layers,
)
from mlem_core.inference.erased_measures import FORMS, IMPORTANCE, PREDICTIONS, REST, SURPRISAL
from mlem_core.robustness.erasure import OUTSIDE, Erasure, known_erasure

TITLES = {REST: "RSA with itself", SURPRISAL: "surprisal (bits)", FORMS: "right forms (share)"}
_OF = {"before": GREY, "after": PALETTE[1]}


def erasure_panels(erasure: Erasure, names: Names, across: int = 3) -> go.Figure:
    """A panel for each measure: before, after with 95 % confidence intervals, bands of controls.

    Of importances that of the erased feature alone; the others are in the table.
    """
    table = erasure.table
    own = table[(table["measure"] != IMPORTANCE) | (table["feature"] == erasure.feature)]
    groups = list(own.groupby("measure", sort=False))
    titles = [_title(str(measure), erasure.feature, names) for measure, _ in groups]
    drawn, places = panels(titles, height=230, across=across, apart=0.09, below=104)
    for number, ((measure, rows), (row, column)) in enumerate(zip(groups, places, strict=True)):
        drawn.add_traces(in_panel(panel_ref(number), _traces(rows, legend=number == 0)))
        axis = whole_layers(rows["layer"])
        axis = axis | {"title_text": "predictions" if measure in PREDICTIONS else "layer"}
        if measure in PREDICTIONS:
            axis["showticklabels"] = False
        drawn.update_xaxes(**axis, row=row, col=column)
    return drawn


def _title(measure: str, feature: str, names: Names) -> str:
    if measure == IMPORTANCE:
        return plain(f"importance of {names.feature(feature)}", 40)
    if measure in TITLES:
        return TITLES[measure]
    start, _, other = measure.rpartition(" ")
    return plain(f"{start} {names.layer_title(parse_layer(other))}", 40)


def _traces(rows: pd.DataFrame, *, legend: bool) -> list[Trace]:
    """The band of the controls, and the measure before and after."""
    layers = rows["layer"].to_numpy(dtype=float)
    # A single place has a band of some width.
    wide = np.array([-0.25, 0.25]) + layers[0] if len(layers) == 1 else layers
    ends = [np.resize(rows[name], len(wide)) for name in ("control_upper", "control_lower")]
    band = scatter(
        [*wide, *wide[::-1]],
        [*ends[0], *ends[1][::-1]],
        mode="lines",
        fill="toself",
        fillcolor=faded(GREY, 0.2),
        line={"width": 0},
        name="controls",
        legendgroup="controls",
        showlegend=legend,
    )
    traces = [band]
    for name, color in _OF.items():
        hover = [
            f"{name}: {as_number(row[name])}<br>95 % CI {as_number(row['lower'])} to "
            f"{as_number(row['upper'])}<br>controls {as_number(row['control_lower'])} to "
            f"{as_number(row['control_upper'])}"
            for _, row in rows.iterrows()
        ]
        more: Trace = {"name": name, "legendgroup": name, "showlegend": legend}
        if name == "after":
            below, above = rows["after"] - rows["lower"], rows["upper"] - rows["after"]
            more["error_y"] = {"array": above, "arrayminus": below, "symmetric": False, "width": 3}
        dash = "dot" if name == "before" else ""
        traces.append(curve(layers, rows[name], hover, color, dash, marker={"size": 7}, **more))
    return traces


def erasure_shown(context: FigureContext) -> Erasure | None:
    """The result that is chosen by the options "erased", "erased_at", "erased_tokens", "other"."""
    chosen, store = context.drawing.options, context.drawing.store
    if store is None or not {"erased", "erased_at"} <= {*chosen}:
        return None
    others = [parse_layer(chosen["other"])] if chosen.get("other") else []
    where, positions = parse_layer(chosen["erased_at"]), chosen.get("erased_tokens", "all")
    asked = context.analysis, store, chosen["erased"], where
    return context.once(
        ("erasure", asked[2], where, positions, chosen.get("other")),
        lambda: known_erasure(*asked, others=others, positions=positions),
    )


@figure(
    "erasure",
    "A feature erased from a layer",
    "Later layers and predictions before and after a feature is erased; bands: controls.",
)
def draw_erasure(context: FigureContext) -> RenderedFigure | None:
    """The chosen erasure; None where it has not been computed."""
    found = erasure_shown(context)
    if found is None:
        return None
    names, where = context.names, (found.model, found.layer)
    return RenderedFigure(
        erasure_panels(found, names, 1 if context.drawing.narrow else context.across),
        f"{names.feature(found.feature)} erased from {names.layer_title(where)}",
        f"Measures before and after {names.feature(found.feature)} is erased by LEACE from "
        f"{layer_name(where)}. Bars: 95 % CIs of the change, over sentences and recurring words. "
        f"Bands: permuted labels, random subspaces, another feature. {OUTSIDE}",
        found.table,
        found.table.round(3),
    )

"""Measures before and after a feature is erased from a layer, beside bands of controls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import Names
from mlem_core.base.typing import layer_name, parse_layer
from mlem_core.extensions.erasure.measures import FORMS, IMPORTANCE, PREDICTIONS, REST, SURPRISAL
from mlem_core.extensions.erasure.stage import ERASURE, OUTSIDE, Erasure, erasure_choice
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.profiles import band
from mlem_core.figures.style import (
    GREY,
    PALETTE,
    Trace,
    as_number,
    curve,
    error_bar,
    interval,
    once_in_legend,
    panel_layout,
    place_in_panel,
    plain,
    whole_layers,
)

TITLES = {REST: "RSA with itself", SURPRISAL: "surprisal (bits)", FORMS: "right forms (share)"}
_OF = {"before": GREY, "after": PALETTE[1], "interchanged": PALETTE[2]}


def erasure_panels(erasure: Erasure, names: Names, across: int = 3) -> go.Figure:
    """A panel for each measure: before, after with 95 % CIs, interchanged, and bands of controls.

    Of importances that of the erased feature alone; the others are in the table.
    """
    table = erasure.table
    own = table[(table["measure"] != IMPORTANCE) | (table["feature"] == erasure.feature)]
    groups = list(own.groupby("measure", sort=False))
    titles = [_title(str(measure), erasure.feature, names) for measure, _ in groups]
    layout, places = panel_layout(titles, height=230, across=across, apart=0.09)
    traces: list[Trace] = []
    for (measure, rows), (ref, _) in zip(groups, places, strict=True):
        traces += place_in_panel(ref, _traces(rows))
        predicted = measure in PREDICTIONS
        layout[f"xaxis{ref}"] |= whole_layers(rows["layer"]) | {"showticklabels": not predicted}
        layout[f"xaxis{ref}"]["title"]["text"] = "predictions" if predicted else "layer"
    return go.Figure(once_in_legend(traces), layout)


def _title(measure: str, feature: str, names: Names) -> str:
    if measure == IMPORTANCE:
        return plain(f"importance of {names.feature(feature)}", 40)
    if measure in TITLES:
        return TITLES[measure]
    start, _, other = measure.rpartition(" ")
    return plain(f"{start} {names.layer_title(parse_layer(other))}", 40)


def _traces(rows: pd.DataFrame) -> list[Trace]:
    """The band of the controls, and the measure before and after."""
    layers = rows["layer"].to_numpy(dtype=float)
    # A single place has a band of some width.
    wide = np.array([-0.25, 0.25]) + layers[0] if len(layers) == 1 else layers
    low, high = (np.resize(rows[f"control_{end}"], len(wide)) for end in ("lower", "upper"))
    traces = [band(wide, (low, high), GREY, "controls", 0.2, "controls")]
    bars = error_bar(rows["after"], rows["lower"], rows["upper"], width=3)
    for name, color in _OF.items():
        hover = [
            f"{name}: {as_number(row[name])}<br>{interval(row['lower'], row['upper'])}<br>"
            f"controls {as_number(row['control_lower'])} to {as_number(row['control_upper'])}"
            for _, row in rows.iterrows()
        ]
        look: dict[str, Any] = {"name": name, "legendgroup": name, "marker": {"size": 7}}
        look |= {"error_y": bars} if name == "after" else {"dash": "dot"}
        traces.append(curve(layers, rows[name], hover, color, **look))
    return traces


def selected_erasure(context: FigureContext) -> Erasure | None:
    """The result that is chosen by the options "erased", "erased_at", "erased_tokens", "other"."""
    options = context.drawing.options
    if not {"erased", "erased_at"} <= {*options}:
        return None
    return ERASURE.find(context, **erasure_choice(options))


@figure(
    "erasure",
    "A feature erased from a layer",
    "Later layers and predictions before and after a feature is erased; bands: controls.",
)
def draw_erasure(context: FigureContext) -> RenderedFigure | None:
    """The chosen erasure; None where it has not been computed."""
    found = selected_erasure(context)
    if found is None:
        return None
    names, where = context.names, (found.model, found.layer)
    return RenderedFigure(
        erasure_panels(found, names, 1 if context.drawing.narrow else context.across),
        f"Measures before and after {names.feature(found.feature)} is erased by LEACE from "
        f"{layer_name(where)}. Bars: 95 % CIs of the change over sentences and words. "
        f"Interchanged: another value. Bands: labels permuted, random subspaces. {OUTSIDE}",
        found.table,
        found.table.round(3),
        title=f"{names.feature(found.feature)} erased from {names.layer_title(where)}",
    )

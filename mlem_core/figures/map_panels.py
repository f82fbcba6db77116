"""Maps of the stimuli in many layers beside each other (Salle et al. 2024, figure 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from mlem_core.figures.compare import as_small
from mlem_core.figures.style import panel_ref, panels

_HEIGHT = 200  # px of a panel, which is a square


def map_panels(maps: Sequence[go.Figure], across: int = 4) -> go.Figure:
    """One panel a map, with one legend for all.

    Parameters
    ----------
    maps : of `stimulus_map`, coloured by one feature
    across : panels beside each other
    """
    titles = [one.layout.title.text for one in maps]
    figure, _ = panels(titles, height=_HEIGHT, across=across, apart=0.03, below=56)
    traces: list[dict[str, Any]] = []
    seen: set[str] = set()
    for place, one in enumerate(maps):
        ref = panel_ref(place)
        for trace in one.data:
            small = as_small(trace.to_plotly_json(), first=place == 0)
            # A level may be in no stimulus of the first layer's sample.
            new = trace.name not in seen and trace.showlegend is not False
            seen.add(trace.name)
            axes = {"xaxis": f"x{ref}", "yaxis": f"y{ref}", "legend": "legend"}
            traces.append(small | axes | {"showlegend": new})
        for name, other in (("x", "y"), ("y", "x")):
            axis = one.layout[f"{name}axis"].to_plotly_json()
            kept = {key: value for key, value in axis.items() if key not in ("domain", "anchor")}
            kept |= {"anchor": other + ref}
            if name == "y":
                kept |= {"scaleanchor": f"x{ref}"}
            figure.update_layout({f"{name}axis{ref}": kept})
        refs = {"xref": f"x{ref} domain", "yref": f"y{ref} domain"}
        for below in one.layout.annotations:
            figure.add_annotation(below.to_plotly_json() | refs)
    figure.add_traces(traces)
    rows = math.ceil(len(maps) / across)
    figure.update_layout(
        legend_title_text=maps[0].layout.legend.title.text,
        height=(_HEIGHT + 56) * rows + 60,
        margin={"t": 36, "b": 32},
    )
    return figure

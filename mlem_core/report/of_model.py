"""The stimuli in the layers of one model (Salle et al. 2024, figure 3)."""

from __future__ import annotations

import pandas as pd

from mlem_core import figures
from mlem_core.analysis import maps
from mlem_core.report import captions, captions_of_maps
from mlem_core.report.shown import Drawn, Shown
from mlem_core.report.two_layers import color_of, coloured_map

# Layers of a model that are drawn: each map takes some seconds when it is drawn first. In one
# column of a journal a page holds fewer.
MOST, MOST_NARROW = 12, 6


def map_panels(shown: Shown) -> Drawn | None:
    """The maps of the layers of a model; None where they cannot be had.

    Of the model that is chosen; else of that of the first of the two layers, if its maps have been
    made.
    """
    store, chosen = shown.drawing.store, shown.drawing.options.get("mapped", "")
    layers = list(shown.selection.layers)
    asked = any(model == chosen for model, _ in layers)
    model = chosen if asked else (shown.pair if shown.several else layers)[0][0]
    own = [layer for layer in layers if layer[0] == model]
    drawn = maps.some_layers(own, MOST_NARROW if shown.drawing.narrow else MOST)
    if store is None or not (asked or maps.are_made(shown.analysis, drawn, store)):
        return None
    found = [coloured_map(shown, layer) for layer in drawn]
    there = [one for one in found if one is not None]
    if len(there) < len(found):
        return None
    tables = [
        one.data.drop(columns="label").assign(model=model, layer=layer)
        for one, (_, layer) in zip(there, drawn, strict=True)
    ]
    n, color = len(tables[0]), shown.names.feature(color_of(shown))
    basis = captions.stimulus_map(n, len(shown.analysis.stimuli))
    return Drawn(
        figures.map_panels([one.figure for one in there], 2 if shown.drawing.narrow else 4),
        f"Stimuli in the layers of {shown.names.model(model)}",
        captions_of_maps.map_panels(color, len(drawn), len(own), basis),
        pd.concat(tables, ignore_index=True),
    )

"""Maps of the stimuli as the canvas draws them."""

from __future__ import annotations

import pandas as pd

from mlem_core.base.text import plural
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.extensions.stimulus_maps.computation import MAP, shown_stimuli
from mlem_core.extensions.stimulus_maps.figures import (
    LEVELS,
    color_feature,
    layer_points,
    sample_sentence,
    selected_layout,
)
from mlem_core.figures.canvas import CANVAS_MAPS, Canvas, CanvasMaps
from mlem_core.figures.context import FigureContext
from mlem_core.figures.layer_views import rounded_lists
from mlem_core.figures.stimuli import common_levels


def describe_stimuli(context: FigureContext) -> Canvas:
    """The stimuli that maps show: words, sentences, levels of their features, and the colour."""
    key = "stimuli of maps", repr(context.names)
    return {**context.once(key, lambda: _stimuli(context)), "colour": color_feature(context)}


def _stimuli(context: FigureContext) -> Canvas:
    analysis = context.analysis
    rows = shown_stimuli(analysis)
    shown = analysis.stimuli.take(rows)
    words = None if shown.word_index is None else list(shown.words)
    places = [None] * len(rows) if shown.word_index is None else shown.word_index.tolist()
    features = {
        feature.name: {
            "label": context.names.feature(feature.name),
            **_levels(shown.table[feature.name], numeric=feature.kind == "ordered"),
        }
        for feature in analysis.stimuli.features
    }
    return {
        "words": words,
        "called": plural(shown.level),
        "sentences": list(shown.sentences),
        "places": places,
        "features": features,
        "stimuli": analysis.stimuli.digest,
        "sample": sample_sentence(len(rows), len(analysis.stimuli)),
    }


def _levels(values: pd.Series, *, numeric: bool) -> Canvas:
    """A feature for colours: numbers, or the names of its levels and the place of each value."""
    if numeric:
        return {"values": rounded_lists(pd.to_numeric(values, errors="coerce").to_numpy(float))}
    levels, others = common_levels(values, LEVELS)
    place = {level: at for at, level in enumerate(levels)} | dict.fromkeys(others, len(levels))
    if others:
        levels = [*levels, f"{len(others)} other values"]
    codes = [None if pd.isna(value) else place[str(value)] for value in values]
    return {"levels": levels, "values": codes}


def find_layer_points(context: FigureContext, layer: Layer) -> FloatArray | None:
    """(n_shown, 2) points of the stimuli in a layer; None where the map is not in the store."""
    layer_map = MAP.find(context, layer=layer, layout=selected_layout(context))
    return None if layer_map is None else layer_map.points


CANVAS_MAPS.register(CanvasMaps("mds", describe_stimuli, find_layer_points, layer_points))

"""Ranked distances of subjects and models as matrices, their stimuli ordered by a feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.subjects import subject_layers
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.extensions.recordings.model_comparison import models_beside, region_title
from mlem_core.extensions.recordings.noise_ceilings import ceilings_key
from mlem_core.figures.captions import joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import feature_name
from mlem_core.figures.style import (
    CLEAR,
    SEQUENTIAL,
    Trace,
    bar_title,
    color_axis,
    escape_text,
    heatmap,
    panel_layout,
    place_in_panel,
    plain,
    short_names,
    square_axes,
)
from mlem_core.figures.thumbnails import thumbnails
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.pairs.ranks import pair_ranks

# Matrices of a figure, stimuli of a matrix (of more a sample), images and values along an axis.
MOST_RDMS, MOST_STIMULI, MOST_IMAGES, MOST_VALUES = 12, 150, 8, 9
_HEIGHT, _IMAGE = 250, 30  # px of a matrix, and of an image below it


@dataclass(frozen=True)
class RankedDistances:
    """Ranked distances of n stimuli in n_rdms groups and layers.

    Attributes
    ----------
    layers : (group, number of the layer) of the first `n_groups`, then (model, layer)
    ranks : (n_rdms, n_pairs) as shares of the number of pairs
    rows : (n,) which stimuli of the analysis these are
    """

    layers: tuple[Layer, ...]
    n_groups: int
    ranks: FloatArray
    rows: IntArray


def compute_rdms(context: SelectionContext) -> RankedDistances:
    """Ranked mean ranks of each group of subjects, then ranked distances of the models beside them.

    Of more than `MOST_RDMS` the first; of more than `MOST_STIMULI` stimuli a sample.

    Raises InputError as `mlem_core.inference.layer_pairs.LayerPairs.from_analysis`.
    """
    groups = dict([*subject_layers(context.analysis).items()][:MOST_RDMS])
    beside = [models_beside(context.all_layers, group) for group, _ in groups]
    models = [*dict.fromkeys(layer for layers in beside for layer in layers)]
    models = models[: MOST_RDMS - len(groups)]
    every = tuple(dict.fromkeys([*(one for layers in groups.values() for one in layers), *models]))
    pairs = LayerPairs.from_analysis(
        context.analysis,
        context.reselect(layers=every).selection,
        context.required_store,
        most_stimuli=MOST_STIMULI,
    )
    of_layer = dict(zip(every, pairs.ranks, strict=True))
    means = [
        pair_ranks(np.sum([of_layer[layer] for layer in layers], axis=0, dtype=np.float64))
        for layers in groups.values()
    ]
    ranks = np.stack([*means, *(of_layer[layer] for layer in models)])
    rows = np.arange(len(context.analysis.stimuli)) if pairs.rows is None else pairs.rows
    return RankedDistances((*groups, *models), len(groups), ranks / (2 * ranks.shape[1]), rows)


RDMS = Stage[RankedDistances]("group-rdms", 1, RankedDistances, compute_rdms, key=ceilings_key)


def matrices(
    ranks: FloatArray,
    titles: Sequence[str],
    values: pd.Series,
    labels: Sequence[str],
    images: Sequence[str | None] | None = None,
    *,
    across: int = 3,
) -> go.Figure:
    """A heatmap of each matrix of ranked distances, its stimuli ordered by a feature.

    Parameters
    ----------
    ranks : (n_rdms, n_pairs)
    titles : of the matrices
    values : (n,) of the feature, with its name
    labels : (n,) names of the stimuli, for hovering
    images : (n,) of the stimuli, as data URIs; some of them stand below the matrices
    across : matrices beside each other
    """
    from scipy.spatial.distance import squareform

    order = values.reset_index(drop=True).sort_values(kind="stable").index.to_numpy()
    n, ordered = len(order), values.iloc[order].astype(str).tolist()
    below = 26 + _IMAGE * (images is not None)
    height = min(_HEIGHT, 900 // across)  # a matrix is as high as wide
    layout, places = panel_layout(titles, height=height, across=across, apart=0.03, below=below)
    names = [
        f"{plain(labels[k], 40)} ({escape_text(value)})"
        for k, value in zip(order, ordered, strict=True)
    ]
    hover = [[f"{a}<br>{b}" for b in names] for a in names]
    traces, n_images = list[Trace](), 0 if images is None else min(n, MOST_IMAGES)
    layout["images"] = []
    for distances, (ref, first) in zip(ranks, places, strict=True):
        square = squareform(distances)[np.ix_(order, order)]
        np.fill_diagonal(square, np.nan)
        traces += place_in_panel(ref, [heatmap(square, hover, coloraxis="coloraxis")])
        ends = (-0.5, n - 0.5), (n - 0.5, -0.5)
        square_axes(layout, ref, _value_ticks(ordered), *ends, below=False, beside=first)
        # Each image stands for the stimuli above it, of which it is the middle one.
        for place in range(n_images):
            source = (images or ())[order[int((place + 0.5) * n / n_images)]]
            of_axes = {"xref": f"x{ref}", "yref": f"y{ref} domain", "source": source}
            corner = {"x": place * n / n_images - 0.5, "y": -0.02, "yanchor": "top"}
            size = {"sizex": n / n_images, "sizey": 0.2}
            layout["images"].append(of_axes | corner | size)
    layout["yaxis"]["title"]["text"] = feature_name(str(values.name))
    bar = {"title": bar_title("ranked distance"), "len": 150, "lenmode": "pixels"}
    bar |= {"y": 1, "yanchor": "top"}
    layout["coloraxis"] = color_axis(0.0, 1.0, {0: "0", 0.5: ".5", 1: "1"}, SEQUENTIAL, **bar)
    return go.Figure(traces, layout)


def _value_ticks(ordered: Sequence[str]) -> dict[str, Any]:
    """Names of the values in the middle of their stimuli, as far from each other as text needs."""
    n, places = len(ordered), list[float]()
    starts = [k for k in range(n) if not k or ordered[k] != ordered[k - 1]]
    for start, end in zip(starts, [*starts[1:], n], strict=True):
        middle = (start + end - 1) / 2
        if not places or middle - places[-1] >= n / MOST_VALUES:
            places.append(middle)
    texts = [plain(ordered[int(place)], 12) for place in places]
    return {"tickvals": places, "ticktext": texts, **CLEAR}


@figure(
    "group_rdms",
    "Distances of subjects and models",
    "Ranked distances of the subjects and the models; the stimuli are ordered by a feature.",
    offered=True,
)
def draw_group_rdms(context: FigureContext) -> RenderedFigure | None:
    """Matrices of ranked distances; None where they are not computed, or no subject is selected."""
    rdms, analysis = RDMS.find(context), context.analysis
    if rdms is None:
        return None
    groups, selected = subject_layers(analysis), {*context.selection.layers}
    groups = {place: layers for place, layers in groups.items() if {*layers} <= selected}
    at = [
        k
        for k, layer in enumerate(rdms.layers)
        if layer in (groups if k < rdms.n_groups else selected)
    ]
    if not at or at[0] >= rdms.n_groups:
        return None
    feature = context.drawing.options.get("feature", "")
    if feature not in context.selection.features:
        feature = context.results.most_important(context.selection.features)
    names, stimuli = context.names, analysis.stimuli.take(rdms.rows)
    n_groups, titles = len({group for group, _ in groups}), []
    for k in at:
        layer, is_group = rdms.layers[k], k < rdms.n_groups
        title = region_title(*layer, names, n_groups) if is_group else names.own(layer)
        titles.append(title or names.layer_title(layer))
    labels = stimuli.sentences if stimuli.level != "word" else stimuli.words
    images = thumbnails(labels, Path(analysis.spec.stimuli).parent)
    is_sample = len(stimuli) < len(analysis.stimuli)
    longest = 18  # letters of a title
    if context.drawing.narrow:  # of more than six in rows of two a page has no room
        across, longest = (3, 11) if len(at) > 6 else (2, longest)
    else:
        # The most in a row that leave the fewest places empty.
        most = (2,) if context.drawing.screen else (5, 4, 3)
        across = min(most, key=lambda n: -len(at) % min(len(at), n))
    titles, values = short_names(titles, longest), stimuli.table[feature]
    return RenderedFigure(
        matrices(rdms.ranks[at], titles, values, labels, images, across=across),
        joined(
            "Ranked distances: mean of the subjects of a group, and each model. Stimuli are "
            f"ordered by {feature_name(feature)}.",
            f"A sample of {len(stimuli)} stimuli." if is_sample else "",
            "Images: some of the stimuli, at their places." if images else "",
            context.basis_sentence,
        ),
        pd.DataFrame({"stimulus": labels, feature: values.to_numpy()}),
    )

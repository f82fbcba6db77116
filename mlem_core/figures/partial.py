"""Similarity of all layers in the explained part, in the residual part, or by transfer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.errors import check_choice
from mlem_core.base.typing import parse_layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.matrix import grid
from mlem_core.figures.similarity import (
    TAU,
    Arrangement,
    Matrix,
    Pair,
    matrix_figure,
)
from mlem_core.inference.partial import partial_of_layers


def partial_matrix(
    square: pd.DataFrame,
    unit: str,
    pair: Pair | None = None,
    *,
    arranged: Arrangement = "alone",
) -> go.Figure:
    """Heatmap of the layers' similarity by one measure of `mlem_core.measures.partial`, by model.

    It has neither a title nor dots. Its layers stand up the side and, in the same order, along the
    bottom: of transfer those whose metric it is, and those that are predicted. A cell without a
    number is empty.

    Parameters
    ----------
    square : (n_layers, n_layers), named "model:layer"; NaN where there is no number
    unit : what it is, told on hovering
    pair : the two layers whose cells are outlined, with the value of the one to the upper right
    arranged : "small" for half of a window: names of models below it only; "narrow" for a column
    """
    layers, values = [parse_layer(name) for name in square.index], square.to_numpy(dtype=np.float64)
    measure = TAU._replace(key="partial", column="partial", title=unit, unit=unit)
    # The value that is shown is that of the cell in which it stands.
    if pair is not None and layers.index(pair[0]) > layers.index(pair[1]):
        pair = pair[1], pair[0]
    return matrix_figure(grid(layers, "model", values), [Matrix(measure, values)], arranged, pair)


# By the name of the array in `PartialSimilarity`: what hovering says, and what a caption does.
UNITS = {
    "features": "similarity in explained part",
    "rest": "similarity in residual part",
    "transfer": "held-out ρ of the first's metric on the second",
    "ratio": "that ρ as a part of the second's own",
}
NAMES = {
    "features": "Similarity in explained part (S_feat)",
    "rest": "Similarity in residual part (S_rest)",
    "transfer": "Cross-model prediction (held-out ρ)",
    "ratio": "Cross-model prediction, relative to the layer's own ρ",
}
_NONE = "Empty cells: {} of one layer is not clearly above 0."
_CAPTIONS = {
    "features": "Correlation between the feature-explained parts of two layers, v_AB / √(v_AA "
    f"v_BB), cross-fitted. {_NONE.format('the explained part')}",
    "rest": "RSA of two layers beyond their feature-explained parts (a partial RSA), (RSA − v_AB) "
    f"/ √((1 − v_AA)(1 − v_BB)). {_NONE.format('the residual part')}",
    "transfer": "Held-out ρ, mean over folds, of the metric fitted to a layer (rows) on the "
    "distances in another (columns); diagonal: the layers' own ρ.",
    "ratio": "Held-out ρ, mean over folds, of the metric fitted to a layer (rows) on the distances "
    f"in another (columns), divided by the latter's own ρ. {_NONE.format('its own ρ')}",
}


def choices(estimator: str) -> tuple[str, ...]:
    """Names of the measures with an estimator: without transfer where it is slow to fit."""
    names = tuple(NAMES)
    return names[:2] if estimator_named(estimator).slow else names


@figure(
    "similar_in",
    "Explained and residual similarity",
    "Similarity in the explained and in the residual part. Click a cell to choose its layers.",
    offered=True,
)
def draw_similar_in(context: FigureContext) -> RenderedFigure | None:
    """Figure of the chosen similarity; by default that in the explained part.

    Raises
    ------
    InputError
        One that there is not.
    """
    if not context.several:
        return None
    name = context.drawing.options.get("partial", "features")
    check_choice("similarity", name, choices(context.selection.estimator))
    of = *context.analysis.subset(context.selection), context.selection.estimator
    found, layers = (
        context.once("partial", lambda: partial_of_layers(*of)),
        context.selection.layers,
    )
    screen, narrow = context.drawing.screen, context.drawing.narrow
    arranged: Arrangement = "small" if screen else "narrow" if narrow else "alone"
    return RenderedFigure(
        partial_matrix(
            found.square(name, layers), UNITS[name], context.marked_pair, arranged=arranged
        ),
        NAMES[name],
        f"{_CAPTIONS[name]} {context.basis}",
        found.table(layers),
        found.square(name, layers).round(3).rename_axis("layer").reset_index(),
    )

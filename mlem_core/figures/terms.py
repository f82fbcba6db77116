"""Contributions to the similarity of every two layers, and their similarity in a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.errors import check_choice
from mlem_core.base.labels import distinct
from mlem_core.base.typing import parse_layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.captions import of_chance
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.matrix import grid, run_means, runs_of
from mlem_core.figures.naming import feature_labels, feature_name, layer_titles, model_labels
from mlem_core.figures.similarity import (
    TAU,
    Arrangement,
    Matrix,
    Pair,
    matrix_figure,
)
from mlem_core.figures.style import (
    CLEAR,
    TITLE,
    Trace,
    as_numbers,
    bar_below,
    block_edges,
    color_axis,
    in_panel,
    model_blocks,
    panel_layout,
    short,
)
from mlem_core.inference.partial import partial_of_layers
from mlem_core.measures.decomposition import UNEXPLAINED, Decomposition, decompose
from mlem_core.pairs.similarities import RSA, SIMILARITIES

# A contribution this small is next to nothing; a scale goes at least so far.
LEAST_SPAN = 0.05
_CROWDED, _SMALL = 8, 10  # models, and px of their names
# Names are no part of the template: they may have its signs.
HOVER = "<b>%{fullData.name}</b><br>%{y} and %{x}<br>%{customdata}<extra></extra>"
_CELLS = 600  # along a side of all panels together, were they one square
_SCALES = {"coloraxis": "contribution<br>to {}", "coloraxis2": UNEXPLAINED + "<br>({})"}


def term_matrices(
    terms: dict[str, pd.DataFrame],
    across: int = 3,
    total: str = SIMILARITIES[RSA].unit,
    *,
    narrow: bool = False,
) -> go.Figure:
    """Heatmaps of each feature's contribution to the similarity of every two layers, one a term.

    Parameters
    ----------
    across : panels beside each other
    total : the similarity that they are contributions to, with its unit
    narrow : for one column of a journal
    terms : for each term the (n_layers, n_layers) contributions, named "model:layer". The features
        share one colour scale, what is unexplained has its own, both symmetric about 0 and at least
        to ± `LEAST_SPAN`, so that nothing is painted strong where all is next to 0; the diagonal (a
        layer with itself) is left blank
    """
    titles = feature_labels(list(terms), TITLE)
    height = 170 if narrow else 250
    layout, places = panel_layout(titles, height=height, across=across, below=40)
    layers = [parse_layer(name) for name in next(iter(terms.values())).index]
    blocks = model_blocks(layers)
    off = ~np.eye(len(layers), dtype=bool)
    # Means over runs of layers where all layers of all terms would be too much for a page.
    parts = runs_of([block[:2] for block in blocks], int(_CELLS / np.sqrt(len(terms))))
    names = layer_titles(layers, TITLE)
    called = [names[run[0]] + f" to {names[run[-1]]}" * (len(run) > 1) for run in map(list, parts)]
    starts = np.cumsum([0, *(len(run) for run in parts)])
    blocks = [
        (int(np.searchsorted(starts, start)), int(np.searchsorted(starts, stop)), model)
        for start, stop, model in blocks
    ]
    # Many names do not fit a narrow panel.
    crowded = len(blocks) > _CROWDED
    shared = _along(blocks, crowded)
    scales = {"coloraxis": 0.0, "coloraxis2": 0.0}
    edges: list[dict[str, Any]] = []
    traces: list[Trace] = []
    # Names stand below the last row; between the others they would lie on titles.
    for left, (term, square), (ref, first) in zip(
        range(len(terms), 0, -1), terms.items(), places, strict=True
    ):
        scale = "coloraxis2" if term == UNEXPLAINED else "coloraxis"
        values = run_means(np.where(off, square.to_numpy(dtype=np.float64), np.nan), parts)
        scales[scale] = max(scales[scale], float(np.nanmax(np.abs(values), initial=0.0)))
        texts = np.array(as_numbers(values.ravel())).reshape(values.shape)
        named = {"coloraxis": scale, "name": feature_name(term), "customdata": texts}
        named |= {"x": called, "y": called, "hovertemplate": HOVER}
        trace = {"type": "heatmap", "z": values.astype(np.float32), "hoverongaps": False}
        traces += in_panel(ref, [trace | named])
        edges += block_edges(blocks, ref)
        ends = [-0.5, len(parts) - 0.5]
        angle = 0 if len(blocks) < 3 else -90 if crowded or narrow else -40
        layout[f"xaxis{ref}"] |= shared | {
            "range": ends,
            "tickangle": angle,
            "showticklabels": left <= across,
        }
        layout[f"yaxis{ref}"] |= shared | {
            "range": ends[::-1],
            "showticklabels": first,
            "scaleanchor": f"x{ref}",
        }
    layout |= {"shapes": edges, "margin": layout["margin"] | {"b": 158}}
    layout["height"] += 110
    for place, (scale, most) in enumerate(scales.items()):
        most, said = max(most, LEAST_SPAN), _SCALES[scale].format(total)
        ticks = {-most: short(-most), 0.0: f"0<br>{said}", most: f"+{short(most)}"}
        bar = bar_below(layout["height"], 0.2 + 0.6 * place, 0.34)
        layout[scale] = color_axis(-most, most, ticks, thickness=12, **bar)
    return go.Figure(traces, layout)


def _along(blocks: Sequence[tuple[int, int, str]], crowded: bool) -> dict[str, Any]:
    """Axis of a matrix of layers, for both sides: each model by name, small where they are many."""
    models = [model for *_, model in blocks]
    return {
        "tickvals": [(start + stop - 1) / 2 for start, stop, _ in blocks],
        "ticktext": model_labels(models, 14),
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
        **CLEAR,
        **({"tickfont": {"size": _SMALL}} if crowded else {}),
    }


@figure(
    "why_layers",
    "Contributions to the similarity of every two layers",
    "The contribution of each feature to the similarity of every two layers.",
    offered=True,
)
def draw_why_layers(context: FigureContext) -> RenderedFigure | None:
    """The terms of the similarity of every two layers; None of one that has none."""
    if not context.several or (context.compared and not context.compared.similarity.divides):
        return None
    layers, compared = list(context.selection.layers), context.compared
    split = decomposition(context)
    similarity = SIMILARITIES[RSA] if compared is None else compared.similarity
    means = models_alike(context)
    many, narrow = len({model for model, _ in layers}) > _CROWDED, context.drawing.narrow
    across = 2 if narrow and (context.drawing.screen or many) else 3 if narrow else 4
    return RenderedFigure(
        term_matrices(
            {term: split.matrix(term, layers) for term in split.names},
            across,
            similarity.unit,
            narrow=narrow,
        ),
        "Contributions to the similarity of every two layers",
        f"Contributions to the {similarity.called} of every two layers (Shapley values, "
        "cross-fitted), and the unexplained part. Blue: more similar; brown: less similar. "
        f"{of_chance(context.chance)} {context.computed_on}",
        split.table(layers).rename(columns={"rsa": similarity.name}),
        # A row two models: of these there are more than terms.
        means.set_index("term").T.rename_axis("models").rename_axis(columns=None).reset_index(),
    )


def decomposition(context: FigureContext) -> Decomposition:
    """The similarity of every two layers as a sum: of RSA, or of what is chosen instead.

    Contributions are beyond chance where that is known.
    """
    found, chance = context.compared, context.chance

    def divided() -> Decomposition:
        if found is None:
            split = decompose(*context.analysis.subset(context.selection))
        else:
            split = found.decomposed()
        return split if chance is None else chance.of_all(split)

    of = RSA if found is None else found.similarity.name
    return context.once(("sum", of, chance is None), divided)


def models_alike(context: FigureContext) -> pd.DataFrame:
    """Contributions to the similarity of every two models: term, and a column of means a pair."""
    layers = list(context.selection.layers)
    of = RSA if context.compared is None else context.compared.similarity.name
    key = "means", of, context.chance is None
    summary = context.once(key, lambda: decomposition(context).summary(layers))
    names = list(dict.fromkeys(model for model, _ in layers))
    called = dict(zip(names, distinct(names, list(map(context.names.model, names))), strict=True))
    models = [summary[side].map(called) for side in ("model_a", "model_b")]
    return means_of_models(summary.assign(model_a=models[0], model_b=models[1]))


def means_of_models(summary: pd.DataFrame) -> pd.DataFrame:
    """A row a term, a column a pair of models: the mean over their pairs of layers.

    Parameters
    ----------
    summary : of `mlem_core.measures.decomposition.Decomposition.summary`
    """
    both = summary["model_a"] + " and " + summary["model_b"]
    alone = "within " + summary["model_a"]
    pairs = both.where(summary["model_a"] != summary["model_b"], alone)
    wide = summary.assign(pair=pairs).pivot(index="term", columns="pair", values="mean")
    return (
        wide.loc[summary["term"].unique(), pairs.unique()].reset_index().rename_axis(columns=None)
    )


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
    found = context.once("partial", lambda: partial_of_layers(*of))
    layers = context.selection.layers
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

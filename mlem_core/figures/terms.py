"""Contributions to the similarity of every two layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import distinct
from mlem_core.base.text import fraction, listed
from mlem_core.base.typing import parse_layer
from mlem_core.figures.captions import chance_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.matrix import block_runs, run_means
from mlem_core.figures.naming import feature_labels, feature_name, layer_titles, model_families
from mlem_core.figures.style import (
    CLEAR,
    LINE,
    TITLE,
    Trace,
    as_numbers,
    color_axis,
    horizontal_colorbar,
    model_blocks,
    panel_layout,
    place_in_panel,
    shape,
    short,
    short_names,
    square_axes,
)
from mlem_core.measures.decomposition import UNEXPLAINED, Decomposition, decompose
from mlem_core.pairs.similarities import RSA, SIMILARITIES

# A contribution this small is next to nothing: a scale goes at least so far, and a term that is
# smaller everywhere has no panel.
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
    off = ~np.eye(len(layers), dtype=bool)
    # Means over runs of layers where all layers of all terms would be too much for a page.
    blocks = [block[:2] for block in model_blocks(layers)]
    parts = block_runs(blocks, int(_CELLS / np.sqrt(len(terms))))
    names = layer_titles(layers, TITLE)
    called = [names[run[0]] + f" to {names[run[-1]]}" * (len(run) > 1) for run in map(list, parts)]
    # The name of a family stands once, at the middle of its models.
    firsts = [layers[run[0]] for run in parts]
    families = model_families(list(dict.fromkeys(model for model, _ in firsts)))
    family = {model: name for name, models in families.items() for model in models}
    middles: dict[str, list[float]] = {}
    for start, stop, model in model_blocks(firsts):
        middles.setdefault(family[model], []).append((start + stop - 1) / 2)
    family_blocks = model_blocks([(family[model], layer) for model, layer in firsts])
    # Many names do not fit a narrow panel.
    crowded = len(families) > _CROWDED
    shared = {
        "tickvals": [sum(places) / len(places) for places in middles.values()],
        "ticktext": short_names(list(middles), 14),
        **CLEAR,
        **({"tickfont": {"size": _SMALL}} if crowded else {}),
    }
    scales = {"coloraxis": 0.0, "coloraxis2": 0.0}
    edges: list[dict[str, Any]] = []
    traces: list[Trace] = []
    # Names stand below the last row; between the others they would lie on titles.
    for left, (term, square), (ref, begins) in zip(
        range(len(terms), 0, -1), terms.items(), places, strict=True
    ):
        scale = "coloraxis2" if term == UNEXPLAINED else "coloraxis"
        values = run_means(np.where(off, square.to_numpy(dtype=np.float64), np.nan), parts)
        scales[scale] = max(scales[scale], float(np.nanmax(np.abs(values), initial=0.0)))
        texts = np.array(as_numbers(values.ravel())).reshape(values.shape)
        named = {"coloraxis": scale, "name": feature_name(term), "customdata": texts}
        named |= {"x": called, "y": called, "hovertemplate": HOVER}
        trace = {"type": "heatmap", "z": values.astype(np.float32), "hoverongaps": False}
        traces += place_in_panel(ref, [trace | named])
        for at in (start - 0.5 for start, *_ in family_blocks[1:]):
            edges.append(shape("line", (at, 0), (at, 1), (LINE, 1), ref, "y"))
            edges.append(shape("line", (0, at), (1, at), (LINE, 1), ref, "x"))
        ends = [-0.5, len(parts) - 0.5]
        angle = 0 if len(families) < 3 else -90 if crowded or narrow else -40
        below = left <= across
        square_axes(layout, ref, shared, ends, ends[::-1], angle, below=below, beside=begins)
    layout |= {"shapes": edges, "margin": layout["margin"] | {"b": 158}}
    layout["height"] += 110
    for place, (scale, most) in enumerate(scales.items()):
        most, total_text = max(most, LEAST_SPAN), _SCALES[scale].format(total)
        ticks = {-most: short(-most), 0.0: f"0<br>{total_text}", most: f"+{short(most)}"}
        bar = horizontal_colorbar(layout["height"], 0.2 + 0.6 * place, 0.34)
        layout[scale] = color_axis(-most, most, ticks, thickness=12, **bar)
    return go.Figure(traces, layout)


@figure(
    "why_layers",
    "Contributions to the similarity of every two layers",
    "The contribution of each feature to the similarity of every two layers.",
    by_similarity="of terms",
    offered=True,
)
def draw_why_layers(context: FigureContext) -> RenderedFigure | None:
    """The terms of the similarity of every two layers; None of one that has none."""
    if not context.several or (context.compared and not context.compared.similarity.divides):
        return None
    layers, compared = list(context.selection.layers), context.compared
    split = decomposition(context)
    matrices = {term: split.matrix(term, layers) for term in split.names}
    empty = [term for term, square in matrices.items() if _is_empty(square)]
    drawn = {term: square for term, square in matrices.items() if term not in empty} or matrices
    left_out = listed([context.names.feature(term) for term in empty if term not in drawn])
    similarity = SIMILARITIES[RSA] if compared is None else compared.similarity
    means = models_alike(context)
    narrow = context.drawing.narrow
    across = 3 if narrow else 4
    return RenderedFigure(
        term_matrices(drawn, across, similarity.unit, narrow=narrow),
        f"Contributions to the {similarity.called} of every two layers (Shapley values, "
        "cross-fitted), and the unexplained part. Blue: more similar; brown: less similar. "
        + f"Below {fraction(LEAST_SPAN)} and left out: {left_out}. " * bool(left_out)
        + f"{chance_sentence(context.chance)} {context.basis_sentence}",
        split.table(layers).rename(columns={"rsa": similarity.name}),
        # A row two models: of these there are more than terms.
        means.set_index("term").T.rename_axis("models").rename_axis(columns=None).reset_index(),
    )


def _is_empty(square: pd.DataFrame) -> bool:
    """Whether no contribution to the similarity of two different layers would be seen."""
    off = ~np.eye(len(square), dtype=bool)
    return bool(np.nanmax(np.abs(square.to_numpy(dtype=np.float64)[off]), initial=0.0) < LEAST_SPAN)


def decomposition(context: FigureContext) -> Decomposition:
    """The similarity of every two layers as a sum: of RSA, or of what is chosen instead.

    Contributions are beyond chance where that is known.
    """
    similarity, chance = context.compared, context.chance

    def divided() -> Decomposition:
        if similarity is None:
            split = decompose(context.analysis.compute_pairs(context.selection).moments)
        else:
            split = similarity.decomposed()
        return split if chance is None else chance.subtract_from_all(split)

    of = RSA if similarity is None else similarity.similarity.name
    return context.once(("sum", of, chance is None), divided)


def models_alike(context: FigureContext) -> pd.DataFrame:
    """Contributions to the similarity of every two models.

    A row a term, a column a pair of models: the mean over their pairs of layers.
    """
    layers = list(context.selection.layers)
    of = RSA if context.compared is None else context.compared.similarity.name
    key = "means", of, context.chance is None
    summary = context.once(key, lambda: decomposition(context).summary(layers))
    names = list(dict.fromkeys(model for model, _ in layers))
    called = dict(zip(names, distinct(names, list(map(context.names.model, names))), strict=True))
    a, b = (summary[side].map(called) for side in ("model_a", "model_b"))
    pairs = (a + " and " + b).where(a != b, "within " + a)
    wide = summary.assign(pair=pairs).pivot(index="term", columns="pair", values="mean")
    wide = wide.loc[summary["term"].unique(), pairs.unique()]
    return wide.reset_index().rename_axis(columns=None)

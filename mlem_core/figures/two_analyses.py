"""Two analyses: profiles side by side, and how their importances and similarities differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import parse_layer
from mlem_core.figures.captions import FOLDS, joined
from mlem_core.figures.naming import layer_labels, layer_title, model_called, model_labels
from mlem_core.figures.profiles import profiles
from mlem_core.figures.style import (
    CLEAR,
    INK,
    SIGNIFICANT,
    Annotations,
    Trace,
    as_number,
    as_p,
    block_edges,
    color_axis,
    heatmap,
    model_blocks,
    note,
    panel_ref,
    panels,
    say,
    scatter,
    short,
    sparse_ticks,
    title_of,
)

# A difference of similarities as large as this is always drawn in a strong colour, and no smaller
# one: where all are about 0 none stands out.
_LEAST_SCALE = 0.2
_MEASURES = (("weighted_tau", "by feature profiles (Δτ)"), ("rsa", "by distances (ΔRSA)"))


def side_by_side(
    importance: tuple[pd.DataFrame, pd.DataFrame],
    scores: tuple[pd.DataFrame, pd.DataFrame],
    features: Sequence[str],
) -> go.Figure:
    """The profiles of each model in the first analysis, on the left, and in the second.

    All panels have one scale, and a feature has one colour. Models of one analysis alone come last.

    Parameters
    ----------
    importance : of each analysis, as for `mlem_core.figures.profiles.profiles`
    scores : of each analysis: model, layer, fold, rho, ceiling
    features : of both, which decide the colours
    """
    models = [list(dict.fromkeys(table["model"])) for table in importance]
    shared = [model for model in models[0] if model in models[1]]
    order = [(model, which) for model in shared for which in (0, 1)]
    order += [(model, which) for which in (0, 1) for model in models[which] if model not in shared]

    def put_together(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
        parts = [
            tables[which][tables[which]["model"] == model].assign(
                model=f"{model_called(model)}, {('first', 'second')[which]}"
            )
            for model, which in order
        ]
        return pd.concat(parts, ignore_index=True)

    return profiles(put_together(importance), put_together(scores), features, across=2)


def side_by_side_caption(names: tuple[str, str]) -> str:
    """Caption of the profiles of two analyses, by what these are called."""
    return joined(
        f"First: “{names[0]}”. Second: “{names[1]}”.",
        "Feature importance (FI) by layer, mean over folds, on one scale; bands are "
        f"{FOLDS}. Dashed: held-out ρ. Dotted: the ceiling.",
    )


def importance_differences(
    table: pd.DataFrame, features: Sequence[str], across: int = 3
) -> go.Figure:
    """The importance of each feature in the first analysis less that in the second, by layer.

    Parameters
    ----------
    table : as `mlem_core.robustness.two_analyses.importance_differences` gives it
    features : of both analyses, which decide the colours
    """
    if table.empty:
        return _nothing("No layer and feature is in both.")
    bounds = None
    if table["lower"].notna().any():
        # The p of this table is of either sign, and is said here.
        bounds = table.assign(quantity="importance", value=table["difference"])
    figure = profiles(
        table.assign(fold=0, importance=table["difference"]),
        table[["model", "layer"]].assign(fold=0),
        features,
        across,
        "difference of importance (ΔFI)",
        Annotations(bounds),
    )
    for trace in figure.data:
        if isinstance(trace.hovertext, tuple):
            trace.hovertext = [text.replace("above 0: p", "not 0: p").replace(" ± .000 (sd)", "")
                               for text in trace.hovertext]  # fmt: skip
    return figure


def similarity_differences(table: pd.DataFrame, across: int = 2) -> go.Figure:
    """Both similarities in the first analysis less those in the second, for every two layers.

    A dot is in a cell whose difference of RSA is not 0 (corrected p).

    Parameters
    ----------
    table : as `mlem_core.robustness.two_analyses.similarity_differences` gives it
    across : 2 beside each other, 1 below each other
    """
    if table.empty:
        return _nothing("Two layers or more have to be in both.")
    names = list(dict.fromkeys([*table["layer_a"], *table["layer_b"]]))
    layers = [parse_layer(name) for name in names]
    figure, places = panels([title for _, title in _MEASURES], height=420, across=across)
    highest = table[[f"{name}_difference" for name, _ in _MEASURES]].abs().to_numpy().max()
    end = max(_LEAST_SCALE, float(np.ceil(highest * 10) / 10))
    blocks = model_blocks(layers)
    models = model_labels([model for *_, model in blocks], 16)
    edges, texts = list[dict[str, Any]](), list[dict[str, Any]]()
    axes: dict[str, dict[str, str]] = {}
    for number, ((name, title), (row, column)) in enumerate(zip(_MEASURES, places, strict=True)):
        ref, at = panel_ref(number), {"row": row, "col": column}
        figure.add_trace(_heatmap(table, names, name), **at)
        if name == "rsa":
            sure = table[table["rsa_p_corrected"] <= SIGNIFICANT]
            place = {layer: at for at, layer in enumerate(names)}
            a, b = ([place[layer] for layer in sure[key]] for key in ("layer_a", "layer_b"))
            dots = scatter([*a, *b], [*b, *a], marker={"size": 4, "color": INK})
            figure.add_trace(dots, **at)
        edges += block_edges(blocks, ref, "rgba(140,140,140,0.7)")
        turned = -30 if len(blocks) > 2 else 0
        look = {"yshift": -26, "yanchor": "top", "textangle": turned}
        texts.append(title_of(title, ref))
        texts += [
            note(model, (start + stop - 1) / 2, 0, ref, "y", **look)
            for (start, stop, _), model in zip(blocks, models, strict=True)
        ]
        axes[f"xaxis{ref}"] = {"constrain": "domain"}
        axes[f"yaxis{ref}"] = {"scaleanchor": f"x{ref}"}
    figure.layout.annotations = texts
    ends, ticks = [-0.5, len(names) - 0.5], sparse_ticks(layers, blocks, layer_labels(layers))
    figure.update_xaxes(range=ends, showgrid=False, zeroline=False, **CLEAR, **ticks)
    figure.update_yaxes(
        range=ends[::-1], showgrid=False, zeroline=False, constrain="domain", **CLEAR, **ticks
    )
    figure.update_layout(
        **axes,
        shapes=edges,
        coloraxis=color_axis(
            -end, end, {-end: short(-end), 0: "0", end: f"+{short(end)}"}, len=0.6
        ),
        margin={"b": 96},
        showlegend=False,
    )
    return figure


def _heatmap(table: pd.DataFrame, names: Sequence[str], name: str) -> Trace:
    value = np.full((len(names), len(names)), np.nan)
    hover = np.full(value.shape, "", dtype=object)
    place = {layer: at for at, layer in enumerate(names)}
    for row in table.to_dict("records"):
        a, b = place[row["layer_a"]], place[row["layer_b"]]
        value[a, b] = value[b, a] = row[f"{name}_difference"]
        hover[a, b] = hover[b, a] = _told(row, name)
    return heatmap(value, hover, coloraxis="coloraxis")


def _told(row: dict[str, float | str], name: str) -> str:
    layers = " and ".join(layer_title(parse_layer(str(row[key]))) for key in ("layer_a", "layer_b"))
    ends = "first", "second", "difference", "lower", "upper"
    one, other, difference, lower, upper = (float(row.get(f"{name}_{end}", np.nan)) for end in ends)
    text = (
        f"<b>{layers}</b><br>first {as_number(one)}, second {as_number(other)}<br>"
        f"difference {as_number(difference)}"
    )
    if np.isfinite(lower):
        text += f"<br>95 % interval {as_number(lower)} to {as_number(upper)}"
    p = float(row["rsa_p_corrected"])
    if name == "rsa" and np.isfinite(p):
        text += f"<br>not 0: p {as_p(p)} (corrected)"
    return text


def _nothing(text: str) -> go.Figure:
    figure, _ = panels([""], height=160, across=1)
    say(figure, text)
    return figure


def differences_caption(
    what: str, names: tuple[str, str], over: str, family: str, mark: str, caveat: str = ""
) -> str:
    """Caption of the differences of two analyses; without intervals `over` is empty.

    Parameters
    ----------
    mark : what stands in the figure where a difference is not 0
    caveat : on the intervals
    """
    return joined(
        f"{what}: “{names[0]}” less “{names[1]}”.",
        f"95 % intervals over {over}." if over else "",
        f"{mark}: not 0 (p ≤ 0.05, corrected over a family of {family})." if over else "",
        caveat if over else "",
    )

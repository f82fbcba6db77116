"""Two analyses: profiles side by side, and how their importances and similarities differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import parse_layer
from mlem_core.figures.captions import FOLDS, joined
from mlem_core.figures.matrix import grid
from mlem_core.figures.naming import model_called
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import Matrix, Measure, Pair, matrix_figure, set_scale
from mlem_core.figures.style import (
    SIGNIFICANT,
    Annotations,
    as_number,
    as_p,
    interval,
    quiet_layout,
    say,
    short,
)

# A difference of similarities as large as this is always drawn in a strong colour, and no smaller
# one: where all are about 0 none stands out.
_LEAST_SCALE = 0.2
_MEASURES = (("weighted_tau", "by feature profiles", "Δτ"), ("rsa", "by distances", "ΔRSA"))


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
    place, n = {name: at for at, name in enumerate(names)}, len(names)
    matrices = []
    for name, title, unit in _MEASURES:
        values, hover = np.zeros((n, n)), np.full((n, n), "", dtype=object)
        flags: dict[Pair, str] = {}
        for row in table.to_dict("records"):
            a, b = place[row["layer_a"]], place[row["layer_b"]]
            values[a, b] = values[b, a] = row[f"{name}_difference"]
            hover[a, b] = hover[b, a] = _told(row, name)
            p = row["rsa_p_corrected"]
            if name == "rsa" and p <= SIGNIFICANT:
                pair = layers[a], layers[b]
                flags |= dict.fromkeys((pair, pair[::-1]), f"not 0: p {as_p(p)} (corrected)")
        matrices.append(Matrix(Measure(name, name, title, unit, unit), values, hover, flags))
    of = grid(layers, "model", np.eye(n))
    figure = matrix_figure(of, matrices, "row" if across == 2 else "column", None)
    highest = max(float(np.abs(one.values).max()) for one in matrices)
    end = max(_LEAST_SCALE, float(np.ceil(highest * 10) / 10))
    set_scale(figure, {-end: short(-end), 0: "0", end: f"+{short(end)}"})
    return figure


def _told(row: Mapping[Any, Any], name: str) -> str:
    """What hovering adds to the difference."""
    one, other, lower, upper = (
        float(row[f"{name}_{end}"]) for end in ("first", "second", "lower", "upper")
    )
    text = f"<br>first {as_number(one)}, second {as_number(other)}"
    return text + (f"<br>{interval(lower, upper)}" if np.isfinite(lower) else "")


def _nothing(text: str) -> go.Figure:
    figure = go.Figure(layout=quiet_layout(160))
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

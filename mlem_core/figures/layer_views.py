"""Content of the four views of all layers, which the canvas draws: profiles, map, surprises.

The matrix is in `canvas`; the scatter of two layers is drawn from the profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.text import fraction, percent
from mlem_core.base.typing import FloatArray, Layer, parse_layer
from mlem_core.figures.context import FigureContext
from mlem_core.figures.maps import READABLE
from mlem_core.figures.profiles import Line, profile_lines
from mlem_core.figures.style import feature_colors
from mlem_core.figures.terms import decomposition
from mlem_core.inference.intervals import with_bounds
from mlem_core.measures.decomposition import discordant_pairs

MOST_LINKS = 3
KINDS = {
    "distances": "More similar by distances than by features",
    "features": "More similar by features than by distances",
}


def importance_content(context: FigureContext) -> dict[str, Any]:
    """Importance of each feature in each layer: values, 95 % intervals or spreads over folds.

    Lists are by feature, then by layer in the order of the selection; None where there is none.
    """
    results, layers, terms = context.results, context.selection.layers, context.terms
    tests = context.score_tests
    lines = profile_lines(
        results.importance, results.scores, None if tests is None else tests.table
    )
    colors = feature_colors(terms)
    features = []
    for name in terms:
        values = _of_layers(lines, "importance", name, layers)
        if np.isfinite(values).any():
            mean, lower, upper = values
            features.append(
                {
                    "name": name,
                    "label": context.names.feature(name),
                    "color": colors[name],
                    "values": rounded_lists(mean),
                    "lower": rounded_lists(lower),
                    "upper": rounded_lists(upper),
                }
            )
    return {
        "features": features,
        "bands": _bands(context),
        "flags": [context.layer_flags.get(layer) for layer in layers],
        "spread": f"95 % CI over {context.over}" if context.over else "± 1 sd over folds",
        "rho": rounded_lists(_of_layers(lines, "rho", "", layers)[0]),
        "ceiling": rounded_lists(_of_layers(lines, "ceiling", "", layers)[0]),
    }


def _bands(context: FigureContext) -> list[dict[str, Any]]:
    """Name of each grey band behind the importances, and its two ends in each layer."""
    layers, content = list(context.selection.layers), []
    for band in context.bands:
        ends = band.table.set_index(["model", "layer"])[["lower", "upper"]].reindex(layers)
        lower, upper = (rounded_lists(ends[end].to_numpy()) for end in ("lower", "upper"))
        content.append({"name": band.name, "lower": lower, "upper": upper})
    return content


def _of_layers(
    lines: Mapping[Any, Line], quantity: str, feature: str, layers: tuple[Layer, ...]
) -> FloatArray:
    """Mean, lower and upper end of a quantity in each layer (3, n_layers), NaN where absent."""
    values = np.full((3, len(layers)), np.nan)
    for place, (model, number) in enumerate(layers):
        line = lines.get((model, quantity, feature))
        point = None if line is None else line.at(number)
        if point is not None:
            values[:, place] = point[:3]
    return values


def layer_map_content(context: FigureContext) -> list[dict[str, Any] | None]:
    """Map of the layers by RSA and by their profiles: x, y and stress, in the order of the layers.

    None where there is no map of the similarity that is shown, or its stress is above
    `READABLE`.
    """
    results = context.results
    maps: list[dict[str, Any] | None] = []
    for measure in ("rsa", "profiles"):
        stress = results.map_stress.get(measure, np.nan)
        if (measure == "rsa" and context.compared is not None) or not stress <= READABLE:
            maps.append(None)
            continue
        points = results.layer_map[results.layer_map["measure"] == measure]
        points = points.set_index(["model", "layer"]).loc[list(context.selection.layers)]
        x, y = (rounded_lists(points[axis].to_numpy()) for axis in ("x", "y"))
        maps.append({"x": x, "y": y, "stress": round(float(stress), 3)})
    return maps


def surprising_pairs(context: FigureContext, *, explained: bool = True) -> pd.DataFrame:
    """Pairs of layers on which both similarities disagree, or that no feature explains.

    The table of `discordant_pairs`, with intervals where they are known. `explained` computes what
    explains every two layers, which takes a second for fifty of them; without it the pairs that
    nothing explains are not among them.
    """
    results, layers = context.results, list(context.selection.layers)
    rho = results.scores.groupby(["model", "layer"])["rho"].mean()
    table = discordant_pairs(
        results.similarity_rsa.to_numpy(),
        results.similarity_profiles.to_numpy(),
        rho[layers].to_numpy(),
        layers,
        results.n_profile_features,
        {frozenset(pair) for pair in context.reasons("rsa")},
        unexplained=decomposition(context).unexplained if explained else None,
    )
    return table if context.intervals is None else with_bounds(table, context.intervals, layers)


def surprise_content(context: FigureContext) -> list[dict[str, Any]]:
    """The first surprises as links: places of the two layers, and why they surprise."""
    places = {layer: place for place, layer in enumerate(context.selection.layers)}
    links = []
    for row in surprising_pairs(context, explained=False).head(MOST_LINKS).to_dict("records"):
        pair = [places[parse_layer(row[side])] for side in ("layer_a", "layer_b")]
        why = (
            f"{KINDS[row['kind']]}: RSA {fraction(row['rsa'])} (above {percent(row['above_rsa'])} "
            f"of pairs), τ {fraction(row['tau'])} (above {percent(row['above_tau'])})."
        )
        links.append({"pair": pair, "why": why})
    return links


def rounded_lists(values: FloatArray) -> Any:
    """Lists of numbers with three decimals; None for what is no number."""
    rounded = np.round(np.asarray(values, dtype=np.float64), 3) + 0.0
    listed = rounded.astype(object)
    listed[~np.isfinite(rounded)] = None
    return listed.tolist()

"""The registry of an analysis's figures: by name, how each is drawn from what is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from mlem_core import figures
from mlem_core.analysis.similarities import RSA
from mlem_core.base.errors import unknown
from mlem_core.base.typing import Progress, Report, layer_name, parse_layer
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.report import (
    all_layers,
    by_method,
    of_groups,
    of_values,
    similar_in,
    two_layers,
)
from mlem_core.report.shown import Drawing, Drawn, Shown, basis, held_out

__all__ = ["FIGURES", "Drawing", "Drawn", "Shown", "all_figures", "basis", "draw", "held_out"]


def _of_side(side: int) -> Callable[[Shown], Drawn | None]:
    """The map of the values in one of the two layers."""
    return lambda shown: of_values.value_map(shown, shown.pair[side]) if shown.several else None


def _of_chosen_layer(shown: Shown) -> Drawn | None:
    """The map of the values in the layer of the large matrix."""
    names = [layer_name(layer) for layer in shown.selection.layers]
    chosen = shown.drawing.options.get("layer", "")
    name = chosen if chosen in names else names[len(names) // 2]
    return of_values.value_map(shown, parse_layer(name))


def _by(similarity: str, draw: Callable[[Shown], Drawn | None]) -> Callable[[Shown], Drawn | None]:
    """The same with another similarity in the place of RSA; None where it was not computed."""

    def drawn(shown: Shown) -> Drawn | None:
        options = {**shown.drawing.options, "similarity": similarity}
        chosen = replace(shown, drawing=replace(shown.drawing, options=options))
        return None if chosen.compared is None else draw(chosen)

    return drawn


# Those that have another similarity in the place of RSA.
OF_SIMILARITIES = {
    f"{name}_{similarity}": _by(similarity, drawn)
    for similarity, one in SIMILARITIES.items()
    if similarity != RSA
    for name, drawn, of_terms in (
        ("similarity", all_layers.similarity, False),
        ("why", two_layers.why, True),
        ("why_layers", all_layers.why_layers, True),
    )
    if one.divides or not of_terms
}
# Each by the name of its file; None where there is nothing to draw.
FIGURES: dict[str, Callable[[Shown], Drawn | None]] = {
    "profiles": all_layers.profiles,
    "similarity": all_layers.similarity,
    "similar_in": similar_in.matrix,
    "layer_maps": all_layers.layer_maps,
    "published": all_layers.published,
    "map_panels": two_layers.map_panels,
    "two_layers": two_layers.figure_4,
    "compare": two_layers.compare,
    "stimulus_map_a": partial(two_layers.stimulus_map, side=0),
    "stimulus_map_b": partial(two_layers.stimulus_map, side=1),
    "why": two_layers.why,
    "why_tau": two_layers.why_tau,
    "why_score_a": partial(two_layers.why_score, side=0),
    "why_score_b": partial(two_layers.why_score, side=1),
    "why_layers": all_layers.why_layers,
    **OF_SIMILARITIES,
    "importance_conditional": partial(all_layers.other_importance, way="conditional"),
    "importance_left_out": partial(all_layers.other_importance, way="left_out"),
    "methods": by_method.scores,
    "method_agreement": by_method.agreement,
    "noise_agreement": by_method.noise_agreement,
    "unit_scores": by_method.units,
    "baseline_decoding": partial(by_method.baseline, name="decoding"),
    "baseline_random_forest": partial(by_method.baseline, name="random-forest"),
    "baseline_univariate": partial(by_method.baseline, name="univariate"),
    "group_profiles": of_groups.profiles,
    "group_similarity": of_groups.similarity,
    "universality": of_groups.universality,
    "trajectories": of_groups.over_training,
    "audit": all_layers.audit,
    "multiverse": two_layers.claim,
    "feature_correlations": all_layers.feature_correlations,
    "feature_counts": all_layers.feature_counts,
    "values": of_values.one_matrix,
    "values_matrices": of_values.matrices,
    "values_layers": of_values.lines,
    "values_map": _of_chosen_layer,
    "values_map_a": _of_side(0),
    "values_map_b": _of_side(1),
    "values_compared": of_values.compared,
}


def draw(name: str, shown: Shown) -> Drawn | None:
    """A figure of the registry, with the names that `shown` has; None where there is none.

    The table for print has these names too; `data` keeps the identifiers.

    Raises
    ------
    InputError
        An unknown figure.
    """
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    names = shown.names
    with figures.naming(names):
        made = FIGURES[name](shown)
    if made is None:
        return None
    return replace(made, table=_named(made.printed, shown))


def _named(table: pd.DataFrame, shown: Shown) -> pd.DataFrame:
    """A table whose features, models and layers are called as in the figure."""
    heads = {one: shown.names.layer(one) for one in map(layer_name, shown.selection.layers)}
    return shown.names.table(table, shown.terms).rename(columns=heads)


def all_figures(shown: Shown, progress: Report | None = None) -> dict[str, Drawn]:
    """Every figure of the registry that there is of what is shown.

    Parameters
    ----------
    progress : called before each
    """
    drawn = {}
    for done, name in enumerate(FIGURES):
        if progress is not None:
            progress(Progress("drawing", None, done, len(FIGURES), "figures"))
        made = draw(name, shown)
        if made is not None:
            drawn[name] = made
    return drawn

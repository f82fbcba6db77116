"""The registry of an analysis's figures: how each is drawn for a capsule, its title and caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis import maps
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures import value_distances
from mlem_core.pairs.units import Units
from mlem_core.report import captions
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class Drawing:
    """How the figures of a capsule are drawn.

    Attributes
    ----------
    pair : the two layers that are compared; by default those of
        `Analysis.most_alike`
    store : where representations may be; without them there are no maps of the stimuli
    images : whether figures are SVG and PDF (which takes a browser, and seconds a figure) or HTML;
        by default what this machine can do
    """

    pair: tuple[Layer, Layer] | None = None
    store: Store | None = None
    images: bool | None = None


@dataclass(frozen=True)
class Shown:
    """What figures are drawn from: the analysis, what is selected of it, and its tables."""

    analysis: Analysis
    selection: Selection
    results: Results
    drawing: Drawing

    @property
    def all_features(self) -> list[str]:
        """Of the analysis, in its order; their place decides the colours."""
        return [feature.name for feature in self.analysis.stimuli.features]

    @property
    def terms(self) -> list[str]:
        """All features, and the interactions that matter most."""
        return figures.with_interactions(self.results.importance, self.all_features)

    @property
    def several(self) -> bool:
        """Whether there are two layers to compare."""
        return len(self.selection.layers) > 1

    @property
    def basis(self) -> str:
        """How and on how much the results were computed."""
        return basis(self.analysis, self.selection, self.results)

    @property
    def pair(self) -> tuple[Layer, Layer]:
        """The two layers that are compared."""
        return self.drawing.pair or self.analysis.most_alike(self.selection.layers)


class Drawn(NamedTuple):
    figure: go.Figure
    title: str
    caption: str


def basis(analysis: Analysis, selection: Selection, results: Results) -> str:
    """How and on how much results were computed: the last part of their figures' captions."""
    names = [feature.name for feature in analysis.stimuli.features]
    missing = analysis.stimuli.table[names].isna().to_numpy().any()
    fitted = captions.fitted(
        estimator_named(selection.estimator).caption,
        selection.interactions,
        analysis.spec.missing if missing else None,
        results.coding,
    )
    counts = results.n_stimuli, results.n_pairs, results.n_folds
    return f"{fitted} {captions.computed_on(*counts, held_out(analysis))}"


def held_out(analysis: Analysis) -> str:
    """What an analysis tests, in words."""
    return Units.of(analysis.stimuli).held_out(analysis.spec.folds_over)


def _profiles(shown: Shown) -> Drawn:
    return Drawn(
        figures.profiles(shown.results.importance, shown.results.scores, shown.terms),
        "Importance of each feature over the layers",
        captions.profiles(shown.basis, shown.results.coding),
    )


def _feature_correlations(shown: Shown) -> Drawn:
    results = shown.results
    return Drawn(
        figures.feature_correlations(results.feature_correlations),
        "Correlations of the feature distances",
        captions.feature_correlations(captions.computed_on(results.n_stimuli, results.n_pairs)),
    )


def _feature_counts(shown: Shown) -> Drawn:
    stimuli = shown.analysis.stimuli
    kinds = [(f.name, f.kind) for f in stimuli.features if f.name in shown.selection.features]
    return Drawn(
        figures.feature_counts(stimuli.table, kinds, shown.all_features),
        "Values of the features",
        captions.feature_counts(shown.results.n_stimuli),
    )


def _similarity(shown: Shown) -> Drawn | None:
    results = shown.results
    if not shown.several:
        return None
    return Drawn(
        figures.similarity_matrices(results.similarity_profiles, results.similarity_rsa),
        "Similarity of every two layers",
        captions.similarity(
            shown.basis, agreement=results.agreement, n_features=results.n_profile_features
        ),
    )


def _layer_maps(shown: Shown) -> Drawn | None:
    results = shown.results
    if not shown.several:
        return None
    return Drawn(
        figures.layer_maps(results.layer_map, results.importance),
        "Maps of the layers",
        captions.layer_maps(shown.basis),
    )


def _compare(shown: Shown) -> Drawn | None:
    results = shown.results
    if not shown.several:
        return None
    a, b = map(layer_name, shown.pair)
    return Drawn(
        figures.importance_scatter(
            results.importance,
            shown.pair,
            shown.terms,
            float(results.similarity_profiles.loc[a, b]),
            float(results.similarity_rsa.loc[a, b]),
        ),
        f"{a} and {b}",
        captions.compare(shown.basis, n_features=results.n_profile_features),
    )


def _stimulus_map(shown: Shown, side: int) -> Drawn | None:
    """The stimuli of one of the two layers, coloured by the feature that matters most there."""
    store, results, stimuli = shown.drawing.store, shown.results, shown.analysis.stimuli
    if store is None or not shown.several:
        return None
    model, layer = shown.pair[side]
    try:
        points = maps.stimulus_map(shown.analysis, model, layer, store)
    except InputError:
        return None  # the representations are no longer there
    table = results.importance
    table = table[(table["model"] == model) & (table["layer"] == layer)]
    table = table[table["feature"].isin(shown.selection.features)]
    color = str(table.groupby("feature")["importance"].mean().idxmax())
    kind = next(feature.kind for feature in stimuli.features if feature.name == color)
    cells = stimuli.table.iloc[points["stimulus"]].reset_index(drop=True)
    title = f"{model} layer {layer}"
    return Drawn(
        figures.stimulus_map(
            points.assign(**{"label": cells["sentence"], color: cells[color]}), color, kind, title
        ),
        title,
        captions.stimulus_map(len(points), len(stimuli), color),
    )


def _values(shown: Shown) -> tuple[pd.DataFrame, str] | None:
    """The table of values, and the feature that matters most of those with values told apart."""
    results = shown.results
    if not results.resolved:
        return None
    return results.value_distances, results.most_important(results.resolved)


def _value_matrices(shown: Shown) -> Drawn | None:
    values = _values(shown)
    if values is None:
        return None
    return Drawn(
        figures.value_matrices(*values, shown.selection.layers),
        f"Distances of the values of {values[1]}",
        captions.value_matrices(values[1], shown.basis),
    )


def _value_lines(shown: Shown) -> Drawn | None:
    values = _values(shown)
    if values is None or not shown.several:
        return None
    return Drawn(
        figures.value_lines(*values),
        f"Distances of the values of {values[1]} over the layers",
        captions.value_lines(values[1], shown.basis),
    )


def _value_map(shown: Shown, side: int) -> Drawn | None:
    """The values in one of the two layers."""
    values = _values(shown)
    if values is None or not shown.several:
        return None
    model, layer = shown.pair[side]
    title = f"{model} layer {layer}"
    return Drawn(
        figures.value_map(value_distances.value_map(*values, (model, layer)), title),
        f"Values of {values[1]} in {title}",
        captions.value_map(values[1], shown.basis),
    )


def _values_compared(shown: Shown) -> Drawn | None:
    values = _values(shown)
    if values is None or not shown.several:
        return None
    compared = value_distances.compare_layers(*values, *shown.pair)
    a, b = map(layer_name, shown.pair)
    return Drawn(
        figures.value_scatter(compared.table, shown.pair, compared.rho),
        f"Distances of the values of {values[1]} in {a} and {b}",
        captions.value_scatter(values[1], shown.basis),
    )


# Each by the name of its file; None where there is nothing to draw.
FIGURES: dict[str, Callable[[Shown], Drawn | None]] = {
    "profiles": _profiles,
    "feature_correlations": _feature_correlations,
    "feature_counts": _feature_counts,
    "similarity": _similarity,
    "layer_maps": _layer_maps,
    "compare": _compare,
    "stimulus_map_a": lambda shown: _stimulus_map(shown, 0),
    "stimulus_map_b": lambda shown: _stimulus_map(shown, 1),
    "values": _value_matrices,
    "values_layers": _value_lines,
    "values_map_a": lambda shown: _value_map(shown, 0),
    "values_map_b": lambda shown: _value_map(shown, 1),
    "values_compared": _values_compared,
}


def all_figures(shown: Shown) -> dict[str, Drawn]:
    """Every figure of the registry that there is of what is shown."""
    drawn = {name: draw(shown) for name, draw in FIGURES.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}

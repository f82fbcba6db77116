"""How far apart the values of a feature are: in the layers of a view, and in two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions
from pages.parts import choices, exporting, naming
from pages.parts.exporting import Panel
from pages.parts.other_tables import values_to_tell_apart
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results
    from mlem_core.base.typing import Layer
    from pages.parts.view import View

TITLE = "Values told apart"
MOST_MATRICES = 6


def in_layers(view: View, results: Results) -> None:
    """The distances of the values of a feature: in one layer, with their map, and over layers."""
    from mlem_core import figures
    from mlem_core.measures.value_distances import value_map, value_map_stress

    if not results.resolved:
        _offer(view)
        return
    table, basis = results.value_distances, view.caption(results)
    first, second = st.columns(2)
    with first:
        feature = _feature(results)
    with second:
        name = choices.choose_one(
            "Layer",
            view.layer_names,
            "at",
            view.layer_names[len(view.layers) // 2],
            format_func=naming.layer,
            help="The layer of the large matrix and of the map.",
        )
    layer, called = parse_layer(name), naming.now().feature(feature)
    own = table[table["feature"] == feature]
    left, right = st.columns(2, gap="large")
    with left:
        Panel(
            figures.value_matrices(table, feature, [layer]),
            own[(own["model"] == layer[0]) & (own["layer"] == layer[1])],
            "values",
            captions.value_matrices(called, basis),
        ).show()
    with right:
        points = value_map(table, feature, layer)
        Panel(
            figures.value_map(points, naming.layer(name), value_map_stress(table, feature, layer)),
            points,
            "values-map",
            captions.value_map(called, basis),
        ).show()
    if len(view.layers) > 1:
        Panel(
            figures.value_lines(table, feature),
            own[own["value_a"] != own["value_b"]],
            "values-layers",
            captions.value_lines(called, basis),
        ).show()
        shown = _spaced(view.layers)
        Panel(
            figures.value_matrices(table, feature, shown, across=2),
            own,
            "values-matrices",
            captions.value_matrices(called, _some(shown, view) + basis),
        ).show()
    exporting.draw_table(own, "value-distances", captions.value_table(called))


def in_two(view: View, results: Results, a: str, b: str) -> None:
    """The distances of the values of a feature in two layers against each other."""
    from mlem_core import figures
    from mlem_core.measures.value_distances import compare_layers

    if not results.resolved:
        _offer(view)
        return
    feature = _feature(results)
    pair = parse_layer(a), parse_layer(b)
    compared = compare_layers(results.value_distances, feature, *pair)
    Panel(
        figures.value_scatter(compared.table, pair, compared.rho),
        compared.table,
        "values-compared",
        captions.value_scatter(naming.now().feature(feature), view.caption(results)),
    ).show()


def _feature(results: Results) -> str:
    """The feature that is looked at; at first the one that matters most."""
    return choices.choose_one(
        "Feature",
        list(results.resolved),
        "valued",
        results.most_important(results.resolved),
        format_func=naming.of_features(results.resolved),
        help="Of the features whose values are told apart.",
    )


def _spaced(layers: list[Layer]) -> list[Layer]:
    """At most `MOST_MATRICES` of the layers, evenly spaced."""
    at = np.linspace(0, len(layers) - 1, min(len(layers), MOST_MATRICES)).round().astype(int)
    return [layers[i] for i in dict.fromkeys(at.tolist())]


def _some(shown: list[Layer], view: View) -> str:
    return "" if len(shown) == len(view.layers) else (
        f"{len(shown)} of the {len(view.layers)} layers are drawn; the table has all. "
    )  # fmt: skip


def _offer(view: View) -> None:
    """What could be seen, and the button that makes it."""
    names = [name for name in values_to_tell_apart(view.job_id) if name in view.features]
    if not names:
        st.caption(
            "Here one would see how far apart the values of a feature are. No feature of this "
            "analysis has values that are better told apart: it takes at least three values, and "
            "enough pairs of stimuli for each two."
        )
        return
    named = ", ".join(map(naming.of_features(names), names))
    st.caption(
        f"Features say only whether they differ here. With the values of {plain(named)} told apart "
        "one sees which of them a layer holds together, how far it sets others apart, and where "
        "that changes over the layers."
    )
    if st.button(
        f"Tell apart the values of {plain(named)}",
        icon=":material/call_split:",
        on_click=lambda: choices.choose_now("apart", ["yes"]),
        help="Makes the pair tables once, in the background, from the stored representations.",
    ):
        st.rerun()

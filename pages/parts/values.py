"""Distances between the values of a feature: in the layers of a view, and in two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import choices, exporting, naming
from pages.parts.choices import plain
from pages.parts.exporting import Panel
from pages.parts.method import values_to_tell_apart

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results
    from pages.parts.view import View

TITLE = "Features coded by value"


def show_in_layers(view: View) -> None:
    """The distances of the values of a feature: in one layer, with their map, and over layers."""
    results = view.results
    if not results.resolved:
        _offer(view)
        return
    from mlem_core.inference.importance_chance import above_chance, chance_in_words

    first, second = st.columns(2)
    with first:
        feature = _feature(results)
    with second:
        layer = choices.choose_one(
            "Layer",
            view.layer_names,
            "at",
            view.layer_names[len(view.layers) // 2],
            format_func=naming.layer,
            help="The layer of the large matrix and of the map.",
        )
    above = above_chance(view.shown().importance_chance, parse_layer(layer), feature)
    called = naming.now().feature(feature)
    st.caption(plain(chance_in_words(above, called, naming.layer(layer))))
    left, right = st.columns(2, gap="large")
    for figure, place in (
        ("values", left),
        ("values_map", right),
        ("values_layers", st.container()),
        ("values_matrices", st.container()),
    ):
        panel = Panel.of(view, figure, feature=feature, layer=layer)
        if panel is not None:
            with place:
                panel.show()
    from mlem_core.figures.value_distances import table_caption

    table = results.value_distances
    own = table[table["feature"] == feature]
    exporting.draw_table(own, "value-distances", table_caption(called))


def show_in_two(view: View) -> None:
    """The distances of the values of a feature in two layers against each other."""
    if view.results.resolved:
        exporting.show_figure(view, "values_compared", feature=_feature(view.results))
    else:
        _offer(view)


def _feature(results: Results) -> str:
    """The feature that is looked at; at first the one that matters most."""
    return choices.choose_one(
        "Feature",
        list(results.resolved),
        "valued",
        results.most_important(results.resolved),
        format_func=naming.of_features(results.resolved),
        help="Of the features that are coded by value.",
    )


def _offer(view: View) -> None:
    """Button that codes features by value, and what it would show."""
    names = [name for name in values_to_tell_apart(view.job_id) if name in view.features]
    if not names:
        st.caption(
            "No feature of this analysis can be coded by value. A feature needs at least three "
            "values, and enough pairs of stimuli for each two."
        )
        return
    named = ", ".join(map(naming.of_features(names), names))
    st.caption(
        f"Features are coded as same or different here. Coded by value, {plain(named)} also shows "
        "which values a layer holds together, and how far apart it puts others."
    )
    if st.button(
        f"Code {plain(named)} by value",
        icon=":material/call_split:",
        on_click=lambda: choices.put("apart", ["yes"]),
        help="Makes the pair tables once, from the stored representations.",
    ):
        st.rerun()

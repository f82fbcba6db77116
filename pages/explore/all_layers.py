"""All layers at once: which pairs surprise, what makes the models alike, and their maps."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from pages.explore import groups, model_maps, surprising
from pages.parts import alike, frame, linked, naming, tables
from pages.parts.exporting import Panel
from pages.parts.view import View


def show(view: View) -> None:
    if len(view.layers) < 2:
        st.info("There is one layer: no two to compare.", icon=":material/info:")
        return
    if view.results() is None:
        return
    surprising.show(view)
    groups.show(view)
    st.subheader("Maps of the layers")
    _maps(view)
    model_maps.show(view)
    frame.attempt(partial(_models_alike, view))


# A fragment, so that choosing a layer draws nothing but this.
@st.fragment
def _maps(view: View) -> None:
    frame.attempt(partial(_clickable_maps, view))


def _clickable_maps(view: View) -> None:
    place = st.container()
    st.markdown("Click two layers, one after the other, to look at them.")
    panel = Panel.of(view, "layer_maps", "layer-map")
    if panel is not None:
        chosen = panel.select("points", "lasso")
        with place:
            linked.one_after_the_other(view, chosen, "map")


def _models_alike(view: View) -> None:
    from mlem_core.pairs.similarities import similarity_named
    from mlem_core.report.all_layers import models_alike

    st.subheader("What makes the models alike")
    alike.choose()
    alike.offer(view)
    there = alike.of(view) is not None and alike.has_terms(view)
    chosen: dict[str, Any] = {"similarity": alike.chosen()} if there else {}
    shown, panel = view.shown(**chosen), Panel.of(view, "why_layers", **chosen)
    if shown is None or panel is None:
        return
    means = models_alike(shown)
    terms = naming.of_features(list(means["term"]))
    st.dataframe(
        tables.without_minus_zero(means.assign(term=means["term"].map(terms))),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in means.columns[1:]
        },
    )
    similarity = similarity_named(chosen.get("similarity", alike.RSA))
    st.caption(
        "What makes the models alike: for every two models (and within each) the mean of each term "
        "over their pairs of layers; a column adds up to the mean "
        f"{similarity.called}. {shown.computed_on}"
    )
    panel.show()

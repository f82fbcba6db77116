"""All layers at once: which pairs surprise, what makes the models alike, and their maps."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.explore import groups, notable, stimuli
from pages.parts import alike, exporting, frame, naming, navigation, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View, has_pairs
from pages.parts.wording import without_minus_zero


def show_all_layers(view: View) -> None:
    """What all layers show together."""
    if not has_pairs(view) or view.results() is None:
        return
    notable.show_surprises(view)
    groups.show_groups(view)
    st.subheader("Maps of the layers")
    frame.alone(partial(_clickable_maps, view))
    stimuli.show_model_maps(view)
    frame.attempt(partial(_models_alike, view))
    exporting.show_tab(view, "all")


def _clickable_maps(view: View) -> None:
    place = st.container()
    st.markdown("Click two layers, one after the other, to look at them.")
    panel = Panel.of(view, "layer_maps", "layer-map")
    if panel is not None:
        chosen = panel.select("points", "lasso")
        with place:
            navigation.one_after_the_other(view, chosen, "map")


def _models_alike(view: View) -> None:
    from mlem_core.figures.captions import of_chance
    from mlem_core.figures.terms import models_alike
    from mlem_core.pairs.similarities import RSA, SIMILARITIES

    st.subheader("What makes the models alike")
    of_layers = alike.choose_similarity(view)
    chosen = alike.option(of_layers)
    if of_layers.similarity.no_terms:
        said = f"{of_layers.similarity.no_terms} What follows is RSA."
        st.info(said, icon=":material/info:")
        chosen = {}
    shown, panel = view.shown(**chosen), Panel.of(view, "why_layers", **chosen)
    if shown is None or panel is None:
        return
    means = models_alike(shown)
    terms = naming.of_features(list(means["term"]))
    uncertainty.offer_intervals(view, chosen.get("similarity", RSA))
    st.dataframe(
        without_minus_zero(means.assign(term=means["term"].map(terms))),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in means.columns[1:]
        },
    )
    similarity = SIMILARITIES[chosen.get("similarity", RSA)]
    st.caption(
        "What makes the models alike: for every two models (and within each) the mean of each term "
        "over their pairs of layers; a column adds up to the mean "
        f"{similarity.called}. {of_chance(shown.chance)} {shown.computed_on}"
    )
    panel.show()

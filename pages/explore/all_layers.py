"""All layers at once: pairs that surprise, contributions by model, and their maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from pages.explore import groups, notable, stimuli
from pages.parts import alike, choices, exporting, frame, naming, navigation, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View, has_pairs
from pages.parts.wording import without_minus_zero

PARTS: dict[str, tuple[str, Callable[[View], None]]] = {
    "map": ("Layer map", lambda view: _maps(view)),
    "groups": ("Groups", groups.show_groups),
    "terms": ("Contributions", lambda view: _models_alike(view)),
    "surprises": ("Surprises", notable.show_surprises),
}


def show_all_layers(view: View) -> None:
    """Figures of all layers together, a part at a time."""
    if not has_pairs(view) or view.results() is None:
        return
    part = choices.choose_part("Part", {name: title for name, (title, _) in PARTS.items()}, "part")
    frame.attempt(partial(PARTS[part][1], view))


def _maps(view: View) -> None:
    frame.alone(partial(_clickable_maps, view))
    stimuli.show_model_maps(view)
    exporting.show_tab(view, "all")


def _clickable_maps(view: View) -> None:
    place = st.container()
    panel = Panel.of(view, "layer_maps", "layer-map")
    if panel is not None:
        chosen = panel.select("points", "lasso")
        with place:
            navigation.one_after_the_other(view, chosen, "map")


def _models_alike(view: View) -> None:
    from mlem_core.figures.captions import of_chance
    from mlem_core.figures.terms import models_alike
    from mlem_core.pairs.similarities import RSA, SIMILARITIES

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
        "Mean of each contribution over the pairs of layers of every two models (and within each). "
        "A column adds up to the mean "
        f"{similarity.called}. {of_chance(shown.chance)} {shown.computed_on}"
    )
    panel.show()

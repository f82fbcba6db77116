"""All layers at once: which pairs surprise, what makes the models alike, and their maps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.report import captions
from mlem_core.report.tables import means_of_models
from pages.explore import groups, model_maps, surprising
from pages.explore.terms import computed_on, decomposition_of
from pages.parts import alike, frame, linked, naming, tables
from pages.parts.exporting import Panel
from pages.parts.view import View

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results


def show(view: View) -> None:
    if len(view.layers) < 2:
        st.info("There is one layer: no two to compare.", icon=":material/info:")
        return
    results = view.results()
    if results is None:
        return
    surprising.show(view, results)
    groups.show(view, results)
    st.subheader("Maps of the layers")
    _maps(view, results)
    model_maps.show(view)
    frame.attempt(partial(_models_alike, view))


# A fragment, so that choosing a layer draws nothing but this.
@st.fragment
def _maps(view: View, results: Results) -> None:
    frame.attempt(partial(_clickable_maps, view, results))


def _clickable_maps(view: View, results: Results) -> None:
    from mlem_core import figures

    draw = partial(
        figures.layer_maps, results.layer_map, results.importance, stress=results.map_stress
    )
    place = st.container()
    st.markdown("Click two layers, one after the other, to look at them.")
    chosen = Panel(
        draw(),
        results.layer_map,
        "layer-map",
        captions.layer_maps(view.caption(results)),
        narrow=partial(draw, across=1),
    ).select("points", "lasso")
    with place:
        linked.one_after_the_other(view, chosen, "map")


def _models_alike(view: View) -> None:
    from mlem_core import figures
    from mlem_core.pairs.similarities import similarity_named

    st.subheader("What makes the models alike")
    alike.choose()
    alike.offer(view)
    there = alike.of(view) is not None and alike.has_terms(view)
    name = alike.chosen() if there else alike.RSA
    similarity, decomposition = similarity_named(name), decomposition_of(view, name)
    means = decomposition.summary(view.layers)
    model = naming.of_models(list(dict.fromkeys(name for name, _ in view.layers)))
    called = {side: means[side].map(model) for side in ("model_a", "model_b")}
    wide = means_of_models(means.assign(**called))
    st.dataframe(
        tables.without_minus_zero(
            wide.assign(term=wide["term"].map(naming.of_features(decomposition.names)))
        ),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in wide.columns[1:]
        },
    )
    st.caption(
        "What makes the models alike: for every two models (and within each) the mean of each term "
        "over their pairs of layers; a column adds up to the mean "
        f"{similarity.called}. " + computed_on(view)
    )
    draw = partial(
        figures.term_matrices,
        {term: decomposition.matrix(term, view.layers) for term in decomposition.names},
    )
    Panel(
        draw(),
        decomposition.table(view.layers).rename(columns={"rsa": name}),
        "why-layers",
        captions.why_layers(computed_on(view), similarity),
        narrow=partial(draw, across=2),
        options={} if name == alike.RSA else {"similarity": name},
    ).show()

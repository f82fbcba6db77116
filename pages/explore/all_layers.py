"""All layers at once: which pairs surprise, what makes the models alike, and their maps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions
from pages.explore.why import computed_on
from pages.parts import frame, linked, stored
from pages.parts.exporting import Panel
from pages.parts.view import View

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results
    from mlem_core.measures.decomposition import Decomposition


@st.cache_data(max_entries=8, show_spinner="Dividing all similarities over the features …")
def _decomposition(
    job_id: str, features: tuple[str, ...], layers: tuple[str, ...]
) -> Decomposition:
    from mlem_core.measures.decomposition import decompose

    analysis = stored.open_analysis(job_id)
    at = [analysis.layers.index(parse_layer(layer)) for layer in layers]
    tables = analysis.tables.of_layers(at).of_features(features)
    return decompose(tables, analysis.rsa[at][:, at])


def decomposition_of(view: View) -> Decomposition:
    """The similarity of every two layers of a view as a sum over its features."""
    return _decomposition(view.job_id, view.selection.features, tuple(view.layer_names))


def show(view: View) -> None:
    if len(view.layers) < 2:
        st.info("There is one layer: no two to compare.", icon=":material/info:")
        return
    results = view.results()
    if results is None:
        return
    st.subheader("Maps of the layers")
    frame.attempt(partial(_maps, view, results))
    frame.attempt(partial(_models_alike, view))


# A fragment, so that choosing a layer draws nothing but this.
@st.fragment
def _maps(view: View, results: Results) -> None:
    from mlem_core import figures

    draw = partial(figures.layer_maps, results.layer_map, results.importance)
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

    st.subheader("What makes the models alike")
    decomposition = decomposition_of(view)
    means = decomposition.summary(view.layers)
    pairs = (means["model_a"] + " and " + means["model_b"]).where(
        means["model_a"] != means["model_b"], "within " + means["model_a"]
    )
    st.dataframe(
        means.assign(pair=pairs).pivot(index="term", columns="pair", values="mean")
        .loc[list(decomposition.names), pairs.unique()].reset_index(),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in pairs.unique()
        },
    )  # fmt: skip
    st.caption(
        "What makes the models alike: for every two models (and within each) the mean of each term "
        "over their pairs of layers; a column adds up to the mean RSA correlation. "
        + computed_on(view)
    )
    Panel(
        figures.term_matrices(
            {term: decomposition.matrix(term, view.layers) for term in decomposition.names}
        ),
        decomposition.table(view.layers),
        "why-layers",
        captions.why_layers(computed_on(view)),
    ).show()

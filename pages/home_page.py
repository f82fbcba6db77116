"""Home: what was found, in words and in one figure, and the ways on from there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import layer_name
from pages.parts import (
    alike,
    choices,
    frame,
    my_analyses,
    naming,
    navigation,
    opening,
    uncertainty,
)
from pages.parts.screens import SCREENS
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.similarities import LayerSimilarity
    from mlem_core.robustness.flags import Finding
    from pages.parts.view import View


def home_body() -> None:
    if any(name in st.query_params for name in choices.FORM):
        # An address of before there was a Home: it was the form's.
        st.switch_page(SCREENS["new"].file)
    st.title("MLEM Explorer")
    st.markdown(
        "See how alike the layers of language models represent your words or sentences, and which "
        "features make them so."
    )
    with st.container(horizontal=True):
        if st.button(
            "Analyse your own",
            type="primary",
            icon=SCREENS["new"].icon,
            help="Opens the page New analysis, where stimuli and models are chosen.",
        ):
            choices.put("step", None)  # whichever step was open last
            st.switch_page(SCREENS["new"].file)
        if st.button(
            "Two-minute tour",
            icon=":material/tour:",
            help="Three steps through the views, with what to look at in each.",
        ):
            navigation.begin_tour()
    frame.attempt(_shown)
    frame.attempt(my_analyses.show_my_analyses)


def _shown() -> None:
    job_id = opening.shown()
    if not job_id:
        st.info("There is no analysis yet; begin with your own.", icon=":material/info:")
        return
    if choices.get_one("analysis") not in (job_id, ""):
        st.caption("The chosen analysis has nothing to show yet; this is another one.")
    view = opening.whole_view(job_id)
    opening.say_what(job_id, view.analysis)
    if len(view.layers) < 2:
        st.info("It has one layer only: there are no two to compare.", icon=":material/info:")
        return
    frame.alone(partial(_finding, view))


def _finding(view: View) -> None:
    from mlem_core import figures

    of_layers, (a, b) = alike.compared_layers(view), view.pair
    if a == b:
        a, b = map(layer_name, view.analysis.most_alike(values=of_layers.values))
    by = of_layers.similarity
    finding = alike.finding(view, alike.explanation(view, a, b, by.name))
    left, right = st.columns(2, gap="large")
    with left:
        with st.container(border=True):
            _groups(view)
            alike.show_finding(view, finding)
        if by.divides:
            unit = () if by.of_ranks else (by.unit,)
            _chart(
                figures.waterfall(finding.why.terms, view.all_features, *unit),
                "home-why",
                f"The {by.called} of {naming.layer(a)} and {naming.layer(b)} as a sum over the "
                "features.",
            )
        _ways_on(view, a, b)
    with right:
        st.markdown("**How alike any two layers are.** Click a cell to look at its two layers.")
        _matrix(view, of_layers, finding)


def _groups(view: View) -> None:
    """What matters most in each group of models; nothing where no group has two."""
    from mlem_core.groups.summary import GroupSummary

    results = view.results() if view.analysis.spec.has_seeds else None
    if results is None:
        return
    bounds, names = uncertainty.intervals_of(view), naming.now()
    summary = GroupSummary(view.analysis, results, view.selection, bounds, names=names)
    found = summary.top_features
    if found is not None:
        st.markdown(f"##### {plain(found.headline)}")
        st.markdown(plain(found.how_sure))


def _matrix(view: View, of_layers: LayerSimilarity, finding: Finding) -> None:
    from mlem_core import figures

    by = of_layers.similarity
    flags = uncertainty.flag_reasons(view, by.name).get(by.name, {})

    def choose() -> None:
        navigation.look_at_cell(view, st.session_state["figure home"]["selection"]["points"])

    _chart(
        figures.partial_matrix(of_layers.square, by.unit, finding.why.layers, flags, small=True),
        "home",
        f"The {by.called} of every two of the {len(view.layers)} layers.",
        on_select=choose,
        selection_mode="points",
    )


def _chart(figure: Any, name: str, alt: str, **selecting: Any) -> None:
    """A figure without a caption for print: its export is on the page that it leads to."""
    st.plotly_chart(
        figure,
        key=f"figure {name}",
        theme="streamlit",
        config={"displayModeBar": False},
        alt=alt,
        **selecting,
    )


def _ways_on(view: View, a: str, b: str) -> None:
    explore, trust = SCREENS["explore"], SCREENS["trust"]
    with st.container(horizontal=True):
        if st.button(
            "Explore these two",
            icon=explore.icon,
            key="home explore",
            help="Opens the page Explore with these two layers.",
        ):
            navigation.explore(view, a, b, tab="pairs", look="why")
        if st.button(
            "Trust it?",
            icon=trust.icon,
            key="home trust",
            help="Opens the page Trust: intervals, tests, the audit, and claims under other "
            "analysis variants.",
        ):
            navigation.look_at(view, a, b)
            st.switch_page(trust.file)


frame.page(home_body)

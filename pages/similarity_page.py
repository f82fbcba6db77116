"""Figure 2 of paper 1: how alike the layers are, with the features and without them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import layer_name
from mlem_core.report import captions
from pages.parts import audited, choices, frame, tables, uncertainty
from pages.parts.exporting import Panel
from pages.parts.opening import open_view
from pages.parts.screens import SCREENS
from pages.parts.view import View
from pages.parts.wording import layer_label, plain

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results


def body() -> None:
    view = open_view(
        "similarity",
        "How alike any two layers are: by the features that shape them (left) and by their "
        "distances alone (right).",
    )
    if view is None:
        return
    results = view.results()
    if results is None:
        return
    st.metric(
        "Agreement of the two (Spearman ρ)",
        "–" if math.isnan(results.agreement) else f"{results.agreement:.2f}",
        **uncertainty.around(uncertainty.agreement(view)),
        help="Spearman ρ of the upper triangles of the two matrices: 1 where the features order "
        "the pairs of layers as their distances do. It needs three layers.",
    )
    _matrices(view, results)
    st.subheader("Layer maps")
    _maps(view, results)


# Fragments, so that choosing a cell or a layer draws nothing but its own part of the page.
@st.fragment
def _matrices(view: View, results: Results) -> None:
    from mlem_core import figures
    from mlem_core.inference.tables import similarity_table

    flags = audited.reasons(view)
    intervals = uncertainty.of(view)
    correction = uncertainty.chosen_correction()
    tested = None if intervals is None else similarity_table(intervals, view.layers, correction)
    draw = partial(
        figures.similarity_matrices,
        results.similarity_profiles,
        results.similarity_rsa,
        annotations=figures.Annotations(None if tested is None else tested.table, flags),
    )
    caption = captions.similarity(
        view.caption(results),
        "" if tested is None else tested.family,
        "" if intervals is None else intervals.units.over,
        flagged=bool(flags),
        n_features=results.n_profile_features,
    )
    place = st.container()
    chosen = Panel(
        draw(),
        tables.pairs_of_layers(results) if tested is None else tested.table,
        "similarity",
        f"Click a cell to choose its two layers. {caption}",
        narrow=partial(draw, across=1),
    ).select("points")
    uncertainty.offer(view)
    if intervals is not None and tested is not None:
        uncertainty.tests(
            intervals,
            tested,
            "similarity-tests",
            "Intervals and tests",
            "Of both similarities of every two layers; rsa_p says whether RSA is other than 0. "
            "The interval of τ is that of profiles drawn with the errors of their importances; it "
            "is a rough guide where few features matter.",
        )
    points = [tuple(point["customdata"]) for point in chosen if "customdata" in point]
    if points:
        a, b, c, d = points[0][:4]
        with place:
            _pair(view, results, layer_name((a, b)), layer_name((c, d)), "cell")


@st.fragment
def _maps(view: View, results: Results) -> None:
    from mlem_core import figures

    draw = partial(figures.layer_maps, results.layer_map, results.importance)
    place = st.container()
    chosen = Panel(
        draw(),
        results.layer_map,
        "layer-map",
        "Click two layers, one after the other, to compare them; the pointer over a layer shows "
        f"its most important features. {captions.layer_maps(view.caption(results))}",
        narrow=partial(draw, across=1),
    ).select("points", "lasso")
    now = [layer_name(point["customdata"][:2]) for point in chosen]
    now = [layer for layer in dict.fromkeys(now) if layer in view.layer_names]
    # One click after the other: the layer of the click before is the other one of the pair.
    clicked = st.session_state.setdefault(f"clicked {view.job_id}", [])
    if now and now != clicked[-len(now) :]:
        clicked[:] = [*(layer for layer in clicked if layer not in now), *now][-2:]
    clicked[:] = [layer for layer in clicked if layer in view.layer_names]
    with place:
        if len(clicked) == 2:
            _pair(view, results, clicked[0], clicked[1], "map")
        elif clicked:
            st.info(
                f"{plain(layer_label(clicked[0]))} is chosen; click a second layer.",
                icon=":material/ads_click:",
            )


def _pair(view: View, results: Results, a: str, b: str, where: str) -> None:
    """The two layers that were chosen, and the way to look at them."""
    tau = float(results.similarity_profiles.loc[a, b])
    rsa = float(results.similarity_rsa.loc[a, b])
    around_tau, around_rsa = (
        "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
        for interval in uncertainty.of_pair(uncertainty.of(view), a, b)
    )
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{plain(layer_label(a))}** and "
            f"**{plain(layer_label(b))}**: weighted Kendall τ "
            + plain(f"{tau:.2f}{around_tau}, RSA Spearman ρ {rsa:.2f}{around_rsa}"),
            width="content",
        )
        for label, url_path in (("Compare these two", "compare"), ("Why alike?", "why")):
            screen = SCREENS[url_path]
            if st.button(
                label,
                icon=screen.icon,
                key=f"{screen.title} {where}",
                type="primary" if url_path == "compare" else "secondary",
                help=f"Opens the page {screen.title} with these two layers.",
            ):
                choices.choose_now("a", [a])
                choices.choose_now("b", [b])
                st.switch_page(screen.file)


frame.page(body)

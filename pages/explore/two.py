"""Figure 4 of paper 1: two layers side by side."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import layer_name, parse_layer
from mlem_core.report import captions, tables
from pages.explore import stimuli, values
from pages.parts import alike, audited, choices, exporting, frame, naming, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain, without_minus_zero

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results
    from mlem_core.base.typing import Layer

NOTHING = "-"  # as the second feature that divides the stimuli


def show_features(view: View, a: str, b: str) -> None:
    """Which features matter in each of two layers."""
    results = view.results()
    if results is None:
        return
    exporting.show_figure(view, "compare")
    _similarities(view, results, a, b)
    uncertainty.offer_intervals(view)
    audited.say_of_pair(view, a, b)
    frame.folded(
        values.TITLE,
        ":material/call_split:",
        "values",
        partial(values.show_in_two, view, results),
    )


def show_maps(view: View, a: str, b: str) -> None:
    """How each of two layers lays out the stimuli."""
    called = naming.of_features(view.all_features)
    first, second = st.columns(2)
    with first:
        colour = stimuli.choose_colour(
            view, "The feature that colours the two maps of the stimuli."
        )
    others = [NOTHING, *(name for name in view.all_features if name != colour)]
    with second:
        within = choices.choose_one(
            "Divided again by",
            others,
            "within",
            NOTHING,
            format_func=lambda one: "nothing" if one == NOTHING else called(one),
            help="A second feature: its groups inside those of the first, with their centres.",
        )
    by = {"color": colour, "within": "" if within == NOTHING else within}
    _maps(view, [parse_layer(a), parse_layer(b)], by)


def _similarities(view: View, results: Results, a: str, b: str) -> None:
    around_tau, around_rsa = uncertainty.intervals_of_pair(uncertainty.intervals_of(view), a, b)
    left, right = st.columns(2)
    left.metric(
        "By features (weighted τ)",
        f"{results.similarity_profiles.loc[a, b]:.2f}",
        **uncertainty.around(around_tau),
        help="Weighted Kendall τ of the two importance profiles; 1 is the same order. "
        + captions.tau_by_chance(results.n_profile_features),
    )
    right.metric(
        "By distances (RSA)",
        f"{results.similarity_rsa.loc[a, b]:.2f}",
        **uncertainty.around(around_rsa),
        help="Spearman ρ of the neural distances of the two layers over all pairs.",
    )
    other = alike.compared_layers(view)
    if other is not None:
        st.metric(
            f"{other.similarity.title.capitalize()} ({other.similarity.short})",
            f"{other.square.loc[a, b]:.2f}",
            help=f"{other.similarity.called.capitalize()}: {other.similarity.meaning}.",
        )
    st.dataframe(
        naming.now().table(without_minus_zero(tables.importance_of(results, a, b))),
        hide_index=True,
        key="importances",
        column_config={
            name: st.column_config.NumberColumn(naming.now().layer(name), format="%.3f")
            for name in dict.fromkeys((a, b))
        },
    )


@st.fragment
def _maps(view: View, chosen: list[Layer], by: dict[str, str]) -> None:
    """The stimuli in both layers; what is selected in one is marked in the other, and listed."""
    key = f"marked {view.job_id} {chosen}"
    marked: list[int] = st.session_state.setdefault(key, [])
    for layer, place in zip(chosen, "ab", strict=True):
        frame.attempt(partial(_show_map, view, layer, by, place, key))
    if not marked:
        st.caption(
            "Click a stimulus, or draw a box or a lasso around some: they are marked in both maps "
            "and listed here."
        )
        return
    st.button(
        "Mark none",
        icon=":material/deselect:",
        key="mark none",
        on_click=lambda: st.session_state.update({key: [], f"{key} last": None}),
        help="Takes the marks away in both maps.",
    )
    shown = view.analysis.stimuli.table.iloc[marked]
    columns = [c for c in ("word", "sentence") if c in shown.columns]
    exporting.show_table(
        shown[[*columns, *view.all_features]],
        "marked-stimuli",
        f"{len(marked):,} stimuli are marked",
        "The stimuli that are marked in the maps, with their features.",
        first=True,
        features=view.all_features,
    )


def _show_map(view: View, layer: Layer, by: dict[str, str], place: str, key: str) -> None:
    from mlem_core.report.two_layers import points_of

    shown = view.shown()
    if shown is None:
        return
    with st.spinner(f"Laying out the stimuli of {plain(naming.layer(layer_name(layer)))} …"):
        points_of(shown, layer)  # where it cannot be had, this says why
    marked = tuple(st.session_state[key])
    figure, name = f"stimulus_map_{place}", f"stimuli-{place}"
    panel = Panel.of(view, figure, name, marked=marked, **by)
    chosen = [] if panel is None else panel.select("points", "box", "lasso")
    now = sorted({int(point["customdata"][0]) for point in chosen})
    # A map that is drawn anew reports no selection: only a new one counts, "Mark none" ends it.
    last = f"{key} last"
    if now and st.session_state.get(last) != (place, now):
        st.session_state[last] = (place, now)
        st.session_state[key] = now
        st.rerun(scope="fragment")

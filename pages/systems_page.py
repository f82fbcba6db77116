"""Systems: how far apart models (or subjects) are, what sets them apart, and two of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core.base.text import fraction, many
from mlem_core.extensions.systems.figures import system_cells
from mlem_core.extensions.systems.halves import FEWEST
from mlem_core.extensions.systems.stage import compared_systems, group_summary, measures
from mlem_core.extensions.systems.summary import GroupSummary
from pages.parts import choices, exporting, frame, stored, uncertainty
from pages.parts.choices import inform, plain
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.screens import SCREENS
from pages.parts.view import View

NEAREST = 4  # systems that are named
ORDERS = {"model": "by group", "clustering": "similar ones together"}


def _show_systems(view: View) -> None:
    models = {model for model, _ in view.layers}
    if len(models) < FEWEST:
        inform(
            f"Found {many(len(models), 'model')}; this page compares {FEWEST} or more. Choose them "
            "on the page New analysis."
        )
        return
    with st.spinner("Comparing the systems …"):
        summary = group_summary(view.shown())
        table = summary.distance_table
    frame.alone(partial(_overview, view, summary, table))
    uncertainty.offer_intervals(view)
    related = summary.properties is not None and len(summary.properties.values) > 2
    paths, correlations = (
        partial(exporting.show_figure, view, name)
        for name in ("system_paths", "property_correlations")
    )
    for there, title, icon, name, body in (
        (True, "Paths of profiles over depth", "timeline", "paths", paths),
        (related, "Properties that go together", "link", "properties", correlations),
        (True, "All distances in numbers", "table", "distances", partial(_tables, summary, table)),
    ):
        if there:
            frame.folded_part(title, icon, name, body)


def _overview(view: View, summary: GroupSummary, table: pd.DataFrame) -> None:
    """All systems above, and below them the two that are chosen."""
    left, right = st.columns((5, 7), gap="large")
    with left:
        row = st.container(horizontal=True, vertical_alignment="bottom")
        with row:
            measure = choices.choose_one(
                "Distance by",
                measures(summary),
                "measure",
                table["measure"].iloc[0],
                help="Importance profiles over layers (time-warped), similarity of layers at equal "
                "depth, or similarity of layers that match best.",
            )
            choices.choose_one("Order", ORDERS, "order", "model", help="How the matrix is sorted.")
        panel = Panel.from_view(view, "system_distances")
        if panel is not None:
            panel.on_click(partial(_choose, view))
    with right:
        head = st.container()
        places = st.columns((4, 3), gap="medium")
        with places[0]:
            frame.attempt(partial(exporting.show_figure, view, "system_map"))
        # What sets them apart takes longest: all else is there before.
        with places[1]:
            frame.attempt(partial(exporting.show_figure, view, "system_importance"))
        with head:
            st.subheader(plain(_headline(summary, table, measure)), anchor=False)
            for note in () if summary.second_level is None else summary.second_level.notes:
                st.caption(plain(note))
    st.divider()
    frame.attempt(partial(_two, view, summary, table, measure))


def _choose(view: View, clicked: Sequence[Any]) -> None:
    """Look at the two systems of a cell of the matrix that was clicked, if it has two."""
    of = compared_systems(view.shown())
    if of is None:
        return
    cells, rows = system_cells(of)
    names = {cell: of.names[row] for cell, row in zip(cells, rows, strict=True)}
    a, b = (names.get((str(clicked[at]), int(clicked[at + 1])), "") for at in (0, 2))
    if a and b and a != b:
        choices.put_all({"system_a": [a], "system_b": [b]})


def _headline(summary: GroupSummary, table: pd.DataFrame, measure: str) -> str:
    """What sets the systems apart, in a sentence."""
    names, second = summary.systems.members, summary.second_level
    these = f"these {len(names)} systems"
    if second is not None and measure in {*second.importances["measure"]}:
        units = summary.system_units
        groups = {*(units["families"] or units["groups"] or names)}
        return second.finding(measure, these, len(groups))
    near = table[table["measure"] == measure].nsmallest(1, "distance").iloc[0]
    a, b = map(stored.names().model, (near["system"], near["other"]))
    return f"{a} and {b} are the closest of {these} (distance {fraction(near['distance'])})."


def _two(view: View, summary: GroupSummary, table: pd.DataFrame, measure: str) -> None:
    """Profiles of the two chosen systems, their alignment, and their distances in numbers."""
    of = compared_systems(view.shown())
    if of is None:
        return
    left, right = st.columns((9, 3), gap="large")
    with left:
        exporting.show_figure(view, "system_profiles")
        exporting.show_figure(view, "system_alignment")
    with right:
        _numbers(summary, table, of.pair, measure)
        if st.button(
            "Layers of these two systems",
            icon=":material/grid_on:",
            help="Opens Explore with their layers.",
        ):
            choices.put("show_models", list(of.pair))
            st.switch_page(SCREENS["explore"].file)


def _numbers(
    summary: GroupSummary, table: pd.DataFrame, pair: tuple[str, str], measure: str
) -> None:
    """Distances of the two systems by each measure, and the systems nearest to the first."""
    places = tuple(map(summary.systems.members.index, pair))
    called = stored.names().model
    both = table[table["system"].isin(pair) & table["other"].isin(pair)]
    st.markdown(f"**{plain(called(pair[0]))}** and **{plain(called(pair[1]))}**")
    for name, label in measures(summary).items():
        chance = summary.distances[name].chance
        by_chance = fraction(chance if isinstance(chance, float) else chance[places])
        row = both[both["measure"] == name].iloc[0]
        st.metric(
            f"Distance by {label}",
            fraction(row["distance"]),
            help=f"With permuted stimuli: {by_chance}.",
            **uncertainty.around((row["lower"], row["upper"])),
        )
    own = table[table["measure"] == measure]
    own = own[(own["system"] == pair[0]) | (own["other"] == pair[0])]
    st.markdown(f"**Nearest to {plain(called(pair[0]))}**")
    for row in own.nsmallest(NEAREST, "distance").itertuples():
        other = row.other if row.system == pair[0] else row.system
        st.button(
            plain(f"{called(other)} · {fraction(row.distance)}"),
            key=f"nearest {other}",
            type="tertiary",
            help="Compares these two systems.",
            on_click=partial(choices.put_all, {"system_a": [pair[0]], "system_b": [other]}),
        )


def _tables(summary: GroupSummary, table: pd.DataFrame) -> None:
    exporting.draw_table(
        table,
        "system_distances",
        "Distance of every two systems by each measure, 95 % CI over stimuli where known.",
    )
    second = summary.second_level
    if second is not None and len(second.importances):
        exporting.draw_table(
            second.importances,
            "system_importance",
            "Importance of each property, 95 % CI; p by permuting systems, corrected (Holm).",
        )


view_page("systems", _show_systems)

"""Two analyses side by side: what differs between them, and what it did to the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st
from plotly.graph_objects import Figure

from mlem_core import figures
from mlem_core.base.text import listed
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures import compare as drawings
from mlem_core.figures.context import RenderedFigure
from mlem_core.figures.naming import naming as named
from mlem_core.inference.resample import FITTED
from mlem_core.robustness import two_analyses
from mlem_core.robustness.two_analyses import Paired, replication
from pages.parts import background, choices, exporting, frame, opening, stored, uncertainty
from pages.parts.choices import inform, plain
from pages.parts.exporting import Panel
from pages.parts.screens import SCREENS
from pages.parts.view import View, view_of


def versus_body() -> None:
    st.title(SCREENS["versus"].title)
    st.markdown("What changed between two analyses, and what it did to the results.")
    done = opening.finished()
    if len(done) < 2:
        inform("Two finished analyses can be compared. Run another one.")
        return
    ids = _choose(list(done))
    if ids[0] == ids[1]:
        inform("Choose two different analyses.")
        return
    first, second = view_of(ids[0]), view_of(ids[1])
    if first is None or second is None:
        return
    views = first, second
    names = stored.analysis_names()
    called = names.get(ids[0], "first"), names.get(ids[1], "second")
    _what_differs(views, called)
    with named(stored.shared_names(*ids)):
        _answers(views, called)


def _choose(done: list[str]) -> tuple[str, str]:
    """The ids of the two; those that the address names, else the latest two."""
    names = stored.analysis_names()
    asked = [one for one in choices.get("versus") or [] if one in done]
    chosen = [*asked, *(one for one in done if one not in asked)][:2]

    def choose(place: int, job_id: str) -> None:
        now = list(chosen)
        now[place] = job_id
        # Whoever chooses the other one changes their places.
        choices.put("versus", now if now[0] != now[1] else chosen[::-1])

    for place, column in enumerate(st.columns(2)):
        column.selectbox(
            ("First", "Second")[place],
            done,
            format_func=lambda one: names.get(one, one),
            help="One of the two analyses; differences are the first less the second.",
            **choices.bound(f"versus {place}", chosen[place], partial(choose, place)),
        )
    return chosen[0], chosen[1]


def _what_differs(views: tuple[View, View], called: tuple[str, str]) -> None:
    table = two_analyses.differences(views[0].analysis, views[1].analysis)
    if len(table) < 3:
        st.markdown(f"##### {plain(two_analyses.in_a_sentence(table))}")
        return
    st.markdown(f"##### The two differ in {plain(listed(list(table['what']), most=4))}.")
    about = f"First: {called[0]}. Second: {called[1]}."
    exporting.show_table(table, "what-differs", "What differs", about)


def _answers(views: tuple[View, View], called: tuple[str, str]) -> None:
    results = views[0].results, views[1].results
    shown = [view.shown() for view in views]
    features = list(dict.fromkeys([*shown[0].all_features, *shown[1].all_features]))
    st.subheader("Profiles side by side")
    profiles = figures.side_by_side(
        (results[0].importance, results[1].importance),
        (results[0].scores, results[1].scores),
        list(dict.fromkeys([*features, *shown[0].terms, *shown[1].terms])),
    )
    caption = drawings.side_by_side_caption(called)
    first, second = (one.importance for one in results)
    both = pd.concat((first.assign(analysis="first"), second.assign(analysis="second")))
    data = both.reset_index(drop=True)
    Panel(RenderedFigure(profiles, "", caption, data), "two-profiles").show()
    if not two_analyses.common_layers(views[0].analysis, views[1].analysis):
        st.info("They have no layer in common: no difference can be taken.")
        return
    intervals = _intervals(views)
    correction = uncertainty.chosen_correction()
    over = intervals.over if intervals is not None else ""
    _replicates(views, intervals)
    st.subheader("Difference of importances")
    of_importance = two_analyses.importance_differences(results, intervals, correction)
    draw = partial(figures.importance_differences, of_importance.table, features)
    names = dict.fromkeys(view.selection.estimator for view in views)
    caption = drawings.differences_caption(
        "Difference of importance",
        called,
        over,
        of_importance.family,
        "A filled marker",
        " ".join(f"{name}: {FITTED}" for name in names if not estimator_named(name).refitted),
    )
    _show(draw, 2, "importance-differences", "", caption, of_importance.table)
    st.subheader("Difference of similarities")
    of_similarity = two_analyses.similarity_differences(results, intervals, correction)
    compare = partial(figures.similarity_differences, of_similarity.table)
    caption = drawings.differences_caption(
        "Difference of similarity", called, over, of_similarity.family, "A dot (RSA)"
    )
    line = "Blue: two layers are more similar in the first analysis; brown: in the second."
    _show(compare, 1, "similarity-differences", line, caption, of_similarity.table)


def _show(
    draw: Callable[..., Figure], across: int, name: str, line: str, caption: str, data: pd.DataFrame
) -> None:
    """Draw a figure, with so many panels in a row where there is little room."""
    drawn = RenderedFigure(draw(), name.replace("-", " "), caption, data)

    def again(few: bool, screen: bool) -> RenderedFigure:
        return replace(drawn, figure=draw(across=across)) if few else drawn

    Panel(drawn, name, line, again=again).show()


def _replicates(views: tuple[View, View], intervals: Paired | None) -> None:
    """Whether the second repeats the first; nothing where they share no feature."""
    first, second = views
    if {*first.features}.isdisjoint(second.features):
        return
    st.subheader("Does it replicate?")
    both, results = (first.analysis, second.analysis), (first.results, second.results)
    said, tables = replication(both, results, intervals)
    st.markdown("\n- ".join(map(plain, said)))
    about = "Pearson correlations over layers and features, or pairs of layers."
    exporting.show_table(tables["correlations"], "replication", "Correlations", about)


def _intervals(views: tuple[View, View]) -> Paired | None:
    """Intervals of the differences; where there are none, the button that makes them."""
    first, second, store = views[0].analysis, views[1].analysis, stored.store()
    found = two_analyses.find_paired(first, second, store)
    if found is None:
        layers = [list(one) for one in two_analyses.common_layers(first, second)]
        background.offer(
            views[0].work("versus", {"other": views[1].job_id, "layers": layers}),
            "Add intervals of the differences",
            "Leaves blocks of stimuli out of both analyses, in the background.",
        )
    return found


frame.page(__file__, versus_body)

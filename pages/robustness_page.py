"""Confidence: verdicts on two layers, intervals and tests, and the audit of every layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from mlem_core import extending
from mlem_core.base.typing import parse_layer
from mlem_core.figures.canvas import verdicts
from mlem_core.inference.explanation_text import tested_similarities
from mlem_core.inference.intervals import importance_difference_table, score_table
from mlem_core.inference.resample import interval_sample_sentence
from mlem_core.pairs.similarities import SIMILARITIES
from pages.parts import exporting, frame, stored, uncertainty
from pages.parts.choices import plain
from pages.parts.opening import view_page
from pages.parts.view import View, chosen_similarity


def _show_trust(view: View) -> None:
    parts: dict[str, Callable[[View], None]] = {
        "Verdicts": _verdicts,
        "Intervals and tests": _tests,
        **{
            panel.title: partial(exporting.show_panel, panel=panel)
            for panel in extending.panels("trust")
        },
    }
    for number, (title, show) in enumerate(parts.items()):
        if number:
            st.divider()
        st.subheader(title)
        frame.attempt(partial(show, view))


def _verdicts(view: View) -> None:
    """Whether each claim on the chosen two layers holds, fails, or is not tested."""
    context = view.shown(similarity=chosen_similarity())
    if not context.several:
        return
    table, icons = verdicts(context), {"holds": ":green[●]", "fails": ":red[●]"}
    table["verdict"] = [
        f"{icons.get(verdict, ':gray[○]')}\xa0{verdict}" for verdict in table["verdict"]
    ]
    table["claim"] = table["claim"].map(plain)
    st.table(table.set_index("claim"))
    st.caption(
        "Of the two layers that are chosen. Similar: the 95 % CI is above 0. No artefact: no check "
        "of the audit changes it. A contribution: its CI is above 0 and p, corrected over the "
        "features, is below .05."
    )


def _tests(view: View) -> None:
    """Intervals and tests of scores, importances, similarities and the chosen pair."""
    context = view.shown()
    intervals = context.intervals
    if intervals is None:
        st.markdown("There are no intervals yet of what is shown.")
        uncertainty.offer_intervals(view)
    else:
        sample = interval_sample_sentence(len(view.analysis.stimuli), view.analysis.pairs.n_pairs)
        if sample:
            st.caption(sample)
        uncertainty.show_tests(
            view,
            intervals,
            score_table(intervals, view.layers),
            "importance-tests",
            "Importances and scores",
            "Of each layer's held-out ρ and importances; p says whether an importance is above 0 "
            "(one-sided).",
        )
        a, b = view.pair
        if a != b:
            tested = context.find_intervals(chosen_similarity()) or intervals
            name = tested.similarity
            uncertainty.show_tests(
                view,
                tested,
                tested_similarities(view.analysis, tested, view.layers),
                "similarity-tests",
                "Similarities",
                f"Of both similarities of every two layers; {name}_p says whether "
                f"{SIMILARITIES[name].short} is other than 0. The interval of the most similar two "
                "allows for their choice from so many pairs (chosen_from). "
                "The interval of τ is that of profiles drawn with the errors of their importances; "
                "it is a rough guide where few features matter.",
            )
            one, other = (plain(stored.layer_title(layer)) for layer in (a, b))
            uncertainty.show_tests(
                view,
                intervals,
                importance_difference_table(intervals, parse_layer(a), parse_layer(b)),
                "difference-tests",
                "Where the two chosen layers differ",
                f"Importance in {one} less that in {other}, the same blocks left out on both sides "
                "(two-sided).",
            )
    title = "Is each layer's score above chance?"
    frame.folded_part(title, "casino", "chance", partial(uncertainty.score_chance, view))


view_page("trust", _show_trust)

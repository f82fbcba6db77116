"""Groups of models and training: mean profiles, what recipes share, what changes over steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import choices, frame, naming, stored
from pages.parts.exporting import Panel
from pages.parts.wording import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mlem_core.analysis.results import Results
    from mlem_core.report.shown import Drawn, Shown
    from pages.parts.view import View


def show(view: View, results: Results) -> None:
    """All that is said of groups and of trajectories; nothing where the analysis has neither."""
    from mlem_core.report import of_groups

    shown = _shown(view, results)
    if shown.recipes is not None:
        st.subheader("Groups of models")
        for line in shown.recipes.lines():
            st.markdown(plain(line))
        _panel(shown, "group-profiles", of_groups.profiles)
        _panel(shown, "group-similarity", of_groups.similarity)
        _panel(shown, "universality", of_groups.universality)
    trained = of_groups.trained(shown)
    if trained is not None:
        st.subheader("Training")
        for line in trained.lines():
            st.markdown(plain(line))
        _trajectories(view, results)


def _shown(view: View, results: Results, **options: str) -> Shown:
    from mlem_core.report.shown import Drawing, Shown

    drawing = Drawing(store=stored.store(), names=naming.now(), options=options)
    return Shown(view.analysis, view.selection, results, drawing)


def _panel(shown: Shown, name: str, draw: Callable[[Shown], Drawn | None]) -> None:
    drawn = draw(shown)
    if drawn is None:
        return

    def narrow() -> Figure:
        options = {**shown.drawing.options, "across": "1"}
        below = draw(replace(shown, drawing=replace(shown.drawing, narrow=True, options=options)))
        return drawn.figure if below is None else below.figure

    Panel(drawn.figure, drawn.data, name, drawn.caption, narrow=narrow, title=drawn.title).show()


# A fragment, so that choosing a depth draws nothing but this.
@st.fragment
def _trajectories(view: View, results: Results) -> None:
    frame.attempt(partial(_of_depth, view, results))


def _of_depth(view: View, results: Results) -> None:
    from mlem_core.report import of_groups

    depths = of_groups.depths(_shown(view, results))
    depth = choices.choose_one(
        "Depth",
        [of_groups.MEAN, *depths],
        "depth",
        of_groups.MEAN,
        format_func=lambda one: (
            "mean over layers" if one == of_groups.MEAN else f"relative depth {one}"
        ),
        help="0 is the first layer, 1 the last; of models with other layers the nearest is taken.",
    )
    _panel(_shown(view, results, depth=depth), "trajectories", of_groups.over_training)

"""Groups of models and training: mean profiles, what groups share, what changes over steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import choices, exporting, frame
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View


def show_groups(view: View) -> None:
    """Results on groups and on trajectories; nothing where the analysis has neither."""
    from mlem_core.figures.groups import of_groups
    from mlem_core.figures.trajectories import depths, of_training
    from mlem_core.groups.summary import group_lines, training_lines

    shown = view.shown()
    if shown is None:
        return
    summary, training = of_groups(shown), of_training(shown)
    if summary is None and training is None:
        st.caption("No group of this analysis has two models, and none is of one training.")
    if summary is not None:
        st.subheader("Groups of models")
        for line in group_lines(summary):
            st.markdown(plain(line))
        exporting.show_tab(view, "groups", titled=False)
    if training is not None:
        st.subheader("Training")
        for line in training_lines(training):
            st.markdown(plain(line))
        _trajectories(view, depths(shown))


# A fragment, so that choosing a depth draws nothing but this.
@st.fragment
def _trajectories(view: View, depths: list[str]) -> None:
    frame.attempt(partial(_of_depth, view, depths))


def _of_depth(view: View, depths: list[str]) -> None:
    from mlem_core.figures.trajectories import MEAN

    choices.choose_one(
        "Depth",
        [MEAN, *depths],
        "depth",
        MEAN,
        format_func=lambda one: "mean over layers" if one == MEAN else f"relative depth {one}",
        help="0 is the first layer, 1 the last; of models with other layers the nearest is taken.",
    )
    exporting.show_figure(view, "trajectories")

"""The tour: a few steps through the views, each with what to look at there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import streamlit as st

from pages.parts import choices, navigation, stored
from pages.parts.screens import SCREENS


class Step(NamedTuple):
    """What to look at on a page, at one of its tabs."""

    url_path: str
    title: str
    says: str
    place: Mapping[str, str] = {}

    def is_here(self, page: str) -> bool:
        there = all(navigation.chosen_tab(name) == tab for name, tab in self.place.items())
        return page == self.url_path and there


STEPS = (
    Step(
        "explore",
        "Profiles",
        "**What shapes each layer.** A panel is a model, from its embeddings (layer 0) to its last "
        "layer, and a line is a feature: the higher, the worse distances are predicted once that "
        "feature is shuffled. The grey lines are how well all features together predict, and how "
        "well they could at best. Switch a feature off in the sidebar, and all is drawn anew.",
        {"tab": "profiles"},
    ),
    Step(
        "explore",
        "Why alike",
        "**Why two layers are alike.** Their similarity is a sum: a bar for what each feature "
        "contributes, a hatched one for what these features do not explain, and how sure each is. "
        "Click any cell of the matrices to look at its two layers; below are the pairs of stimuli "
        "behind a bar.",
        {"tab": "pairs", "look": "why"},
    ),
    Step(
        "trust",
        "Trust",
        "**Whether to believe it.** The audit runs all of it again without first words, without "
        "outlier units, with another distance and with random weights, and marks what changes. "
        "Below it, a claim of your own is put to every analysis that one could have done.",
    ),
)


def begin() -> None:
    """Start the tour, which goes through the example."""
    choices.open_job(stored.EXAMPLE)
    _go(0)


def is_on() -> bool:
    """Whether the user is on the tour."""
    return "tour" in st.session_state


def bar(here: str) -> None:
    """The step that the user is at, above every page; nothing without a tour.

    Parameters
    ----------
    here : url_path of the page
    """
    if not is_on():
        return
    at = st.session_state["tour"]
    step, last = STEPS[at], at == len(STEPS) - 1
    with st.container(border=True, key="tour"):
        st.badge(f"Tour, {at + 1} of {len(STEPS)}", icon=":material/tour:")
        if step.is_here(here):
            st.markdown(step.says)
        with st.container(horizontal=True):
            if not step.is_here(here):
                _button(f"Go on with {step.title}", "arrow_forward", at)
            elif last:
                if st.button(
                    "Analyse your own",
                    type="primary",
                    icon=SCREENS["new"].icon,
                    key="tour own",
                    help="Ends the tour where an analysis of your own begins.",
                ):
                    _end()
                    st.switch_page(SCREENS["new"].file)
            else:
                _button(f"Next: {STEPS[at + 1].title}", "arrow_forward", at + 1)
            if at and step.is_here(here):
                _button("Back", "arrow_back", at - 1, main=False)
            if st.button(
                "End the tour",
                type="tertiary",
                icon=":material/close:",
                key="tour end",
                help="Takes these lines away; the page stays.",
            ):
                _end()
                st.rerun()


def _button(label: str, symbol: str, to: int, *, main: bool = True) -> None:
    if st.button(
        label,
        type="primary" if main else "secondary",
        icon=f":material/{symbol}:",
        key=f"tour to {to}",
        help=f"Opens the page {SCREENS[STEPS[to].url_path].title}.",
    ):
        _go(to)


def _go(to: int) -> None:
    st.session_state["tour"] = to
    for name, tab in STEPS[to].place.items():
        choices.choose_now(name, [tab])
    st.switch_page(SCREENS[STEPS[to].url_path].file)


def _end() -> None:
    del st.session_state["tour"]

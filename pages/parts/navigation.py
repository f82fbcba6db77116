"""Where one is and goes: tabs, the pair of layers that all figures look at, and the tour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from mlem_core.base.typing import layer_name
from pages.parts import choices, naming, stored
from pages.parts.screens import SCREENS, TABS
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View


class Step(NamedTuple):
    """What to look at on a page, at one of its tabs."""

    url_path: str
    title: str
    says: str
    place: Mapping[str, str] = {}

    def is_here(self, page: str) -> bool:
        there = all(chosen_tab(name) == tab for name, tab in self.place.items())
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


def chosen_tab(name: str) -> str:
    """Which of the tabs `TABS[name]` is chosen, in the URL by that name; else the first."""
    names = [tab.name for tab in TABS[name]]
    now = choices.get_one(name, names[0])
    return now if now in names else names[0]


def choose_tab(name: str, help: str) -> str:
    """Let the user choose one of the tabs `TABS[name]`; its name."""
    tabs = TABS[name]
    labels = {tab.name: tab.label for tab in tabs}
    now = st.segmented_control(
        tabs[0].title,
        list(labels),
        format_func=lambda one: labels[one],
        required=True,
        help=help,
        label_visibility="collapsed",
        **choices.remembered(name, chosen_tab(name), tabs[0].name),
    )
    return str(now)


def look_at_cell(view: View, points: list[dict[str, Any]]) -> None:
    """Look at the two layers of a cell of a matrix that was clicked, if it has two."""
    clicked = [point["customdata"] for point in points if "customdata" in point]
    layers = [layer_name(clicked[0][at : at + 2]) for at in (0, 2)] if clicked else []
    if len(set(layers)) == 2 and set(layers) <= set(view.layer_names):
        look_at(view, *layers)


def look_at(view: View, a: str, b: str) -> None:
    """Make two layers "model:layer" the pair that all pages look at."""
    choices.open_job(view.analysis_id)  # it may be shown without having been chosen
    choices.put_all({"a": [a], "b": [b]})


def explore(view: View, a: str, b: str, **place: str) -> None:
    """Open Explore with two layers "model:layer", at a tab (`tab`, `look`)."""
    look_at(view, a, b)
    for name, chosen in place.items():
        choices.put(name, [chosen])
    st.switch_page(SCREENS["explore"].file)


def one_after_the_other(view: View, points: list[dict[str, Any]], where: str) -> None:
    """Two layers are chosen by two clicks, on points that stand for one layer each.

    Parameters
    ----------
    points : that are selected now; `customdata` begins with model and layer
    where : of the figure, in the key of the button
    """
    now = [layer_name(point["customdata"][:2]) for point in points if "customdata" in point]
    now = [layer for layer in dict.fromkeys(now) if layer in view.layer_names]
    # The layer of the click before is the other one of the pair.
    clicked = st.session_state.setdefault(f"clicked {view.job_id}", [])
    if now and now != clicked[-len(now) :]:
        clicked[:] = [*(layer for layer in clicked if layer not in now), *now][-2:]
    clicked[:] = [layer for layer in clicked if layer in view.layer_names]
    if len(clicked) == 2:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            a, b = clicked
            st.markdown(f"**{plain(naming.layer(a))}** and **{plain(naming.layer(b))}**")
            if st.button(
                "Look at these two",
                icon=SCREENS["explore"].icon,
                key=f"look at {where}",
                type="primary",
                help="Shows how alike they are, and why.",
            ):
                explore(view, a, b, tab="pairs")
    elif clicked:
        st.info(
            f"{plain(naming.layer(clicked[0]))} is chosen; click a second layer.",
            icon=":material/ads_click:",
        )


def begin_tour() -> None:
    """Start the tour, which goes through the example."""
    choices.open_job(stored.EXAMPLE)
    _go_to_step(0)


def show_tour(here: str) -> None:
    """The step that the user is at, above every page; nothing without a tour.

    Parameters
    ----------
    here : url_path of the page
    """
    if "tour" not in st.session_state:
        return
    at = st.session_state["tour"]
    step, last = STEPS[at], at == len(STEPS) - 1
    with st.container(border=True, key="tour"):
        st.badge(f"Tour, {at + 1} of {len(STEPS)}", icon=":material/tour:")
        if step.is_here(here):
            st.markdown(step.says)
        with st.container(horizontal=True):
            if not step.is_here(here):
                _tour_button(f"Go on with {step.title}", "arrow_forward", at)
            elif last:
                if st.button(
                    "Analyse your own",
                    type="primary",
                    icon=SCREENS["new"].icon,
                    key="tour own",
                    help="Ends the tour where an analysis of your own begins.",
                ):
                    del st.session_state["tour"]
                    choices.put("step", None)
                    st.switch_page(SCREENS["new"].file)
            else:
                _tour_button(f"Next: {STEPS[at + 1].title}", "arrow_forward", at + 1)
            if at and step.is_here(here):
                _tour_button("Back", "arrow_back", at - 1, main=False)
            if st.button(
                "End the tour",
                type="tertiary",
                icon=":material/close:",
                key="tour end",
                help="Takes these lines away; the page stays.",
            ):
                del st.session_state["tour"]
                st.rerun()


def _tour_button(label: str, symbol: str, to: int, *, main: bool = True) -> None:
    if st.button(
        label,
        type="primary" if main else "secondary",
        icon=f":material/{symbol}:",
        key=f"tour to {to}",
        help=f"Opens the page {SCREENS[STEPS[to].url_path].title}.",
    ):
        _go_to_step(to)


def _go_to_step(to: int) -> None:
    st.session_state["tour"] = to
    for name, tab in STEPS[to].place.items():
        choices.put(name, [tab])
    st.switch_page(SCREENS[STEPS[to].url_path].file)

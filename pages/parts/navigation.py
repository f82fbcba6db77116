"""Where one is and goes: the tab that is drawn, and the pair of layers that all figures look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import layer_name
from pages.parts import choices, naming
from pages.parts.screens import SCREENS, TABS, Tab
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View


def chosen_tab(name: str) -> str:
    """Which of the tabs `TABS[name]` is chosen, in the URL by that name; else the first."""
    names = [tab.name for tab in TABS[name]]
    now = choices.get_one(name, names[0])
    return now if now in names else names[0]


def choose_tab(name: str, help: str) -> str:
    """Let the user choose one of the tabs `TABS[name]`; its name."""
    tabs: Sequence[Tab] = TABS[name]
    labels = {tab.name: tab.label for tab in tabs}
    key = choices.key_of(name)
    st.session_state[key] = chosen_tab(name)

    def remember() -> None:
        now = st.session_state[key]
        choices.put(name, None if now == tabs[0].name else [now])

    now = st.segmented_control(
        tabs[0].title,
        list(labels),
        format_func=lambda one: labels[one],
        key=key,
        required=True,
        on_change=remember,
        help=help,
        label_visibility="collapsed",
    )
    return str(now)


def look_at_cell(view: View, points: list[dict[str, Any]]) -> None:
    """Look at the two layers of a cell of a matrix that was clicked, if it has two."""
    given = [point["customdata"] for point in points if "customdata" in point]
    layers = [layer_name(given[0][at : at + 2]) for at in (0, 2)] if given else []
    if len(set(layers)) == 2 and set(layers) <= set(view.layer_names):
        look_at(view, *layers)


def look_at(view: View, a: str, b: str) -> None:
    """Make two layers "model:layer" the pair that all pages look at."""
    choices.open_job(view.job_id)  # it may be shown without having been chosen
    choices.choose_all_now({"a": [a], "b": [b]})


def explore(view: View, a: str, b: str, **place: str) -> None:
    """Open Explore with two layers "model:layer", at a tab (`tab`, `look`)."""
    look_at(view, a, b)
    for name, chosen in place.items():
        choices.choose_now(name, [chosen])
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

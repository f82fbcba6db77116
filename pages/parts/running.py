"""The bar of what runs, the same on every page: stage, time left, and the way to the result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import background, choices, stored
from pages.parts.screens import SCREENS
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.tasks.runner import State, Status, Task

TITLES = {
    "queued": ":material/hourglass: Waiting:",
    "running": ":material/hourglass: Running:",
    "done": ":material/check_circle: Done:",
    "cancelled": ":material/cancel: Cancelled:",
    "failed": ":material/error: Not done:",
}
UNDER_WAY = ("queued", "running")
# Other work on an analysis has other names, and its progress where it was asked for.
_ANALYSIS = re.compile(r"[0-9a-f]{16}")


def watch(job_id: str) -> None:
    """Show how an analysis goes on, and that it is done, until the user has seen it."""
    _watched()[job_id] = None


def bar() -> None:
    """What runs and what has just ended; nothing where there is neither."""
    from mlem_core.tasks import runner

    watched, chosen = _watched(), choices.get_one("analysis")
    for job_id in filter(_ANALYSIS.fullmatch, runner.under_way(stored.store().root / "jobs")):
        watched[job_id] = None
    if _ANALYSIS.fullmatch(chosen) and _task(chosen).folder.is_dir():
        if _task(chosen).status().state != "done":
            watched[chosen] = None
    states = {job_id: _task(job_id).status().state for job_id in watched if _there(job_id)}
    if any(state in UNDER_WAY for state in states.values()):
        _moving(states)
    elif states:
        _resting(states)


def _watched() -> dict[str, None]:
    watched: dict[str, None] = st.session_state.setdefault("watched", {})
    return watched


def _there(job_id: str) -> bool:
    """Whether it can be read; one of another version cannot, which the views say."""
    from mlem_core.tasks import analyses

    return analyses.find(job_id, stored.store()) is not None


def _task(job_id: str) -> Task:
    from mlem_core.tasks.runner import Task

    return Task(job_id, stored.store().root / "jobs" / job_id)


# Fragments run again without the page around them.
@st.fragment(run_every=0.5)
def _moving(states: dict[str, State]) -> None:
    now = {job_id: _task(job_id).status() for job_id in states}
    if any(status.state != states[job_id] for job_id, status in now.items()):
        # What has ended concerns the page too, which may have waited for it.
        st.rerun()
    _draw(now)


@st.fragment
def _resting(states: dict[str, State]) -> None:
    _draw({job_id: _task(job_id).status() for job_id in states})


def _draw(states: dict[str, Status]) -> None:
    for job_id, status in states.items():
        with st.container(border=True, key=f"bar {job_id}"):
            _one(job_id, status)


def _one(job_id: str, status: Status) -> None:
    job = stored.find_job(job_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(gap="xsmall"):
            st.markdown(f"**{TITLES[status.state]}** {plain(stored.name_of(job))}")
            if status.state in UNDER_WAY:
                waiting = background.waiting(status).capitalize()
                background.show_progress(status, status.stages[-1:], f"{waiting} …")
        if status.state in UNDER_WAY:
            help = "Stops the run within two seconds; finished parts are kept."
            background.offer_cancel(job, help)
            return
        if status.state == "done":
            _look(job_id)
        _dismiss(job_id)
    if status.state == "cancelled":
        st.caption("What it had finished is kept; the same run goes on from there.")
    elif status.state == "failed":
        st.error(plain(status.message), icon=":material/error:")
    else:
        contents = job.contents()
        for notice in () if contents is None else contents.notices:
            st.warning(plain(notice), icon=":material/info:")


def _look(job_id: str) -> None:
    if st.button(
        "Look",
        type="primary",
        icon=":material/visibility:",
        key=f"look {job_id}",
        help="Opens Home with what was found.",
    ):
        choices.open_job(job_id)
        _watched().pop(job_id, None)
        st.switch_page(SCREENS["home"].file)


def _dismiss(job_id: str) -> None:
    def forget() -> None:
        _watched().pop(job_id, None)
        if choices.get_one("analysis") == job_id and _task(job_id).status().state != "done":
            choices.choose_now("analysis", None)

    if st.button(
        "Dismiss",
        type="tertiary",
        icon=":material/close:",
        key=f"dismiss {job_id}",
        on_click=forget,
        help="Takes this line away; the analysis stays in the list on Home.",
    ):
        st.rerun()

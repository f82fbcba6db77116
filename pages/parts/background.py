"""What goes on in the background: the bar of runs, the same on every page, and other work.

An analysis has the bar, with the way to its result; other work on what is shown has a button, and
its progress where the button was.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.text import many
from pages.parts import choices, stored
from pages.parts.screens import SCREENS
from pages.parts.wording import plain, progress_text

if TYPE_CHECKING:
    from mlem_core.tasks.followups import Followup
    from mlem_core.tasks.runner import State, Status, Task

JUST_NOW = 60.0  # seconds; it may have been done since the page looked for it
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


def show_runs() -> None:
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
                said = waiting(status).capitalize()
                show_progress(status, f"{said} …")
        if status.state in UNDER_WAY:
            help = "Stops the run within two seconds; finished parts are kept."
            offer_cancel(job, help)
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
            choices.put("analysis", None)

    if st.button(
        "Dismiss",
        type="tertiary",
        icon=":material/close:",
        key=f"dismiss {job_id}",
        on_click=forget,
        help="Takes this line away; the analysis stays in the list on Home.",
    ):
        st.rerun()


def offer(task: Followup, label: str, help: str) -> None:
    """A button that starts the work, or its progress with a button that stops it."""
    status = task.status()
    if status.state == "done":
        just_now = time.time() - task.result.stat().st_mtime < JUST_NOW
        if just_now or not task.kind.in_store:
            return
        # Whoever offers it has not found it: the store has been emptied since.
        task.damaged("What this work had made is no longer in the store; start it again.")
        status = task.status()
    if status.state in UNDER_WAY:
        _progress(task, label)
        return
    if st.button(label, icon=":material/play_arrow:", key=f"start {task.id}", help=help):
        task.begin()
        st.rerun()
    if status.state == "failed" and (task.folder / "spec.json").exists():
        st.error(plain(status.message), icon=":material/error:")


@st.fragment(run_every=0.5)
def _progress(task: Followup, label: str) -> None:
    status = task.status()
    if status.state not in UNDER_WAY:
        st.rerun()
    show_progress(status, f"{label}: {waiting(status)} …")
    offer_cancel(task, "Stops this work within two seconds; the analysis stays as it is.")


def waiting(status: Status) -> str:
    """What some work does of which no progress is known yet."""
    if status.state != "queued":
        return "starts"
    if not status.before:
        return "waits for its turn"
    verb = "is" if status.before == 1 else "are"
    return f"waits; {many(status.before, 'run')} {verb} before it"


def show_progress(status: Status, otherwise: str) -> None:
    """How far the last stage of some work is; `otherwise` where it has none yet."""
    if status.stages:
        stage = status.stages[-1]
        share = min(1.0, stage.done / max(stage.total, 1))
        st.progress(share, text=progress_text(stage, status.seconds_left))
    else:
        st.progress(0.0, text=otherwise)
    if status.where:
        st.caption(f"Computes on {plain(status.where)}.")


def offer_cancel(task: Task, help: str) -> None:
    """A button that stops some work."""
    if st.button("Cancel", icon=":material/stop_circle:", key=f"cancel {task.id}", help=help):
        task.cancel()
        st.rerun()

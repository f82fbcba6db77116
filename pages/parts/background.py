"""Background tasks: the bar of runs, the same on every page, and other tasks.

An analysis has the bar, with the way to its result; other work on what is shown has a button, and
its progress where the button was.
"""

from __future__ import annotations

import re
import threading
import time
from functools import partial

import streamlit as st

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.text import many
from mlem_core.tasks import analyses, runner
from mlem_core.tasks.access import view_only
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.followups import Followup
from mlem_core.tasks.runner import State, Status, Task
from pages.parts import choices, stored
from pages.parts.choices import plain, progress_text
from pages.parts.screens import SCREENS

JUST_NOW = 60.0  # seconds; it may have been done since the page looked for it
# What a state is called, with its colour and symbol.
STATES = {
    "queued": ("waiting", "gray", "hourglass"),
    "running": ("running", "blue", "hourglass"),
    "done": ("done", "green", "check_circle"),
    "cancelled": ("cancelled", "gray", "cancel"),
    "failed": ("failed", "red", "error"),
}
UNDER_WAY = ("queued", "running")
AHEAD = "ahead"  # in the session: what `begin_ahead` has begun
# Other work on an analysis has other names, and its progress where it was asked for.
_ANALYSIS = re.compile(r"[0-9a-f]{16}")


def start_analysis(spec: AnalysisSpec) -> None:
    """Start an analysis, open what it will find, and draw the page anew."""
    job = analyses.start(spec, stored.store())
    choices.open_job(job.id)
    give_way()
    # What it finds is opened where the form that began it is still there.
    _watched()[job.id] = SCREENS["new"].url_path
    if job.status().state in UNDER_WAY:
        # Whoever looks at the button does not see the progress appear.
        st.toast("Started; the progress is at the top of each page.", icon=":material/play_arrow:")
    st.rerun()


def show_runs() -> None:
    """Bar of runs that go on or have just ended; nothing where there are none."""
    store, watched, current = stored.store(), _watched(), choices.get_one("analysis")
    for going_on in filter(_ANALYSIS.fullmatch, runner.unfinished_tasks(store.root / "jobs")):
        watched.setdefault(going_on, None)
    if current not in watched and _ANALYSIS.fullmatch(current):
        job = analyses.find(current, store)
        if job is not None and job.status().state != "done":
            watched[current] = None
    # One of another version cannot be read, which the views say.
    jobs = [job for job_id in watched if (job := analyses.find(job_id, store)) is not None]
    states = [job.status().state for job in jobs]
    moving = any(state in UNDER_WAY for state in states)
    if jobs:
        # A fragment runs again without the page around it.
        st.fragment(_draw, run_every=0.5 if moving else None)(jobs, states)


def _watched() -> dict[str, str | None]:
    """The analyses whose progress is shown, and the screen that opens what they find, if any."""
    watched: dict[str, str | None] = st.session_state.setdefault("watched", {})
    return watched


def _draw(jobs: list[Job], states: list[State]) -> None:
    now = [job.status() for job in jobs]
    for job, before, status in zip(jobs, states, now, strict=True):
        begun = _watched()[job.id]
        if before in UNDER_WAY and status.state == "done" and begun:
            if (st.context.url or "").rstrip("/").endswith(f"/{begun}"):
                _open(job)
    if [status.state for status in now] != states:
        # What has ended concerns the page too, which may have waited for it.
        st.rerun()
    for job, status in zip(jobs, now, strict=True):
        with st.container(border=True, key=f"bar {job.id}"):
            _draw_one(job, status)


def _draw_one(job: Job, status: Status) -> None:
    label, _, symbol = STATES[status.state]
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(gap="xsmall"):
            title = f":material/{symbol}: {label.capitalize()}:"
            st.markdown(f"**{title}** {plain(stored.analysis_name(job))}")
            if status.state in UNDER_WAY:
                show_progress(status, f"{waiting(status).capitalize()} …")
        if status.state in UNDER_WAY:
            offer_cancel(job, "Stops the run within two seconds; finished parts are kept.")
            return
        if status.state == "done" and st.button(
            "Look",
            type="primary",
            icon=":material/visibility:",
            key=f"look {job.id}",
            help="Opens it on Explore.",
        ):
            _open(job)
        if st.button(
            "Dismiss",
            type="tertiary",
            icon=":material/close:",
            key=f"dismiss {job.id}",
            on_click=partial(_dismiss, job),
            help="Takes this line away; the analysis stays in the list of My analyses.",
        ):
            st.rerun()
    if status.state == "cancelled":
        st.caption("What it had finished is kept; the same run goes on from there.")
    elif status.state == "failed":
        st.error(plain(status.message), icon=":material/error:")
    else:
        contents = job.contents()
        for notice in () if contents is None else contents.notices:
            st.warning(plain(notice), icon=":material/info:")


def _open(job: Job) -> None:
    choices.open_job(job.id)
    _watched().pop(job.id, None)
    st.switch_page(SCREENS["explore"].file)


def _dismiss(job: Job) -> None:
    _watched().pop(job.id, None)
    if choices.get_one("analysis") == job.id and job.status().state != "done":
        choices.put("analysis", None)


def begin_ahead(task: Followup) -> None:
    """Begin work that nobody has pressed a button for; it gives way to other work."""
    task.begin()
    st.session_state[AHEAD] = task


def give_way(to: Task | None = None) -> None:
    """Stop the work that this window has begun ahead, unless it is this."""
    before: Task | None = st.session_state.get(AHEAD)
    if before is not None and (to is None or before.id != to.id):
        del st.session_state[AHEAD]
        # Its process may take a second to end, for which no click waits.
        threading.Thread(target=before.cancel, daemon=True).start()


def offer(task: Followup, label: str, help: str) -> None:
    """A button that starts some work, or its progress with a button that stops it.

    On a server that only shows what is finished it says that the work is not done.
    """
    status = task.status()
    if status.state == "done":
        just_now = time.time() - task.result.stat().st_mtime < JUST_NOW
        if just_now or task.kind.write is not None:
            return
        if not view_only():
            # Whoever offers it has not found it: the store has been emptied since.
            task.damaged("What this work had made is no longer in the store; start it again.")
            status = task.status()
    if status.state in UNDER_WAY:
        _progress(task, label)
        return
    if view_only():
        st.caption("Not computed; this server only shows what is finished.")
        return
    if st.button(label, icon=":material/play_arrow:", key=f"start {task.id}", help=help):
        give_way()
        task.begin()
        st.rerun()
    if status.state == "failed" and (task.folder / "spec.json").exists():
        st.error(plain(status.message), icon=":material/error:")


@st.fragment(run_every=0.5)
def _progress(task: Task, label: str) -> None:
    status = task.status()
    if status.state not in UNDER_WAY:
        st.rerun()
    show_progress(status, f"{label}: {waiting(status)} …")
    offer_cancel(task, "Stops this work within two seconds; the analysis stays as it is.")


def waiting(status: Status) -> str:
    """State of a task before its progress is known, in words."""
    if status.state != "queued":
        return "starts"
    if not status.before:
        return "waits for its turn"
    verb = "is" if status.before == 1 else "are"
    return f"waits; {many(status.before, 'run')} {verb} before it"


def show_progress(status: Status, otherwise: str) -> None:
    """Progress bar of the last stage of a task; `otherwise` where it has none yet."""
    if status.stages:
        stage = status.stages[-1]
        share = min(1.0, stage.done / max(stage.total, 1))
        st.progress(share, text=progress_text(stage, status.seconds_left))
    else:
        st.progress(0.0, text=otherwise)


def offer_cancel(task: Task, help: str) -> None:
    """A button that stops some work; none where nothing may be changed."""
    if view_only():
        return
    if st.button("Cancel", icon=":material/stop_circle:", key=f"cancel {task.id}", help=help):
        task.cancel()
        st.rerun()

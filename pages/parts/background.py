"""Background tasks: the bar of runs, the same on every page, and other tasks.

An analysis has the bar, with the way to its result; other work on what is shown has a button, and
its progress where the button was.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.text import duration, many, percent, sentence_case
from mlem_core.tasks import analyses, followups, runner
from mlem_core.tasks.access import view_only
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.followups import Followup, Run, find_followup
from mlem_core.tasks.runner import Status, Task
from pages.parts import choices, stored
from pages.parts.choices import plain
from pages.parts.screens import SCREENS

POLL = 3.0  # seconds between two looks at what runs
QUIET = 5.0  # seconds without a click before anything is computed ahead
TICK = 0.5  # seconds between two looks of the thread that does so
JUST_NOW = 60.0  # seconds; it may have been done since the page looked for it
# What a state is called, with its colour and symbol.
STATES = {
    "queued": ("waiting", "gray", "hourglass"),
    "running": ("running", "blue", "hourglass"),
    "done": ("done", "green", "check_circle"),
    "cancelled": ("cancelled", "gray", "cancel"),
    "failed": ("failed", "red", "error"),
}
AHEAD = "ahead"  # in the session: what `begin_ahead` is to begin
# Other work on an analysis has other names, and its progress where it was asked for.
_ANALYSIS = re.compile(r"[0-9a-f]{16}")


def start_analysis(spec: AnalysisSpec, *, intervals: bool = True) -> None:
    """Start an analysis, and open its result, which shows the progress until it is there.

    Parameters
    ----------
    intervals : whether intervals and chance follow as its last stage
    """
    job = analyses.start(spec, stored.store(), intervals=intervals)
    followups.begin_last_stage(job)  # where all but this was done before
    choices.open_job(job.id)
    give_way()
    st.switch_page(SCREENS["explore"].file)


def show_runs() -> None:
    """Bar of runs without a result yet, and of those that have just ended; nothing without any."""
    ahead = st.session_state.get(AHEAD)
    if ahead is not None:  # each run of a page is a click
        ahead.due = time.monotonic() + QUIET
    store, watched, current = stored.store(), _watched(), choices.get_one("analysis")
    unfinished = runner.unfinished_tasks(store.root / "jobs")
    watched |= dict.fromkeys([*filter(_ANALYSIS.fullmatch, unfinished), current])
    shown = list[tuple[Job, Status]]()
    for job_id in [*watched]:
        job = analyses.find(job_id, store)
        if job is None:
            continue  # one of another version cannot be read, which the views say
        status = job.status()
        if status.state == "done" and job_id == current:  # it is shown
            del watched[job_id]
        else:
            shown.append((job, status))
    if shown:
        # A fragment runs again without the page around it.
        moving = any(status.goes_on for _, status in shown)
        st.fragment(_draw, run_every=POLL if moving else None)(shown)


def _watched() -> dict[str, None]:
    """The analyses whose progress is shown, in their order."""
    watched: dict[str, None] = st.session_state.setdefault("watched", {})
    return watched


def _draw(shown: list[tuple[Job, Status]]) -> None:
    for job, before in shown:
        status = job.status()
        if status.state != before.state:
            # What has ended concerns the page too, which may have waited for it.
            st.rerun()
        with st.container(border=True, key=f"bar {job.id}"):
            _draw_one(job, status)


def _draw_one(job: Job, status: Status) -> None:
    label, _, symbol = STATES[status.state]
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(gap="xsmall"):
            title = f":material/{symbol}: {label.capitalize()}:"
            st.markdown(f"**{title}** {plain(stored.analysis_name(job))}")
            if status.goes_on:
                _show_progress(status, f"{_waiting(status).capitalize()} …")
        if status.goes_on:
            help = "Stops the run within two seconds; finished parts are kept."
            _offer_cancel(job.id, job.cancel, help)
            return
        if status.state == "done" and st.button(
            "See the result",
            type="primary",
            icon=":material/visibility:",
            key=f"look {job.id}",
            help="Opens it on Explore.",
        ):
            choices.open_job(job.id)
            st.switch_page(SCREENS["explore"].file)
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


def _dismiss(job: Job) -> None:
    _watched().pop(job.id, None)
    if choices.get_one("analysis") == job.id and job.status().state != "done":
        choices.put("analysis", None)


def show_tasks() -> None:
    """List of the background tasks, behind a button with how far they are; nothing without any.

    It looks every three seconds while something runs, or is to be computed ahead, and draws the
    page anew when a task has begun or ended.
    """
    tasks = _other_tasks()
    if tasks or _is_ahead():
        st.fragment(_draw_tasks, run_every=POLL)(list(tasks))


def _other_tasks() -> dict[Task, str]:
    """Titles of the background tasks but the runs that have a bar, in the order of their turns."""
    store, tasks = stored.store(), dict[Task, str]()
    for name in runner.unfinished_tasks(store.root / "jobs"):
        followup = find_followup(name, store)
        job = analyses.find(name if followup is None else followup.request["analysis"], store)
        if job is None:
            continue
        title, last = stored.analysis_name(job), followups.find_last_stage(job)
        if followup is None or (last is not None and last.id == name):
            tasks[Run(job.id, job.folder)] = title
        else:
            kind = followup.kind.title or followup.request["kind"]
            tasks[Task(name, followup.folder)] = f"{title}: {kind}"
    return {task: title for task, title in tasks.items() if task.id not in _watched()}


def _is_ahead() -> bool:
    """Whether something is, or will be, computed ahead for this window."""
    ahead = st.session_state.get(AHEAD)
    return ahead is not None and ahead.thread.is_alive()


def _draw_tasks(before: list[Task]) -> None:
    tasks = _other_tasks()
    if list(tasks) != before or not (tasks or _is_ahead()):
        st.rerun()
    if not tasks:
        return
    shares = [f"{title}: {percent(task.status().share)}" for task, title in tasks.items()]
    label = plain(shares[0] if len(shares) == 1 else many(len(tasks), "background task"))
    with st.popover(label, icon=":material/hourglass:", key="background tasks", width="content"):
        st.markdown("**Background tasks**")
        for task, title in tasks.items():
            status = task.status()
            with st.container(horizontal=True, vertical_alignment="center", key=f"task {task.id}"):
                st.progress(status.share, text=plain(f"{title}: {_how_far(status)}"))
                help = "Stops it within two seconds; what is done is kept."
                _offer_cancel(f"task {task.id}", task.cancel, help)


def _how_far(status: Status) -> str:
    """Share done and time left of a task, in words."""
    if status.state == "queued":
        return _waiting(status)
    left = status.seconds_left
    about = "" if left is None else f", about {duration(left)} left"
    return f"{percent(status.share)}{about}"


def interval_progress(job_id: str) -> str:
    """How far the intervals of an analysis are, as " 40 %"; "" where none come."""
    job = analyses.find(job_id, stored.store())
    last = None if job is None else followups.find_last_stage(job)
    if last is None or not last.folder.exists() or not last.status().goes_on:
        return ""
    return f" {percent(last.status().share)}"


class _Ahead:
    """Work that nobody has requested: begun once its window is quiet, ended with the window.

    Attributes
    ----------
    due : when the window has been quiet for long enough, if nothing is clicked
    wanted : False ends it
    """

    def __init__(self, task: Followup, session: str) -> None:
        self.task, self.session = task, session
        self.due, self.wanted = time.monotonic() + QUIET, True
        self.thread = threading.Thread(target=self._tend, daemon=True)
        self.thread.start()

    def _tend(self) -> None:
        task, server = self.task, runtime.get_instance()
        while self.wanted and server.is_active_session(self.session):
            if task.folder.exists():
                status = task.status()
                by_person = status.state == "cancelled" and not status.message
                if status.state in ("done", "failed") or by_person:
                    return
            if time.monotonic() >= self.due and not runner.unfinished_tasks(task.folder.parent):
                with contextlib.suppress(InputError, OSError):
                    task.begin("ahead")
            time.sleep(TICK)
        with contextlib.suppress(InputError, OSError):
            if task.lane == "ahead":
                task.cancel("nobody looks at it any more")


def begin_ahead(task: Followup) -> None:
    """Begin work that nobody has clicked for, after five quiet seconds without other work.

    It ends when other work begins, with the window and with the server.
    """
    give_way(task)
    context = get_script_run_ctx()
    if view_only() or context is None or not runtime.exists():
        return
    ahead: _Ahead | None = st.session_state.get(AHEAD)
    if ahead is None or not ahead.thread.is_alive():
        st.session_state[AHEAD] = _Ahead(task, context.session_id)


def give_way(to: Task | None = None) -> None:
    """Stop the work that this window has begun ahead, unless it is this."""
    ahead: _Ahead | None = st.session_state.get(AHEAD)
    if ahead is not None and (to is None or ahead.task.id != to.id):
        ahead.wanted = False  # its thread ends it, for which no click waits
        del st.session_state[AHEAD]


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
    if status.goes_on:
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


@st.fragment(run_every=POLL)
def _progress(task: Task, label: str) -> None:
    status = task.status()
    if not status.goes_on:
        st.rerun()
    _show_progress(status, f"{label}: {_waiting(status)} …")
    help = "Stops this work within two seconds; the analysis stays as it is."
    _offer_cancel(task.id, task.cancel, help)


def _waiting(status: Status) -> str:
    """State of a task before its progress is known, in words."""
    if status.state != "queued":
        return "starts"
    turn = f" after {many(status.before, 'run')}" if status.before else ""
    return f"waits for its turn{turn}"


def _show_progress(status: Status, otherwise: str) -> None:
    """Progress bar of a task over all its stages; `otherwise` where it has none yet."""
    text = otherwise
    if status.times.stages:
        stage = status.times.stages[-1]
        of = f" of {Path(stage.model).name}" if stage.model else ""
        units = f"{stage.done:,} of {stage.total:,} {stage.unit}"
        text = f"{_how_far(status)} ({sentence_case(stage.stage)}{of}: {units})"
    st.progress(status.share, text=plain(text))


def _offer_cancel(name: str, cancel: Callable[[], None], help: str) -> None:
    """A button that stops some work; none where nothing may be changed."""
    if view_only():
        return
    if st.button("Cancel", icon=":material/stop_circle:", key=f"cancel {name}", help=help):
        cancel()
        st.rerun()

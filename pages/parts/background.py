"""Work on the shown analysis that goes on in the background: its button and its progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.text import many
from pages.parts.wording import plain, progress_text

if TYPE_CHECKING:
    from mlem_core.base.typing import Progress
    from mlem_core.tasks.followups import Followup
    from mlem_core.tasks.runner import Status, Task


JUST_NOW = 60.0  # seconds; it may have been done since the page looked for it


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
    if status.state in ("queued", "running"):
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
    if status.state not in ("queued", "running"):
        st.rerun()
    show_progress(status, status.stages[-1:], f"{label}: {waiting(status)} …")
    offer_cancel(task, "Stops this work within two seconds; the analysis stays as it is.")


def waiting(status: Status) -> str:
    """What some work does of which no progress is known yet."""
    if status.state != "queued":
        return "starts"
    if not status.before:
        return "waits for its turn"
    verb = "is" if status.before == 1 else "are"
    return f"waits; {many(status.before, 'run')} {verb} before it"


def show_progress(status: Status, stages: Sequence[Progress], otherwise: str) -> None:
    """How far these last stages of some work are; `otherwise` where it has none yet."""
    if not stages:
        st.progress(0.0, text=otherwise)
    for stage in stages:
        left = status.seconds_left if stage is stages[-1] else None
        share = min(1.0, stage.done / max(stage.total, 1))
        st.progress(share, text=progress_text(stage, left))
    if status.where:
        st.caption(f"Computes on {plain(status.where)}.")


def offer_cancel(task: Task, help: str) -> None:
    """A button that stops some work."""
    if st.button("Cancel", icon=":material/stop_circle:", key=f"cancel {task.id}", help=help):
        task.cancel()
        st.rerun()

"""Work on the shown analysis that goes on in the background: its button, progress and tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.parts import choices
from pages.parts import shared as screen

if TYPE_CHECKING:
    import pandas as pd


# Work whose results lie in the store, and whose task has no tables of its own.
IN_STORE = ("all-error-bars", "audit", "multiverse", "representations")
JUST_NOW = 60.0  # seconds; it may have been done since the page looked for it


@st.cache_resource(max_entries=64, show_spinner=False)
def _tables(kind: str, job_id: str, task_id: str, options: str) -> dict[str, pd.DataFrame]:
    import json

    from mlem_core.tasks import followups

    return followups.find(kind, job_id, json.loads(options), screen.store()).tables()


def tables(kind: str, job_id: str, options: Mapping[str, Any]) -> dict[str, pd.DataFrame] | None:
    """What a piece of work has made; None where it is not done."""
    import json

    from mlem_core.tasks import followups

    task = followups.find(kind, job_id, options, screen.store())
    if task.status().state != "done":
        return None
    return _tables(kind, job_id, task.id, json.dumps(options))


def offer(kind: str, job_id: str, options: Mapping[str, Any], label: str, help: str) -> None:
    """A button that starts the work, or its progress with a button that stops it."""
    from mlem_core.tasks import followups

    task = followups.find(kind, job_id, options, screen.store())
    status = task.status()
    if status.state == "done":
        if kind not in IN_STORE or time.time() - task.result.stat().st_mtime < JUST_NOW:
            return
        # Whoever offers it has not found it: the store has been emptied since.
        task.damaged("What this work had made is no longer in the store; start it again.")
        status = task.status()
    if status.state in ("queued", "running"):
        _progress(kind, job_id, dict(options), label)
        return
    if st.button(label, icon=":material/play_arrow:", key=f"start {task.id}", help=help):
        followups.start(kind, job_id, options, screen.store())
        st.rerun()
    if status.state == "failed" and (task.folder / "spec.json").exists():
        st.error(choices.plain(status.message), icon=":material/error:")


@st.fragment(run_every=0.5)
def _progress(kind: str, job_id: str, options: dict[str, Any], label: str) -> None:
    from mlem_core.tasks import followups

    task = followups.find(kind, job_id, options, screen.store())
    status = task.status()
    if status.state not in ("queued", "running"):
        st.rerun()
    stage = status.stages[-1] if status.stages else None
    if stage is None:
        waits = "waits for its turn" if status.state == "queued" else "starts"
        st.progress(0.0, text=f"{label}: {waits} …")
    else:
        share = min(1.0, stage.done / max(stage.total, 1))
        st.progress(share, text=screen.stage(stage, status.seconds_left))
    if st.button(
        "Cancel", icon=":material/stop_circle:", key=f"cancel {task.id}",
        help="Stops this work within two seconds; the analysis stays as it is.",
    ):  # fmt: skip
        task.cancel()
        st.rerun()

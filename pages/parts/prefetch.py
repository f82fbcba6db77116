"""Computations for likely next clicks, made while the user looks at what was drawn last."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.parts import visitor

# The browser draws first.
PAUSE = 0.5  # seconds
# What takes longer is too much to compute for a click that may not come; so it is on a machine
# with other things to do.
LONGEST = 1.0  # seconds
# With more windows in use than this, what one of them may ask for next costs the others more.
MOST_WINDOWS = 2
RECENTLY = 60.0  # seconds; a window that has asked for nothing since is not in use
_one_at_a_time = threading.Lock()
_used: dict[str, float] = {}  # window -> when it last asked


def stop() -> None:
    """Leave it: the user has clicked, and all of the machine is needed for that."""
    stopped: threading.Event | None = st.session_state.get("prefetch")
    if stopped is not None:
        stopped.set()


def prepare(calls: Sequence[Callable[[], object]]) -> None:
    """Make these calls, whose results are kept, after a pause and until the next `stop`."""
    stop()
    if crowded():
        return
    stopped = st.session_state["prefetch"] = threading.Event()
    threading.Thread(target=visitor.token_bound(_make), args=(stopped, calls), daemon=True).start()


def crowded() -> bool:
    """Whether so many windows are in use, this one included, that nothing is computed ahead."""
    run, now = get_script_run_ctx(), time.monotonic()
    if run is not None:
        _used[run.session_id] = now
    for window in [window for window, when in list(_used.items()) if now - when > RECENTLY]:
        _used.pop(window, None)
    return len(_used) > MOST_WINDOWS


def _make(stopped: threading.Event, calls: Sequence[Callable[[], object]]) -> None:
    if stopped.wait(PAUSE):
        return
    for call in calls:
        with _one_at_a_time:
            if stopped.is_set():
                return
            # What goes wrong is said where it is asked for.
            began = time.monotonic()
            with contextlib.suppress(Exception):
                call()
            if time.monotonic() - began > LONGEST:
                return

"""What the next click may ask for, computed while the user looks at what the last one drew."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

import streamlit as st

# The browser draws first.
PAUSE = 0.5  # seconds
# What takes longer is too much to compute for a click that may not come; so it is on a machine
# with other things to do.
LONGEST = 1.0  # seconds
_one_at_a_time = threading.Lock()


def stop() -> None:
    """Leave it: the user has clicked, and all of the machine is needed for that."""
    stopped: threading.Event | None = st.session_state.get("prefetch")
    if stopped is not None:
        stopped.set()


def prepare(calls: Sequence[Callable[[], object]]) -> None:
    """Make these calls, whose results are kept, after a pause and until the next `stop`."""
    stop()
    stopped = st.session_state["prefetch"] = threading.Event()
    threading.Thread(target=_make, args=(stopped, calls), daemon=True).start()


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

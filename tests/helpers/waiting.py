"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import Any


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not after {seconds} s"
        time.sleep(0.05)


def wait(task: Any, *states: str, seconds: float = 60) -> Any:
    """The status of a job or follow-up that has come to one of the states, and to no other end."""
    end = time.monotonic() + seconds
    while (status := task.status()).state not in states:
        assert time.monotonic() < end, f"still {status} after {seconds} s"
        assert status.state in ("queued", "running"), status
        time.sleep(0.05)
    return status

"""The processes of tasks: started, found again by others, ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import filelock
import psutil

from mlem_core.base.files import read_json, write_json

# Processes that this one started: a child that has ended stays a zombie until it is polled.
_children: dict[int, subprocess.Popen[bytes]] = {}


def _locked(folder: Path, operation: int) -> int | None:
    """A descriptor of a folder with a lock on it; None where another process has one."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    except OSError:
        pass  # where nothing can be locked, `pid.json` alone has to tell
    return opened


def hold(folder: Path) -> int | None:
    """A descriptor of the folder by which its process has it for as long as it lives.

    None where another process has it. The kernel lets go of it, whatever ends the process.
    """
    # A look of `is_held` is over in no time; the threads of a process may end after it has.
    for _ in range(200):
        if (opened := _locked(folder, fcntl.LOCK_EX)) is not None:
            return opened
        time.sleep(0.005)
    return None


def is_held(folder: Path) -> bool:
    """Whether a process has the folder: it may not have written down yet which it is."""
    try:
        opened = _locked(folder, fcntl.LOCK_SH)
    except OSError:
        return False
    if opened is not None:
        os.close(opened)
    return opened is None


def module_command(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs a module as a process of its own, and its environment."""
    # The process finds this package wherever it was started from.
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return [sys.executable, "-P", "-m", module, *arguments], environment


def low_priority() -> list[str]:
    """The beginning of a command that comes after others."""
    nice = shutil.which("nice")
    return [nice, "-n", "5"] if nice else []


def yield_processors() -> None:
    """Have Linux, where it shares processors out among sessions first, put this one last."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("5", encoding="ascii")


def start_process(
    command: Sequence[str], folder: Path, held: int, environment: Mapping[str, str]
) -> None:
    """Start a process that leads a group of its own and writes into `log`.

    Parameters
    ----------
    held : of `hold`; the process has it from now on
    """
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            pass_fds=(held,),
        )
    _children[child.pid] = child
    write_pid(folder, child.pid)


def write_pid(folder: Path, pid: int) -> None:
    """Note which process is at a task."""
    write_json(folder / "pid.json", {"pid": pid, "started": started(pid)})


def started(pid: int) -> float | None:
    """Start time of a live process, in seconds; None where there is none.

    Process numbers are used again; with this a stranger is not taken for the job.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        # Linux counts from the boot, the date of which moves when the clock is set.
        boot = psutil.boot_time() if psutil.LINUX else 0.0
        return round(process.create_time() - boot, 2)
    except psutil.NoSuchProcess:
        return None


def live_pid(folder: Path) -> int | None:
    """The number of the job's process if it is still there."""
    process = read_json(folder / "pid.json")
    pid, began = process.get("pid"), process.get("started")
    if not isinstance(pid, int) or pid <= 1:
        return None
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        _children.pop(pid, None)
    now = started(pid)
    return pid if now is not None and now == began else None


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a task's process and to those that it has started."""
    # It leads its own group, so its number is the group's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def gone(folder: Path, seconds: float) -> bool:
    """Wait for a task's process to end; whether it has."""
    end = time.monotonic() + seconds
    while live_pid(folder) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def starting(folder: Path) -> filelock.BaseFileLock:
    """Held while a job is started or cancelled, so that two tabs start one process."""
    return filelock.FileLock(folder.with_suffix(".lock"), timeout=30)

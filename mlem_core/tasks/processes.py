"""The processes of tasks: started, found again by others, ended.

The process of a task has a lock on its folder, which the kernel lets go of, whatever ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import filelock
import psutil

from mlem_core.base.files import read_json, write_json

# Processes that this one started; each hears by its input when this one has ended.
_children: list[subprocess.Popen[bytes]] = []


def hold(folder: Path) -> int | None:
    """A descriptor of the folder by which its process has it for as long as it lives.

    None where another process has it.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    # A look of `is_held` is over in no time; the threads of a process may end after it has.
    for _ in range(200):
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except BlockingIOError:
            time.sleep(0.005)
        except OSError:
            return opened  # see `is_held`
    os.close(opened)
    return None


def is_held(folder: Path) -> bool:
    """Whether a process has the folder: it may not have written down yet which it is."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return psutil.pid_exists(_pid(folder))  # nothing can be locked here
    finally:
        os.close(opened)


def start_process(folder: Path, held: int, *, is_awaited: bool) -> None:
    """Start the process of a task, which leads a group of its own and writes into `log`.

    Parameters
    ----------
    held : of `hold`; the process has it from now on
    is_awaited : whether someone waits for it; else it comes after others
    """
    command = [sys.executable, "-P", "-m", "mlem_core.tasks", str(folder)]
    if not is_awaited and shutil.which("nice"):
        command = ["nice", "-n", "5", *command]
    # The process finds this package wherever it was started from.
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    _children[:] = [child for child in _children if child.poll() is None]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=(held,),
        )
    _children.append(child)
    write_pid(folder, child.pid)


def write_pid(folder: Path, pid: int) -> None:
    """Note which process is at a task."""
    write_json(folder / "pid.json", {"pid": pid})


def _pid(folder: Path) -> int:
    """The process that was noted last; 0 for none."""
    pid = read_json(folder / "pid.json").get("pid")
    return pid if isinstance(pid, int) and pid > 1 else 0


def yield_processors() -> None:
    """Have Linux, where it shares processors out among sessions first, put this one last."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("5", encoding="ascii")


def signal_group(folder: Path, number: int) -> None:
    """Send a signal to the process that has a folder and to those that it has started."""
    pid = _pid(folder)
    # It leads its own group, so its number is the group's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if pid and is_held(folder):
            os.killpg(pid, number)


def gone(folder: Path, seconds: float) -> bool:
    """Wait for a task's process to end; whether it has."""
    end = time.monotonic() + seconds
    while is_held(folder):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def starting(folder: Path) -> filelock.BaseFileLock:
    """Held while a job is started or cancelled, so that two tabs start one process."""
    return filelock.FileLock(folder.with_suffix(".lock"), timeout=30)

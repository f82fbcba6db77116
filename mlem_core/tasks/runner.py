"""Work in the background, each piece in a process of its own.

A task is a folder, and what state it is in follows from the files in it alone: any process that
looks there (another tab, a restarted server) sees the same. Its process is `python -m
mlem_core.tasks FOLDER`, which outlives whoever started it. One task of a parent folder runs at a
time.

    spec.json       the specification
    pid.json        the process
    progress.json   how far it is
    result/         what it made; it appears in one step
    failed.json     the sentence for the user
    cancelled       a file, with the reason where it was not a person who cancelled it
    log             what the process printed
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import filelock

from mlem_core.analysis.backends import connected
from mlem_core.base.errors import InputError
from mlem_core.base.files import is_full, read_json, sync_path, write_json
from mlem_core.base.parallel import heed_signals, heed_stop, signal_status
from mlem_core.base.progress import PlannedStage, StageTimes, TimedStage
from mlem_core.base.typing import Progress
from mlem_core.storage.digests import RESULT, seal, sealed
from mlem_core.storage.store import Store
from mlem_core.tasks.access import check_changes_allowed
from mlem_core.tasks.processes import (
    gone,
    hold,
    is_held,
    signal_group,
    start_process,
    starting,
    write_pid,
    yield_processors,
)  # fmt: skip

T = TypeVar("T")
State = Literal["queued", "running", "done", "failed", "cancelled"]
Request = dict[str, Any]

_WRITE_EVERY = 0.2  # seconds between two writes of progress.json
_POLL = 0.1  # seconds between two looks at the queue
_GRACE = 1.0  # seconds from SIGTERM to SIGKILL
_LANE = "lane.json"
_ENDS = ("result", "failed.json", "cancelled")  # a task with one of these has ended


# "turn": someone waits for it. "later": nobody does, as for intervals at the end of a run. "ahead":
# nobody has even requested it; it ends with the server that began it, and as soon as work of the
# first kind begins.
Lane = Literal["turn", "later", "ahead"]


@dataclass(frozen=True)
class Status:
    """State of a task, with its progress.

    Attributes
    ----------
    state : "queued", "running", "done", "failed" or "cancelled"
    times : the stages that have begun, and those that are planned
    message : one sentence where it failed, or why it was cancelled by no person; else empty
    before : while it waits, how many that run or wait have their turns before it
    """

    state: State
    times: StageTimes = field(default_factory=StageTimes)
    message: str = ""
    before: int = 0

    @property
    def share(self) -> float:
        """Share of the whole that is done."""
        return 1.0 if self.state == "done" else self.times.share

    @property
    def seconds_left(self) -> float | None:
        """Time until its end, from its plan and its rate so far; None where nothing tells."""
        return self.times.seconds_left(time.time()) if self.state == "running" else None

    @property
    def goes_on(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ("queued", "running")


@dataclass(frozen=True)
class Task:
    """A piece of work in the background: `folder` holds all that is known of it."""

    id: str
    folder: Path

    @property
    def result(self) -> Path:
        """The folder with what it made; it is there when the task is done."""
        return self.folder / "result"

    def status(self) -> Status:
        """The status that the files say now."""
        # Looked at first: a process that ends after this look has left its result or failure.
        alive = is_held(self.folder)
        progress = read_json(self.folder / "progress.json")
        times = _stage_times(progress)
        if self.result.is_dir():
            return Status("done", times)
        with contextlib.suppress(OSError):
            return Status("cancelled", times, (self.folder / "cancelled").read_text("utf-8"))
        failed = read_json(self.folder / "failed.json").get("message")
        if failed:
            return Status("failed", times, str(failed))
        if alive:
            if progress.get("state") == "running":
                return Status("running", times)
            return Status("queued", times, before=_count_earlier_tasks(self.folder))
        why = f"the run stopped without a result; see {self.folder / 'log'}"
        return Status("failed", times, why)

    @property
    def lane(self) -> Lane:
        """Whether someone waits for it."""
        lane = read_json(self.folder / _LANE).get("lane")
        return lane if lane in ("later", "ahead") else "turn"

    def cancel(self, why: str = "") -> None:
        """Stop the task, queued or running; its process is gone within 2 seconds.

        `why` says what else than a person does. A task that is not queued or running stays as it
        is. Raises `InputError` where this server only shows what is finished.
        """
        check_changes_allowed()
        if not is_held(self.folder):
            return
        with starting(self.folder):
            if not is_held(self.folder) or self.result.is_dir():
                return
            (self.folder / "cancelled").write_text(why, encoding="utf-8")
            signal_group(self.folder, signal.SIGTERM)
            if not gone(self.folder, _GRACE):
                signal_group(self.folder, signal.SIGKILL)
                gone(self.folder, _GRACE)
            _remove_unfinished(self.folder)
            (self.folder / "pid.json").unlink(missing_ok=True)

    def damaged(self, message: str) -> None:
        """Put a result that cannot be read out of the way, so that the next start makes it anew."""
        _removed(self.folder / "failed.json")
        write_json(self.folder / "failed.json", {"message": message})
        _removed(self.result)

    def read(self, load: Callable[[Path], T], what: str, again: str) -> T:
        """The value that `load` reads from the result.

        Parameters
        ----------
        what, again : what messages call the task, and what to do where it cannot be read

        Raises
        ------
        InputError
            It is not done, or its result can no longer be read and is put out of the way.
        """
        if not self.result.is_dir():
            raise InputError(f"{what} {self.id} is not done: it is {self.status().state}.")
        # What is sealed is what was written; only another version's may be of another form.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            if sealed(self.result, RESULT):
                return load(self.result)
        message = f"the result of {what} {self.id} can no longer be read; {again}."
        self.damaged(message)
        raise InputError(message)

    def start(self, request: Request, lane: Lane = "turn") -> None:
        """Start the task unless it is queued, running or done.

        One that was begun ahead and goes on no longer ends with its server, if now it is wanted.
        A failed or cancelled task starts again. Raises `InputError` where the store cannot be
        written, or this server only shows what is finished.
        """
        check_changes_allowed()
        Store(self.folder.parent.parent).check_writable()
        self.folder.mkdir(parents=True, exist_ok=True)
        if lane == "turn":
            for name in unfinished_tasks(self.folder.parent):
                other = Task(name, self.folder.parent / name)
                if other.lane == "ahead" and name != self.id:
                    other.cancel("other work came first")
        with starting(self.folder):
            if self.result.is_dir():
                return
            if is_held(self.folder):
                ended = any((self.folder / n).exists() for n in ("failed.json", "cancelled"))
                if not ended and lane != "ahead" and self.lane == "ahead":
                    write_json(self.folder / _LANE, {"lane": "later"})
                if not ended or not gone(self.folder, 10):
                    return
            held = hold(self.folder)
            if held is None:
                return
            try:
                for name in (*_ENDS, _LANE, "progress.json", "pid.json", "log"):
                    _removed(self.folder / name)
                _remove_unfinished(self.folder)
                if (self.folder / "spec.json").is_dir():
                    _removed(self.folder / "spec.json")
                write_json(self.folder / "spec.json", request)
                if lane != "turn":
                    write_json(self.folder / _LANE, {"lane": lane})
                start_process(self.folder, held, is_awaited=lane == "turn")
            finally:
                os.close(held)


def unfinished_tasks(folder: Path) -> list[str]:
    """The ids of a folder's tasks that are queued or running, in the order of their turns."""
    tasks = [path.parent for path in folder.glob("*/pid.json")]
    going_on = [task for task in tasks if not any((task / end).exists() for end in _ENDS)]
    return [name for _, name in sorted(map(_asked, filter(is_held, going_on)))]


# What the task's own process does


class Reporter:
    """Writes progress.json, a few times a second at most.

    Attributes
    ----------
    times : the stages so far; who does the work may give it a plan
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "progress.json"
        self.times = StageTimes()
        self._written = 0.0
        self.say("queued")

    def __call__(self, progress: Progress) -> None:
        heed_stop()
        now = time.time()
        if self.times.record(progress, now) or now - self._written >= _WRITE_EVERY:
            self.say("running")

    def say(self, state: State) -> None:
        self._written = time.time()
        # A run is not worth losing for its progress: a full disk shows where it matters.
        with contextlib.suppress(OSError):
            write_json(self._path, {"state": state, **asdict(self.times)}, synced=False)


def execute(folder: Path, make: Callable[[Request, Path, Reporter], None]) -> int:
    """Wait for the turn, do the work of a task's folder and leave its result there.

    One task of a parent folder and a lane runs, the others wait in order of arrival.

    Parameters
    ----------
    make : called with the specification, the folder to write into, and where to report progress

    Returns the exit status: 0, or 1 where `failed.json` says why; of SIGTERM 143, when nothing is
    left that is unfinished.
    """
    if threading.current_thread() is threading.main_thread():
        heed_signals()
    write_pid(folder, os.getpid())
    report, lane = Reporter(folder), Task(folder.name, folder).lane
    if lane != "turn":
        yield_processors()
        threading.Thread(target=_end_with_server, args=(folder,), daemon=True).start()
    try:
        request = read_json(folder / "spec.json", strict=True)
        while before := _count_earlier_tasks(folder):
            # Those far back look less often: each look reads the files of all that wait.
            time.sleep(_POLL * min(2 + before, 20))
        with filelock.FileLock(folder.parent / f"{'turn' if lane == 'turn' else 'later'}.lock"):
            report.times.started = time.time()
            report.say("running")
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder))
            with connected():
                make(request, unfinished, report)
            seal(unfinished, RESULT)
            unfinished.rename(folder / "result")
            sync_path(folder)
        return 0
    except KeyboardInterrupt:
        return signal_status()
    except InputError as error:
        write_json(folder / "failed.json", {"message": str(error)})
    except Exception as error:
        traceback.print_exc()
        message = f"the run stopped on an unexpected error; see {folder / 'log'}"
        if isinstance(error, OSError) and is_full(error):
            message = f"the disk of {str(folder.parent.parent)!r} is full: free some space."
        write_json(folder / "failed.json", {"message": message})
    finally:
        _remove_unfinished(folder)
    return 1


def _remove_unfinished(folder: Path) -> None:
    for unfinished in folder.glob("unfinished-*"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _count_earlier_tasks(folder: Path) -> int:
    """Number of tasks of the same lane that run or wait whose turn is before that of one."""
    order, is_late = unfinished_tasks(folder.parent), Task(folder.name, folder).lane != "turn"
    before = order[: order.index(folder.name)] if folder.name in order else []
    lanes = [Task(name, folder.parent / name).lane for name in before]
    return sum((lane != "turn") == is_late for lane in lanes)


def _end_with_server(folder: Path) -> None:
    """End this process, if it works ahead then, with the server that began it."""
    os.read(0, 1)  # the server writes nothing; with it the pipe ends
    if Task(folder.name, folder).lane == "ahead" and not (folder / "result").exists():
        (folder / "cancelled").write_text("its server has ended", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        signal_group(folder, signal.SIGKILL)


def _asked(folder: Path) -> tuple[int, str]:
    try:
        return (folder / "spec.json").stat().st_mtime_ns, folder.name
    except OSError:
        return sys.maxsize, folder.name


def _stage_times(progress: dict[str, Any]) -> StageTimes:
    """Times of the stages of progress.json; none where it is damaged."""
    with contextlib.suppress(LookupError, TypeError, ValueError):
        plan = [PlannedStage(*planned) for planned in progress.get("plan", [])]
        times = StageTimes(plan, [TimedStage(**row) for row in progress.get("stages", [])])
        times.started = float(progress.get("started", 0.0))
        if 0 <= times.share <= 1 and (times.seconds_left(time.time()) or 0) >= 0:
            return times
    return StageTimes()


def _removed(path: Path) -> None:
    """Remove a path, whether it is a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

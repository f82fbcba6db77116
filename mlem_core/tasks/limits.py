"""Limits of each visitor of a shared server, checked where they count, and the order of turns.

A store in the folder `visitors` of another one is a visitor's; any other has no limits.

Tasks that wait have their turns in the order of arrival where they are of one owner, and the owners
in turn. One's own server has one owner. On a shared one each visitor is one: with two runs waiting
each, A and B have their turns as A B A B, whoever was first.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import filelock
import psutil

from mlem_core.base.errors import InputError
from mlem_core.base.room import VISITORS, Shared, shared
from mlem_core.base.text import many

ADDRESS = "address"  # a file in a visitor's store that stands for where the visitor came from
_LOOK = 0.5  # seconds between two looks at what a run uses
# An empty file: when a task of that folder last had its turn; before that, when its owner first
# came. Else whoever comes as somebody new each time would always be the next.
_SERVED = "served"


def of_store(root: Path) -> Shared | None:
    """The limits of the owner of a store; None for one without limits."""
    return shared() if root.parent.name == VISITORS else None


def check_upload(n_bytes: int, name: str, root: Path) -> None:
    """Whether a visitor may keep a file of that size.

    Parameters
    ----------
    root : of the visitor's store

    Raises
    ------
    InputError
        The file is too large, or all uploads together would be; the sentence says what helps.
    """
    settings = of_store(root)
    if settings is None:
        return
    if n_bytes > settings.upload_mb * 1e6:
        raise InputError(
            f"the file {name!r} has {_mb(n_bytes)} MB; this server takes files of up to "
            f"{settings.upload_mb:,g} MB."
        )
    kept = _size(root / "uploads")
    check_room(root)
    if kept + n_bytes > settings.uploads_mb * 1e6:
        raise InputError(
            f"the file {name!r} has {_mb(n_bytes)} MB and your other uploads have {_mb(kept)} MB; "
            f"this server keeps {settings.uploads_mb:,g} MB for each visitor: delete "
            "analyses that you no longer need."
        )


def check_room(root: Path) -> None:
    """Whether the visitors together may keep more; raises `InputError` as `check_upload`.

    Parameters
    ----------
    root : of the store of one of them
    """
    settings = of_store(root)
    if settings is None:
        return
    kept = _size(root.parent)
    if kept > settings.disk_all_gb * 1e9:
        raise InputError(
            f"all visitors' analyses and files take {kept / 1e9:,.1f} GB, and this server keeps "
            f"{settings.disk_all_gb:,g} GB: delete some of yours that you no longer need, or tell "
            "whoever runs the server."
        )


def same_address(root: Path) -> list[Path]:
    """The stores of all visitors who were last here from the address of one, itself included."""

    def address(store: Path) -> str:
        with contextlib.suppress(OSError):
            return (store / ADDRESS).read_text()
        return str(store)  # of nobody else

    own = address(root)
    return [store for store in root.parent.glob("*/") if address(store) == own]


def starting_run(root: Path) -> contextlib.AbstractContextManager[object]:
    """Held while a run of a visitor is counted and started: no two start on one count."""
    if of_store(root) is None:
        return contextlib.nullcontext()
    return filelock.FileLock(root.parent / "starting.lock", timeout=30)


def check_run(root: Path, n_under_way: int, n_of_address: int) -> None:
    """Whether a visitor may start one more run; raises `InputError` as `check_upload`.

    Parameters
    ----------
    root : of the visitor's store
    n_under_way : the visitor's runs that wait or run
    n_of_address : those of all visitors from the visitor's address
    """
    settings = of_store(root)
    if settings is None:
        return
    if n_under_way >= settings.runs_each:
        raise InputError(
            f"{many(n_under_way, 'run')} of yours wait or run, which is as many as this server "
            "lets each visitor have: cancel one, or wait until one is done."
        )
    if n_of_address >= settings.runs_address:
        raise InputError(
            f"{many(n_of_address, 'run')} from your network address wait or run, which is as many "
            "as this server lets each address have: wait until one is done."
        )
    check_room(root)
    kept = _size(root)
    if kept > settings.disk_gb * 1e9:
        raise InputError(
            f"your analyses take {kept / 1e9:,.1f} GB, and this server keeps "
            f"{settings.disk_gb:,g} GB for each visitor: delete some that you no longer need."
        )


@contextlib.contextmanager
def watched(root: Path, too_much: Callable[[str], None]) -> Iterator[None]:
    """Have a look at the memory and the time of this process while it works for a visitor.

    Parameters
    ----------
    root : of the visitor's store
    too_much : called with the sentence for the visitor, from another thread; it ends the process
    """
    settings = of_store(root)
    if settings is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        began = time.monotonic()
        while not over.wait(_LOOK):
            sentence = excess(settings, time.monotonic() - began, memory())
            if sentence:
                too_much(sentence)
                return

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def memory(pid: int | None = None) -> int:
    """The bytes that a process, by default this one, and those that it has started hold."""
    held = 0
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                held += process.memory_info().rss
    return held


def end_here() -> None:
    """End this process and those that it has started, at once."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    os._exit(1)


def excess(
    settings: Shared,
    seconds: float,
    n_bytes: int,
    what: str = "the run",
    less: str = "choose fewer stimuli, layers or features; what it had finished is kept",
) -> str:
    """The sentence for a visitor whose work takes more than a run may; empty where it does not.

    Parameters
    ----------
    what, less : how the sentence calls the work, and what it says that helps
    """
    if n_bytes > settings.memory_gb * 1e9:
        too_much = f"needed more than {settings.memory_gb:,g} GB of memory"
    elif seconds > settings.minutes * 60:
        too_much = f"took more than {settings.minutes:,g} minutes"
    else:
        return ""
    return f"{what} {too_much}, which is what this server lets a run have: {less}."


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f}"


def _size(folder: Path) -> int:
    """The bytes of the files in a folder; what goes away meanwhile counts for nothing."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_size
    return total


class Waiting(NamedTuple):
    """A waiting task: the folder of its owner's tasks, when it was submitted, its own folder."""

    owner: Path
    asked: tuple[int, str]
    folder: Path


def in_turn(
    waiting: Iterable[Waiting], running: Sequence[Path], served: Mapping[Path, float]
) -> list[Path]:
    """The folders of the waiting tasks in the order of their turns.

    Parameters
    ----------
    running : the owner of each task that runs now
    served : of each owner, the later of the last turn and the first visit; nothing for one's own
    """
    had, order = Counter(running), []
    for task in sorted(waiting, key=lambda task: task.asked):
        turn = had[task.owner]
        # Of equal turns the first of this order, then who has waited longest since the last one.
        later = turn > running.count(task.owner), served.get(task.owner, 0.0)
        order.append((turn, *later, task.asked, task.folder))
        had[task.owner] += 1
    return [folder for *_, folder in sorted(order)]


def owners(jobs: Path) -> list[Path]:
    """The folders of tasks that share the machine with those of one folder, itself included."""
    if of_store(jobs.parent) is None:
        return [jobs]
    return sorted({jobs, *jobs.parent.parent.glob("*/jobs")})


def locks(jobs: Path) -> list[list[Path]]:
    """Lock files: a task of that folder holds one of each list while it runs."""
    settings = of_store(jobs.parent)
    turn = [jobs / "turn.lock"]
    if settings is None:
        return [turn]
    return [turn, [jobs.parent.parent / f"turn-{n}.lock" for n in range(settings.runs_at_once)]]


def last_served(folders: Iterable[Path]) -> dict[Path, float]:
    """Time of the last turn of a task of each owner, or of the owner's first coming."""
    served = {}
    for jobs in folders:
        with contextlib.suppress(OSError):
            served[jobs] = (jobs / _SERVED).stat().st_mtime
    return served


def arrive(jobs: Path) -> None:
    """The owner of that folder is here; what counts is the first time."""
    jobs.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (jobs / _SERVED).touch(exist_ok=False)


def serve(jobs: Path) -> None:
    """A task of that folder has its turn now."""
    if jobs.parent.parent.name == VISITORS:
        with contextlib.suppress(OSError):
            (jobs / _SERVED).touch()

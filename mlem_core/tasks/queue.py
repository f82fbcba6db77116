"""Whose turn it is among tasks that wait: an owner's in the order of arrival, the owners in turn.

One's own server has one owner. On a shared one each visitor is one: with two runs waiting each, A
and B have their turns as A B A B, whoever asked for all of theirs first.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mlem_core.base.shared import VISITORS
from mlem_core.tasks.limits import of_store

# An empty file: when a task of that folder last had its turn; before that, when its owner first
# came. Else whoever comes as somebody new each time would always be the next.
_SERVED = "served"


class Waiting(NamedTuple):
    """A task that waits: the folder of its owner's tasks, when it was asked for, its own folder."""

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
    had = Counter(running)
    # Later than any time at which one was served: the turns of this order itself.
    last = {owner: (0, when) for owner, when in served.items()}
    left: dict[Path, deque[Waiting]] = {}
    for one in sorted(waiting, key=lambda one: one.asked):
        left.setdefault(one.owner, deque()).append(one)
    order: list[Path] = []
    while left:
        # Of those with the fewest turns, who has waited longest since the last one.
        owner = min(left, key=lambda own: (had[own], last.get(own, (0, 0.0)), left[own][0].asked))
        order.append(left[owner].popleft().folder)
        had[owner] += 1
        last[owner] = (1, float(len(order)))
        if not left[owner]:
            del left[owner]
    return order


def owners(jobs: Path) -> list[Path]:
    """The folders of tasks that share the machine with those of one folder, itself included."""
    if of_store(jobs.parent) is None:
        return [jobs]
    return sorted({jobs, *jobs.parent.parent.glob("*/jobs")})


def locks(jobs: Path) -> list[list[Path]]:
    """Lock files: a task of that folder holds one of each list while it runs."""
    settings = of_store(jobs.parent)
    own = [jobs / "turn.lock"]
    if settings is None:
        return [own]
    return [own, [jobs.parent.parent / f"turn-{n}.lock" for n in range(settings.runs_at_once)]]


def last_served(folders: Iterable[Path]) -> dict[Path, float]:
    """When a task of each owner last had its turn, or the owner first came."""
    found = {}
    for jobs in folders:
        with contextlib.suppress(OSError):
            found[jobs] = (jobs / _SERVED).stat().st_mtime
    return found


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

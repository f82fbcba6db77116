"""Analyses that a user has deleted: out of the list, and kept for a while so that they come back.

A deleted analysis is a folder of the store's `trash/` with all that belongs to it. Each part is
renamed, so that an analysis is either in the list or in the trash, whatever is killed meanwhile.
Representations and tables that its work left in the store stay there: they are found by what they
depend on, and other analyses use them too.

    deleted.json    which analysis, what it was called, when
    job/            its folder
    notes.json      what the user had written on it
    followups/      folders of work on it (intervals, audit, capsule ...)
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlem_core.base.errors import InputError
from mlem_core.base.files import read_json, write_json
from mlem_core.storage.store import Store
from mlem_core.tasks import examples, notes
from mlem_core.tasks.access import check_changes_allowed
from mlem_core.tasks.processes import starting
from mlem_core.tasks.runner import Task, under_way

DAYS = 30  # a deleted analysis is kept so long,
MOST = 100  # and so many of them at most


@dataclass(frozen=True)
class Deleted:
    """A deleted analysis.

    Attributes
    ----------
    id : of the analysis
    name : what it was called
    at : when it was deleted, in seconds since 1970
    folder : of the trash, with all that belongs to it
    """

    id: str
    name: str
    at: float
    folder: Path


def delete(job_id: str, name: str, store: Store) -> Deleted:
    """Put an analysis and all that belongs to it into the trash; what runs of it is cancelled.

    Parameters
    ----------
    name : what it is called, for the list of what was deleted

    Raises
    ------
    InputError
        The example, or an analysis that is not in the store (any more), or the store cannot be
        written.
    """
    check_changes_allowed()
    store.check_writable()
    if job_id == examples.ID:
        raise InputError("the example comes with the program and cannot be deleted.")
    job = Task(job_id, store.root / "jobs" / job_id)
    if not (job.folder / "spec.json").is_file():
        raise InputError(f"the analysis {name!r} is not in the store; it may be deleted already.")
    now = time.time()
    # What a killed process has begun is gone on with.
    begun = (folder for folder in (store.root / "trash").glob(f"{job_id}-*") if _unfinished(folder))
    trash = next(begun, store.root / "trash" / f"{job_id}-{time.time_ns():x}")
    (trash / "followups").mkdir(parents=True, exist_ok=True)
    write_json(trash / "deleted.json", {"analysis": job_id, "name": name, "at": now})
    for folder in followups_of(job_id, store):
        _move(Task(folder.name, folder), trash / "followups" / folder.name)
    with contextlib.suppress(FileNotFoundError):
        notes.path_of(job_id, store).rename(trash / "notes.json")
    _move(job, trash / "job")
    return Deleted(job_id, name, now, trash)


def restore(deleted: Deleted, store: Store) -> None:
    """Bring back a deleted analysis with all that belongs to it.

    What has been made anew since it was deleted stays as it is.

    Raises
    ------
    InputError
        It is gone for good.
    """
    if not (deleted.folder / "job").is_dir():
        raise InputError(f"the analysis {deleted.name!r} is no longer in the trash.")
    _put_back(deleted.folder, deleted.id, store)


def _put_back(folder: Path, job_id: str, store: Store) -> None:
    jobs = store.root / "jobs"
    moves = [(followup, jobs / followup.name) for followup in (folder / "followups").glob("*")]
    moves.append((folder / "notes.json", notes.path_of(job_id, store)))
    for source, target in [*moves, (folder / "job", jobs / job_id)]:
        target.parent.mkdir(exist_ok=True)
        with starting(target):
            if source.exists() and not target.exists():
                source.rename(target)
    shutil.rmtree(folder, ignore_errors=True)


def _unfinished(folder: Path) -> bool:
    """Whether all but the analysis itself, which is the last, may have been moved here."""
    return not (folder / "job").is_dir()


def in_trash(store: Store) -> list[Deleted]:
    """The deleted analyses that can be brought back, the latest first."""
    deleted = []
    for job in (store.root / "trash").glob("*/job/"):
        about = read_json(job.parent / "deleted.json")
        with contextlib.suppress(KeyError, TypeError, ValueError):
            analysis, name, at = str(about["analysis"]), str(about["name"]), float(about["at"])
            deleted.append(Deleted(analysis, name, at, job.parent))
    return sorted(deleted, key=lambda item: item.at, reverse=True)


def purge(store: Store, days: float = DAYS, most: int = MOST) -> None:
    """Remove for good what was deleted more than so many days ago, or is more than so many."""
    began = time.time() - days * 86400
    kept = [item.folder for item in in_trash(store)[:most] if item.at >= began]
    for folder in (store.root / "trash").glob("*"):
        with contextlib.suppress(OSError):
            if _unfinished(folder):
                # It is being moved just now, or was by a process that was killed: undone.
                if abs(time.time() - folder.stat().st_mtime) > 3600:
                    _put_back(folder, folder.name.rpartition("-")[0], store)
            elif folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def followups_of(job_id: str, store: Store) -> Iterator[Path]:
    """The folders of work on an analysis."""
    for path in (store.root / "jobs").glob("*-*/spec.json"):
        try:
            request = json.loads(path.read_bytes())
            about = (request["analysis"].partition("-")[0], request["options"].get("other"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        if job_id in about:
            yield path.parent


def _move(task: Task, target: Path) -> None:
    """Rename a task's folder; what runs in it is cancelled before."""
    while True:
        if task.id in under_way(task.folder.parent):
            task.cancel()
        with starting(task.folder):
            if task.id in under_way(task.folder.parent):
                continue  # started again in between
            if task.folder.is_dir():
                task.folder.rename(target)
            return

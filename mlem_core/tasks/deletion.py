"""Deletion of analyses; the last one can be undone.

A deleted analysis is a folder of the store's `deleted/`, renamed in one step. Its notes and the
work on it stay where they are until it is removed for good: by the next deletion, or when the app
starts. Representations and tables that its work left in the store stay there: they are found by
what they depend on, and other analyses use them too.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from mlem_core.base.errors import InputError
from mlem_core.base.files import read_json
from mlem_core.storage.store import Store
from mlem_core.tasks import examples, notes
from mlem_core.tasks.access import check_changes_allowed
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.processes import starting
from mlem_core.tasks.runner import Task, unfinished_tasks


def delete(job_id: str, name: str, store: Store) -> None:
    """Delete an analysis, so that `restore` can bring it back; what runs of it is cancelled.

    Analyses that were deleted before are removed for good.

    Parameters
    ----------
    name : what it is called, for messages

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
    remove_deleted(store)
    target = _deleted(store) / job_id
    target.parent.mkdir(exist_ok=True)
    for folder in list_followups(job_id, store):
        Task(folder.name, folder).cancel()
    while True:
        job.cancel()
        with starting(job.folder):
            # Else it was started again in between.
            if job_id not in unfinished_tasks(job.folder.parent):
                job.folder.rename(target)
                return


def last_deleted(store: Store) -> Job | None:
    """The deleted analysis that can still be brought back; None without one."""
    for folder in _deleted(store).glob("*"):
        with contextlib.suppress(OSError, ValueError):
            return Job.in_folder(folder)
    return None


def restore(job_id: str, store: Store) -> None:
    """Bring back a deleted analysis; one that was run again meanwhile stays as it is.

    Raises
    ------
    InputError
        It has been removed for good.
    """
    check_changes_allowed()
    if not (_deleted(store) / job_id).is_dir():
        raise InputError("the deleted analysis has been removed and cannot be brought back.")
    target = store.root / "jobs" / job_id
    with starting(target):
        if not target.exists():
            (_deleted(store) / job_id).rename(target)


def remove_deleted(store: Store) -> None:
    """Remove deleted analyses for good, with their notes and the work on them."""
    for folder in _deleted(store).glob("*"):
        if not (store.root / "jobs" / folder.name).exists():
            for work in list_followups(folder.name, store):
                shutil.rmtree(work, ignore_errors=True)
            with contextlib.suppress(OSError, InputError):
                notes.notes_path(folder.name, store).unlink()
        shutil.rmtree(folder, ignore_errors=True)


def list_followups(job_id: str, store: Store) -> Iterator[Path]:
    """The folders of work on an analysis."""
    for path in (store.root / "jobs").glob("*-*/spec.json"):
        if str(read_json(path).get("analysis")).partition("-")[0] == job_id:
            yield path.parent


def _deleted(store: Store) -> Path:
    return store.root / "deleted"

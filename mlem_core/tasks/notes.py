"""A user's notes on an analysis: its name, a note, names to show, what goes in a report.

It lies in the store beside the jobs, never in a job's result, which follows from what was asked
alone. The example, whose folder is only read, has its notes there too. Any number of tabs and
processes may write at once: each change reads, changes and replaces the file under a lock.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import filelock

from mlem_core.base.errors import InputError
from mlem_core.base.files import write_json
from mlem_core.base.schema import parsed
from mlem_core.storage.store import Store

VERSION = 1
LONGEST_NAME = 120  # characters
LONGEST_NOTE = 5000
_ID = re.compile(r"[0-9a-zA-Z_-]{1,64}")


@dataclass(frozen=True)
class Notes:
    """A user's notes on an analysis.

    Attributes
    ----------
    name : of the analysis; empty where it has none but the derived one
    note : free text; may have several lines
    shown : what to show for a feature or a model, by its identifier; without an entry, itself
    report : what was put into the report, in its order, each as JSON can hold it
    """

    name: str = ""
    note: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    report: tuple[Mapping[str, Any], ...] = ()

    def named(self, name: str) -> Notes:
        """With another name: one line of at most `LONGEST_NAME` characters; empty for none."""
        return replace(self, name=" ".join(name.split())[:LONGEST_NAME].rstrip())

    def noted(self, note: str) -> Notes:
        """With another note, of at most `LONGEST_NOTE` characters; empty for none."""
        return replace(self, note=note.strip()[:LONGEST_NOTE].rstrip())

    def showing(self, identifier: str, text: str) -> Notes:
        """With `text` shown for a feature or a model; empty, or its identifier: as it is."""
        text = " ".join(text.split())[:LONGEST_NAME].rstrip()
        others = {key: value for key, value in self.shown.items() if key != identifier}
        entry = {identifier: text} if text and text != identifier else {}
        return replace(self, shown={**others, **entry})

    def reporting(self, report: list[Mapping[str, Any]]) -> Notes:
        """With another report."""
        return replace(self, report=tuple(report))


def read(job_id: str, store: Store) -> Notes:
    """The notes on an analysis; empty where their file is absent or damaged (logged)."""
    path = path_of(job_id, store)
    try:
        return _parsed(path.read_bytes())
    except FileNotFoundError:
        return Notes()
    except (OSError, ValueError) as error:
        logging.getLogger(__name__).warning(
            "the notes on the analysis %s cannot be read (%s); they count as empty.", job_id, error
        )
        return Notes()


def change(job_id: str, store: Store, how: Callable[[Notes], Notes]) -> Notes:
    """Change what is written on an analysis; what other tabs write meanwhile is kept.

    Parameters
    ----------
    how : gives the new notes from those that are there at that moment, for example
        `lambda notes: notes.named("words, five models")`

    Raises
    ------
    InputError
        The store cannot be written.
    """
    path = path_of(job_id, store)
    try:
        path.parent.mkdir(exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock"), timeout=10):
            notes = how(read(job_id, store))
            if notes == Notes():
                path.unlink(missing_ok=True)
            else:
                write_json(path, {"version": VERSION, **asdict(notes)})
    except (OSError, filelock.Timeout) as error:
        raise InputError(
            f"the notes cannot be written into {str(path.parent)!r}: make it writable, or free "
            "some space."
        ) from error
    return notes


def path_of(job_id: str, store: Store) -> Path:
    if not _ID.fullmatch(job_id):
        raise InputError(f"{job_id!r} is not the id of an analysis.")
    return store.root / "notes" / f"{job_id}.json"


@dataclass(frozen=True)
class _Kept:
    """A file of notes."""

    version: int
    name: str
    note: str
    shown: dict[str, str]
    report: list[dict[str, Any]]


def _parsed(data: bytes) -> Notes:
    kept = parsed(_Kept, data, "the file of notes")
    if kept.version != VERSION:
        raise ValueError(f"version {kept.version!r}, expected {VERSION}")
    return Notes(kept.name, kept.note, kept.shown, tuple(kept.report))

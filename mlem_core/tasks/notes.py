"""A user's notes on an analysis: its name, a note, names to show, what goes in a report.

An analysis without a name of its own is called by what was chosen, no two of them alike.

It lies in the store beside the jobs, never in a job's result, which follows from its specification
alone. The example, whose folder is only read, has its notes there too. Any number of tabs and
processes may write at once: each change reads, changes and replaces the file under a lock.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import filelock

from mlem_core.analysis.source import READING
from mlem_core.analysis.spec import AnalysisSpec, names_in_section
from mlem_core.base.errors import InputError
from mlem_core.base.files import parsed, write_json
from mlem_core.base.labels import NAMES
from mlem_core.base.parameters import option_text
from mlem_core.base.text import listed, many
from mlem_core.storage.store import Store
from mlem_core.tasks import examples
from mlem_core.tasks.access import check_changes_allowed
from mlem_core.tasks.analyses import Job

VERSION = 1
LONGEST_NAME = 120  # characters
LONGEST_NOTE = 5000
_ID = re.compile(r"[0-9a-zA-Z_-]{1,64}")
MOST_NAMED = 3  # choices, or values of one
# Choices that a description has in words of their own, or not at all: how files were read, groups.
_NOT_DESCRIBED = (
    *("stimuli", "models", "representations", "layers", "features", "device"),
    *(*READING, "ordered", "nominal"),
    *(*names_in_section("files"), *names_in_section("groups of models")),
)
_CALLED: Mapping[str, str] = {
    "estimator": "",
    "distance": "distance",
    "values": "coded by value:",
    "folds_over": "folds over",
    "special_tokens": "start and end tokens:",
    "missing": "missing values:",
}


@dataclass(frozen=True)
class Notes:
    """A user's notes on an analysis.

    Attributes
    ----------
    name : of the analysis; empty where it has none but the derived one
    note : free text; may have several lines
    shown : what to show for a feature or a model, by its identifier; without an entry, itself
    report : what was put into the report, in its order, each as JSON can hold it
    version : of the form of their file
    """

    name: str = ""
    note: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    report: tuple[Mapping[str, Any], ...] = ()
    version: int = VERSION

    def named(self, name: str) -> Notes:
        """Notes with another name, one line of at most `LONGEST_NAME` letters; empty for none."""
        return replace(self, name=" ".join(name.split())[:LONGEST_NAME].rstrip())

    def noted(self, note: str) -> Notes:
        """Notes with another note, of at most `LONGEST_NOTE` characters; empty for none."""
        return replace(self, note=note.strip()[:LONGEST_NOTE].rstrip())

    def showing(self, identifier: str, text: str) -> Notes:
        """Notes with `text` shown for a feature or a model; empty, or its identifier: as it is."""
        text = " ".join(text.split())[:LONGEST_NAME].rstrip()
        others = {key: value for key, value in self.shown.items() if key != identifier}
        entry = {identifier: text} if text and text != identifier else {}
        return replace(self, shown={**others, **entry})


def read_notes(job_id: str, store: Store) -> Notes:
    """The notes on an analysis; empty where their file is absent or damaged (logged)."""
    path = notes_path(job_id, store)
    try:
        notes = parsed(Notes, path.read_bytes(), "the file of notes")
        if notes.version != VERSION:
            raise ValueError(f"version {notes.version!r}, expected {VERSION}")
        return notes
    except FileNotFoundError:
        return Notes()
    except (OSError, ValueError) as error:
        logging.getLogger(__name__).warning(
            "the notes on the analysis %s cannot be read (%s); they count as empty.", job_id, error
        )
        return Notes()


def change_notes(job_id: str, store: Store, how: Callable[[Notes], Notes]) -> Notes:
    """Change what is written on an analysis; what other tabs write meanwhile is kept.

    Parameters
    ----------
    how : gives the new notes from those that are there at that moment, for example
        `lambda notes: notes.named("words, five models")`

    Raises
    ------
    InputError
        The store cannot be written, or this server only shows what is finished.
    """
    check_changes_allowed()
    path = notes_path(job_id, store)
    try:
        path.parent.mkdir(exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock"), timeout=10):
            notes = how(read_notes(job_id, store))
            if notes == Notes():
                path.unlink(missing_ok=True)
            else:
                write_json(path, asdict(notes))
    except (OSError, filelock.Timeout) as error:
        raise InputError(
            f"the notes cannot be written into {str(path.parent)!r}: make it writable, or free "
            "some space."
        ) from error
    return notes


def notes_path(job_id: str, store: Store) -> Path:
    if not _ID.fullmatch(job_id):
        raise InputError(f"{job_id!r} is not the id of an analysis.")
    return store.root / "notes" / f"{job_id}.json"


def job_names(jobs: Sequence[Job], store: Store) -> dict[str, str]:
    """The name of each of some analyses, by its id; no two are called the same.

    Where the names of two would be the same, the choices that not all of them have are added, then
    the time at which each was started, then its id.
    """
    called = {job.id: read_notes(job.id, store).name or derived(job) for job in jobs}
    first, same = dict(called), _same_names(jobs, called)
    parts = {job.id: [*_model_names(job.spec), *described_choices(job.spec)] for job in same}
    for job_id, choices in parts.items():
        others = [parts[other] for other in parts if first[other] == first[job_id]]
        own = [choice for choice in choices if not all(choice in other for other in others)]
        called[job_id] += " · " * bool(own) + listed(own, most=MOST_NAMED)
    for job in _same_names(jobs, called):
        called[job.id] += f" · {job.start_time:%d %b, %H:%M}" if job.start_time else ""
    for job in _same_names(jobs, called):
        called[job.id] += f" · {job.id[:6]}"
    return called


def _same_names(jobs: Sequence[Job], called: Mapping[str, str]) -> list[Job]:
    taken = Counter(called.values())
    return [job for job in jobs if taken[called[job.id]] > 1]


def derived(job: Job) -> str:
    """A name made of the stimuli and the models: "ewt400, 5 models"."""
    models = _model_names(job.spec)
    number = models[0] if len(models) == 1 else many(len(models), "model")
    return f"{'Example: ' * (job.id == examples.ID)}{Path(job.spec.stimuli).stem}, {number}"


def described_choices(spec: AnalysisSpec) -> list[str]:
    """What an analysis has of other choices than the defaults, each in a few words."""
    parts = []
    if spec.layers is not None:
        parts.append("layers " + ", ".join(str(layer) for layer in spec.layers))
    if spec.features is not None:
        parts.append(many(len(spec.features), "feature"))
    for choice in fields(spec):
        value = getattr(spec, choice.name)
        if choice.name not in _NOT_DESCRIBED and value != choice.default:
            parts.append(_describe_value(choice.name, value))
    return parts


def named_models(spec: AnalysisSpec) -> list[str]:
    """The names of the models of the specification, those from files last."""
    return [*spec.models, *(name for name, _ in spec.representations)]


def _model_names(spec: AnalysisSpec) -> list[str]:
    return [NAMES.model(Path(name).name) for name in named_models(spec)]


def _describe_value(name: str, value: Any) -> str:
    """A value of a field of a spec, in a few words."""
    called = _CALLED.get(name, name.replace("_", " "))
    if value is True:
        return f"with {called}"
    if name == "values" and not value:
        return "coded as same or different"
    if isinstance(value, tuple):
        texts = [option_text(each).replace("_", " ") for each in value]
        value = ", ".join(texts) if len(texts) <= MOST_NAMED else f"of {len(texts)} features"
    return f"{called} {value}".strip()

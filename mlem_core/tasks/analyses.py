"""Analyses in the background, and the files that users have uploaded for them."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mlem_core.analysis import files
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.layer_sources import with_subjects
from mlem_core.analysis.layer_statistics import STATISTICS
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec, further_files
from mlem_core.base.errors import InputError
from mlem_core.base.files import read_json, replacing, replacing_files, write_json
from mlem_core.extending import functions
from mlem_core.representations.registry import identity_now
from mlem_core.stimuli.formats import ordered_steps, step_files
from mlem_core.storage.digests import RESULT, Digested, canonical, sealed
from mlem_core.storage.store import Store
from mlem_core.tasks import examples
from mlem_core.tasks.access import check_changes_allowed
from mlem_core.tasks.run_plan import run_stages
from mlem_core.tasks.runner import Reporter, Request, Task

_ID = re.compile(r"[0-9a-f]{16}")
UNUSED_DAYS = 30  # so long an upload is kept that no analysis is of
_INPUTS = "inputs.json"  # of a job: what its files and models were when it was started
_LAST_STAGE = "last_stage.json"  # of a job: options of the follow-up with which a run may end


@dataclass(frozen=True)
class Job(Task):
    """An analysis in the background."""

    spec: AnalysisSpec

    def analysis(self) -> Analysis:
        """The finished analysis.

        Raises
        ------
        InputError
            The job is not done, or its result can no longer be read.
        """
        found = self.read(files.load_analysis, "the analysis", "run it again")
        # What was left to the analysis to choose has been chosen.
        own = found.spec
        return replace(found, spec=replace(self.spec, estimator=own.estimator, values=own.values))

    def contents(self) -> files.Contents | None:
        """The contents of the finished analysis; None where it is not done or cannot be read."""
        try:
            whole = sealed(self.result, RESULT, "analysis.json")
            return files.read_contents(self.result) if whole else None
        except (OSError, ValueError):
            return None

    @classmethod
    def in_folder(cls, folder: Path) -> Job:
        """The job whose folder it is; raises OSError, ValueError as reading its specification."""
        request = read_json(folder / "spec.json", strict=True)
        return cls(folder.name, folder, AnalysisSpec.from_dict(request))

    @property
    def start_time(self) -> datetime | None:
        """Time of its start, by this machine's clock; None for the example."""
        try:
            return datetime.fromtimestamp((self.folder / "spec.json").stat().st_mtime)
        except OSError:
            return None


@dataclass(frozen=True)
class _Example(Job):
    """The example: done, and not to be written to."""

    def analysis(self) -> Analysis:
        return examples.example()


def start(spec: AnalysisSpec, store: Store, *, intervals: bool = False) -> Job:
    """Start an analysis in the background, or attach to the same one.

    With `intervals`, intervals and chance are its last stage, see `mlem_core.tasks.followups`.

    The same analysis is one with the same choices of the same models, on files with the same
    content. Where it is queued, running or done it is left alone; a failed or cancelled one starts
    again.
    """
    inputs = _inputs(spec)
    name = job_id(spec, inputs)
    job = Job(name, store.root / "jobs" / name, spec)
    check_changes_allowed()
    store.check_writable()
    job.folder.mkdir(parents=True, exist_ok=True)
    write_json(job.folder / _INPUTS, {**inputs, "intervals": intervals})
    job.start(spec.to_dict())
    return job


def find(job_id: str, store: Store) -> Job | None:
    """The job of that id, or None; the id may be any text.

    `mlem_core.tasks.examples.ID` is the example, in every store.
    """
    if job_id == examples.ID and examples.is_there():
        return _Example(job_id, examples.FOLDER, examples.SPEC)
    if not _ID.fullmatch(job_id):
        return None
    folder = store.root / "jobs" / job_id
    result = folder / "result"
    with contextlib.suppress(OSError, ValueError):
        # What was asked stands in the result too, under its seal.
        if sealed(result, RESULT, "analysis.json"):
            return Job(job_id, folder, files.read_spec(result))
    with contextlib.suppress(OSError, ValueError):  # absent, or of another version
        return Job.in_folder(folder)
    return None


def recent(store: Store) -> list[Job]:
    """All jobs in the store, the latest started first; last the example."""
    names = [path.parent.name for path in (store.root / "jobs").glob("*/spec.json")]
    jobs = [job for name in names if (job := find(name, store)) is not None]
    jobs.sort(key=lambda job: (job.start_time or datetime.min, job.id), reverse=True)
    example = find(examples.ID, store)
    return jobs if example is None else [*jobs, example]


def job_id(spec: AnalysisSpec, inputs: dict[str, Any] | None = None) -> str:
    """16 hex digits that stand for the choices, and for the files and models that they name."""
    named = _inputs(spec) if inputs is None else inputs
    about = {"statistics": STATISTICS.version, "spec": spec.to_dict(), **named}
    if "auto" in (spec.estimator, *spec.values):
        about["choices"] = "in each fold"  # earlier versions made one for all
    return hashlib.sha256(canonical(about)).hexdigest()[:16]


def _inputs(spec: AnalysisSpec) -> dict[str, Any]:
    """The digests of the files and the models that an analysis names, as they are now.

    None stands for what cannot be had, which is the run's to complain about, or to leave out.
    """
    stimuli = spec.stimulus_files or [Path(spec.stimuli)]
    files = [*stimuli, *(Path(path) for _, path in spec.representations), *step_files(spec)]
    return {
        "files": list(map(_digest, files)),
        "models": {name: identity_now(name) for name in (*spec.models, *spec.scoring_models)},
    }


def _digest(path: Path) -> str | None:
    try:
        return Digested.from_file(path).digest if path.is_file() else None
    except OSError:
        return None


def _check_inputs(spec: AnalysisSpec, asked: Mapping[str, Any]) -> None:
    """Raise `InputError` where a file or a model is not what it was when the run was submitted."""
    now = _inputs(spec)
    files = asked.get("files") or now["files"]  # a damaged list says nothing
    models = {name: known for name, known in asked.get("models", {}).items() if known is not None}
    others = [name for name, known in models.items() if now["models"].get(name) != known]
    if files != now["files"] or others:
        what = f"the model {others[0]!r}" if others else "a file of this analysis"
        raise InputError(f"{what} has changed since the analysis was started; run it again.")


def keep_upload(data: bytes, name: str, store: Store) -> Path:
    """Keep an uploaded file under its content; the same content and name give the same path.

    Raises `InputError` where the store cannot be written, or this server takes no files.
    """
    check_changes_allowed()
    store.check_writable()
    base = re.sub(r"[^\w.-]+", "_", re.split(r"[/\\]", name)[-1]).lstrip(".")[-100:] or "file"
    path = store.root / "uploads" / hashlib.sha256(data).hexdigest() / base
    if not path.is_file() or path.stat().st_size != len(data):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, private=True) as temporary:
            temporary.write_bytes(data)
    path.parent.touch()  # see `purge_uploads`
    return path


def keep_uploads(files: Sequence[tuple[str, bytes]], store: Store) -> Path:
    """Keep an uploaded file, or several as a folder; the same files give the same path.

    Parameters
    ----------
    files : name and content of each, at least one
    """
    if len(files) == 1:
        name, data = files[0]
        return keep_upload(data, name, store)
    paths = {keep_upload(data, name, store) for name, data in files}
    kept = sorted(paths, key=lambda path: (path.name, path))
    digest = hashlib.sha256("\n".join(map(str, (p.parent.name + p.name for p in kept))).encode())
    name = f"{kept[0].stem}_and_{len(kept) - 1}_more"
    folder = store.root / "uploads" / digest.hexdigest() / name
    if not folder.is_dir():
        same = len({path.name for path in kept}) < len(kept)
        names = [f"{number:03d}_" * same + path.name for number, path in enumerate(kept, start=1)]
        with replacing_files(folder, names[-1]) as whole:
            for name, path in zip(names, kept, strict=True):
                shutil.copyfile(path, whole / name)
    return folder


def purge_uploads(store: Store, days: float = UNUSED_DAYS) -> None:
    """Remove uploads that no analysis is of, and that were uploaded more than so many days ago.

    Those of a deleted analysis stay until it is removed for good.
    """
    named: set[str] = set()
    steps = [step.name for step in ordered_steps() if step.names_files]
    fields = ["representations", *further_files(), *steps]
    for path in (*store.root.glob("jobs/*/spec.json"), *store.root.glob("deleted/*/spec.json")):
        spec = read_json(path)
        paths = [spec.get("stimuli")]
        for field in fields:
            paths += dict(spec.get(field) or ()).values()
        named |= {Path(str(file)).parent.name for file in paths}
    for folder in (store.root / "uploads").glob("*"):
        with contextlib.suppress(OSError):
            if folder.name not in named and folder.stat().st_mtime < time.time() - days * 86_400:
                shutil.rmtree(folder, ignore_errors=True)


def read_requested_intervals(folder: Path) -> dict[str, Any]:
    """Options of the follow-up with which a run ends; none where it was run without intervals."""
    requested = read_json(folder / _INPUTS).get("intervals", False)
    return read_json(folder / _LAST_STAGE) if requested else {}


def make_analysis(
    request: Request, folder: Path, store: Store, report: Reporter, speeds: Mapping[str, float]
) -> None:
    """Run the submitted analysis and save it; its plan is by speeds of `read_speeds`."""
    spec = AnalysisSpec.from_dict(request)
    submitted = read_json(folder.parent / _INPUTS)
    _check_inputs(spec, submitted)
    spec.check()
    stimuli, intervals = with_subjects(spec).load_stimuli(), bool(submitted.get("intervals"))
    report.times.plan = run_stages(spec, stimuli, speeds, intervals=intervals)
    analysis = run(spec, store, report, stimuli)
    for prepare in functions("prepare"):
        prepare(analysis, store, analysis.select())
    files.save_analysis(analysis, folder)
    write_json(folder.parent / _LAST_STAGE, asdict(analysis.select()))
    _check_inputs(spec, submitted)

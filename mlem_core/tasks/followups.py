"""Work on a finished analysis that takes longer than a page may wait: in the background, kept.

A follow-up is a task as a job is one (`mlem_core.tasks.runner`), in the same queue. It makes a file
to download, or entries of the store.

An analysis is done and can be opened once its tables are written. Then its last stage may begin: a
follow-up that nobody has to wait for, with the intervals of all layers and chance. Both together
are shown as one run; cancelling it keeps what is done, and running the analysis again goes on from
there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from mlem_core.analysis.analysis import Analysis, Selection, same_content
from mlem_core.analysis.context import FITS, SelectionContext
from mlem_core.analysis.layer_sources import model_representations
from mlem_core.analysis.similarities import SIMILARITY
from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.files import read_json
from mlem_core.base.progress import StageTimes
from mlem_core.base.typing import Report
from mlem_core.estimators.registry import estimator_named
from mlem_core.extending import functions, references, resolve
from mlem_core.inference.explanation import PAIR_INTERVALS
from mlem_core.inference.importance_null import IMPORTANCE_CHANCE, SCORE_CHANCE
from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.storage.digests import canonical
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples
from mlem_core.tasks.analyses import make_analysis, read_requested_intervals
from mlem_core.tasks.processes import is_held
from mlem_core.tasks.run_plan import interval_stages, learn_speeds, read_speeds
from mlem_core.tasks.runner import Lane, Reporter, Request, Status, Task

Options = Mapping[str, Any]
VERSION = 7
ARCHIVE = "all.zip"
INTERVALS = "intervals"  # the kind of follow-up with which a run ends


def requested_selection(analysis: Analysis, options: Options) -> Selection:
    """Selection that the options of background work name; what they do not name is all.

    Two layers "a" and "b" stay in the order in which they are looked at.

    Raises InputError: a feature or layer that the analysis does not have.
    """
    if "estimator" in options:
        selection = Selection.from_dict(options)
        return selection.checked(analysis.pairs.features, analysis.layers)
    pair = tuple(options[name] for name in "ab" if name in options)
    requested = options.get("layers", pair or None)
    layers = requested and tuple((str(model), int(layer)) for model, layer in requested)
    similarity = str(options.get("similarity", RSA))
    selection = analysis.select(options.get("features"), layers, similarity=similarity)
    return replace(selection, layers=layers) if pair else selection


def _all_intervals(context: SelectionContext, options: Options) -> None:
    selection = context.selection
    LAYER_INTERVALS.get(context)
    if SIMILARITIES[selection.similarity].divides:
        LAYER_CHANCE.get(context)
    for prepare in functions("prepare"):
        prepare(context.analysis, context.required_store, selection)


def _archive(context: SelectionContext, options: Options, folder: Path) -> None:
    from mlem_core.report.analysis_tables import computed_options
    from mlem_core.report.archive import write_archive

    analysis, store = context.analysis, context.required_store
    if estimator_named(analysis.spec.estimator).slow:
        FITS.get(context)
    tables = computed_options(analysis, store)
    write_archive(analysis, folder / ARCHIVE, store, tables, progress=context.report)


def layer_models(context: SelectionContext, options: Options) -> Iterable[str]:
    """Models of the layers of a selection."""
    return [model for model, _ in context.selection.layers]


@dataclass(frozen=True)
class JobType:
    """Type of background work.

    Attributes
    ----------
    compute : function (context, options) that computes what the store keeps; the context is of
        `requested_selection`
    write : in place of it, a function (context, options, folder) that writes files into the folder
    models : function (context, options) that names the models whose representations it reads
    title : what it is in a list of background tasks
    """

    compute: Callable[[SelectionContext, Options], Any] = lambda context, options: None
    write: Callable[[SelectionContext, Options, Path], Any] | None = None
    models: Callable[[SelectionContext, Options], Iterable[str]] = layer_models
    title: str = ""


JOB_TYPES: dict[str, JobType] = {
    INTERVALS: JobType(_all_intervals, title="intervals and chance"),
    "archive": JobType(write=_archive, title="zip of everything"),
    "chance": JobType(
        lambda context, options: SCORE_CHANCE.get(context, permutations=options["permutations"]),
        title="tests of scores",
    ),
    "error-bars": JobType(
        lambda context, options: PAIR_INTERVALS.get(context), title="intervals of two layers"
    ),
    "importance-chance": JobType(
        lambda context, options: IMPORTANCE_CHANCE.get(context), title="importances by chance"
    ),
    "fits": JobType(
        lambda context, options: FITS.get(context),
        models=lambda context, options: (),
        title="metric models",
    ),
    "similarity": JobType(
        lambda context, options: SIMILARITY.get(context, name=options["name"]),
        title="another similarity",
    ),
    # They are restored before any work, and no more is wanted.
    "representations": JobType(
        models=lambda context, options: options["models"], title="representations"
    ),
}


def job_type(name: str) -> JobType:
    """Type of background task by its name; raises InputError for an unknown one."""
    if name in JOB_TYPES:
        return JOB_TYPES[name]
    stages = references("stages")
    if name not in stages:
        raise unknown("kind of work", name, [*JOB_TYPES, *stages])
    job: JobType = resolve(stages[name])
    return job


def work(
    kind: str, analysis: Analysis, options: Options, store: Store, folder: Path, report: Report
) -> None:
    """Do a kind of work on an analysis, with the representations that it reads in the store.

    Raises as `restore_representations`, or what the options ask for is not in the analysis.
    """
    job, selection = job_type(kind), requested_selection(analysis, options)
    context = SelectionContext(analysis, selection, store, report)
    if kind == INTERVALS and isinstance(report, Reporter):
        size = len(analysis.stimuli), len(selection.layers), len(selection.features)
        report.times.plan = interval_stages(*size, read_speeds(store))
    restore_representations(analysis, job.models(context, options), store, report)
    if job.write is None:
        job.compute(context, options)
    else:
        job.write(context, options, folder)


def restore_representations(
    analysis: Analysis, names: Iterable[str], store: Store, report: Report
) -> None:
    """Run models of an analysis again whose representations are not in the store.

    The store may have been emptied, and that of a new installation never had those of the example.

    Raises
    ------
    InputError
        A model that is not in the analysis, no longer there, or no longer the one that was
        analysed.
    """
    files, analysed = dict(analysis.spec.representations), analysis.manifest["models"]
    for name in dict.fromkeys(names):
        if name in files:
            continue
        check_choice("model", name, analysed)
        source = model_representations(analysis.spec, analysis.whole, name, store, report)
        if not same_content(analysed[name], source.facts):
            raise InputError(
                f"the model {name} is no longer the one that was analysed; run the analysis again."
            )


@dataclass(frozen=True)
class Followup(Task):
    """A piece of work on a finished analysis, in the background."""

    request: Request

    @property
    def kind(self) -> JobType:
        """The kind of work that it is."""
        return job_type(self.request["kind"])

    def begin(self, lane: Lane = "turn") -> Self:
        """This follow-up, started, or attached to the same work that was started before."""
        self.start(self.request, lane)
        return self

    def file(self, name: str) -> Path:
        """A file that it has made; raises as `Task.read`."""
        return self.read(lambda folder: folder / name, "the work", "start it again")


def get_followup(kind: str, job_id: str, options: Options, store: Store) -> Followup:
    """The follow-up of an analysis, whether it was ever started or not (see its status).

    Parameters
    ----------
    kind : one of `JOB_TYPES`, or of an extension
    job_id : of the analysis
    options : as JSON can hold them

    Raises
    ------
    InputError
        An unknown kind.
    """
    job_type(kind)
    request = {"version": VERSION, "kind": kind, "analysis": job_id, "options": dict(options)}
    if job_id == examples.ID:
        # Another version of the program has another example under the same name.
        request["example"] = examples.digest()
    name = f"{kind}-{hashlib.sha256(canonical(request)).hexdigest()[:16]}"
    return Followup(name, store.root / "jobs" / name, request)


def find_followup(name: str, store: Store) -> Followup | None:
    """The follow-up of that id, or None where it was never started."""
    folder = store.root / "jobs" / name
    request = read_json(folder / "spec.json")
    return Followup(name, folder, request) if "kind" in request else None


def make(request: Request, folder: Path, report: Reporter) -> None:
    """Do the work that a task's folder specifies, and save its result there."""
    # Of `folder`: the store's root / jobs / id / unfinished-...
    store = Store(folder.parent.parent.parent)
    speeds = read_speeds(store)
    if "kind" not in request:
        make_analysis(request, folder, store, report, speeds)
    else:
        job = analyses.find(request["analysis"], store)
        if job is None:
            raise InputError("the analysis is no longer in the store; run it again.")
        work(request["kind"], job.analysis(), request["options"], store, folder, report)
    learn_speeds(report.times, speeds, store)


def find_last_stage(job: Task) -> Followup | None:
    """The follow-up with the intervals of an analysis; None where it was run without, or fails."""
    options = read_requested_intervals(job.folder)
    store = Store(job.folder.parent.parent)
    return get_followup(INTERVALS, job.id, options, store) if options else None


def begin_last_stage(job: Task) -> None:
    """Begin the last stage of a finished analysis, unless it was begun before."""
    followup = find_last_stage(job)
    if followup is not None and job.result.is_dir():
        followup.begin("later")


class Run(Task):
    """An analysis and its last stage as one task, which is done where nothing more comes."""

    def status(self) -> Status:
        """The status of both, with the stages of both."""
        status, followup = super().status(), find_last_stage(self)
        if status.state != "done" or followup is None:
            return status
        now = followup.status()
        # The process of the analysis begins its last stage before it ends.
        begins = not followup.folder.exists() and is_held(self.folder)
        if not (now.goes_on or begins):
            return status
        times = StageTimes(
            status.times.plan, [*status.times.stages, *now.times.stages], status.times.started
        )
        return Status("running" if begins else now.state, times, before=now.before)

    def cancel(self, why: str = "") -> None:
        """Cancel what goes on of them, as `Task.cancel`; what is done stays."""
        super().cancel(why)
        followup = find_last_stage(self)
        if followup is not None:
            followup.cancel(why)

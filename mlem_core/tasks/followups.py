"""Work on a finished analysis that takes longer than a page may wait: in the background, kept.

A follow-up is a task as a job is one (`mlem_core.tasks.runner`), in the same queue. It makes a file
to download, or entries of the store.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from mlem_core.analysis.analysis import Analysis, Selection, same_content
from mlem_core.analysis.fit_cache import fitted_results
from mlem_core.analysis.layer_sources import model_representations
from mlem_core.analysis.similarities import compared
from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.typing import Layer, Report, counting
from mlem_core.estimators.registry import estimator_named
from mlem_core.extending import find_stage, functions, stage_names
from mlem_core.inference import layer_intervals
from mlem_core.inference.explanation import intervals_of_two
from mlem_core.inference.importance_null import importances_by_chance, kept_chance
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.storage.digests import canonical
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples
from mlem_core.tasks.runner import Request, Task, carry_out

Options = Mapping[str, Any]
VERSION = 7
ARCHIVE = "all.zip"


@dataclass(frozen=True)
class JobInput:
    """A finished analysis, what is to be done with it, where its files go, and how far it is."""

    analysis: Analysis
    options: Options
    store: Store
    folder: Path
    report: Report

    def selection(self) -> Selection:
        """The selection that the options name, as the analysis has it."""
        chosen = Selection.from_dict(self.options)
        return chosen.checked(self.analysis.pairs.features, self.analysis.layers)

    @property
    def chosen(self) -> tuple[Analysis, Store, Selection]:
        """The analysis, the store and the selection of all options."""
        return self.analysis, self.store, self.selection()

    def layers(self, *names: str) -> list[Layer]:
        """The layers that options of these names say, one each; without names those of "layers"."""
        layers = [self.options[name] for name in names] if names else self.options["layers"]
        return [(str(model), int(layer)) for model, layer in layers]


def _all_intervals(job: JobInput) -> None:
    layer_intervals.layer_intervals(*job.chosen, report=job.report)
    layer_intervals.chance_of_layers(*job.chosen, report=job.report)
    for prepare in functions("prepare"):
        prepare(*job.chosen)


def _similarity(job: JobInput) -> None:
    name = str(job.options["name"])
    counted = counting(job.report, SIMILARITIES.named(name).short, "layers")
    compared(job.analysis, name, job.store, counted)


def _pair_intervals(job: JobInput) -> None:
    options, pair = job.options, tuple(job.layers("a", "b"))
    similarity = options.get("similarity", RSA)
    chosen = job.analysis.select(list(options["features"]), pair, similarity=similarity)
    # In the order in which they are looked at.
    chosen = replace(chosen, layers=pair)
    counted = counting(job.report, "blocks left out", "blocks")
    intervals_of_two(job.analysis, chosen, job.store, counted)


def _archive(job: JobInput) -> None:
    from mlem_core.report.analysis_tables import computed_options
    from mlem_core.report.archive import write_archive

    analysis, results = job.analysis, None
    if estimator_named(analysis.spec.estimator).slow:
        results = fitted_results(analysis, job.store, analysis.select(), job.report)
    write_archive(
        analysis,
        job.folder / ARCHIVE,
        job.store,
        computed_options(analysis, job.store),
        results=results,
        progress=job.report,
    )


def _models_of(*names: str) -> Callable[[JobInput], Iterable[str]]:
    """The models of the layers of `JobInput.layers`."""
    return lambda job: [model for model, _ in job.layers(*names)]


def _all_models(job: JobInput) -> Iterable[str]:
    return list(job.analysis.manifest["models"])


@dataclass(frozen=True)
class JobType:
    """Type of background task.

    Attributes
    ----------
    make : does it; files that are kept go into the folder of its input
    models : names of the models whose representations it reads
    in_store : whether what it makes lies in the store, so that the task has no files of its own
    """

    make: Callable[[JobInput], Any]
    models: Callable[[JobInput], Iterable[str]] = lambda job: ()
    in_store: bool = True


JOB_TYPES: dict[str, JobType] = {
    "all-error-bars": JobType(_all_intervals, _models_of()),
    "archive": JobType(_archive, _all_models, in_store=False),
    "chance": JobType(
        lambda job: kept_chance(*job.chosen, int(job.options["permutations"]), job.report),
        _models_of(),
    ),
    "error-bars": JobType(_pair_intervals, _models_of("a", "b")),
    "importance-chance": JobType(
        lambda job: importances_by_chance(*job.chosen, report=job.report), _models_of()
    ),
    "fits": JobType(lambda job: fitted_results(*job.chosen, job.report)),
    "similarity": JobType(_similarity, _all_models),
    # They are restored before any work, and no more is wanted.
    "representations": JobType(lambda job: None, lambda job: job.options["models"]),
}


def job_type(name: str) -> JobType:
    """Type of background task by its name; raises InputError for an unknown one."""
    if (found := JOB_TYPES.get(name) or find_stage(name)) is None:
        raise unknown("kind of work", name, [*JOB_TYPES, *stage_names()])
    return found


def work(
    kind: str, analysis: Analysis, options: Options, store: Store, folder: Path, report: Report
) -> None:
    """Do a kind of work on an analysis, with the representations that it reads in the store.

    Raises as `restore_representations`, or what the options ask for is not in the analysis.
    """
    job, of_kind = JobInput(analysis, options, store, folder, report), job_type(kind)
    restore_representations(analysis, of_kind.models(job), store, report)
    of_kind.make(job)


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

    def begin(self) -> Self:
        """This follow-up, started, or attached to the same work that was started before."""
        self.start(self.request, "mlem_core.tasks.followups")
        return self

    def file(self, name: str) -> Path:
        """A file that it has made; raises as `Task.read`."""
        return self.read(lambda folder: folder / name, "the work", "start it again")


def followup_of(kind: str, job_id: str, options: Options, store: Store) -> Followup:
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


def make_followup(request: Request, folder: Path, report: Report) -> None:
    """Do the submitted work and save its result."""
    # Of `folder`: the store's root / jobs / id / unfinished-...
    store = Store(folder.parent.parent.parent)
    job = analyses.find(request["analysis"], store)
    if job is None:
        raise InputError("the analysis is no longer in the store; run it again.")
    work(request["kind"], job.analysis(), request["options"], store, folder, report)


if __name__ == "__main__":
    sys.exit(carry_out(Path(sys.argv[1]).absolute(), make_followup))

"""Work on a finished analysis that takes longer than a page may wait: in the background, kept.

A follow-up is a task as a job is one (`mlem_core.tasks.runner`), in the same queue. It makes tidy
tables, a capsule, or entries of the store.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.manifest import source_identity
from mlem_core.analysis.run import model_representations
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError, unknown
from mlem_core.base.held import scratch
from mlem_core.base.typing import Progress, Report
from mlem_core.estimators.registry import estimator_named
from mlem_core.pairs.similarities import similarity_named
from mlem_core.storage.stage import Tables, load_tables, save_tables
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples
from mlem_core.tasks.runner import Request, Task, carry_out

# Tables by name, and other files by their file names.
Made = Mapping[str, pd.DataFrame | bytes]
Options = Mapping[str, Any]
Make = Callable[[Analysis, Options, Store, Report], Made]
VERSION = 4
CAPSULE = "capsule.zip"


def _baseline(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.analysis.baselines import of_analysis

    name = options["name"]
    layers = [(str(model), int(layer)) for model, layer in options["layers"]]

    def counted(done: int, total: int) -> None:
        report(Progress(name, None, done, total, "layers"))

    baseline = of_analysis(analysis, name, store, layers, counted)
    return {"table": baseline.table, "notices": pd.DataFrame({"notice": list(baseline.notices)})}


def _fits(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.analysis import cached_fits

    fits = cached_fits.make(analysis, store, _selected(analysis, options), report)
    return {"scores": fits.scores}


def _methods(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.analysis import methods

    methods.make(analysis, store, _selected(analysis, options), report)
    return {}


def _noise(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.robustness import noise

    model, layer = options["layer"]
    selection = _selected(analysis, options["selection"])
    noise.make(analysis, store, selection, (str(model), int(layer)), report)
    return {}


def _selected(analysis: Analysis, options: Options) -> Selection:
    """What the options ask for, as the analysis has it."""
    return Selection.from_dict(options).checked(analysis.tables.features, analysis.layers)


def _all_intervals(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.inference.layer_intervals import layer_intervals

    layer_intervals(analysis, store, _selected(analysis, options), report=report)
    return {}


def _chance(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.inference.permutation import kept_chance

    chosen = _selected(analysis, options)
    kept_chance(analysis, store, chosen, int(options["permutations"]), report)
    return {}


def _similarity(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.analysis.similarities import compared

    name = str(options["name"])

    def counted(done: int, total: int) -> None:
        report(Progress(similarity_named(name).short, None, done, total, "layers"))

    compared(analysis, name, store, counted)
    return {}


def _pair_intervals(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.analysis.similarities import RSA, compared
    from mlem_core.inference.explanation import explain, kept_intervals, with_transfer

    a, b = [(str(model), int(layer)) for model, layer in (options["a"], options["b"])]

    def counted(done: int, total: int) -> None:
        report(Progress("resampling", None, done, total, "replicates"))

    alike = compared(analysis, str(options.get("similarity", RSA)), store)
    why = explain(analysis, a, b, list(options["features"]), compared=alike)
    chosen = analysis.select(None, None, options.get("estimator"), options.get("interactions"))
    if why.similarity.name == RSA:
        why = with_transfer(why, analysis, chosen)
    why = replace(why, estimator=chosen.estimator, interactions=chosen.interactions)
    kept_intervals(why, analysis, store, int(options["draws"]), counted)
    return {}


def _alignment(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.analysis.similarities import compared
    from mlem_core.inference.explanation import kept_intervals
    from mlem_core.inference.procrustes_cca import alignment

    a, b = [(str(model), int(layer)) for model, layer in (options["a"], options["b"])]

    def counted(done: int, total: int) -> None:
        report(Progress("leaving out", None, done, total, "blocks"))

    found = alignment(analysis, (a, b), compared(analysis, str(options["similarity"]), store))
    kept_intervals(found, analysis, store, progress=counted)
    return {}


def _capsule(analysis: Analysis, options: Options, store: Store, report: Report) -> Made:
    from mlem_core.analysis import cached_fits
    from mlem_core.report import capsule
    from mlem_core.report.figures import Drawing

    selection = _selected(analysis, options)
    results = None
    if estimator_named(selection.estimator).slow:
        results = cached_fits.make(analysis, store, selection, report)
    pair = [(str(model), int(layer)) for model, layer in options["pair"]]
    with scratch("followup") as folder:
        path = capsule.write(
            analysis,
            Path(folder) / CAPSULE,
            selection,
            results=results,
            drawing=Drawing((pair[0], pair[1]) if pair else None, store),
            progress=report,
        )
        return {CAPSULE: path.read_bytes()}


def _audit(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.robustness.audit import audit

    audit(analysis, store, report)  # keeps its tables in the store
    return {}


def _multiverse(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.robustness.multiverse import multiverse

    layers = [(str(model), int(layer)) for model, layer in options["layers"]]
    multiverse(analysis, layers, store, options.get("choices"), report)
    return {}


def _versus(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.robustness import two_analyses

    job = analyses.find(options["other"], store)
    if job is None:
        raise InputError("the other analysis is no longer in the store.")
    other = job.analysis()
    shared = two_analyses.common(analysis, other).layers
    restore(other, [model for model, _ in shared], store, report)
    two_analyses.paired(analysis, other, store, report)
    return {}


def _of_pair(analysis: Analysis, options: Options) -> list[str]:
    return [str(options["a"][0]), str(options["b"][0])]


def _of_layers(analysis: Analysis, options: Options) -> list[str]:
    return [str(model) for model, _ in options["layers"]]


@dataclass(frozen=True)
class Kind:
    """One kind of work.

    Attributes
    ----------
    make : does it
    models : names of the models whose representations it reads
    in_store : whether what it makes lies in the store, so that the task has no tables of its own
    """

    make: Make
    models: Callable[[Analysis, Options], Iterable[str]] = lambda analysis, options: ()
    in_store: bool = False


KINDS: dict[str, Kind] = {
    "alignment": Kind(_alignment, _of_pair, in_store=True),
    "all-error-bars": Kind(_all_intervals, _of_layers, in_store=True),
    "audit": Kind(_audit, lambda analysis, _: analysis.manifest["models"], in_store=True),
    "baseline": Kind(_baseline, _of_layers),
    "capsule": Kind(_capsule),
    "chance": Kind(_chance, _of_layers, in_store=True),
    "error-bars": Kind(_pair_intervals, _of_pair, in_store=True),
    "fits": Kind(_fits),
    "methods": Kind(_methods, in_store=True),
    "multiverse": Kind(_multiverse, _of_layers, in_store=True),
    "noise": Kind(_noise, lambda _, options: [options["layer"][0]], in_store=True),
    # `other` is the id of the other analysis, `layers` those that both have.
    "versus": Kind(_versus, _of_layers, in_store=True),
    "similarity": Kind(_similarity, lambda analysis, _: analysis.manifest["models"], in_store=True),
    # They are restored before any work, and no more is asked for.
    "representations": Kind(lambda *_: {}, lambda _, options: options["models"], in_store=True),
}


def work(kind: str, analysis: Analysis, options: Options, store: Store, report: Report) -> Made:
    """Do a kind of work on an analysis, with the representations that it reads in the store.

    Raises
    ------
    InputError
        As `restore`, or what the options ask for is not in the analysis.
    """
    restore(analysis, KINDS[kind].models(analysis, options), store, report)
    return KINDS[kind].make(analysis, options, store, report)


def restore(analysis: Analysis, names: Iterable[str], store: Store, report: Report) -> None:
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
        if name not in analysed:
            raise unknown("model", name, analysed)
        source = model_representations(analysis.spec, analysis.whole, name, store, report)
        if source.identity != source_identity(analysed[name]):
            raise InputError(
                f"the model {name} is no longer the one that was analysed; run the analysis again."
            )


@dataclass(frozen=True)
class Followup(Task):
    """A piece of work on a finished analysis, in the background."""

    request: Request

    @property
    def kind(self) -> Kind:
        """What is done."""
        return KINDS[self.request["kind"]]

    def begin(self) -> None:
        """Start it, or attach to the same work that was asked for before."""
        self.start(self.request, "mlem_core.tasks.followups")

    def tables(self) -> Tables:
        """What it has made, by name.

        Raises
        ------
        InputError
            It is not done, or its result can no longer be read.
        """
        self._check()
        try:
            return load_tables(self.result)
        except (OSError, ValueError) as error:
            raise self._put_away() from error

    def file(self, name: str) -> Path:
        """A file that it has made; raises as `tables`."""
        self._check()
        return self.result / name

    def _check(self) -> None:
        if not self.result.is_dir():
            raise InputError(f"the work {self.id} is not done: it is {self.status().state}.")
        if not self.intact():
            raise self._put_away()

    def _put_away(self) -> InputError:
        message = f"the result of the work {self.id} can no longer be read; start it again."
        self.damaged(message)
        return InputError(message)


def find(kind: str, job_id: str, options: Options, store: Store) -> Followup:
    """The follow-up of an analysis, whether it was ever started or not (see its status).

    Parameters
    ----------
    kind : one of `KINDS`
    job_id : of the analysis
    options : as JSON can hold them

    Raises
    ------
    InputError
        An unknown kind.
    """
    if kind not in KINDS:
        raise unknown("kind of work", kind, KINDS)
    request = {"version": VERSION, "kind": kind, "analysis": job_id, "options": dict(options)}
    if job_id == examples.ID:
        # Another version of the program has another example under the same name.
        request["example"] = examples.digest()
    about = json.dumps(request, sort_keys=True, separators=(",", ":"))
    name = f"{kind}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    return Followup(name, store.root / "jobs" / name, request)


def start(kind: str, job_id: str, options: Options, store: Store) -> Followup:
    """Start a follow-up in the background, or attach to the same one.

    Raises
    ------
    InputError
        An unknown kind.
    """
    task = find(kind, job_id, options, store)
    task.begin()
    return task


def make(request: Request, folder: Path, report: Report) -> None:
    """Do the work that was asked for and save what it makes."""
    # Of `folder`: the store's root / jobs / id / unfinished-...
    store = Store(folder.parent.parent.parent)
    job = analyses.find(request["analysis"], store)
    if job is None:
        raise InputError("the analysis is no longer in the store; run it again.")
    results = work(request["kind"], job.analysis(), request["options"], store, report)
    tables = {name: one for name, one in results.items() if isinstance(one, pd.DataFrame)}
    save_tables(tables, folder)
    for name, content in results.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(carry_out(Path(sys.argv[1]).absolute(), make))

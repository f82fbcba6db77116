"""Work on a finished analysis that takes longer than a page may wait: in the background, kept.

A follow-up is a task as a job is one (`mlem_core.background`), in the same queue, and what it makes
are tidy tables, or a capsule.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core import jobs, shipped
from mlem_core.analysis import Analysis, Progress, Report, model_representations
from mlem_core.background import Request, Task, carry_out
from mlem_core.errors import InputError, unknown
from mlem_core.refits import REFITTED
from mlem_core.store import Store, sha256_file

Tables = dict[str, pd.DataFrame]
# Tables by name, and other files by their file names.
Made = Mapping[str, pd.DataFrame | bytes]
Options = Mapping[str, Any]
Make = Callable[[Analysis, Options, Store, Report], Made]
VERSION = 1
CAPSULE = "capsule.zip"


def _baseline(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.baselines import of_analysis

    name = options["name"]
    layers = [(str(model), int(layer)) for model, layer in options["layers"]]
    restore(analysis, [model for model, _ in layers], store, report)

    def counted(done: int, total: int) -> None:
        report(Progress(name, None, done, total, "layers"))

    found = of_analysis(analysis, name, store, layers, counted)
    return {"table": found.table, "notices": pd.DataFrame({"notice": list(found.notices)})}


def _fits(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core import kept_fits

    found = kept_fits.make(
        analysis,
        store,
        report,
        features=options["features"],
        layers=[(str(model), int(layer)) for model, layer in options["layers"]],
        estimator=options["estimator"],
        interactions=options["interactions"],
    )
    return {"scores": found.scores}


def restore(analysis: Analysis, names: Iterable[str], store: Store, report: Report) -> None:
    """Run models of an analysis again whose representations are not in the store.

    The store may have been emptied, and that of a new installation never had those of the example.

    Raises
    ------
    InputError
        A model that is no longer there, or no longer the one that was analysed.
    """
    spec, files = analysis.spec, dict(analysis.spec.representations)
    for name in dict.fromkeys(names):
        if name in files:
            continue
        found = model_representations(spec, analysis.whole, name, store, report)
        analysed = str(analysis.manifest["models"][name]["identity"])
        if found.identity != analysed.partition(" view=")[0]:
            raise InputError(
                f"the model {name} is no longer the one that was analysed; run the analysis again."
            )


def _representations(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    restore(analysis, [str(name) for name in options["models"]], store, report)
    return {}


def _all_error_bars(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.errorbars import error_bars

    layers = [(str(model), int(layer)) for model, layer in options["layers"]]
    restore(analysis, [model for model, _ in layers], store, report)
    error_bars(
        analysis,
        store,
        report,
        features=[str(name) for name in options["features"]],
        layers=None if layers == analysis.layers else layers,
        estimator=str(options["estimator"]),
        interactions=bool(options["interactions"]),
    )
    return {}


def _chance(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.bootstrap import LayerPairs
    from mlem_core.chance import score_above_chance
    from mlem_core.results import ESTIMATORS

    layers = [(str(model), int(layer)) for model, layer in options["layers"]]
    restore(analysis, [model for model, _ in layers], store, report)
    spec = replace(analysis.spec, interactions=bool(options["interactions"]))
    own, estimator = replace(analysis, spec=spec), str(options["estimator"])
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    rows = []
    for done, layer in enumerate(layers):
        report(Progress("permuting labels", None, done, len(layers), "layers"))
        found = score_above_chance(
            LayerPairs.of(own, [layer], store, [str(name) for name in options["features"]]),
            ESTIMATORS[estimator],
            train_ranks=estimator not in REFITTED,
            n_permutations=int(options["permutations"]),
            correction="none",
        )
        rows.append(found.table.drop(columns="p_corrected"))
    return {"table": pd.concat(rows, ignore_index=True)}


def _error_bars(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.why import explain

    restore(analysis, [str(model) for model, _ in (options["a"], options["b"])], store, report)

    def counted(done: int, total: int) -> None:
        report(Progress("resampling", None, done, total, "draws"))

    (one, m), (other, n) = options["a"], options["b"]
    why = explain(
        analysis,
        (str(one), int(m)),
        (str(other), int(n)),
        features=list(options["features"]),
        store=store,
        n_draws=int(options["draws"]),
        progress=counted,
    )
    notes = pd.DataFrame({"note": list(why.notes)}, dtype=object)
    return {"terms": why.terms, "whole": why.whole, "notes": notes}


def _capsule(analysis: Analysis, options: Options, store: Store, report: Report) -> Made:
    from mlem_core import capsule, kept_fits

    def as_layers(names: Any) -> list[tuple[str, int]]:
        return [(str(model), int(layer)) for model, layer in names]

    asked: dict[str, Any] = {
        "features": options["features"],
        "layers": as_layers(options["layers"]),
        "estimator": options["estimator"],
        "interactions": options["interactions"],
    }
    results = None
    if options["estimator"] in kept_fits.SLOW:
        results = kept_fits.make(analysis, store, report, **asked)
    pair = as_layers(options["pair"])
    with tempfile.TemporaryDirectory() as folder:
        path = capsule.write(
            analysis,
            Path(folder) / CAPSULE,
            results=results,
            pair=(pair[0], pair[1]) if pair else None,
            store=store,
            progress=report,
            **asked,
        )
        return {CAPSULE: path.read_bytes()}


def _audit(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.audit import audit

    restore(analysis, [model for model, _ in analysis.layers], store, report)
    audit(analysis, store, report)  # keeps its tables in the store
    return {}


def _multiverse(analysis: Analysis, options: Options, store: Store, report: Report) -> Tables:
    from mlem_core.multiverse import multiverse

    layers = [(str(model), int(layer)) for model, layer in options["layers"]]
    restore(analysis, [model for model, _ in layers], store, report)
    multiverse(analysis, layers, store, options.get("choices"), report)
    return {}


KINDS: dict[str, Make] = {
    "all-error-bars": _all_error_bars,
    "audit": _audit,
    "baseline": _baseline,
    "capsule": _capsule,
    "chance": _chance,
    "error-bars": _error_bars,
    "fits": _fits,
    "multiverse": _multiverse,
    "representations": _representations,
}


@dataclass(frozen=True)
class Followup(Task):
    """A piece of work on a finished analysis, in the background."""

    def tables(self) -> Tables:
        """What it has made, by name.

        Raises
        ------
        InputError
            It is not done, or its result can no longer be read.
        """
        if not self.result.is_dir():
            raise InputError(f"the work {self.id} is not done: it is {self.status().state}.")
        try:
            return {
                path.stem: pd.read_csv(path, keep_default_na=False, na_values=[""])
                for path in sorted(self.result.glob("*.csv"))
            }
        except (OSError, ValueError) as error:
            message = f"the result of the work {self.id} can no longer be read; start it again."
            self.damaged(message)
            raise InputError(message) from error


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
    about = json.dumps(_request(kind, job_id, options), sort_keys=True, separators=(",", ":"))
    name = f"{kind}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    return Followup(name, store.root / "jobs" / name)


def start(kind: str, job_id: str, options: Options, store: Store) -> Followup:
    """Start a follow-up in the background, or attach to the same one.

    Raises
    ------
    InputError
        An unknown kind.
    """
    task = find(kind, job_id, options, store)
    task.start(_request(kind, job_id, options), "mlem_core.followups")
    return task


def _request(kind: str, job_id: str, options: Options) -> Request:
    request = {"version": VERSION, "kind": kind, "analysis": job_id, "options": dict(options)}
    if job_id == shipped.ID:
        # Another version of the program ships another example under the same name.
        request["example"] = sha256_file(shipped.FOLDER / "result" / "analysis.json")
    return request


def make(request: Request, folder: Path, report: Report) -> None:
    """Do the work that was asked for and save what it makes."""
    # Of `folder`: the store's root / jobs / id / unfinished-...
    store = Store(folder.parent.parent.parent)
    job = jobs.find(request["analysis"], store)
    if job is None:
        raise InputError("the analysis is no longer in the store; run it again.")
    made = KINDS[request["kind"]](job.analysis(), request["options"], store, report)
    for name, content in made.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            content.to_csv(folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    sys.exit(carry_out(Path(sys.argv[1]).absolute(), make))

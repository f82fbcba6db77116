"""The names of analyses: as the user gave them, or by what was chosen, no two of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mlem_core.analysis.source import READING
from mlem_core.analysis.spec import OF_FILES, OF_MODELS, AnalysisSpec
from mlem_core.base.parameters import in_text
from mlem_core.base.text import many
from mlem_core.storage.store import Store
from mlem_core.tasks import examples, notes
from mlem_core.tasks.analyses import Job

# As many models are named; of more it is said how many there are.
MOST_NAMED = 2
_OTHERWISE = ("stimuli", "models", "representations", "layers", "features", "device")
# How a file was read, and what models are groups: said only where nothing else tells two apart.
_READ = (*READING, "ordered", "nominal", *OF_FILES, *OF_MODELS)


def names(jobs: Sequence[Job], store: Store) -> dict[str, str]:
    """The name of each of some analyses, by its id; no two are called the same.

    Where the names of two would be the same, the models are named one by one, then the time at
    which each was started is added, then its id.
    """
    chosen_names = {job.id: notes.read(job.id, store).name for job in jobs}
    called = {job.id: chosen_names[job.id] or derived(job) for job in jobs}
    more: tuple[Callable[[Job], str], ...] = (
        lambda job: chosen_names[job.id] or derived(job, most_named=100),
        lambda job: chosen_names[job.id] or derived(job, most_named=100, read=True),
        lambda job: f"{called[job.id]} · {job.asked_at:%d %b, %H:%M}" if job.asked_at else "",
        lambda job: f"{called[job.id]} · {job.id[:6]}",
    )
    for longer in more:
        taken = list(called.values())
        again = [job for job in jobs if taken.count(called[job.id]) > 1]
        if not again:
            break
        called |= {job.id: longer(job) or called[job.id] for job in again}
    return called


def derived(job: Job, most_named: int = MOST_NAMED, *, read: bool = False) -> str:
    """A name made of the stimuli, the models, and what was chosen other than at first.

    Parameters
    ----------
    most_named : models; of more it is said how many there are
    read : whether it says too how the stimuli were read
    """
    if job.id == examples.ID:
        return f"Example: {job.spec.stimuli}, {many(len(job.spec.models), 'model')}"
    spec = job.spec
    models = [Path(name).name for name in models_of(spec)]
    of_models = ", ".join(models) if len(models) <= most_named else many(len(models), "model")
    return " · ".join([Path(spec.stimuli).stem, of_models, *chosen(spec, read=read).values()])


def models_of(spec: AnalysisSpec) -> list[str]:
    """The names of the models that were asked for, those from files last."""
    return [*spec.models, *(name for name, _ in spec.representations)]


def chosen(spec: AnalysisSpec, *, read: bool = True) -> dict[str, str]:
    """The choices other than those at first, in a few words each, by the field of the spec.

    Parameters
    ----------
    read : with how the stimuli were read
    """
    parts, left_out = {}, () if read else _READ
    if spec.layers is not None:
        parts["layers"] = "layers " + ", ".join(str(layer) for layer in spec.layers)
    if spec.features is not None:
        parts["features"] = many(len(spec.features), "feature")
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name not in (*_OTHERWISE, *left_out) and value != field.default:
            parts[field.name] = in_words(field.name, value)
    return parts


def in_words(field: str, value: Any) -> str:
    """A value of a field of a spec, in a few words."""
    name = _SAID.get(field, field.replace("_", " "))
    if field in OF_MODELS:
        # Not who is in them: that makes a line of its own for every group.
        told = [part for key, parts in value for part in (parts if field == "labels" else [key])]
        keys = list(dict.fromkeys(part.partition(":")[0] for part in told))
        return f"{name} {', '.join(keys)}" if len(keys) <= MOST_NAMED + 1 else f"{len(keys)} {name}"
    if value is True:
        return f"with {name}"
    if isinstance(value, tuple):
        each = list(map(in_text, value))
        value = ", ".join(each) if len(each) <= MOST_NAMED + 1 else f"of {len(each)} features"
    return f"{name} {value}".strip()


_SAID: Mapping[str, str] = {
    "estimator": "",
    "distance": "distance",
    "values": "values told apart:",
    "folds_over": "folds over",
    "special_tokens": "start and end tokens:",
    "missing": "missing values:",
}

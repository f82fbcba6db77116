"""An analysis that was run, as choices of the form: to be changed, and run again."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from mlem_core.analysis.source import StimulusSource
from mlem_core.analysis.spec import OF_MODELS
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import in_text
from pages.parts import choices, reading, stored

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec

# Fields whose choice has another name or another form.
_OTHERWISE = (
    "stimuli", "representations", "rdms", "layers", "features", "ordered", "nominal", "values",
)  # fmt: skip


def form_of(spec: AnalysisSpec) -> dict[str, list[str] | None]:
    """What the form has to say for an analysis; None is the default of a choice."""
    form: dict[str, list[str] | None] = dict.fromkeys(choices.FORM)
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name in form and field.name not in _OTHERWISE and value != field.default:
            form[field.name] = _texts(value)
    files, rdms = (
        [f"{name}={stored.upload_name(path)}" for name, path in named]
        for named in (spec.representations, spec.rdms)
    )
    form |= {
        "stimuli": [_stimuli(spec.stimuli)],
        "models": list(spec.models) or [choices.NOTHING],
        "files": files or None,
        "rdms": rdms or None,
        "layers": None if spec.layers is None else [",".join(map(str, spec.layers))],
        "columns": None if spec.features is None else list(spec.features),
        "ordered": _ordered(spec),
        "values": list(spec.values) or [choices.NOTHING],
        **{name: _joined(getattr(spec, name)) for name in OF_MODELS},
        "pairs": ["all"] if spec.pairs == 0 else form["pairs"],
    }
    return form


def _stimuli(name: str) -> str:
    from mlem_core.data import datasets

    return name if name in datasets.SETS else stored.upload_name(name)


def _ordered(spec: AnalysisSpec) -> list[str] | None:
    """The ordered features; None where they are those that the form would choose itself."""
    if not (spec.ordered or spec.nominal):
        return None
    asked = {each.name: getattr(spec, each.name) for each in fields(StimulusSource)}
    try:
        features = reading.read("stimuli", **asked).features
    except InputError:
        return None  # the form says what is wrong with the stimuli
    return [feature.name for feature in features if feature.kind == "ordered"]


def _joined(value: tuple[object, ...]) -> list[str] | None:
    """Several values as one text with semicolons between them."""
    return ["; ".join(map(in_text, value))] if value else None


def _texts(value: object) -> list[str]:
    """A value of a field as the texts of a choice."""
    if value is True:
        return ["yes"]
    if isinstance(value, tuple):
        return list(map(in_text, value)) or [choices.NOTHING]
    return [str(value)]

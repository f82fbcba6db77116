"""An analysis that was run, as choices of the form: to be changed, and run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from mlem_core.analysis.source import SURPRISAL, StimulusSource
from mlem_core.analysis.spec import OF_MODELS
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import in_text
from pages.parts import choices, stored

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec


def form_of(spec: AnalysisSpec) -> dict[str, list[str] | None]:
    """State of the form for an analysis; None is the default of a choice."""
    form: dict[str, list[str] | None] = dict.fromkeys(choices.FORM)
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name in form and value != field.default:
            form[field.name] = _texts(field.name, value)
    # What the form calls otherwise, or has in another form.
    return form | {
        "stimuli": [_stimuli(spec.stimuli)],
        "models": list(spec.models) or [choices.NOTHING],
        "files": _uploads(spec.representations),
        "rdms": _uploads(spec.rdms),
        "roles": [f"{column}={role}" for column, role in _roles(spec).items()] or None,
        "values": list(spec.values) or [choices.NOTHING],
    }


def _texts(name: str, value: object) -> list[str]:
    """A value of a field as the texts of a choice; see `pages.form.state.value_of`."""
    if value is True:
        return ["yes"]
    if name == "pairs" and value == 0:
        return ["all"]
    if not isinstance(value, tuple):
        return [str(value)]
    texts = list(map(in_text, value)) or [choices.NOTHING]
    joined = {**dict.fromkeys(OF_MODELS, "; "), "layers": ",", "na": ","}.get(name)
    return texts if joined is None else [joined.join(texts)]


def _stimuli(name: str) -> str:
    from mlem_core.data import datasets

    return name if name in datasets.SETS else stored.upload_name(name)


def _uploads(files: Sequence[tuple[str, str]]) -> list[str] | None:
    """Each file with its name, as the form has it."""
    return [f"{name}={stored.upload_name(path)}" for name, path in files] or None


def _roles(spec: AnalysisSpec) -> dict[str, str]:
    """The given role of each column; a feature that is left out has none."""
    roles = dict(spec.roles)
    roles |= dict.fromkeys(spec.nominal, "nominal") | dict.fromkeys(spec.ordered, "ordered")
    if spec.features is None:
        return roles
    asked = asdict(spec)
    source = {each.name: asked[each.name] for each in fields(StimulusSource)}
    # The models that give surprisal are not run for it.
    source["add"] = [name for name in spec.add if not name.startswith(SURPRISAL)]
    try:
        features = stored.read("stimuli", **source).features
    except InputError:
        return roles  # the form says what is wrong with the stimuli
    column = {f"{name}_bin": name for name, _ in spec.bins}
    names = [feature.name for feature in features if feature.name not in spec.features]
    return roles | {column.get(name, name): "ignore" for name in names}

"""The choices of the form in the URL as fields of an analysis, and back.

The state of `pages.parts.choices` is the truth; widgets are drawn from it and write into it, so
that a step which is not on the screen loses nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any

import streamlit as st

from mlem_core.analysis.source import READING, StimulusChoices, StimulusSource
from mlem_core.analysis.spec import AnalysisSpec, further_files, names_in_section, parameters
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import option_text, parse_names
from mlem_core.estimators.registry import check_values
from mlem_core.pairs.column_builder import MAX_COLUMNS
from mlem_core.pairs.columns import AUTO, feature_columns
from mlem_core.pairs.pair_columns import number_of_columns
from mlem_core.pairs.resampling_units import Units
from mlem_core.stimuli import datasets
from mlem_core.stimuli.formats import FORMATS, find_files, find_format, ordered_steps
from mlem_core.stimuli.levels import STIMULUS
from mlem_core.stimuli.stimulus_set import StimulusSet
from pages.parts import choices, stored
from pages.parts.choices import plain

# The steps, each with its title and its help.
STEPS = {
    "read": ("Read", "Which stimuli, and how their file is read."),
    "roles": ("Roles", "What each column is, automatic features, and the checks."),
    "models": ("Models", "Models, files of representations, and how it is computed."),
}
# Choices of the form that name models, several texts each.
OF_MODELS = tuple(
    name
    for name in names_in_section("groups of models")
    if isinstance(getattr(AnalysisSpec, name), tuple)
)


def stimuli() -> str:
    """The chosen stimuli: a built-in set, or how the URL names an upload."""
    return choices.get_one("stimuli", next(iter(datasets.SETS)))


def step() -> str:
    """The step that is on the screen."""
    name = choices.get_one("step")
    return name if name in STEPS else next(iter(STEPS))


def show_step(name: str) -> None:
    """Show a step."""
    choices.put("step", None if name == next(iter(STEPS)) else [name])


def choose_stimuli(name: str) -> None:
    """Choose other stimuli; how the former ones are read means nothing for them."""
    if name != stimuli():
        choices.put_all({"stimuli": [name], **dict.fromkeys((*READING, "values"))})


def kind(name: str) -> str:
    """ "set" (built in), or the name of the format, such as "table"."""
    if name in datasets.SETS:
        return "set"
    return find_format(find_files(str(stored.upload_path(name)))).name


def field_value(name: str) -> Any:
    """The value of a field of `AnalysisSpec` as the state has it; its default where it has none.

    A text that is none of the choices is the default too, and a number the nearest in its range.
    Raises InputError: another text that cannot be read; an upload is not on this machine.
    """
    described, default = parameters()[name], getattr(AnalysisSpec, name)
    text, texts = choices.get_one(name), choices.get(name) or []
    if name in _file_fields():
        uploads = pairs("files" if name == "representations" else name)
        return tuple((key, str(stored.upload_path(upload))) for key, upload in uploads.items())
    if not text:
        return default
    if name in OF_MODELS:
        return tuple(described.parse(part) for part in map(str.strip, text.split(";")) if part)
    if described.repeated:
        return tuple(pairs(name).items())
    if described.parse is parse_names:
        return tuple(texts)
    if name == "na" and texts == [choices.NOTHING]:
        return ()
    if isinstance(default, bool):
        return text == "yes"
    if described.choices is not None:
        return text if text in described.choices() else default
    if described.parse is int and described.range is not None:
        return choices.get_whole(name, default, *described.range)
    return described.parse(",".join(texts))


def step_fields() -> list[str]:
    """The fields of `StimulusSource` that steps of extensions read, those that name files last."""
    of_formats = {option for entry in FORMATS.values() for option in entry.options}
    others = {each.name for each in fields(StimulusChoices)} | of_formats
    names = [each.name for each in fields(StimulusSource) if each.name not in others]
    return sorted(names, key=_file_fields().__contains__)


def _file_fields() -> list[str]:
    """The fields of pairs of a name and a file, which the state has as an upload."""
    steps = [step.name for step in ordered_steps() if step.names_files]
    return ["representations", *steps, *further_files()]


def pairs(name: str) -> dict[str, Any]:
    """Pairs in a part of the state whose texts are "name=value", without what cannot be read."""
    parse = parameters()["representations" if name == "files" else name].parse
    values: dict[str, Any] = {}
    for text in choices.get(name) or []:
        with contextlib.suppress(InputError):
            values.update([parse(text)])
    return values


def option_texts(values: Mapping[str, object]) -> list[str]:
    """The texts of such a part of the state."""
    return list(map(option_text, values.items()))


def put_pair(part: str, name: str, value: object = None) -> None:
    """Give a name its value in such a part of the state; without any it goes."""
    others = {other: its for other, its in pairs(part).items() if other != name}
    choices.put(part, option_texts(others | ({name: value} if value else {})))


def own_name(wanted: str, taken: Collection[str], otherwise: str) -> str:
    """The name that was typed, with a number where it is taken; `otherwise` where it is empty."""
    # An equals sign parts a name from the rest in the URL.
    name = wanted.replace("=", " ").strip() or otherwise
    names = itertools.chain([name], (f"{name} {number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def uploader(
    label: str, what: str, take: Callable[[Any], None], *, most_mb: int = 500, **more: Any
) -> None:
    """Draw what takes files, which is empty again once they are taken, and why it could not.

    `what` is in its key, and `take` raises InputError for what cannot be kept.
    """
    key = f"{what} {st.session_state.setdefault(f'{what} taken', 0)}"

    def taken() -> None:
        uploaded = st.session_state[key]
        if uploaded:
            st.session_state.pop(f"refused {what}", None)
            try:
                take(uploaded)
            except InputError as error:
                st.session_state[f"refused {what}"] = str(error)
            st.session_state[f"{what} taken"] += 1

    st.file_uploader(label, key=key, on_change=taken, max_upload_size=most_mb, **more)
    if refused_upload(what):
        st.error(plain(refused_upload(what)), icon=":material/error:")


def take_away(key: str, which: str, out: Callable[[], None]) -> None:
    """A button that takes something out of the analysis."""
    help = f"Runs the analysis without this {which}."
    icon = ":material/close:"
    st.button("Remove", key=key, icon=icon, type="tertiary", on_click=out, help=help)


def refused_upload(what: str) -> str:
    """Reason why what was uploaded last could not be kept; empty where it could."""
    return str(st.session_state.get(f"refused {what}", ""))


# The same object as long as nothing changes, which remembers its digest.
@stored.kept(8)
def _selected(source: StimulusSource, features: tuple[str, ...], _stimuli: Any) -> Any:
    return _stimuli.select(features)


def load_source_stimuli(source: StimulusSource, features: tuple[str, ...] | None = None) -> Any:
    """The `StimulusSet` of a source, with all or some features, read once for a store."""
    stimuli = stored.read(StimulusSource.load_stimuli, source)
    return stimuli if features is None else _selected(source, features, stimuli)


def form_state(spec: AnalysisSpec) -> dict[str, list[str] | None]:
    """State of the form for an analysis; None is the default of a choice."""
    form: dict[str, list[str] | None] = dict.fromkeys(choices.FORM)
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name in _file_fields():
            key = "files" if field.name == "representations" else field.name
            form[key] = [f"{name}={stored.upload_name(path)}" for name, path in value] or None
        elif field.name in form and value != field.default:
            form[field.name] = _texts(field.name, value)
    builtin = spec.stimuli in datasets.SETS
    # What the form has in another form.
    return form | {
        "stimuli": [spec.stimuli if builtin else stored.upload_name(spec.stimuli)],
        "models": list(spec.models) or [choices.NOTHING],
        "roles": option_texts(_roles(spec)) or None,
    }


def _texts(name: str, value: object) -> list[str]:
    """A value of a field as the texts of a choice; see `field_value`."""
    if value is True:
        return ["yes"]
    if name == "pairs" and value == 0:
        return ["all"]
    if not isinstance(value, tuple):
        return [str(value)]
    texts = list(map(option_text, value)) or [choices.NOTHING]
    joined = {**dict.fromkeys(OF_MODELS, "; "), "layers": ",", "na": ","}.get(name)
    return texts if joined is None else [joined.join(texts)]


def _roles(spec: AnalysisSpec) -> dict[str, str]:
    """The given role of each column; a feature that is left out has none."""
    roles = dict(spec.roles)
    roles |= dict.fromkeys(spec.nominal, "nominal") | dict.fromkeys(spec.ordered, "ordered")
    if spec.features is None:
        return roles
    source = {each.name: getattr(spec, each.name) for each in fields(StimulusSource)}
    # The models that give surprisal are not run for it.
    if "add" in source:
        source["add"] = tuple(name for name in source["add"] if ":" not in name)
    try:
        features = load_source_stimuli(StimulusSource(**source)).features
    except InputError:
        return roles  # the form says what is wrong with the stimuli
    names = [feature.name for feature in features if feature.name not in spec.features]
    return roles | dict.fromkeys(names, "ignore")


def choices_without_models(models: Collection[str]) -> dict[str, list[str] | None]:
    """The groups and labels of the form without those of models that are no longer chosen."""
    try:
        spec = AnalysisSpec(**{name: field_value(name) for name in OF_MODELS})
    except InputError:
        return {}
    named = set[str]()
    for field in spec.choices_among(()):
        for name, values in getattr(spec, field):
            named |= {name, *values}
    if named.isdisjoint(models):
        return {}
    changes = spec.choices_among(named - {*models})
    return {name: _texts(name, value) if value else None for name, value in changes.items()}


# Fields of `AnalysisSpec` that the last step draws as they are described, by `field`.
_OPTIONS = tuple(
    each.name
    for each in fields(AnalysisSpec)
    if each.name not in (*READING, "stimuli", "ordered", "nominal", *names_in_section("files"))
    and each.name not in ("models", "representations", "features")
)
_FIRST = ("layers", "distance", "estimator", "values", "folds_over")
_OF_TEXT = ("special_tokens", "pooling", "positions")  # of no meaning where stimuli are no text


def chosen_options(stimuli: StimulusSet | None) -> tuple[dict[str, Any], str]:
    """The fields of `AnalysisSpec` that are chosen here, and the first error in them, if any.

    The default stands for a text that cannot be read.
    """
    options, wrong = dict[str, Any](), ""
    for name in _OPTIONS:
        try:
            options[name] = field_value(name)
        except InputError as error:
            options[name], wrong = getattr(AnalysisSpec, name), wrong or str(error)
    if stimuli is not None:
        apart = choices.get_many("values", _offered(stimuli.digest, stimuli), AnalysisSpec.values)
        # What is named counts.
        options["values"] = tuple(name for name in apart if apart == [*AUTO] or name not in AUTO)
    # Where they are those of a paper, an analysis has them in the place of its defaults.
    spec = AnalysisSpec(**options)
    try:
        check_values(spec.estimator, spec.values, spec.interactions)
    except InputError as error:
        wrong = str(error)
    return {name: getattr(spec, name) for name in _OPTIONS}, wrong


def show_options(stimuli: StimulusSet | None) -> None:
    """Draw the options, those that are changed most in front."""
    left_out = _OF_TEXT if stimuli is not None and stimuli.level == STIMULUS else ()
    others = tuple(name for name in _OPTIONS if name not in (*_FIRST, *left_out))
    for title, icon, names in (("More options", "tune", _FIRST), ("All options", "list", others)):
        with st.expander(title, icon=f":material/{icon}:"):
            places = st.columns(2, gap="large")
            for at, name in enumerate(names):
                with places[2 * at // len(names)]:
                    field(name, stimuli)


def field(name: str, stimuli: StimulusSet | None = None) -> None:
    """Draw the widget of a field of `AnalysisSpec`; of `values` only where there are stimuli."""
    described, default = parameters()[name], getattr(AnalysisSpec, name)
    more = {"placeholder": described.metavar, "help": described.text}
    if isinstance(default, bool):
        now = "yes" if default else "no"
        choices.choose_one(described.label, ["no", "yes"], name, now, help=described.text)
    elif described.choices is not None:
        labels, text = described.labels, described.text
        if name == "folds_over" and stimuli is not None and stimuli.level == STIMULUS:
            labels = {**labels, "sentences": Units.from_stimuli(stimuli).groups}
            text = "What training has not seen of a stimulus that is tested."
        choices.choose_one(described.label, labels, name, default, help=text)
    elif described.parse is int and described.range is not None and default is not None:
        choices.whole_number(described.label, name, default, *described.range, help=described.text)
    elif name == "values" or (described.parse is parse_names and not described.repeated):
        if stimuli is not None:
            names = [feature.name for feature in stimuli.features]
            offered = _offered(stimuli.digest, stimuli) if name == "values" else names
            choices.choose_many(described.label, offered, name, default, **more)
    else:
        more["help"] += " Several are parted by semicolons." * described.repeated
        choices.text_field(described.label, name, **more)


@stored.kept(32, copied=True)
def _offered(digest: str, _stimuli: StimulusSet) -> list[str]:
    """Choices for coding by value: that it is left to the analysis, or features with few values."""
    columns = feature_columns(_stimuli)
    few = [each for each in columns if number_of_columns([each.with_names()]) <= MAX_COLUMNS]
    return [*AUTO, *(column.name for column in few)]

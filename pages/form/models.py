"""Step 3, Models: which models and files, how the analysis is computed, and what it takes.

A table of models may give models, files, groups and properties, which become choices of the form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from mlem_core.analysis.model_source import EVERY, NO_SUBJECTS, reading_options
from mlem_core.analysis.spec import AnalysisSpec, further_files, names_in_section, parameters
from mlem_core.analysis.transforms import kept_stimuli
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import parse_names
from mlem_core.base.text import listed
from mlem_core.extending import ModelTable, contributions, resolve
from mlem_core.pairs.distances import PRECOMPUTED, distance_named
from mlem_core.representations.array_files import (
    ARRAY_FORMATS,
    FIRST_COLUMN,
    array_suffix,
    array_suffixes,
)
from mlem_core.representations.registry import (
    MODELS,
    ModelAvailability,
    check_availability,
    defaults,
    hub_models,
    models_with_seeds,
)
from mlem_core.representations.tokens import pooled
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.tasks.reading import FoundArrays, read_checked_arrays
from pages.form import state
from pages.form.draft import Draft
from pages.parts import choices, stored
from pages.parts.choices import plain

TRIO = ("mini-bert", "mini-gpt2", "mini-mamba")


@stored.kept(256, ttl=60, show_spinner="Looking for models …")
def _offer(name: str) -> ModelAvailability:
    return check_availability(name)


def chosen_models() -> list[str]:
    """The names of the chosen models."""
    asked = choices.get("models")
    if asked is None:
        return list(defaults())
    return [name for name in asked if name != choices.NOTHING]


def choose_models(names: list[str]) -> None:
    """Choose these models, none is a choice too; groups and labels of others go."""
    names = [name for typed in names for name in parse_names(typed)]
    models = None if set(names) == set(defaults()) else names or [choices.NOTHING]
    choices.put_all(
        {"models": models, **state.choices_without_models({*chosen_models()} - {*names})}
    )


def _take_table(table: ModelTable, file: Any) -> None:
    """Choose the models of a table, and what it says of them."""
    values = resolve(table.read)(file.getvalue(), file.name, list(state.pairs("files")))
    choose_models(list(values["models"]))
    texts = {
        name: state.option_texts(dict(values[name])) for name in state.OF_MODELS if name in values
    }
    choices.put_all({name: ["; ".join(text)] if text else None for name, text in texts.items()})


def offers() -> list[ModelAvailability]:
    """Availability of each chosen model."""
    return [_offer(name) for name in chosen_models()]


def models_wrong(contents: dict[str, FoundArrays]) -> str:
    """Obstacle to a run in the chosen models and files; empty where there is none."""
    wrong = [offer.problem for offer in offers() if offer.where == "nowhere"]
    wrong += [f"{name}: {content.problem}" for name, content in contents.items() if content.problem]
    if not chosen_models() and not state.pairs("files"):
        wrong.append("no model is chosen; choose at least one, or add a file of representations.")
    return next(iter(wrong), "")


def build_spec(draft: Draft, options: dict[str, Any]) -> AnalysisSpec:
    """The analysis that the form asks for.

    Raises InputError: an upload has gone; the stimuli have no such pooling or positions.
    """
    if draft.stimuli is not None:
        kept_stimuli(draft.stimuli, options["positions"])
        if chosen_models():
            pooled(draft.stimuli.level, options["pooling"])
    files = ("representations", *names_in_section("files"))
    return AnalysisSpec(
        **vars(draft.source),
        **{name: state.field_value(name) for name in files},
        models=tuple(chosen_models()),
        features=draft.features,
        **options,
    )


def show_models(draft: Draft, contents: dict[str, FoundArrays], amiss: str) -> None:
    """Draw the step; `amiss` says what stands in the way of a run."""
    left, right = st.columns(2, gap="large")
    with left:
        _presets()
        _models()
    with right:
        show_files(draft, contents)
    # What is wrong with a model or a file stands beside it already.
    beside = any(offer.where == "nowhere" for offer in offers())
    if amiss and not beside and not any(content.problem for content in contents.values()):
        st.error(plain(amiss), icon=":material/error:")
    state.show_options(draft.stimuli)


def _presets() -> None:
    groups = models_with_seeds()
    seeds = [name for members in groups.values() for name in members]
    of_seeds = "; ".join(f"{group}={','.join(members)}" for group, members in groups.items())
    sizes = ", ".join(f"{name} {MODELS[name].megabytes} MB" for name in hub_models())
    presets: tuple[tuple[str, Sequence[str], str], ...] = (
        ("Small ones", defaults(), "Five models that come with the program, without a network."),
        ("Controlled trio", TRIO, "A BERT, a GPT-2 and a Mamba that were trained on one text."),
        ("The paper's three", hub_models(), f"Of Salle et al. (2024), from the hub: {sizes}."),
        (
            "Groups of seeds",
            seeds,
            f"{len(seeds)} small models in {len(groups)} groups, for intervals over models.",
        ),
    )

    def choose_instead(names: Sequence[str]) -> None:
        # The groups of seeds come and go with their models.
        if names is seeds or choices.get_one("groups") == of_seeds:
            choices.put("groups", [of_seeds] if names is seeds else None)
        choose_models(list(names))

    with st.container(horizontal=True, gap="small"):
        for label, names, help in presets:
            if names:
                st.button(
                    label,
                    help=help,
                    on_click=partial(choose_instead, names),
                    type="primary" if set(chosen_models()) == set(names) else "secondary",
                )
        for table in contributions("model_tables"):
            with st.popover("A table", icon=":material/table:"):
                state.uploader(
                    table.label,
                    table.option,
                    partial(_take_table, table),
                    most_mb=1,
                    type=["csv", "tsv", "txt"],
                    help=table.about,
                )


def _models() -> None:
    names = chosen_models()
    st.multiselect(
        "Models",
        list(dict.fromkeys([*MODELS, *names])),
        accept_new_options=True,
        wrap=True,
        placeholder="Choose, or type a hub id or a folder",
        help="Type any id of the Hugging Face hub, with `@revision` where it is not the latest, or "
        "a folder with a model (safetensors or GGUF). Commas separate several.",
        **choices.bound("form models", names, choose_models),
    )
    with st.container(gap="xsmall"):
        for offer in offers():
            if offer.where == "nowhere":
                st.error(plain(offer.problem), icon=":material/error:")
            else:
                st.caption(_model_line(offer))


def _model_line(offer: ModelAvailability) -> str:
    """A model with its label, its size, and where it comes from, as Markdown."""
    label = offer.label.removeprefix(f"{offer.name}, ") or "a model by name"
    size = f", {size_text(offer.n_bytes)}" if offer.n_bytes else ""
    if offer.where == "away":
        why = f"{label}{size}; it cannot be reached now. The run leaves it out if that stays so."
        return f":orange[:material/cloud_off:] {plain(f'{offer.name}: {why}')}"
    icon, where = "check", "no download"
    if offer.where != "here":
        icon, where = "cloud_download", f"from the hub{size}"
    return f":material/{icon}: {plain(f'{offer.name}: {label}; {where}.')}"


def size_text(n: float) -> str:
    """A size in words: 210 MB, 1.2 GB."""
    if n < 1e6:
        return f"{max(1, round(n / 1e3))} kB"
    return f"{n / 1e6:.0f} MB" if n < 1e9 else f"{n / 1e9:.1f} GB"


MOST_MB = 1_000
MOST_NAMED = 6


def _distance_files() -> list[str]:
    """Names of the files whose arrays are distances."""
    return choices.get("precomputed") or []


def _rename_file(name: str, new: str) -> None:
    """Give a file another name; without one it is taken away."""

    def renamed(values: dict[str, str]) -> dict[str, str]:
        called = {new if key == name else key: value for key, value in values.items()}
        return {key: value for key, value in called.items() if key}

    about = [part for part in names_in_section("files") if part != "precomputed"]
    parts = {part: renamed(state.pairs(part)) for part in ("files", *about)}
    changes = {part: state.option_texts(values) for part, values in parts.items()}
    precomputed = list(renamed(dict.fromkeys(_distance_files(), "")))
    choices.put_all({**changes, "precomputed": precomputed})


def _check_file(name: str, upload: str, stimuli: StimulusSet, *how: bool | str) -> FoundArrays:
    try:
        path = str(stored.upload_path(upload))
        options = {part: dict(state.field_value(part)).get(name, "") for part in reading_options()}
        return stored.read(read_checked_arrays, path, stimuli, options, *how)
    except InputError as error:
        return FoundArrays({}, (), False, str(error))


def file_contents(draft: Draft, distance: str) -> dict[str, FoundArrays]:
    """Contents of each file, by its name; none while the stimuli cannot be used."""
    if draft.stimuli is None:
        return {}
    contents, repeated = {}, distance_named(distance).repeated
    for name, upload in state.pairs("files").items():
        distances = distance == PRECOMPUTED or name in _distance_files()
        subject = state.pairs("subjects").get(name, "")
        contents[name] = _check_file(name, upload, draft.stimuli, distances, repeated, subject)
    return contents


def show_files(draft: Draft, contents: dict[str, FoundArrays]) -> None:
    """Draw what is added, each with its check, and what takes more."""
    state.uploader(
        f"Representations from a file ({', '.join(array_suffixes())})",
        "representations",
        partial(_take_files, draft),
        most_mb=MOST_MB,
        accept_multiple_files=True,
        help="Such as a brain recording. Each layer is an array (stimuli, units), with any name "
        "(`V1`); one layer may be a .npy or CSV. Repetitions: (repetitions, stimuli, units). "
        "Distances: (stimuli, stimuli). Several subjects: one axis more, first.",
    )
    for name, upload in state.pairs("files").items():
        with st.container(border=True, gap="xsmall"):
            _file_line(name, upload, contents.get(name))


def _file_line(name: str, upload: str, content: FoundArrays | None) -> None:
    others = [other for other in state.pairs("files") if other != name]
    axis, first_column = (state.pairs(part).get(name) for part in ("axes", "first_column"))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Name",
            help="What the figures call it.",
            **choices.bound(
                f"file name {name}",
                name,
                lambda typed: _rename_file(name, state.own_name(typed, others, "file")),
            ),
        )
        st.toggle(
            "distances",
            help="Its arrays are distances between every two stimuli.",
            **choices.bound(
                f"file distances {name}", name in _distance_files(), partial(_set_distances, name)
            ),
        )
        # Distances of several are known by their shape, and are of subjects unless one says so.
        if name in _distance_files():
            first_axis, value = "models", NO_SUBJECTS
            about = "The first axis is over models, each a layer, and not over subjects."
        else:
            first_axis, value = "subjects", EVERY
            about = "Arrays are (subjects, stimuli, units); subjects are a group of models."
        st.toggle(
            first_axis,
            help=about,
            **choices.bound(
                f"file {first_axis} {name}",
                state.pairs("subjects").get(name) == value,
                lambda on: state.put_pair("subjects", name, value if on else None),
            ),
        )
        st.text_input(
            "Axis",
            placeholder="layer",
            help="What its layers are: `region`, or `time:ms` to order names such as 120 ms.",
            **choices.bound(f"file axis {name}", axis or "", partial(state.put_pair, "axes", name)),
        )
        if first_column is not None or (content is not None and content.asks):
            st.selectbox(
                "First column",
                list(FIRST_COLUMN),
                index=None,
                format_func=FIRST_COLUMN.__getitem__,
                placeholder="Row numbers, a unit or names?",
                help="It counts the rows, is an index of pandas, or holds names.",
                **choices.bound(
                    f"file first column {name}",
                    first_column,
                    partial(state.put_pair, "first_column", name),
                ),
            )
    _further_files(name, upload, content)
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(gap=None):
            _show_file_check(upload, content)
        state.take_away(f"file away {name}", "file", partial(_rename_file, name, ""))


def _further_files(name: str, upload: str, content: FoundArrays | None) -> None:
    """Files by which a file is read: the atlas of an image, a table of rows where there is need."""
    suffix, added = array_suffix(upload), {f: state.pairs(f).get(name) for f in further_files()}
    of_formats = {entry.option: entry.suffixes for entry in ARRAY_FORMATS.values()}
    needed = [field for field in added if suffix in of_formats.get(field, ()) and not added[field]]
    if not needed and content is not None and content.problem:
        needed = [field for field in added if field not in of_formats and not added[field]]
    for field, file in added.items():
        label = parameters()[field].label
        if file:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.caption(f"{label}: {plain(file.rpartition('/')[2])}")
                take_out = partial(state.put_pair, field, name)
                state.take_away(f"{field} away {name}", "file", take_out)
        elif field in needed:
            state.uploader(
                label,
                f"{field} of {name}",
                partial(_take_further_file, field, name),
                most_mb=MOST_MB,
                help=parameters()[field].text,
            )


def _take_further_file(field: str, name: str, file: Any) -> None:
    state.put_pair(field, name, stored.keep_files(file))


def _set_distances(name: str, are_distances: bool) -> None:
    others = [other for other in _distance_files() if other != name]
    choices.put("precomputed", [*others, *[name] * are_distances])


def _show_file_check(upload: str, content: FoundArrays | None) -> None:
    """Findings of the check of a file."""
    file = plain(upload.rpartition("/")[2])
    if content is None:
        st.caption(f"{file}: checked as soon as the stimuli can be used.")
    elif content.problem:
        st.error(plain(content.problem), icon=":material/error:")
    else:
        names = listed(list(content.names.values()), most=MOST_NAMED)
        layers = "layers" if len(content.names) > 1 else "layer"
        st.caption(f":material/check: {file}: {layers} {plain(names)}")
        for note in content.notes:
            st.warning(plain(note), icon=":material/warning:")
        if content.dependence:
            st.warning(plain(content.dependence), icon=":material/warning:")
            st.button(
                f"Group rows into blocks of {content.blocks}",
                key=f"blocks for {upload}",
                on_click=partial(choices.put, "blocks", [str(content.blocks)]),
            )


def _take_files(draft: Draft, files: list[Any]) -> None:
    """Add what was uploaded, whatever it holds; its line names its problems."""
    uploads, precomputed = state.pairs("files"), list(_distance_files())
    refused: InputError | None = None
    for file in files:
        try:
            upload = stored.keep_files(file)
        except InputError as error:
            refused = error
            continue
        stem = file.name.removesuffix(file.name[-len(array_suffix(file.name)) :])
        name = state.own_name(stem, uploads, "file")
        uploads[name] = upload
        if draft.stimuli is not None and _check_file(name, upload, draft.stimuli).seem_distances:
            precomputed.append(name)
    choices.put_all({"files": state.option_texts(uploads), "precomputed": precomputed})
    if refused is not None:
        raise refused

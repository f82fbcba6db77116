"""Step 3, Models: which models and files, how the analysis is computed, and what it takes.

A table of systems gives models, files, groups and properties, which become choices of the form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.parameters import parse_names
from mlem_core.base.text import listed, many
from pages.form import representations, state
from pages.parts import choices, stored
from pages.parts.choices import plain

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.models.availability import ModelAvailability
    from mlem_core.tasks.reading import FoundArrays
    from pages.form.draft import Draft


def take_table(choose: Callable[[list[str]], None], files: Sequence[str]) -> None:
    """Draw what takes a table.

    Parameters
    ----------
    choose : chooses models instead of those that are chosen
    files : names of the files of representations that are added
    """
    state.uploader(
        "Table of systems",
        "systems",
        partial(_take, choose, files),
        most_mb=1,
        type=["csv", "tsv", "txt"],
        help="A row for each model or added file, in the column `system`; `group` names groups, "
        "every other column is a property. `mlem systems` writes such a table, "
        "with `--preset families` that of 43 models of 10 families.",
    )


def _take(choose: Callable[[list[str]], None], files: Sequence[str], file: Any) -> None:
    from mlem_core.groups.properties import read_systems

    table = read_systems(file.getvalue(), file.name, files)
    choose(list(table.models))
    groups, labels = ("; ".join(state.texts_of(dict(one))) for one in (table.groups, table.labels))
    said = {"groups": groups, "labels": labels, "property_kinds": ""}
    choices.put_all({name: [one] if one else None for name, one in said.items()})


def show_properties(systems: Sequence[str]) -> None:
    """Draw the properties of these models and files, each with its kind, which can be changed."""
    from mlem_core.analysis.grouped import PROPERTY_KINDS, kinds_of, labels_of
    from mlem_core.groups.properties import kind_and_values

    try:
        cells = labels_of(state.value_of("groups"), state.value_of("labels"), systems)
        asked = dict(state.value_of("property_kinds"))
        guessed = {name: kind_and_values(own)[0] for name, own in cells.items()}
    except (InputError, KeyError):
        return  # the step says what is wrong
    if cells:
        st.caption("**Properties**: how many models have a value, and how values are compared.")
    for name, own in cells.items():
        place, kind = st.columns((3, 4), vertical_alignment="center")
        place.markdown(plain(f"{name.replace('_', ' ')} ({sum(map(bool, own))} of {len(own)})"))
        offered = list(dict.fromkeys([guessed[name], *kinds_of(own)]))
        with kind:
            st.selectbox(
                f"Kind of {name}",
                offered,
                format_func=lambda one: PROPERTY_KINDS.get(one, one),
                label_visibility="collapsed",
                **choices.bound(
                    f"kind of {name}",
                    asked.get(name, guessed[name]),
                    partial(_change, name, guessed[name]),
                ),
            )


def _change(name: str, guessed: str, kind: str) -> None:
    kinds = {**dict(state.value_of("property_kinds")), name: kind}
    texts = state.texts_of({of: one for of, one in kinds.items() if (of, one) != (name, guessed)})
    choices.put("property_kinds", ["; ".join(texts)] if texts else None)


TRIO = ("mini-bert", "mini-gpt2", "mini-mamba")


@stored.kept(256, ttl=60, show_spinner="Looking for models …")
def _offer(name: str) -> ModelAvailability:
    from mlem_core.models.availability import look_up

    return look_up(name)


def chosen_models() -> list[str]:
    """The names of the chosen models."""
    from mlem_core.models.registry import defaults

    asked = choices.get("models")
    if asked is None:
        return list(defaults())
    return [name for name in asked if name != choices.NOTHING]


def choose_models(names: list[str]) -> None:
    """Choose these models, none is a choice too; groups and labels of others go."""
    from mlem_core.models.registry import defaults

    names = [name.strip() for name in names]
    models = None if set(names) == set(defaults()) else names or [choices.NOTHING]
    choices.put_all({"models": models, **state.without({*chosen_models()} - {*names})})


def offers() -> list[ModelAvailability]:
    """Availability of each chosen model."""
    return [_offer(name) for name in chosen_models()]


def models_wrong(contents: dict[str, FoundArrays]) -> str:
    """Obstacle to a run in the chosen models; empty where there is none.

    Parameters
    ----------
    contents : of each file
    """
    for offer in offers():
        if offer.where == "nowhere":
            return offer.problem
    for name, content in contents.items():
        if content.problem:
            return f"{name}: {content.problem}"
    if not chosen_models() and not representations.chosen_files():
        return "no model is chosen; choose at least one, or add a file of representations."
    return ""


def spec_of(draft: Draft, options: dict[str, Any]) -> AnalysisSpec:
    """The analysis that the form asks for.

    Raises InputError: an upload has gone; the stimuli have no such pooling or positions.
    """
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.analysis.transforms import kept_stimuli
    from mlem_core.models.tokens import pooled

    if draft.stimuli is not None:
        kept_stimuli(draft.stimuli, options["positions"])
        if chosen_models():
            pooled(draft.stimuli.level, options["pooling"])
    return AnalysisSpec(
        **draft.fields,
        models=tuple(chosen_models()),
        representations=state.files(representations.chosen_files().items()),
        precomputed=tuple(representations.distances()),
        first_column=tuple(representations.said("first_column").items()),
        subjects=tuple(representations.said("subjects").items()),
        axes=tuple(representations.said("axes").items()),
        **options,
    )


def show_models(
    draft: Draft, options: dict[str, Any], contents: dict[str, FoundArrays], amiss: str
) -> None:
    """Draw the step; `amiss` says what stands in the way of a run."""
    left, right = st.columns(2, gap="large")
    with left:
        _presets()
        _models()
        show_properties([*chosen_models(), *representations.chosen_files()])
    with right:
        representations.show_files(draft, contents)
    # What is wrong with a model or a file stands beside it already.
    beside = any(offer.where == "nowhere" for offer in offers())
    if amiss and not beside and not any(content.problem for content in contents.values()):
        st.error(plain(amiss), icon=":material/error:")
    state.show_options(draft.stimuli, options)


def _presets() -> None:
    from mlem_core.models.registry import MODELS, defaults, of_several_seeds, on_hub

    sizes = ", ".join(f"{name} {MODELS[name].megabytes} MB" for name in on_hub())
    groups = of_several_seeds()
    seeds = [name for members in groups.values() for name in members]
    of_seeds = "; ".join(f"{group}={','.join(members)}" for group, members in groups.items())
    presets: dict[str, tuple[Sequence[str], str]] = {
        "Small ones": (defaults(), "Five models that come with the program; no network is needed."),
        "Controlled trio": (TRIO, "A BERT, a GPT-2 and a Mamba trained here on one text."),
        "The paper's three": (
            on_hub(),
            f"Those of Salle et al. (2024), fetched from the Hugging Face hub: {sizes}.",
        ),
        "Groups of seeds": (
            seeds,
            f"{len(seeds)} small models that come with the program, in {len(groups)} groups of "
            "several seeds each: results for a group have an interval over its models.",
        ),
    }

    def choose_instead(names: Sequence[str]) -> None:
        # The groups of seeds come and go with their models.
        if names is seeds or choices.get_one("groups") == of_seeds:
            choices.put("groups", [of_seeds] if names is seeds else None)
        choose_models(list(names))

    with st.container(horizontal=True, gap="small"):
        for label, (names, help) in presets.items():
            if names:
                st.button(
                    label,
                    help=help,
                    on_click=partial(choose_instead, names),
                    type="primary" if set(chosen_models()) == set(names) else "secondary",
                )
        with st.popover("A training run", icon=":material/timeline:", help="Checkpoints of one "
                        "model, each a model of the analysis."):  # fmt: skip
            _training_run()
        with st.popover("A table", icon=":material/table:", help="Models with their properties."):
            take_table(choose_models, list(representations.chosen_files()))
    state.say_refused("systems")


def _training_run() -> None:
    from mlem_core.models.registry import variants

    base = st.text_input(
        "Model",
        TRIO[1],
        key="training base",
        help=f"{listed(TRIO)} come with the program; any other is an id of the Hugging Face hub, "
        "such as EleutherAI/pythia-70m.",
    )
    steps = st.text_input(
        "Revisions",
        ", ".join(f"step{step}" for step in variants(TRIO[1], "step")),
        key="training steps",
        help="Branches, tags or commits, with commas between them; each becomes a model of the "
        "name id@revision.",
    )
    names = [f"{base.strip()}@{step}" for step in parse_names(steps)]
    st.button(
        f"Add {many(len(names), 'checkpoint')}",
        key="training add",
        icon=":material/add:",
        on_click=lambda: choose_models(list(dict.fromkeys([*chosen_models(), *names]))),
        disabled=not (names and base.strip()),
        help="Adds them to the models.",
    )


def _models() -> None:
    from mlem_core.base.room import shared
    from mlem_core.models.model_paths import offered
    from mlem_core.models.registry import MODELS

    names = chosen_models()
    or_folder = " or a folder" if shared() is None else ""
    st.multiselect(
        "Models",
        list(dict.fromkeys([*MODELS, *offered(), *names])),
        accept_new_options=True,
        wrap=True,
        placeholder=f"Choose, or type a hub id{or_folder}",
        help="Models of this list, or type any id of the Hugging Face hub, with `@revision` where "
        f"it is not the latest{or_folder and ', or a folder with a model (safetensors or GGUF)'}.",
        **choices.bound("form models", names, choose_models),
    )
    with st.container(gap="xsmall"):
        for offer in offers():
            _line(offer)


def _line(offer: ModelAvailability) -> None:
    """Line on a model: its label, its size, and where it comes from."""
    name = plain(offer.name)
    if offer.where == "nowhere":
        st.error(plain(offer.problem), icon=":material/error:")
        return
    label = offer.label.removeprefix(f"{offer.name}, ") or "a model by name"
    size = f", {in_bytes(offer.n_bytes)}" if offer.n_bytes else ""
    if offer.where == "away":
        st.caption(
            f":orange[:material/cloud_off:] {name}: {plain(label)}{size}; it cannot be reached "
            "now, and the run leaves it out if that stays so."
        )
        return
    where = "no download" if offer.where == "here" else f"from the hub{size}"
    icon = "check" if offer.where == "here" else "cloud_download"
    st.caption(f":material/{icon}: {name}: {plain(label)}; {where}.")


def in_bytes(n: float) -> str:
    """A size in words: 210 MB, 1.2 GB."""
    if n < 1e6:
        return f"{max(1, round(n / 1e3))} kB"
    return f"{n / 1e6:.0f} MB" if n < 1e9 else f"{n / 1e9:.1f} GB"

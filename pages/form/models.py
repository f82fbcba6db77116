"""Step 3, Models: which models and files, how the analysis is computed, and what it takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.form import options as more_options
from pages.form import representations
from pages.parts import choices, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.models.availability import ModelAvailability
    from pages.form.draft import Draft
    from pages.form.representations import Looked

TRIO = ("mini-bert", "mini-gpt2", "mini-mamba")


@stored.kept(256, ttl=60, show_spinner="Looking for models …")
def _offer(name: str) -> ModelAvailability:
    from mlem_core.models.availability import look_up

    return look_up(name)


def chosen() -> list[str]:
    """The names of the chosen models."""
    from mlem_core.models.registry import defaults

    asked = choices.get("models")
    if asked is None:
        return list(defaults())
    return [name for name in asked if name != choices.NOTHING]


def choose(names: list[str]) -> None:
    """Choose these models; none is a choice too."""
    from mlem_core.models.registry import defaults

    names = [name.strip() for name in names]
    choices.put("models", None if set(names) == set(defaults()) else names or [choices.NOTHING])


def offers() -> list[ModelAvailability]:
    """What is known of each chosen model."""
    return [_offer(name) for name in chosen()]


def wrong(found: dict[str, Looked]) -> str:
    """What stands in the way of a run; empty where nothing does.

    Parameters
    ----------
    found : of each file
    """
    for offer in offers():
        if offer.where == "nowhere":
            return offer.problem
    for name, looked in found.items():
        if looked.problem:
            return f"{name}: {looked.problem}"
    if not chosen() and not representations.chosen():
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
        if chosen():
            pooled(draft.stimuli.level, options["pooling"])
    files = ((name, str(stored.upload_path(file))) for name, file in representations.chosen())
    return AnalysisSpec(
        **draft.fields,
        models=tuple(chosen()),
        representations=tuple(files),
        precomputed=tuple(representations.distances()),
        first_column=tuple(representations.first_columns().items()),
        **options,
    )


def show(draft: Draft, options: dict[str, Any], found: dict[str, Looked], amiss: str) -> None:
    """Draw the step; `amiss` says what stands in the way of a run."""
    left, right = st.columns(2, gap="large")
    with left:
        _presets()
        _models()
    with right:
        representations.show(draft, found)
    # What is wrong with a model or a file stands beside it already.
    beside = any(offer.where == "nowhere" for offer in offers())
    if amiss and not beside and not any(looked.problem for looked in found.values()):
        st.error(plain(amiss), icon=":material/error:")
    more_options.show(draft.stimuli, options)


def _presets() -> None:
    from mlem_core.models.registry import MODELS, defaults, on_hub

    sizes = ", ".join(f"{name} {MODELS[name].megabytes} MB" for name in on_hub())
    presets = {
        "Small ones": (defaults(), "Five models that come with the program; no network is needed."),
        "Controlled trio": (TRIO, "A BERT, a GPT-2 and a Mamba trained here on one text."),
        "The paper's three": (
            on_hub(),
            f"Those of Salle et al. (2024), fetched from the Hugging Face hub: {sizes}.",
        ),
    }
    with st.container(horizontal=True, gap="small"):
        for label, (names, help) in presets.items():
            st.button(
                label,
                help=help,
                on_click=partial(_choose_instead, list(names)),
                type="primary" if set(chosen()) == set(names) else "secondary",
            )
        _of_seeds()
        with st.popover("A training run", icon=":material/timeline:", help="Checkpoints of one "
                        "model, each a model of the analysis."):  # fmt: skip
            _training_run()


def _groups_of_seeds() -> str:
    """The models with several seeds as groups, as one would write them."""
    from mlem_core.models.registry import of_several_seeds

    return "; ".join(f"{group}={','.join(own)}" for group, own in of_several_seeds().items())


def _choose_instead(names: list[str]) -> None:
    """Choose these models; groups that the button for seeds made go with its models."""
    if choices.get_one("groups") == _groups_of_seeds():
        choices.choose_now("groups", None)
    choose(names)


def _of_seeds() -> None:
    """Choose all seeds of the small models, and make those of each model a group."""
    from mlem_core.models.registry import of_several_seeds

    groups = of_several_seeds()
    models = [name for members in groups.values() for name in members]
    if not models:
        return
    st.button(
        "Groups of seeds",
        help=f"{len(models)} small models that come with the program, in {len(groups)} groups of "
        "several seeds each: results for a group have an interval over its models.",
        on_click=partial(
            choices.choose_all_now, {"models": models, "groups": [_groups_of_seeds()]}
        ),
        type="primary" if set(chosen()) == set(models) else "secondary",
    )


def _training_run() -> None:
    from mlem_core.base.text import listed
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
    names = [f"{base.strip()}@{step.strip()}" for step in steps.split(",") if step.strip()]

    def add() -> None:
        choose(list(dict.fromkeys([*chosen(), *names])))

    st.button(
        f"Add {len(names)} checkpoint{'' if len(names) == 1 else 's'}",
        key="training add",
        icon=":material/add:",
        on_click=add,
        disabled=not (names and base.strip()),
        help="Adds them to the models.",
    )


def _models() -> None:
    from mlem_core.base.shared import shared
    from mlem_core.models.model_paths import offered
    from mlem_core.models.registry import MODELS

    names = chosen()
    key, or_folder = "form models", " or a folder" if shared() is None else ""
    st.session_state[key] = names
    st.multiselect(
        "Models",
        list(dict.fromkeys([*MODELS, *offered(), *names])),
        key=key,
        on_change=lambda: choose(st.session_state[key]),
        accept_new_options=True,
        wrap=True,
        placeholder=f"Choose, or type a hub id{or_folder}",
        help="Models of this list, or type any id of the Hugging Face hub, with `@revision` where "
        f"it is not the latest{or_folder and ', or a folder with a model (safetensors or GGUF)'}.",
    )
    with st.container(gap="xsmall"):
        for offer in offers():
            _line(offer)


def _line(offer: ModelAvailability) -> None:
    """What a model is, and where it comes from."""
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

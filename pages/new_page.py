"""A new analysis: choose stimuli, models and layers, and run it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.estimators.registry import check_values
from pages.parts import choices, frame, method, running, stimuli_form, stored
from pages.parts.screens import SCREENS
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.data.stimuli import StimulusSet


@st.cache_resource(ttl=60, show_spinner="Looking for models …")
def _available() -> dict[str, bool]:
    from mlem_core.models.registry import MODELS

    return {name: model.available() for name, model in MODELS.items()}


def body() -> None:
    st.title(SCREENS["new"].title)
    st.markdown(
        "Choose stimuli and models: how alike do the layers represent them, and which features "
        "make them alike or different?"
    )
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Stimuli")
        stimuli, wrong = stimuli_form.choose()
    with right:
        st.subheader("Models")
        models, files = _choose_models()
    with st.expander("More options", icon=":material/tune:"):
        options = _choose_options(stimuli)
    if stimuli is not None and not wrong:
        frame.attempt(lambda: stimuli_form.tell(options))
    with st.container(horizontal=True, vertical_alignment="center"):
        run = st.button(
            "Run",
            type="primary",
            icon=":material/play_arrow:",
            disabled=bool(wrong),
            help="Runs in the background; you may leave this page. What an earlier run left in "
            "the store is used again.",
        )
        names = [*models, *(one.partition("=")[0] for one in files)]
        st.markdown(_what_runs(stimuli, names, wrong), width="stretch")
    if run:
        frame.attempt(lambda: _start(models, files, options))


def _what_runs(stimuli: StimulusSet | None, models: list[str], wrong: str) -> str:
    """What Run would do, or why it does nothing, beside the button."""
    from mlem_core.base.text import listed

    if wrong or stimuli is None:
        return f":material/block: Run waits: {plain(wrong)}"
    on = f"{plain(stimuli.name)} ({len(stimuli):,} stimuli)"
    return f"Runs {plain(listed(models, most=6)) or 'no model'} on {on}."


def _choose_models() -> tuple[list[str], list[str]]:
    from mlem_core.models.registry import MODELS, defaults

    available = _available()

    def label(name: str) -> str:
        return name if available.get(name, True) else f"{name} (not reachable now)"

    models = choices.choose_many(
        "Models",
        list(dict.fromkeys([*available, *(choices.get("models") or [])])),
        "models",
        defaults(),
        format_func=label,
        accept_new_options=True,
        wrap=True,
        placeholder="Choose, or type a hub id or a folder",
        help="Models of this list, or type any id of the Hugging Face hub or a folder with a "
        "model (safetensors or GGUF).",
    )
    lines = []
    for name in models:
        if name not in available:
            lines.append(f"{name}: a hub id or a folder.")
        elif available[name]:
            lines.append(f"{name}: {MODELS[name].label}.")
        else:
            origin = MODELS[name].package or "the Hugging Face hub"
            lines.append(
                f"{name}: {MODELS[name].label}, from {origin}; it cannot be reached now, and the "
                "run leaves it out if that stays so."
            )
    st.caption("  \n".join(plain(line) for line in lines))
    choices.write(
        "Layers",
        "layers",
        placeholder="all, or for example 0,3,6",
        help="Numbers with commas between them; empty or `all` takes every layer. Layer 0 is the "
        "embeddings, layer k what leaves block k.",
    )
    return models, _choose_files()


def _choose_files() -> list[str]:
    files = choices.get("files") or []
    with st.expander("Representations from a file", icon=":material/upload_file:", expanded=False):
        name = st.text_input(
            "Name", value="recording", key="representations name", help="What the figures call it."
        )
        # An equals sign parts the name from the file in the URL.
        name = name.replace("=", " ").strip()
        file = st.file_uploader(
            "Representations (.npz, .safetensors or .csv)",
            type=["npz", "safetensors", "csv"],
            key="representations",
            help="Makes any system a model: arrays `layer_00`, `layer_01` … of shape (stimuli, "
            "units), rows in the order of the stimuli; or a CSV of one layer, a row a stimulus.",
        )
        if st.button(
            "Add",
            disabled=file is None or not name,
            icon=":material/add:",
            help="Adds the file as one more model.",
        ):
            others = [one for one in files if one.partition("=")[0] != name]
            files = [*others, f"{name}={stimuli_form.keep(file)}"]
            choices.choose_now("files", files)
    if files:
        files = choices.choose_many(
            "Files used as models",
            files,
            "files",
            [],
            format_func=lambda one: one.partition("=")[0] + ": " + one.rpartition("/")[2],
            help="Take one away to run without it.",
        )
    return files


def _choose_options(stimuli: StimulusSet | None) -> dict[str, Any]:
    """The fields of `AnalysisSpec` that are chosen under More options."""
    _forget_kinds()
    a, b = st.columns(2, gap="large")
    with a:
        of_features, below = _choose_features(stimuli), st.container()
    with b:
        options = of_features | _choose_method()
    with below:
        return options | {"values": _choose_values(stimuli, options)}


def _choose_values(stimuli: StimulusSet | None, options: dict[str, Any]) -> tuple[str, ...]:
    """The features whose values are told apart; what is recommended depends on the options."""
    if stimuli is None or options["features"] == ():
        return ()
    names, recommended = stimuli_form.values_to_tell_apart(options)
    chosen = choices.choose_any(
        "Values told apart",
        names,
        "values",
        recommended,
        placeholder="none: only whether they differ",
        help=f"{method.VALUES} Empty is the coding of the papers. What is chosen at first is what "
        "these stimuli have pairs enough for.",
    )
    st.caption(
        "Every two of their values have a distance of their own; none is the coding of the papers."
        if chosen
        else "Features say only whether, or by how much, they differ: the coding of the papers."
    )
    try:
        check_values(options["estimator"], chosen, options["interactions"])
    except InputError as error:
        st.error(plain(error), icon=":material/error:")
    return tuple(name for name in names if name in chosen)


def _choose_features(stimuli: StimulusSet | None) -> dict[str, Any]:
    names = [feature.name for feature in stimuli.features] if stimuli is not None else []
    ordered = [f.name for f in stimuli.features if f.kind == "ordered"] if stimuli else []
    columns = choices.choose_many(
        "Features",
        names,
        "columns",
        names,
        help="The features that the analysis knows. Leaving one out later, in the views, needs "
        "no new run.",
    )
    as_ordered = choices.choose_many(
        "Ordered features",
        names,
        "ordered",
        ordered,
        help="The distance of two values is their difference, scaled by the range. The values "
        "must be numbers. All other features are nominal: a distance of 0 or 1.",
    )
    return {
        "features": None if columns == names else tuple(n for n in names if n in columns),
        "ordered": tuple(n for n in names if n in as_ordered and n not in ordered),
        "nominal": tuple(n for n in names if n not in as_ordered and n in ordered),
        "missing": method.missing("What an empty cell means."),
    }


def _choose_method() -> dict[str, Any]:
    from mlem_core.pairs.distances import DISTANCES

    tokens = {
        "model": "as the model's tokenizer adds them",
        "start": "a start token in any case",
    }
    return {
        "estimator": method.estimator(),
        "interactions": method.interactions("interactions"),
        "distance": method.choose(
            "distance",
            "The neural distance of two stimuli. `precomputed` goes with files alone, whose "
            "arrays are then distances of shape (stimuli, stimuli).",
            label=lambda one: DISTANCES[one].label,
        ),
        "special_tokens": method.choose(
            "special_tokens",
            "What stands before and after a sentence. The first position of many decoders is "
            "an outlier: with a start token no word is there.",
            label=lambda one: tokens.get(one, one),
        ),
        "dtype": method.choose(
            "dtype",
            "What a model computes with. bfloat16 halves its memory and keeps 8 bits of each "
            "number.",
        ),
        "folds": choices.number(
            "Folds",
            "folds",
            5,
            3,
            20,
            help="Folds of the cross-validation; a stimulus is tested in one of them at most, all "
            "words of a sentence (or all stimuli of an item) together.",
        ),
        "folds_over": method.choose(
            "folds_over",
            "What training has not seen of a stimulus that is tested: its sentence, its word (or "
            "what the column item says), or both. Over both only one stimulus in as many as there "
            "are folds is tested.",
        ),
        "seed": choices.number(
            "Seed", "seed", 0, 0, 999_999, help="Decides which stimuli are in which fold."
        ),
    }


def _forget_kinds() -> None:
    """What was chosen for the features of another stimulus set does not hold for this one."""
    chosen = choices.get_one("stimuli")
    before = st.session_state.setdefault("options of", chosen)
    if before != chosen:
        st.session_state["options of"] = chosen
        for name in ("columns", "ordered", "values"):
            choices.choose_now(name, None)


def _layers(text: str) -> tuple[int, ...] | None:
    if text.lower() in ("", "all"):
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(re.fullmatch(r"\d{1,4}", part) for part in parts):
        raise InputError(f"found the layers {text!r}; expected all, or numbers such as 0,3,6.")
    return tuple(sorted({int(part) for part in parts}))


def _spec(models: list[str], files: list[str], options: dict[str, Any]) -> AnalysisSpec:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.data import datasets

    name = choices.get_one("stimuli", next(iter(datasets.SETS)))
    if options["features"] == ():
        raise InputError("no feature is chosen; choose at least one under More options.")
    return AnalysisSpec(
        stimuli=name if name in datasets.SETS else str(stored.upload_path(name)),
        models=tuple(models),
        representations=tuple(
            (one.partition("=")[0], str(stored.upload_path(one.partition("=")[2]))) for one in files
        ),
        layers=_layers(choices.get_one("layers")),
        **options,
    )


def _start(models: list[str], files: list[str], options: dict[str, Any]) -> None:
    from mlem_core.tasks import analyses

    spec = _spec(models, files, options)
    spec.check()
    job = analyses.start(spec, stored.store())
    choices.open_job(job.id)
    running.watch(job.id)
    if job.status().state in running.UNDER_WAY:
        # Whoever has scrolled down to the button does not see the progress appear.
        st.toast("Started; the progress is at the top of each page.", icon=":material/play_arrow:")
    st.rerun()


frame.page(body)

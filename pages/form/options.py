"""More options: how the analysis is computed, read from the state and drawn into it."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.estimators.registry import check_values
from pages.form import checks
from pages.parts import choices, method
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.data.stimuli import StimulusSet

_NUMBERS = {"folds": (3, 2**31 - 1), "seed": (0, 2**32 - 1)}
# What has no widget here, and comes with an analysis that is duplicated.
_CARRIED = ("device", "pooling", "positions", "units")
_NAMES = ("missing", "estimator", "distance", "special_tokens", "dtype", "folds_over", *_CARRIED)


def chosen(stimuli: StimulusSet | None) -> dict[str, Any]:
    """The fields of `AnalysisSpec` that are chosen under More options."""
    from mlem_core.analysis.spec import AnalysisSpec

    options: dict[str, Any] = {"interactions": choices.get_one("interactions") == "yes"}
    options |= {name: _one(name) for name in _NAMES}
    for name, (low, high) in _NUMBERS.items():
        text, default = choices.get_one(name), getattr(AnalysisSpec, name)
        number = int(text) if re.fullmatch(r"\d{1,10}", text) else default
        options[name] = min(max(number, low), high)
    with contextlib.suppress(InputError):
        options["pairs"] = pairs()
    return options | {"values": _values(stimuli, options)}


def _one(name: str) -> Any:
    """The value of a field that has one; its default where the state has none that can be."""
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    described, text = parameters()[name], choices.get_one(name)
    if described.choices is not None:
        return text if text in described.choices() else getattr(AnalysisSpec, name)
    with contextlib.suppress(ValueError):
        return described.parse(text)
    return getattr(AnalysisSpec, name)


def _values(stimuli: StimulusSet | None, options: dict[str, Any]) -> tuple[str, ...]:
    """The features whose values are told apart; what is recommended depends on the options."""
    if stimuli is None:
        return ()
    names, recommended = checks.values_to_tell_apart(stimuli, options)
    asked = choices.get("values")
    return tuple(name for name in names if name in (recommended if asked is None else asked))


def _several(name: str) -> tuple[Any, ...]:
    """The values of a field that the state has as one text, with semicolons between them."""
    from mlem_core.analysis.spec import parameters

    texts = (text.strip() for text in choices.get_one(name).split(";"))
    return tuple(parameters()[name].parse(text) for text in texts if text)


def groups() -> dict[str, Any]:
    """The fields of `AnalysisSpec` that say which models belong together, and what they are.

    Raises
    ------
    InputError
        A text of another form.
    """
    from mlem_core.analysis.spec import OF_MODELS

    return {name: _several(name) for name in OF_MODELS}


def wrong(options: dict[str, Any]) -> str:
    """What of the options does not go together; empty where all does."""
    try:
        check_values(options["estimator"], options["values"], options["interactions"])
        layers()
        pairs()
        groups()
    except InputError as error:
        return str(error)
    return ""


def layers() -> tuple[int, ...] | None:
    """The layers that are asked for; None is all.

    Raises
    ------
    InputError
        The text holds no numbers.
    """
    text = choices.get_one("layers")
    if text.lower() in ("", "all"):
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(re.fullmatch(r"\d{1,4}", part) for part in parts):
        raise InputError(f"found the layers {text!r}; expected all, or numbers such as 0,3,6.")
    return tuple(sorted({int(part) for part in parts}))


def pairs() -> int:
    """How many pairs are compared at most, 0 for all.

    Raises
    ------
    InputError
        The text is no number.
    """
    from mlem_core.analysis.spec import AnalysisSpec, parse_pairs

    text = choices.get_one("pairs").strip().lower()
    return parse_pairs(text) if text else AnalysisSpec.pairs


def show(stimuli: StimulusSet | None, options: dict[str, Any]) -> None:
    """Draw the options."""
    _show_carried(options)
    with st.expander("More options", icon=":material/tune:"):
        left, right = st.columns(2, gap="large")
        with left:
            choices.write(
                "Layers",
                "layers",
                placeholder="all, or for example 0,3,6",
                help="Numbers with commas between them; empty or `all` takes every layer. Layer 0 "
                "is the embeddings, layer k what leaves block k.",
            )
            _show_groups()
            method.missing("What an empty cell means.")
            if stimuli is not None:
                _show_values(stimuli, options)
            _show_folds()
            _show_pairs()
        with right:
            _show_method()


def _show_carried(options: dict[str, Any]) -> None:
    """What is asked for and has no widget."""
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    own = {k: options[k] for k in _CARRIED if options[k] != getattr(AnalysisSpec, k)}
    if not own:
        return
    said = "; ".join(f"{parameters()[name].label}: {value}" for name, value in own.items())
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Kept from the analysis that was duplicated: {plain(said)}.", width="stretch")
        st.button(
            "Use the defaults",
            key="form carried",
            type="tertiary",
            on_click=partial(choices.choose_all_now, dict.fromkeys(_CARRIED)),
            help="This form has no field for these choices; the command line has.",
        )


def _show_values(stimuli: StimulusSet, options: dict[str, Any]) -> None:
    names, recommended = checks.values_to_tell_apart(stimuli, options)
    now = choices.choose_any(
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
        if now
        else "Features say only whether, or by how much, they differ: the coding of the papers."
    )
    try:
        check_values(options["estimator"], now, options["interactions"])
    except InputError as error:
        st.error(plain(error), icon=":material/error:")


def _show_groups() -> None:
    choices.write(
        "Groups of models",
        "groups",
        placeholder="mini=mini-s0,mini-s1; large=large-s0,large-s1",
        help="Models that belong together, such as seeds: their spread is shown, and how much of "
        "what models of a group share is shared between groups. Groups change nothing that is "
        "computed of a model.",
    )
    choices.write(
        "Labels of models",
        "labels",
        placeholder="mini=objective:mlm; large=objective:causal",
        help="What a model or group is, for the test of which factor makes models alike.",
    )
    choices.write(
        "Trajectories over training",
        "trajectories",
        placeholder="mini=mini@step500,mini@step1000,mini@step2000",
        help="Checkpoints of one training, whose revisions end in its step: importances are drawn "
        "over the steps. Members of one step are seeds of it, whose spread is shown.",
    )


def _show_folds() -> None:
    choices.number(
        "Folds",
        "folds",
        5,
        *_NUMBERS["folds"],
        help="Folds of the cross-validation; a stimulus is tested in one of them at most, all "
        "words of a sentence (or all stimuli of an item) together.",
    )
    method.choose(
        "folds_over",
        "What training has not seen of a stimulus that is tested: its sentence, its word (or what "
        "the column item says), or both. Over both only one stimulus in as many as there are folds "
        "is tested.",
    )
    choices.number(
        "Seed",
        "seed",
        0,
        *_NUMBERS["seed"],
        help="Decides which stimuli are in which fold.",
    )


def _show_pairs() -> None:
    from mlem_core.analysis.spec import AnalysisSpec

    choices.write(
        "Pairs",
        "pairs",
        placeholder=f"{AnalysisSpec.pairs:,}, or all",
        help="How many pairs of stimuli are compared at most. Beyond it (from 10,001 stimuli on) a "
        "balanced design of as many stands for all of them, each stimulus in equally many pairs; "
        "the standard error that this adds is measured and said. `all` compares every pair.",
    )


def _show_method() -> None:
    from mlem_core.pairs.distances import DISTANCES

    tokens = {
        "model": "as the model's tokenizer adds them",
        "start": "a start token in any case",
    }
    method.estimator()
    method.interactions("interactions")
    method.choose(
        "distance",
        "The neural distance of two stimuli. `precomputed` says that every file holds distances; "
        "beside models, say it of the file in its line above. `crossnobis` is over the repetitions "
        "of a stimulus in the files; language models have the Euclidean distance beside it.",
        label=lambda one: DISTANCES[one].label,
    )
    method.choose(
        "special_tokens",
        "What stands before and after a sentence. The first position of many decoders is an "
        "outlier: with a start token no word is there.",
        label=lambda one: tokens.get(one, one),
    )
    method.choose(
        "dtype",
        "What a model computes with. bfloat16 halves its memory and keeps 8 bits of each number.",
    )

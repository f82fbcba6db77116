"""More options: how the analysis is computed, read from the state and drawn into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.estimators.registry import check_values
from pages.form import checks
from pages.parts import choices, method
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.base.parameters import Parameter
    from mlem_core.data.stimuli import StimulusSet

# Fields of `AnalysisSpec` as they stand in the form, left and right; `ADVANCED` are folded away.
LEFT = (
    "layers", "groups", "labels", "trajectories", "missing", "values", "folds", "folds_over",
    "seed", "pairs",
)  # fmt: skip
RIGHT = ("estimator", "interactions", "distance", "special_tokens", "dtype")
ADVANCED = ("pooling", "positions", "units", "device")
# Which values are told apart depends on the others, where it is not chosen.
_READ = tuple(name for name in (*LEFT, *RIGHT, *ADVANCED) if name != "values")


def chosen(stimuli: StimulusSet | None) -> dict[str, Any]:
    """The fields of `AnalysisSpec` that are chosen here; the default for a text that is none."""
    from mlem_core.analysis.spec import AnalysisSpec

    options: dict[str, Any] = {}
    for name in _READ:
        try:
            options[name] = _value_of(name)
        except InputError:
            options[name] = getattr(AnalysisSpec, name)
    return options | {"values": _values(stimuli, options)}


def _described(name: str) -> tuple[Parameter, Any]:
    """How a field is chosen, and its default."""
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    return parameters()[name], getattr(AnalysisSpec, name)


def _value_of(name: str) -> Any:
    """The value of a field as the state has it; its default where it has none.

    A text that is none of the choices is the default too, and a number the nearest in its range.
    Raises InputError for another text that cannot be read.
    """
    described, default = _described(name)
    text = choices.get_one(name).strip()
    if described.repeated:
        return tuple(described.parse(one) for one in map(str.strip, text.split(";")) if one)
    if isinstance(default, bool):
        return text == "yes"
    if described.choices is not None:
        return text if text in described.choices() else default
    if described.parse is int and described.range is not None:
        return choices.whole(name, default, *described.range)
    return described.parse(text) if text else default


def _field(name: str) -> None:
    """Draw the widget of a field."""
    described, default = _described(name)
    if isinstance(default, bool):
        method.interactions(name)
    elif described.choices is not None:
        method.choose(name)
    elif described.parse is int and described.range is not None:
        choices.number(described.label, name, default, *described.range, help=described.text)
    else:
        help = described.text + " Several are parted by semicolons." * described.repeated
        choices.write(described.label, name, placeholder=described.metavar, help=help)


def _values(stimuli: StimulusSet | None, options: dict[str, Any]) -> tuple[str, ...]:
    """The features whose values are told apart; what is recommended depends on the options."""
    if stimuli is None:
        return ()
    names, recommended = checks.values_to_tell_apart(stimuli, options)
    asked = choices.get("values")
    return tuple(name for name in names if name in (recommended if asked is None else asked))


def wrong(options: dict[str, Any]) -> str:
    """What of the options does not go together, or is none; empty where all does."""
    try:
        check_values(options["estimator"], options["values"], options["interactions"])
        for name in _READ:
            _value_of(name)
    except InputError as error:
        return str(error)
    return ""


def show(stimuli: StimulusSet | None, options: dict[str, Any]) -> None:
    """Draw the options."""
    from mlem_core.analysis.spec import AnalysisSpec

    with st.expander("More options", icon=":material/tune:"):
        _side_by_side(LEFT, RIGHT, stimuli, options)
    other = any(options[name] != getattr(AnalysisSpec, name) for name in ADVANCED)
    with st.expander("Advanced", icon=":material/settings:", expanded=other):
        _side_by_side(ADVANCED[:2], ADVANCED[2:], stimuli, options)


def _side_by_side(
    left: Sequence[str],
    right: Sequence[str],
    stimuli: StimulusSet | None,
    options: dict[str, Any],
) -> None:
    for place, names in zip(st.columns(2, gap="large"), (left, right), strict=True):
        with place:
            for name in names:
                if name != "values":
                    _field(name)
                elif stimuli is not None:
                    _show_values(stimuli, options)


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

"""More options: how the analysis is computed, read from the state and drawn into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.estimators.registry import check_values
from pages.form import state
from pages.parts import choices, method, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.data.stimuli import StimulusSet

# Fields of `AnalysisSpec` as they stand in the form, left and right; `ADVANCED` are folded away.
LEFT = (
    "layers", "groups", "labels", "trajectories", "missing", "values", "folds", "folds_over",
    "seed", "pairs",
)  # fmt: skip
RIGHT = ("estimator", "interactions", "distance", "special_tokens", "dtype")
ADVANCED = ("pooling", "positions", "units", "half", "device")
# Which values are told apart depends on the others, where it is not chosen.
_READ = tuple(name for name in (*LEFT, *RIGHT, *ADVANCED) if name != "values")
# What decides which values had better be told apart.
_CODED = ("missing", "interactions", "folds", "folds_over", "seed", "estimator")


def chosen(stimuli: StimulusSet | None) -> dict[str, Any]:
    """The fields of `AnalysisSpec` that are chosen here; the default for a text that is none."""
    from mlem_core.analysis.spec import AnalysisSpec

    options: dict[str, Any] = {}
    for name in _READ:
        try:
            options[name] = state.value_of(name)
        except InputError:
            options[name] = getattr(AnalysisSpec, name)
    names, recommended = _values_to_tell_apart(stimuli, options)
    apart = choices.get_many("values", names, recommended)
    return options | {"values": tuple(name for name in names if name in apart)}


def wrong(options: dict[str, Any]) -> str:
    """What of the options does not go together, or is none; empty where all does."""
    try:
        check_values(options["estimator"], options["values"], options["interactions"])
        for name in _READ:
            state.value_of(name)
    except InputError as error:
        return str(error)
    return ""


def show_options(stimuli: StimulusSet | None, options: dict[str, Any]) -> None:
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
                    field(name)
                elif stimuli is not None:
                    _show_values(stimuli, options)


def field(name: str) -> None:
    """Draw the widget of a field of `AnalysisSpec`."""
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    described, default = parameters()[name], getattr(AnalysisSpec, name)
    if isinstance(default, bool) or described.choices is not None:
        method.choose(name)
    elif described.parse is int and described.range is not None:
        choices.whole_number(described.label, name, default, *described.range, help=described.text)
    else:
        help = described.text + " Several are parted by semicolons." * described.repeated
        choices.text_field(described.label, name, placeholder=described.metavar, help=help)


def _values_to_tell_apart(
    stimuli: StimulusSet | None, options: dict[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """The features whose values can be told apart, and those whose values had better be."""
    if stimuli is None:
        return [], ()
    try:
        return _values(stimuli.digest, {name: options[name] for name in _CODED}, stimuli)
    except InputError:
        return [], ()  # what is wrong is said where the checks are


@stored.kept(32, copied=True, show_spinner="Looking at the stimuli …")
def _values(
    digest: str, options: dict[str, Any], _stimuli: StimulusSet
) -> tuple[list[str], tuple[str, ...]]:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.analysis.values import recommended_values, resolvable

    return resolvable(_stimuli), recommended_values(_stimuli, AnalysisSpec(**options))


def _show_values(stimuli: StimulusSet, options: dict[str, Any]) -> None:
    names, recommended = _values_to_tell_apart(stimuli, options)
    now = choices.choose_many(
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

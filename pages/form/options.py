"""More options: how the analysis is computed, read from the state and drawn into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.estimators.registry import check_values
from mlem_core.pairs.columns import AUTO
from pages.form import state
from pages.parts import choices, method, stored

if TYPE_CHECKING:
    from mlem_core.data.stimuli import StimulusSet

# Fields of `AnalysisSpec` as they stand in the form, left and right; `ADVANCED` are folded away.
LEFT = (
    "layers", "groups", "labels", "trajectories", "property_groups", "resampled_whole", "missing",
    "values", "folds", "folds_over", "seed", "pairs",
)  # fmt: skip
RIGHT = (
    "as_in", "estimator", "interactions", "distance", "already_squared", "special_tokens", "dtype",
)  # fmt: skip
ADVANCED = ("pooling", "positions", "units", "half", "device")
_READ = tuple(name for name in (*LEFT, *RIGHT, *ADVANCED) if name != "values")


def chosen(stimuli: StimulusSet | None) -> dict[str, Any]:
    """The fields of `AnalysisSpec` that are chosen here; the default for a text that is none."""
    from mlem_core.analysis.spec import AnalysisSpec

    options: dict[str, Any] = {}
    for name in _READ:
        try:
            options[name] = state.value_of(name)
        except InputError:
            options[name] = getattr(AnalysisSpec, name)
    if stimuli is not None:
        apart = choices.get_many("values", _offered(stimuli.digest, stimuli), AnalysisSpec.values)
        # What is named counts.
        options["values"] = tuple(name for name in apart if apart == [*AUTO] or name not in AUTO)
    # Where they are those of a paper, an analysis has them in the place of its defaults.
    spec = AnalysisSpec(**options)
    return {name: getattr(spec, name) for name in (*_READ, "values")}


def wrong(options: dict[str, Any]) -> str:
    """Error in the options, alone or together; empty where there is none."""
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
        _side_by_side(LEFT, RIGHT, stimuli)
    other = any(options[name] != getattr(AnalysisSpec, name) for name in ADVANCED)
    with st.expander("Advanced", icon=":material/settings:", expanded=other):
        _side_by_side(ADVANCED[:2], ADVANCED[2:], stimuli)


def _side_by_side(left: Sequence[str], right: Sequence[str], stimuli: StimulusSet | None) -> None:
    for place, names in zip(st.columns(2, gap="large"), (left, right), strict=True):
        with place:
            for name in names:
                field(name, stimuli)


def field(name: str, stimuli: StimulusSet | None = None) -> None:
    """Draw the widget of a field of `AnalysisSpec`; of `values` only where there are stimuli."""
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    described, default = parameters()[name], getattr(AnalysisSpec, name)
    more = {"placeholder": described.metavar, "help": described.text}
    if isinstance(default, bool) or described.choices is not None:
        method.choose(name)
    elif described.parse is int and described.range is not None:
        choices.whole_number(described.label, name, default, *described.range, help=described.text)
    elif name == "values":
        if stimuli is not None:
            offered = _offered(stimuli.digest, stimuli)
            choices.choose_many(described.label, offered, name, default, **more)
    else:
        more["help"] += " Several are parted by semicolons." * described.repeated
        choices.text_field(described.label, name, **more)


@stored.kept(32, copied=True)
def _offered(digest: str, _stimuli: StimulusSet) -> list[str]:
    """Choices for coding by value: that it is left to the analysis, or features."""
    from mlem_core.analysis.defaults import resolvable

    return [*AUTO, *resolvable(_stimuli)]

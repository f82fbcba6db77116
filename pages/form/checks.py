"""What a careful colleague would say about the stimuli before a run, and what a run would need."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from pages.parts import stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.diagnostics import Finding, Lint
    from mlem_core.data.stimuli import StimulusSet

ICONS = {"problem": "error", "caution": "warning", "note": "info"}
COLORS = {"problem": "red", "caution": "orange", "note": "gray"}
_CODED = ("missing", "interactions", "folds", "folds_over", "seed")
MOST_NAMED = 8


@stored.kept(32, copied=True, show_spinner="Looking at the stimuli …")
def _lint(digest: str, options: str, _stimuli: StimulusSet) -> Lint:
    from mlem_core.analysis.diagnostics import lint
    from mlem_core.analysis.spec import AnalysisSpec

    return lint(_stimuli, AnalysisSpec(**json.loads(options)))


def findings(stimuli: StimulusSet, options: dict[str, Any]) -> Lint:
    """What is to be known about stimuli with the features of an analysis.

    Parameters
    ----------
    options : fields of `AnalysisSpec`

    Raises
    ------
    InputError
        As `mlem_core.analysis.diagnostics.lint`.
    """
    asked = {name: options[name] for name in (*_CODED, "values")}
    return _lint(stimuli.digest, json.dumps(asked), stimuli)


@stored.kept(32, copied=True, show_spinner="Looking at the stimuli …")
def _values(digest: str, options: str, _stimuli: StimulusSet) -> tuple[list[str], tuple[str, ...]]:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.analysis.values import recommended_values, resolvable

    return resolvable(_stimuli), recommended_values(_stimuli, AnalysisSpec(**json.loads(options)))


def values_to_tell_apart(
    stimuli: StimulusSet, options: dict[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """The features whose values can be told apart, and those whose values had better be.

    Parameters
    ----------
    options : fields of `AnalysisSpec`
    """
    asked = {name: options[name] for name in (*_CODED, "estimator")}
    try:
        return _values(stimuli.digest, json.dumps(asked), stimuli)
    except InputError:
        return [], ()  # what is wrong is said where the checks are


def text_of(finding: Finding) -> str:
    """A finding as Markdown, with its rows where these are few or the first ones say enough."""
    rows = ", ".join(f"{row:,}" for row in finding.rows[:MOST_NAMED])
    more = " …" if len(finding.rows) > MOST_NAMED else ""
    where = f" (row{'s' if len(finding.rows) > 1 else ''} {rows}{more})" if rows else ""
    return plain(finding.sentence.removesuffix(".") + where + ".")


def say(finding: Finding) -> None:
    """A finding as a line of its own."""
    color, icon = COLORS[finding.severity], ICONS[finding.severity]
    st.markdown(f":{color}[:material/{icon}:] :small[{text_of(finding)}]")

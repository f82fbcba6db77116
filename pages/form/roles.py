"""Step 2, Roles: what each column is, automatic features, and what the checks found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.figures.stimuli import feature_correlations
from mlem_core.representations.registry import MODELS, packaged
from mlem_core.stimuli.candidates import CANDIDATES, SURPRISAL, added_column, added_features
from mlem_core.stimuli.columns import cell_text
from mlem_core.stimuli.roles import ROLES
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.stimuli.table_warnings import Lint
from pages.form import findings, state
from pages.form.distances import show_distance_features
from pages.form.draft import FEATURES, Draft, change_roles, column_vectors, settle
from pages.parts import choices, stored
from pages.parts.choices import inform, plain

WIDTHS = (4, 3, 6)
MOST_LINES = 60
# Color and icon of each severity.
SIGNS = {"problem": ("red", "error"), "caution": ("orange", "warning"), "note": ("gray", "info")}
# What the checks depend on.
_CHECKED = ("missing", "interactions", "folds", "folds_over", "seed", "values")
ROLE_NAMES = {
    "word": "word",
    "word_index": "position of the word",
    "ordered": "numeric feature",
    "nominal": "categorical feature",
    "sentence_id": "keeps together",
    "order": "order of presentation",
    "split": "fold",
    "start_idx": "first character",
    "end_idx": "character after it",
    "ignore": "no feature",
    "vector": "vector",
    "rdm": "distance matrix",
}


def show_roles(draft: Draft, lint: Lint | None, wrong: str) -> None:
    """Draw the step; `lint` is None where the stimuli cannot be used, `wrong` says why."""
    if draft.error and draft.at == "read":
        inform("The columns are shown once the file can be read; see step 1.")
        return
    if wrong:
        st.error(plain(wrong), icon=":material/error:")
    if lint is not None:
        _show_findings(draft, lint)
    _show_columns(draft)
    _show_automatic(draft)
    show_distance_features(draft)


def _show_findings(draft: Draft, lint: Lint) -> None:
    """What the checks found, a line for each kind, and the choice that changes it."""
    assert draft.stimuli is not None
    lines = [
        (*SIGNS[group[0].severity], findings.sentence(group))
        + findings.change(group, draft.stimuli, state.field_value("folds"))
        for group in findings.grouped(lint.findings)
    ]
    for text in choices.get("merge_rare") or []:
        column = text.rpartition("=")[0]
        left = tuple(pair for pair in choices.get("merge_rare") or [] if pair != text)
        said = f"Rare values of {column} are merged."
        lines.append(("gray", "check", said, f"Keep those of {column}", "merge_rare", left))
    if not lines:
        st.caption(":material/check: The checks found nothing.")
    for color, icon, said, label, option, values in lines:
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.markdown(f":{color}[:material/{icon}:] :small[{plain(said)}]", width="content")
            if label:
                st.button(
                    plain(label),
                    key=f"form {label}",
                    type="tertiary",
                    icon=":material/check:",
                    on_click=partial(settle, draft, option, values),
                )
    if any(finding.kind == "correlated" for finding in lint.findings):
        with st.expander("Correlations of features", icon=":material/grid_on:"):
            st.plotly_chart(
                feature_correlations(lint.correlations),
                key="lint correlations",
                config={"displaylogo": False},
                alt="Pearson correlations of the distances of features",
            )


def _show_columns(draft: Draft) -> None:
    with st.container(gap="xsmall"):
        for column in list(draft.roles)[:MOST_LINES]:
            _show_column(draft, column)
        added = [*map(added_column, getattr(draft.source, "add", ()))]
        for part in ("vectors", "rdms"):
            added += dict(getattr(draft.source, part, ()))
        for name in dict.fromkeys(added):
            _show_added(draft, name)
    if len(draft.roles) > MOST_LINES:
        rest = ", ".join(list(draft.roles)[MOST_LINES:])
        st.caption(plain(f"These columns keep the role that is guessed: {rest}"))


def _show_column(draft: Draft, column: str) -> None:
    assert draft.cells is not None
    name, role, values = st.columns(WIDTHS, vertical_alignment="center")
    name.markdown(f"**{plain(column)}**")
    options = list(ROLES) if draft.kind == "table" else [*FEATURES, "ignore"]
    with role:
        st.selectbox(
            f"Role of {column}",
            options,
            format_func=lambda one: ROLE_NAMES.get(one, one),
            label_visibility="collapsed",
            help="  \n".join(f"**{ROLE_NAMES.get(one, one)}**: {ROLES[one]}" for one in options),
            **choices.bound(
                f"form role {column} {draft.name}",
                draft.roles[column],
                lambda role: change_roles(draft, {column: role}),
            ),
        )
    part = "".join(f" A part of the vector {vector}." for vector in column_vectors(draft, column))
    values.caption(plain(_some_values(draft.cells[column]) + part))


def _show_added(draft: Draft, name: str) -> None:
    column, role, place = st.columns(WIDTHS, vertical_alignment="center")
    column.markdown(f"**{plain(name)}**")
    values, kind = "computed when it runs", ""
    if draft.stimuli is not None and name not in draft.later:
        kind = {f.name: f.kind for f in draft.stimuli.features}.get(name, "")
        values = _some_values(draft.stimuli.table[name]) if name in draft.stimuli.table else ""
    role.markdown(f"{ROLE_NAMES.get(kind, 'numeric feature')} :gray[(added)]")
    place.caption(plain(values))


def _some_values(cells: pd.Series[Any]) -> str:
    texts = (cell_text(cell) for cell in cells.head(200))
    values = list(dict.fromkeys(text for text in texts if text))
    first: list[str] = []
    for value in values[:4]:
        if sum(map(len, first)) < 40:
            first.append(value[:60] + "…" * (len(value) > 60))
    return ", ".join(first) + (" …" if len(values) > len(first) else "")


def _show_automatic(draft: Draft) -> None:
    """Features that follow from the stimuli, as toggles."""
    chosen = choices.get("add") or []
    there = set(draft.base.table.columns) if draft.base is not None else set()
    words = draft.base is None or draft.base.level == "word"
    addable = added_features()
    if not addable or (draft.base is not None and draft.base.level == "stimulus"):
        return
    offered = [
        name
        for name, added in addable.items()
        if name not in there and (words or not added.words_only)
    ]
    if words and SURPRISAL in CANDIDATES:
        offered += [f"{SURPRISAL}:{name}" for name in packaged() if MODELS[name].causal]
    options = list(dict.fromkeys([*offered, *chosen]))

    def label(name: str) -> str:
        what, colon, model = name.partition(":")
        named = addable[what].label.removeprefix("the ") if what in addable else plain(what)
        return f"{what.replace('_', ' ')} in {model}" if colon else named

    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.pills(
            "Automatic features",
            options,
            selection_mode="multi",
            wrap=True,
            format_func=label,
            help="They follow from the words. Surprisal is computed when the analysis runs.",
            **choices.bound(
                f"form add {draft.name}",
                [name for name in options if name in chosen],
                partial(choices.put, "add"),
            ),
        )
        if any(addable[name].languages for name in chosen if name in addable):
            state.field("language")


def check_draft(draft: Draft, options: dict[str, Any]) -> tuple[Lint | None, str]:
    """Findings about the stimuli, and the error that the options make with them."""
    stimuli = draft.stimuli
    if stimuli is None:
        return None, ""
    try:
        lint = _lint(stimuli.digest, {name: options[name] for name in _CHECKED}, stimuli)
    except InputError as error:
        return None, str(error)
    # Stimuli that cannot be put into the folds are refused before a run, not by it.
    stop = [f for f in lint.findings if (f.kind, f.severity) == ("folds", "problem")]
    rest = [finding for finding in lint.findings if finding not in stop]
    return replace(lint, findings=rest), stop[0].sentence if stop else ""


@stored.kept(32, copied=True, show_spinner="Looking at the stimuli …")
def _lint(digest: str, options: dict[str, Any], _stimuli: StimulusSet) -> Lint:
    return lint(_stimuli, AnalysisSpec(**options))

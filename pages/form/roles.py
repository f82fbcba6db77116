"""Step 2, Roles: what each column is, with the checks beside the column that they are about."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.text import many
from mlem_core.figures.stimuli import feature_correlations
from mlem_core.representations.registry import MODELS, packaged
from mlem_core.stimuli.candidates import CANDIDATES, SURPRISAL, added_column, added_features
from mlem_core.stimuli.columns import cell_text
from mlem_core.stimuli.roles import ROLES
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.stimuli.table_warnings import Lint, StimulusFinding
from pages.form.draft import FEATURES, Draft, change_roles, column_vectors, show_given
from pages.parts import choices, stored
from pages.parts.choices import inform, plain

WIDTHS = (4, 3, 6)
MOST_LINES = 60
MOST_NAMED = 8  # rows of a finding
# Color and icon of each severity.
SIGNS = {"problem": ("red", "error"), "caution": ("orange", "warning"), "note": ("gray", "info")}
# What the checks depend on.
_CHECKED = ("missing", "interactions", "folds", "folds_over", "seed", "values")
ROLE_NAMES = {
    "word_index": "which word",
    "ordered": "numeric feature",
    "nominal": "categorical feature",
    "sentence_id": "keeps together",
    "word": "word, checked",
    "start_idx": "first character",
    "end_idx": "character after it",
    "ignore": "no feature",
    "vector": "vector",
    "rdm": "RDM",
}


def show_roles(draft: Draft, lint: Lint | None, wrong: str) -> None:
    """Draw the step; `lint` is None where the stimuli cannot be used, `wrong` says why."""
    if draft.error and draft.at == "read":
        inform("The columns are shown once the file can be read; see step 1.")
        return
    if wrong:
        st.error(plain(wrong), icon=":material/error:")
    findings = [] if lint is None else lint.findings
    _free(draft)
    show_given(draft)
    _lines(draft, findings)
    if lint is not None:
        _general_findings(lint)


def _lines(draft: Draft, findings: list[StimulusFinding]) -> None:
    def about(name: str) -> list[StimulusFinding]:
        return [finding for finding in findings if finding.features == (name,)]

    with st.container(gap="xsmall"):
        with st.container(key="roles head"):
            heads = zip(st.columns(WIDTHS, wrap=False), ("Column", "Role", "Checks"), strict=True)
            for place, title in heads:
                place.caption(f"**{title}**")
        for column in list(draft.roles)[:MOST_LINES]:
            _line(draft, column, about(column))
        added = list(map(added_column, getattr(draft.source, "add", ())))
        for part in ("vectors", "rdms"):
            added += dict(getattr(draft.source, part, ()))
        for name in dict.fromkeys(added):
            _added_line(draft, name, about(name))
    if len(draft.roles) > MOST_LINES:
        st.caption(
            f"{len(draft.roles) - MOST_LINES} more columns keep the role that is guessed: "
            + plain(", ".join(list(draft.roles)[MOST_LINES:]))
        )


def _line(draft: Draft, column: str, findings: list[StimulusFinding]) -> None:
    assert draft.cells is not None
    cells = draft.cells[column]
    name, role, about = st.columns(WIDTHS, vertical_alignment="top")
    with name:
        st.markdown(f"**{plain(column)}**  \n:small[:gray[{plain(_some_values(cells))}]]")
    options = list(ROLES) if draft.kind == "table" else [*FEATURES, "ignore"]
    now = draft.roles[column]
    with role:
        st.selectbox(
            f"Role of {column}",
            options,
            format_func=lambda one: ROLE_NAMES.get(one, one),
            label_visibility="collapsed",
            help="  \n".join(f"**{ROLE_NAMES.get(one, one)}**: {ROLES[one]}" for one in options),
            **choices.bound(
                f"form role {column} {draft.name}",
                now,
                lambda role: change_roles(draft, {column: role}),
            ),
        )
    with about:
        for vector in column_vectors(draft, column):
            st.caption(f"A part of the vector {plain(vector)}.")
        _say(findings)


def _added_line(draft: Draft, name: str, findings: list[StimulusFinding]) -> None:
    column, role, about = st.columns(WIDTHS)
    later = name in draft.later
    values = "computed when it runs"
    if not later and draft.stimuli is not None and name in draft.stimuli.table:
        values = _some_values(draft.stimuli.table[name])
    column.markdown(f"**{plain(name)}**  \n:small[:gray[{plain(values)}]]")
    kinds = {} if draft.stimuli is None else {f.name: f.kind for f in draft.stimuli.features}
    role.markdown(f"{ROLE_NAMES.get(kinds.get(name, ''), 'numeric feature')} :gray[(added)]")
    with about:
        _say(findings)


def _say(findings: list[StimulusFinding]) -> None:
    """Findings as lines, with their rows where these are few or the first ones say enough."""
    for finding in findings:
        color, icon = SIGNS[finding.severity]
        rows = ", ".join(f"{row:,}" for row in finding.rows[:MOST_NAMED])
        more = " …" if len(finding.rows) > MOST_NAMED else ""
        where = f" (row{'s' if len(finding.rows) > 1 else ''} {rows}{more})" if rows else ""
        text = plain(finding.sentence.removesuffix(".") + where + ".")
        st.markdown(f":{color}[:material/{icon}:] :small[{text}]")


def _some_values(cells: pd.Series[Any]) -> str:
    texts = (cell_text(cell) for cell in cells.head(200))
    values = list(dict.fromkeys(text for text in texts if text))
    first: list[str] = []
    for value in values[:4]:
        if sum(map(len, first)) < 40:
            first.append(value[:60] + "…" * (len(value) > 60))
    return ", ".join(first) + (" …" if len(values) > len(first) else "")


def _free(draft: Draft) -> None:
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
    now = [name for name in options if name in chosen]

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
            help="They follow from the words themselves; surprisal is computed in a causal model "
            "when the analysis runs.",
            **choices.bound(f"form add {draft.name}", now, partial(choices.put, "add")),
        )
        languages = [addable[name].languages for name in chosen if name in addable]
        if language_codes := next(filter(None, languages), None):
            name = "language"
            choices.choose_one(
                "Language of frequencies",
                language_codes(),
                name,
                getattr(AnalysisSpec, name),
                width=180,
                help="Of the word list that log frequencies are from, by its code.",
            )


def _general_findings(lint: Lint) -> None:
    """Findings that are about no single column."""
    if not lint.findings:
        st.caption(":material/check: Nothing in the stimuli stands in the way.")
    rest = [one for one in lint.findings if len(one.features) != 1]
    if not rest:
        return
    grave = any(finding.severity == "problem" for finding in rest)
    title = f"{many(len(rest), 'thing')} to know about the stimuli as a whole"
    _, icon = SIGNS[rest[0].severity]
    with st.expander(title, icon=f":material/{icon}:", expanded=grave):
        _say(rest)
        if any(finding.kind == "correlated" for finding in rest):
            st.plotly_chart(
                feature_correlations(lint.correlations),
                key="lint correlations",
                config={"displaylogo": False},
                alt="Correlations between the feature distances",
            )
            st.caption(
                "Pearson correlation of the distances of two features, over the pairs of "
                f"{lint.n_stimuli:,} stimuli. Above 0.3, or below −0.3, the importances of the two "
                "are hard to separate."
            )


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

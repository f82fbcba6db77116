"""The part of the form about stimuli: a set is chosen or uploaded, and its columns get roles."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from pages.parts import choices, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    import pandas as pd

    from mlem_core.analysis.diagnostics import Lint
    from mlem_core.data.reading.table import Table
    from mlem_core.data.stimuli import StimulusSet

LEVELS = {"word": "words in their sentences", "sentence": "whole sentences"}
ROLE_ICONS = {"problem": "error", "caution": "warning", "note": "info"}


@st.cache_resource(max_entries=8, show_spinner="Reading the stimuli …")
def read(name: str) -> StimulusSet:
    """The stimuli of a built-in set or of an upload."""
    from mlem_core.data import datasets
    from mlem_core.data.stimulus_csv import read_csv

    if name in datasets.SETS:
        return datasets.load(name)
    return read_csv(stored.upload_path(name))


@st.cache_resource(max_entries=8, show_spinner="Reading the table …")
def _table(name: str) -> Table:
    from mlem_core.data.reading.table import read_table

    return read_table(stored.upload_path(name))


def keep(file: Any) -> str:
    """Keep an uploaded file once; how the URL names it."""
    from mlem_core.tasks import analyses

    names = st.session_state.setdefault("uploads", {})
    if file.file_id not in names:
        path = analyses.keep_upload(file.getvalue(), file.name, stored.store())
        names[file.file_id] = stored.upload_name(path)
    return str(names[file.file_id])


def choose() -> tuple[StimulusSet | None, str]:
    """The chosen stimuli, and why they must not be run; empty where they may.

    None where they cannot be read. An upload that cannot be read stands in the way of a run on
    what was chosen before it: whoever uploads a file means that file.
    """
    from mlem_core.data import datasets

    place = st.container()
    file = st.file_uploader(
        "Your own stimuli (CSV)",
        type="csv",
        key="csv",
        help="One row a stimulus, with a header. One column holds the sentences; what the others "
        "are you can say once the file is here.",
    )
    # Above the table of columns: there it is seen.
    message = st.container()
    wrong = ""
    if file is not None:
        try:
            _roles(file)
        except InputError as error:
            wrong = f"{file.name}: {error}"
    options = list(datasets.SETS)
    for name in (*st.session_state.get("uploaded", []), choices.get_one("stimuli", options[0])):
        if name not in options:
            options.append(name)
    with place:
        chosen = choices.choose_one(
            "Stimulus set",
            options,
            "stimuli",
            options[0],
            format_func=lambda name: name.rpartition("/")[2],
            help="A built-in set, or a CSV that you have uploaded.",
        )
    if wrong:
        message.error(plain(wrong), icon=":material/error:")
    _examples()
    stimuli: StimulusSet | None = None
    try:
        stimuli = read(chosen)
    except InputError as error:
        with place:
            st.error(plain(error), icon=":material/error:")
    if stimuli is not None:
        with place:
            st.caption(
                f"{len(stimuli):,} stimuli ({LEVELS[stimuli.level]}), "
                f"{len(stimuli.features)} features: "
                + plain(", ".join(feature.name for feature in stimuli.features))
            )
    if file is not None and wrong:
        return stimuli, f"{file.name} cannot be used as it is: mend it, or take it away above."
    return stimuli, "" if stimuli is not None else "the stimuli cannot be read; choose others."


def _roles(file: Any) -> None:
    """What each column of an upload is: guessed, shown, and changed by the user.

    Raises
    ------
    InputError
        The table cannot be read, or is no stimulus set with these roles.
    """
    import pandas as pd

    from mlem_core.data import roles
    from mlem_core.tasks import analyses

    raw = keep(file)
    table = _table(raw)
    guessed = roles.guess_roles(table)
    with st.expander(f"Columns of {plain(file.name)}", icon=":material/view_column:",
                     expanded=True):  # fmt: skip
        edited = st.data_editor(
            pd.DataFrame(
                {
                    "column": list(guessed),
                    "role": list(guessed.values()),
                    "values": [_some_values(table.frame[name]) for name in guessed],
                }
            ),
            hide_index=True,
            disabled=["column", "values"],
            key=f"roles {raw}",
            column_config={
                "column": st.column_config.TextColumn("Column", help="As the file names it."),
                "role": st.column_config.SelectboxColumn(
                    "Role",
                    options=list(roles.ROLES),
                    required=True,
                    help="What the column is for; double-click to change it.",
                ),
                "values": st.column_config.TextColumn("Values", help="The first few of them."),
            },
        )
        st.caption("  \n".join(f"**{role}**: {means}" for role, means in roles.ROLES.items()))
    chosen = dict(zip(edited["column"], edited["role"], strict=True))
    done = st.session_state.setdefault("roles", {})
    if done.get(raw) == chosen:
        return
    stimuli = roles.apply_roles(replace(table, name=file.name), chosen)
    name = raw
    if chosen != guessed or not _as_it_is(raw, stimuli):
        name = stored.upload_name(
            analyses.keep_upload(roles.as_csv(stimuli), file.name, stored.store())
        )
    done[raw] = chosen
    uploaded = st.session_state.setdefault("uploaded", [])
    if name not in uploaded:
        uploaded.append(name)
    choices.choose_now("stimuli", [name])
    kinds = [feature.name for feature in stimuli.features if feature.kind == "ordered"]
    suggested = [f.name for f in read(name).features if f.kind == "ordered"]
    choices.choose_now("ordered", None if kinds == suggested else kinds)


def _as_it_is(name: str, stimuli: StimulusSet) -> bool:
    """Whether the file, read as a stimulus CSV, is this set already."""
    try:
        return read(name).digest == stimuli.digest
    except InputError:
        return False


def _some_values(cells: pd.Series[Any]) -> str:
    values = list(dict.fromkeys(str(cell) for cell in cells.head(200) if cell))
    return ", ".join(value[:40] for value in values[:4]) + (" …" if len(values) > 4 else "")


def _examples() -> None:
    from mlem_core.data import datasets, roles

    with st.popover(
        "Examples to start from",
        icon=":material/description:",
        help="A template of nine rows, and the built-in sets, as CSV.",
    ):
        st.download_button(
            "Template",
            data=roles.TEMPLATE,
            file_name="template.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
            help="Nine words of four sentences, to be replaced by yours.",
        )
        for name in datasets.SETS:
            st.download_button(
                name,
                data=partial(_as_csv, name),
                file_name=f"{name}.csv",
                mime="text/csv",
                icon=":material/download:",
                on_click="ignore",
                key=f"example {name}",
                help=f"The built-in set {name}, as the program uses it.",
            )


def _as_csv(name: str) -> bytes:
    from mlem_core.data import roles

    return roles.as_csv(read(name))


@st.cache_data(max_entries=32, show_spinner="Looking at the stimuli …")
def _values(name: str, options: str) -> tuple[list[str], tuple[str, ...]]:
    from mlem_core.analysis.spec import AnalysisSpec
    from mlem_core.analysis.values import recommended_values, resolvable

    asked = json.loads(options)
    stimuli = read(name).with_kinds(asked.pop("ordered"), asked.pop("nominal"))
    stimuli = stimuli.select(asked.pop("features"))
    return resolvable(stimuli), recommended_values(stimuli, AnalysisSpec(**asked))


def values_to_tell_apart(options: dict[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """The features whose values can be told apart, and those whose values had better be.

    Parameters
    ----------
    options : fields of `AnalysisSpec`
    """
    from mlem_core.data import datasets

    names = ("features", "ordered", "nominal", "missing", "interactions", "estimator")
    asked = {name: options[name] for name in (*names, "folds", "folds_over", "seed")}
    try:
        return _values(choices.get_one("stimuli", next(iter(datasets.SETS))), json.dumps(asked))
    except InputError:
        return [], ()  # what is wrong is said below


@st.cache_data(max_entries=32, show_spinner="Looking at the stimuli …")
def _lint(name: str, options: str) -> Lint:
    from mlem_core.analysis.diagnostics import lint
    from mlem_core.analysis.spec import AnalysisSpec

    asked = json.loads(options)
    stimuli = read(name).with_kinds(asked.pop("ordered"), asked.pop("nominal"))
    return lint(stimuli.select(asked.pop("features")), AnalysisSpec(**asked))


def tell(options: dict[str, Any]) -> None:
    """What a careful colleague would say about the stimuli before a run."""
    from mlem_core import figures
    from mlem_core.data import datasets

    names = ("features", "ordered", "nominal", "missing", "interactions", "values")
    asked = {name: options[name] for name in (*names, "folds", "folds_over", "seed")}
    if asked["features"] == ():
        return
    chosen = choices.get_one("stimuli", next(iter(datasets.SETS)))
    lint = _lint(chosen, json.dumps(asked))
    if not lint.findings:
        st.caption(":material/check: Nothing in the stimuli stands in the way.")
        return
    worst = lint.findings[0].severity
    n = len(lint.findings)
    with st.expander(
        f"{n} thing{'s' if n > 1 else ''} to know about these stimuli before a run",
        icon=f":material/{ROLE_ICONS[worst]}:",
        expanded=worst == "problem",
    ):
        for finding in lint.findings:
            rows = ", ".join(str(row) for row in finding.rows)
            where = f" (rows {rows})" if 0 < len(finding.rows) <= 8 else ""
            say = {"problem": st.error, "caution": st.warning, "note": st.info}[finding.severity]
            say(plain(finding.sentence + where), icon=f":material/{ROLE_ICONS[finding.severity]}:")
        if any(finding.kind == "correlated" for finding in lint.findings):
            st.plotly_chart(
                figures.feature_correlations(lint.correlations),
                key="lint correlations",
                config={"displaylogo": False},
                alt="Correlations between the feature distances",
            )
            st.caption(
                "Pearson correlation of the distances of two features, over the pairs of "
                f"{lint.n_stimuli:,} stimuli. Above 0.3, or below −0.3, the importances of the "
                "two are hard to tell apart."
            )

"""Features given by distances: several columns that are one vector, and an RDM from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.errors import InputError
from pages.form import state
from pages.parts import choices, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.form.draft import Draft

MOST_MB = 500


def of_column(draft: Draft, column: str) -> list[str]:
    """The vectors that a column is a part of."""
    there = () if draft.source is None else draft.source.vectors
    return [
        name
        for name, columns in there
        for one in columns
        if one == column or (one.endswith("*") and column.startswith(one[:-1]))
    ]


def show(draft: Draft) -> None:
    """Draw what is added, each with its way out, and what adds more."""
    there = [*dict(state.vectors()), *state.rdm_uploads()]
    title = "Features given by distances"
    with st.expander(title, icon=":material/straighten:", expanded=bool(there)):
        for name, columns in state.vectors():
            _line("vectors", name, f"vector of {', '.join(columns)}")
        for name, file in state.rdm_uploads().items():
            _line("rdms", name, f"RDM {file.rpartition('/')[2]}")
        one, other = st.columns(2)
        with one:
            _take_columns(draft)
        with other:
            _take_file()


def _line(which: str, name: str, what: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(name)}** :gray[{plain(what)}]")
        st.button(
            "Take away",
            key=f"form {which} away {name}",
            icon=":material/close:",
            type="tertiary",
            on_click=lambda: _put(which, name, None),
            help="The analysis goes without this feature.",
        )


def _put(which: str, name: str, value: str | None) -> None:
    others = [one for one in choices.get(which) or [] if one.partition("=")[0] != name]
    choices.put(which, [*others, f"{name}={value}"] if value is not None else others)


def _take_columns(draft: Draft) -> None:
    """Ordered columns and a name, made into one vector."""
    parts = [one for _, columns in state.vectors() for one in columns]
    offered = [
        column
        for column, role in draft.roles.items()
        if role == "ordered" and column not in parts and column not in draft.bins
    ]
    with st.form(f"form vector {draft.name}", clear_on_submit=True, border=False):
        chosen = st.multiselect(
            "Ordered columns that are one vector",
            offered,
            placeholder="Two columns or more",
            help="Such as the numbers of an embedding. Their distance is Euclidean, of the numbers "
            "as they are, and scaled to [0, 1]; the columns are then no features of their own.",
        )
        name = st.text_input("Name of the vector", placeholder="semantics")
        if st.form_submit_button("Make one feature", icon=":material/join_inner:"):
            new = _name(name or "vector")
            if chosen:
                _put("vectors", new, ",".join(chosen))
                st.rerun()


def _take_file() -> None:
    times = st.session_state.setdefault("rdms taken", 0)
    key = f"form rdm {times}"
    st.file_uploader(
        "An RDM from a file (.npy, .csv)",
        type=["npy", "csv", "tsv", "txt"],
        key=key,
        on_change=lambda: _take(key),
        max_upload_size=stored.largest_upload(MOST_MB),
        help="Distances between the stimuli that are a feature of their own, such as ratings: a "
        "square matrix in the order of the stimuli, or with names (words, items) in its first row "
        "and column. They are scaled to [0, 1].",
    )
    if st.session_state.get("refused rdm"):
        st.error(plain(st.session_state["refused rdm"]), icon=":material/error:")


def _take(key: str) -> None:
    """Add what was uploaded; what is wrong with it is said above the columns."""
    from mlem_core.tasks import analyses

    st.session_state.pop("refused rdm", None)
    one = st.session_state[key]
    if one is None:
        return
    try:
        path = analyses.keep_upload(one.getvalue(), one.name, stored.store())
    except InputError as error:
        st.session_state["refused rdm"] = str(error)
        return
    _put("rdms", _name(Path(one.name).stem), stored.upload_name(path))
    # An empty uploader for the next one: what is added stands above it.
    st.session_state["rdms taken"] += 1


def _name(asked: str) -> str:
    """A name that no feature that is added has."""
    # An equals sign parts the name from the rest in the URL.
    plainly = asked.replace("=", " ").strip().lstrip("_") or "feature"
    taken, number, new = {*dict(state.vectors()), *state.rdm_uploads()}, 1, plainly
    while new in taken:
        number += 1
        new = f"{plainly} {number}"
    return new

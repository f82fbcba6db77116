"""Features given by distances: several columns that are one vector, and an RDM from a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

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


def show_given(draft: Draft) -> None:
    """Draw what is added, each with its way out, and what adds more."""
    vectors, rdms = state.pairs("vectors"), state.pairs("rdms")
    title = "Features given by distances"
    with st.expander(title, icon=":material/straighten:", expanded=bool(vectors or rdms)):
        for name, columns in vectors.items():
            _line("vectors", name, f"vector of {', '.join(columns)}")
        for name, file in rdms.items():
            _line("rdms", name, f"RDM {file.rpartition('/')[2]}")
        left, right = st.columns(2)
        with left:
            _take_columns(draft)
        with right:
            _take_file()


def _line(which: str, name: str, what: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(name)}** :gray[{plain(what)}]")
        st.button(
            "Take away",
            key=f"form {which} away {name}",
            icon=":material/close:",
            type="tertiary",
            on_click=partial(_put, which, name),
            help="The analysis goes without this feature.",
        )


def _put(which: str, name: str, value: object = None) -> None:
    """Give a vector its columns, or an RDM its file; without any it goes."""
    others = {other: its for other, its in state.pairs(which).items() if other != name}
    choices.put(which, state.texts_of(others | ({name: value} if value else {})))


def _new_name(typed: str) -> str:
    taken = {*state.pairs("vectors"), *state.pairs("rdms")}
    return state.own_name(typed.lstrip("_ "), taken, "feature")


def _take_columns(draft: Draft) -> None:
    """Ordered columns and a name, made into one vector."""
    parts = [one for columns in state.pairs("vectors").values() for one in columns]
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
            if chosen:
                _put("vectors", _new_name(name or "vector"), tuple(chosen))
                st.rerun()


def _take_file() -> None:
    state.uploader(
        "An RDM from a file (.npy, .csv)",
        "form rdm",
        _take,
        most_mb=MOST_MB,
        type=["npy", "csv", "tsv", "txt"],
        help="Distances between the stimuli as a feature of their own, such as ratings. A square "
        "matrix in the order of the stimuli, or with names (words, items) in its first row and "
        "column. They are scaled to [0, 1].",
    )
    state.say_refused("form rdm")


def _take(file: Any) -> None:
    """Add what was uploaded; problems with it stand above the columns."""
    from mlem_core.tasks import analyses

    path = analyses.keep_upload(file.getvalue(), file.name, stored.store())
    _put("rdms", _new_name(Path(file.name).stem), stored.upload_name(path))

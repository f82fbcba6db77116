"""Features whose distances are given: columns that are one vector, and uploaded matrices."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from mlem_core.stimuli.formats import STEPS
from pages.form import state
from pages.form.draft import Draft, column_vectors
from pages.parts import stored
from pages.parts.choices import plain


def show_distance_features(draft: Draft) -> None:
    """Draw those that are added, each with its way out, and what adds more."""
    if not {"vectors", "rdms"} <= {*STEPS}:
        return
    vectors, rdms = state.pairs("vectors"), state.pairs("rdms")
    title = "Upload a feature as a distance matrix"
    with st.expander(title, icon=":material/straighten:", expanded=bool(vectors or rdms)):
        lines = [("vectors", name, f"vector of {', '.join(of)}") for name, of in vectors.items()]
        for name, file in rdms.items():
            lines.append(("rdms", name, f"distance matrix {file.rpartition('/')[2]}"))
        for part, name, what in lines:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{plain(name)}** :gray[{plain(what)}]")
                out = partial(state.put_pair, part, name)
                state.take_away(f"form {part} away {name}", "feature", out)
        left, right = st.columns(2)
        with left:
            state.uploader(
                "A distance matrix (.npy, .csv)",
                "form rdm",
                _take_matrix,
                type=["npy", "csv", "tsv", "txt"],
                help="Such as ratings. A square matrix in the order of the stimuli, or with their "
                "names (or those of items) in its first row and column. It is scaled to [0, 1].",
            )
        with right:
            _take_columns(draft)


def _new_name(typed: str) -> str:
    taken = {*state.pairs("vectors"), *state.pairs("rdms")}
    return state.own_name(typed.lstrip("_ "), taken, "feature")


def _take_columns(draft: Draft) -> None:
    """Numeric columns and a name, made into one vector."""
    offered = [
        column
        for column, role in draft.roles.items()
        if role == "ordered" and not column_vectors(draft, column)
    ]
    with st.form(f"form vector {draft.name}", clear_on_submit=True, border=False):
        columns = st.multiselect(
            "Numeric columns that are one vector",
            offered,
            placeholder="Two columns or more",
            help="Such as an embedding: stimuli differ by its Euclidean distance.",
        )
        name = st.text_input("Name of the vector", placeholder="semantics")
        if st.form_submit_button("Make one feature", icon=":material/join_inner:") and columns:
            state.put_pair("vectors", _new_name(name or "vector"), tuple(columns))
            st.rerun()


def _take_matrix(file: Any) -> None:
    """Add what was uploaded; problems with it stand above the columns."""
    state.put_pair("rdms", _new_name(Path(file.name).stem), stored.keep_files(file))

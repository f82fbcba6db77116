"""A table of systems, whose models, files, groups and properties become choices of the form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from mlem_core.base.errors import InputError
from pages.form import state
from pages.parts import choices
from pages.parts.choices import plain


def take_table(choose: Callable[[list[str]], None], files: Sequence[str]) -> None:
    """Draw what takes a table.

    Parameters
    ----------
    choose : chooses models instead of those that are chosen
    files : names of the files of representations that are added
    """
    state.uploader(
        "Table of systems",
        "systems",
        partial(_take, choose, files),
        most_mb=1,
        type=["csv", "tsv", "txt"],
        help="A row for each model or added file, in the column `system`; `group` names groups, "
        "every other column is a property. `mlem systems` writes such a table, "
        "with `--preset families` that of 43 models of 10 families.",
    )


def _take(choose: Callable[[list[str]], None], files: Sequence[str], file: Any) -> None:
    from mlem_core.groups.properties import read_systems

    table = read_systems(file.getvalue(), file.name, files)
    choose(list(table.models))
    groups, labels = ("; ".join(state.texts_of(dict(one))) for one in (table.groups, table.labels))
    said = {"groups": groups, "labels": labels, "property_kinds": ""}
    choices.put_all({name: [one] if one else None for name, one in said.items()})


def show_properties(systems: Sequence[str]) -> None:
    """Draw the properties of these models and files, each with its kind, which can be changed."""
    from mlem_core.analysis.grouped import PROPERTY_KINDS, kinds_of, labels_of
    from mlem_core.groups.properties import kind_and_values

    try:
        cells = labels_of(state.value_of("groups"), state.value_of("labels"), systems)
        asked = dict(state.value_of("property_kinds"))
        guessed = {name: kind_and_values(own)[0] for name, own in cells.items()}
    except (InputError, KeyError):
        return  # the step says what is wrong
    if cells:
        st.caption("**Properties**: how many models have a value, and how values are compared.")
    for name, own in cells.items():
        place, kind = st.columns((3, 4), vertical_alignment="center")
        place.markdown(plain(f"{name.replace('_', ' ')} ({sum(map(bool, own))} of {len(own)})"))
        offered = list(dict.fromkeys([guessed[name], *kinds_of(own)]))
        with kind:
            st.selectbox(
                f"Kind of {name}",
                offered,
                format_func=lambda one: PROPERTY_KINDS.get(one, one),
                label_visibility="collapsed",
                **choices.bound(
                    f"kind of {name}",
                    asked.get(name, guessed[name]),
                    partial(_change, name, guessed[name]),
                ),
            )


def _change(name: str, guessed: str, kind: str) -> None:
    kinds = {**dict(state.value_of("property_kinds")), name: kind}
    texts = state.texts_of({of: one for of, one in kinds.items() if (of, one) != (name, guessed)})
    choices.put("property_kinds", ["; ".join(texts)] if texts else None)

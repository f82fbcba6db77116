"""A table of systems, whose models, files, groups and properties become choices of the form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core.base.errors import InputError
from pages.form import state
from pages.parts import choices

KINDS = {
    "date": "date",
    "number": "number",
    "log": "number, compared by its logarithm",
    "class": "class",
}


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
    choices.put_all(
        {"groups": [groups] if groups else None, "labels": [labels] if labels else None}
    )


def show_properties(systems: Sequence[str]) -> None:
    """Draw the properties of these models and files, each with its kind."""
    from mlem_core.analysis.grouped import labels_of
    from mlem_core.groups.properties import kind_and_values

    try:
        cells = labels_of(state.value_of("groups"), state.value_of("labels"), systems)
        kinds = {
            name: kind_and_values([one or None for one in own])[0] for name, own in cells.items()
        }
    except (InputError, KeyError):
        return  # the step says what is wrong
    if not cells:
        return
    rows = [
        {
            "property": name,
            "kind": KINDS[kinds[name]],
            "known": f"{sum(map(bool, own))} of {len(own)}",
        }
        for name, own in cells.items()
    ]
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, height="content", alt="Properties of the systems"
    )

"""Groups of models: mean profiles with their spread, what recipes share, and the tests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.report import group_captions as captions
from pages.parts import exporting, stored, uncertainty
from pages.parts.exporting import Panel
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results
    from pages.parts.view import View


def show(view: View, results: Results) -> None:
    """All that is said of groups; nothing where the analysis has none."""
    if not view.analysis.spec.of_population:
        return
    from mlem_core import figures
    from mlem_core.inference.all_layers import find_left
    from mlem_core.inference.recipes import recipes

    st.subheader("Groups of models")
    found = recipes(
        view.analysis,
        results,
        view.selection,
        bounds=uncertainty.of(view),
        left=find_left(view.analysis, stored.store(), view.selection),
    )
    for line in found.lines():
        st.markdown(plain(line))
    basis = view.caption(results)
    draw = partial(figures.group_profiles, found.profiles, view.all_features)
    Panel(
        draw(),
        found.profiles,
        "group-profiles",
        captions.group_profiles(basis),
        narrow=partial(draw, across=1),
        line="The mean importance profile of each group, with the spread over its members.",
        title="Mean profiles of the groups",
    ).show()
    if found.universality["universality"].notna().any():
        Panel(
            figures.universality(found.universality),
            found.universality,
            "universality",
            captions.universality(found.over, basis),
            line="How much of what members of a group share groups share too: 1 is as much.",
            title="Universality of the terms",
        ).show()
    exporting.show_table(
        found.similarity,
        "group-similarity",
        "Similarity within and between groups",
        captions.group_similarity(found.over),
    )

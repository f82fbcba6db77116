"""Pairs of layers that surprise, each a click away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.text import minus
from pages.parts import exporting, naming, navigation
from pages.parts.wording import plain

if TYPE_CHECKING:
    import pandas as pd

    from mlem_core.figures.context import FigureContext
    from pages.parts.view import View

KINDS = {
    "distances": "More similar by distances than by features",
    "features": "More similar by features than by distances",
    "unexplained": "Similar, and hardly explained by these features",
}


def show_surprises(view: View) -> None:
    """Pairs on which both similarities disagree, or that nothing explains."""
    from mlem_core.measures import decomposition as of

    shown = view.shown()
    if shown is None:
        return
    table = _table(shown)
    if table.empty:
        st.caption(f"None of the pairs stands out, or there are fewer than {of.FEWEST}.")
        return
    for kind, rows in table.groupby("kind", sort=False):
        st.markdown(f"**{KINDS[str(kind)]}**")
        for values in rows.to_dict("records"):
            row = {str(name): value for name, value in values.items()}
            a, b = row["layer_a"], row["layer_b"]
            said = f"{naming.layer(a)} and {naming.layer(b)}: {_numbers(row)}"
            if st.button(
                plain(said),
                key=f"surprise {kind} {a} {b}",
                type="tertiary",
                icon=":material/arrow_forward:",
                help="Shows these two layers.",
            ):
                navigation.open_why(view, a, b)
    exporting.show_table(
        table,
        "surprises",
        "As a table",
        "Of layers of different models (of one model: that are not neighbours), without pairs that "
        "the audit changes; a layer comes once a kind. Both similarities disagree where their "
        f"ranks differ by {of.APART:.0%} of the pairs, and both layers have a held-out ρ of "
        f"{of.PREDICTED} or more. Profiles in random order give the limit for τ. Hardly "
        f"explained: {of.NOT_EXPLAINED:.0%} or more of an RSA above the median. These "
        "limits are conventions, no tests. above: share of pairs that are below. "
        "Intervals of RSA hold for all pairs of layers at once.",
    )


def _numbers(row: Mapping[str, Any]) -> str:
    sure = " [{rsa_lower:.2f}, {rsa_upper:.2f}]".format(**row) if "rsa_lower" in row else ""
    if row["kind"] == "unexplained":
        return minus("RSA {rsa:.2f}{}, {unexplained:.0%} of it unexplained".format(sure, **row))
    text = "RSA {rsa:.2f}{} (above {above_rsa:.0%} of pairs), τ {tau:.2f} (above {above_tau:.0%})"
    return minus(text.format(sure, **row))


def _table(shown: FigureContext) -> pd.DataFrame:
    from mlem_core.figures.terms import decomposition
    from mlem_core.inference.largest import with_bounds
    from mlem_core.measures.decomposition import discordant_pairs

    results, layers = shown.results, list(shown.selection.layers)
    rho = results.scores.groupby(["model", "layer"])["rho"].mean()
    every = replace(shown, drawing=replace(shown.drawing, flags=True))
    found = discordant_pairs(
        decomposition(shown),
        results.similarity_profiles.to_numpy(),
        rho[layers].to_numpy(),
        layers,
        results.n_profile_features,
        {frozenset(pair) for pair in every.reasons("rsa")},
    )
    return found if shown.intervals is None else with_bounds(found, shown.intervals, layers)

"""The layer map, contributions by model, pairs that surprise, and parts of extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core import extending
from mlem_core.base.text import fraction, percent
from mlem_core.figures.captions import chance_sentence
from mlem_core.figures.context import FigureContext
from mlem_core.figures.terms import decomposition, models_alike
from mlem_core.inference.intervals import with_bounds
from mlem_core.measures import decomposition as of
from mlem_core.measures.decomposition import discordant_pairs
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from pages.parts import choices, exporting, frame, stored, uncertainty
from pages.parts.choices import drop_minus_zero, inform, plain
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.screens import SCREENS
from pages.parts.view import View, choose_similarity, has_pairs, look_at_layer, select_pair

KINDS = {
    "distances": "More similar by distances than by features",
    "features": "More similar by features than by distances",
    "unexplained": "Similar, and hardly explained by these features",
}


def _show_all_layers(view: View) -> None:
    """Figures of all layers together, a part at a time."""
    if not has_pairs(view):
        return
    part = choices.choose_part("Part", {name: title for name, (title, _) in PARTS.items()}, "part")
    frame.attempt(partial(PARTS[part][1], view))


def _maps(view: View) -> None:
    """Map of the layers."""

    def of_layers() -> None:
        panel = Panel.from_view(view, "layer_maps", "layer-map")
        if panel is not None:
            panel.on_click(partial(look_at_layer, view))

    frame.alone(of_layers)
    exporting.show_panels(view, "layer maps")
    exporting.show_tab(view, "all")


def _models_alike(view: View) -> None:
    similarity = choose_similarity(view).similarity
    if similarity.no_terms:
        inform(f"{similarity.no_terms} What follows is RSA.")
        similarity = SIMILARITIES[RSA]
    shown = view.shown(similarity=similarity.name)
    panel = Panel.from_view(view, "why_layers", similarity=similarity.name)
    if panel is None:
        return
    means = models_alike(shown)
    terms = stored.feature_titles(list(means["term"]))
    uncertainty.offer_intervals(view, similarity.name)
    st.dataframe(
        drop_minus_zero(means.assign(term=means["term"].map(terms))),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in means.columns[1:]
        },
    )
    st.caption(
        "Mean of each contribution over the pairs of layers of every two models (and within each). "
        "A column adds up to the mean "
        f"{similarity.called}. {chance_sentence(shown.chance)} {shown.basis_sentence}"
    )
    panel.show()


def _surprises(view: View) -> None:
    """Pairs on which both similarities disagree, or that nothing explains."""
    table = _table(view.shown())
    if table.empty:
        st.caption(f"None of the pairs stands out, or there are fewer than {of.FEWEST}.")
        return
    for kind, rows in table.groupby("kind", sort=False):
        st.markdown(f"**{KINDS[str(kind)]}**")
        for values in rows.to_dict("records"):
            row = {str(name): value for name, value in values.items()}
            a, b = row["layer_a"], row["layer_b"]
            said = f"{stored.layer_title(a)} and {stored.layer_title(b)}: {_numbers(row)}"
            if st.button(
                plain(said),
                key=f"surprise {kind} {a} {b}",
                type="tertiary",
                icon=":material/arrow_forward:",
                help="Shows these two layers.",
            ):
                select_pair(view, a, b)
                st.switch_page(SCREENS["home"].file)
    exporting.show_table(
        table,
        "surprises",
        "As a table",
        "Of layers of different models (of one model: that are not neighbours), without pairs that "
        "the audit changes; a layer comes once a kind. Both similarities disagree where their "
        f"ranks differ by {percent(of.APART)} of the pairs, and both layers have a held-out ρ of "
        f"{of.PREDICTED} or more. Profiles in random order give the limit for τ. Hardly "
        f"explained: {percent(of.NOT_EXPLAINED)} or more of an RSA above the median. These "
        "limits are conventions, no tests. above: share of pairs that are below. "
        "Intervals of RSA hold for all pairs of layers at once.",
    )


def _numbers(row: Mapping[str, Any]) -> str:
    said = f"RSA {fraction(row['rsa'])}"
    if "rsa_lower" in row:
        said += f" [{fraction(row['rsa_lower'])}, {fraction(row['rsa_upper'])}]"
    if row["kind"] == "unexplained":
        return f"{said}, {percent(row['unexplained'])} of it unexplained"
    above = f"{said} (above {percent(row['above_rsa'])} of pairs), τ {fraction(row['tau'])}"
    return f"{above} (above {percent(row['above_tau'])})"


def _table(shown: FigureContext) -> pd.DataFrame:
    results, layers = shown.results, list(shown.selection.layers)
    rho = results.scores.groupby(["model", "layer"])["rho"].mean()
    found = discordant_pairs(
        decomposition(shown),
        results.similarity_profiles.to_numpy(),
        rho[layers].to_numpy(),
        layers,
        results.n_profile_features,
        {frozenset(pair) for pair in shown.reasons("rsa")},
    )
    return found if shown.intervals is None else with_bounds(found, shown.intervals, layers)


PARTS: dict[str, tuple[str, Callable[[View], None]]] = {
    "map": ("Layer map", _maps),
    **{
        panel.part: (panel.title, partial(exporting.show_panel, panel=panel))
        for panel in extending.panels("layers")
    },
    "terms": ("Contributions", _models_alike),
    "surprises": ("Surprises", _surprises),
}

view_page("layers", _show_all_layers)

"""Trust: how sure the numbers are, what an artefact could have made, and whether a claim holds."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import alike, claims, exporting, frame, naming, uncertainty
from pages.parts.exporting import Panel
from pages.parts.opening import open_view
from pages.parts.view import View
from pages.parts.wording import plain


def trust_body() -> None:
    view = open_view("trust")
    if view is None:
        return
    parts = {
        "Verdicts": _verdicts,
        "Intervals and tests": _tests,
        "Audit of every layer": _audit,
        "A claim under other analysis variants": claims.show_claim,
    }
    for number, (title, show) in enumerate(parts.items()):
        if number:
            st.divider()
        st.subheader(title)
        frame.attempt(partial(show, view))


def _verdicts(view: View) -> None:
    """Whether each claim on the chosen two layers holds, fails, or is not tested."""
    from mlem_core.figures.canvas import verdicts

    shown = view.shown(**alike.option(alike.compared_layers(view)))
    if shown is None or not shown.several:
        return
    table, icons = verdicts(shown), {"holds": ":green[●]", "fails": ":red[●]"}
    table["verdict"] = [f"{icons.get(one, ':gray[○]')} {one}" for one in table["verdict"]]
    table["claim"] = table["claim"].map(plain)
    st.table(table.set_index("claim"))
    st.caption(
        "Of the two layers that are chosen. Similar: the 95 % CI is above 0. No artefact: no check "
        "of the audit changes it. A contribution: its CI is above 0 and p, corrected over the "
        "features, is below .05."
    )


def _tests(view: View) -> None:
    """Intervals and tests of scores, importances, similarities and the chosen pair."""
    from mlem_core.inference import caveats
    from mlem_core.inference.tables import (
        importance_difference_table,
        score_table,
        similarity_table,
    )
    from mlem_core.pairs.similarities import SIMILARITIES

    intervals = uncertainty.intervals_of(view)
    if intervals is None:
        st.markdown("There are no intervals yet of what is shown.")
        uncertainty.offer_intervals(view)
    else:
        drawn = caveats.drawn_of(len(view.analysis.stimuli), view.analysis.tables.n_pairs)
        if drawn:
            st.caption(drawn)
        correction = uncertainty.choose_correction()
        uncertainty.show_tests(
            view,
            intervals,
            score_table(intervals, view.layers, correction),
            "importance-tests",
            "Importances and scores",
            "Of each layer's held-out ρ, ceiling and importances; p says whether an importance is "
            "above 0 (one-sided).",
        )
        a, b = view.pair
        if a != b:
            chosen = uncertainty.intervals_of(view, alike.chosen_similarity()) or intervals
            name = chosen.similarity
            uncertainty.show_tests(
                view,
                chosen,
                similarity_table(chosen, view.layers, correction),
                "similarity-tests",
                "Similarities",
                f"Of both similarities of every two layers; {name}_p says whether "
                f"{SIMILARITIES[name].short} is other than 0. "
                "The interval of τ is that of profiles drawn with the errors of their importances; "
                "it is a rough guide where few features matter.",
            )
            uncertainty.show_tests(
                view,
                intervals,
                importance_difference_table(intervals, parse_layer(a), parse_layer(b), correction),
                "difference-tests",
                "Where the two chosen layers differ",
                f"Importance in {plain(naming.layer(a))} less that in {plain(naming.layer(b))}, "
                "the same sentences left out on both sides (two-sided).",
            )
    uncertainty.show_chance(view)


def _audit(view: View) -> None:
    """Findings of the audit on every layer, or the button that makes it."""
    from mlem_core.robustness.flags import summary

    audit = uncertainty.audit_of(view)
    if audit is None:
        st.markdown(
            "Runs the analysis again without the words at position 0, with cosine distance, with "
            "standardised units, without outlier units and with random weights, and says which "
            "conclusions change."
        )
        uncertainty.offer_audit(view)
        return
    shown, panel = view.shown(), Panel.of(view, "audit")
    if shown is None or shown.flagged is None or panel is None:
        return
    said = shown.once(("audit in words", repr(shown.names)), lambda: summary(audit, shown.names))
    with st.container(border=True):
        st.markdown("\n".join(f"- {plain(one)}" for one in said))
    for notice in audit.notices:
        st.caption(plain(notice))
    panel.show()
    exporting.show_table(
        shown.flagged.sort_values("severity", ascending=False, kind="stable"),
        "audit-marks",
        "What changes, and why it is flagged",
        "A row a layer (or pair of layers) and variant whose result changes by a limit or more; "
        "severity: by how many times the limit, where that changes a conclusion. Figures mark "
        "those from 2 on.",
    )
    exporting.show_table(
        audit.changes,
        "audit-changes",
        "Every layer in every variant",
        "tau: weighted Kendall τ of the layer's profile with that of the variant; rho: held-out "
        "score; rsa_change: the largest change of the layer's RSA with another layer.",
    )


frame.page(trust_body)

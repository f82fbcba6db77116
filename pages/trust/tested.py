"""How sure the numbers are: intervals and tests of what Explore shows."""

from __future__ import annotations

import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import naming, uncertainty
from pages.parts.view import View
from pages.parts.wording import plain


def show(view: View) -> None:
    """Intervals and tests of scores, importances, similarities and the chosen pair."""
    from mlem_core.inference import caveats
    from mlem_core.inference.tables import (
        importance_differences,
        score_table,
        similarity_table,
    )

    intervals = uncertainty.of(view)
    if intervals is None:
        st.markdown("There are no intervals yet of what is shown.")
        uncertainty.offer(view)
    else:
        drawn = caveats.drawn_of(len(view.analysis.stimuli), view.analysis.tables.n_pairs)
        if drawn:
            st.caption(drawn)
        correction = uncertainty.choose_correction()
        uncertainty.tests(
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
            uncertainty.tests(
                view,
                intervals,
                similarity_table(intervals, view.layers, correction),
                "similarity-tests",
                "Similarities",
                "Of both similarities of every two layers; rsa_p says whether RSA is other than 0. "
                "The interval of τ is that of profiles drawn with the errors of their importances; "
                "it is a rough guide where few features matter.",
            )
            uncertainty.tests(
                view,
                intervals,
                importance_differences(intervals, parse_layer(a), parse_layer(b), correction),
                "difference-tests",
                "Where the two chosen layers differ",
                f"Importance in {plain(naming.layer(a))} less that in {plain(naming.layer(b))}, "
                "the same sentences left out on both sides (two-sided).",
            )
    uncertainty.chance(view)

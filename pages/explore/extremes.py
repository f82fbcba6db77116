"""The two pairs of layers that paper 1 puts beside each other: the most alike, and the least."""

from __future__ import annotations

import streamlit as st

from mlem_core.base.text import number
from mlem_core.base.typing import layer_name
from pages.parts import linked, naming
from pages.parts.view import View
from pages.parts.wording import plain


def offer(view: View, look: str) -> None:
    """A click to the pair of layers with the highest and with the lowest weighted Kendall τ.

    Parameters
    ----------
    look : what is then shown of the two, see `pages.parts.screens.PAIR`
    """
    from mlem_core.measures.similarity import extremes

    results = view.results()
    if results is None or len(view.layers) < 3:
        return
    found = extremes(results.similarity_profiles.to_numpy(), results.layers)
    if found is None or found[0] == found[1]:
        return
    st.caption("By their features the two layers most alike, and the two least alike:")
    for (one, other), most in zip(found, ("most", "least"), strict=True):
        a, b = layer_name(one), layer_name(other)
        tau = number(results.similarity_profiles.loc[a, b])
        if st.button(
            plain(f"τ {tau}: {naming.layer(a)}, {naming.layer(b)}"),
            key=f"extreme {most}",
            type="tertiary",
            icon=":material/arrow_forward:",
            help="Shows these two layers; of different models where there are several, as in "
            "figure 4 of the first paper.",
        ):
            linked.go(view, a, b, tab="pairs", look=look)

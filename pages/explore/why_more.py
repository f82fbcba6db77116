"""What else divides over the features: τ of two layers, and the score of each layer alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import explained, exporting, frame, naming
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View


def beside(view: View, a: str, b: str) -> None:
    """What RSA mixes, apart: alike in the features, alike in the rest, and transfer."""
    said = explained.beside(view, a, b).beside
    st.markdown("**Alike in what?** RSA mixes what the features explain with all else.")
    for place, one in zip(st.columns(len(said), gap="medium"), said, strict=True):
        value, _, interval = one.value.partition(" [")
        place.metric(
            plain(one.name),
            value,
            delta=f"95 %: {interval.rstrip(']').replace(', ', ' to ')}" if interval else None,
            delta_color="off",
            delta_arrow="off",
        )
        place.caption(plain(one.sentence))


def tau(view: View) -> None:
    """The feature-based similarity as a sum over the features."""
    frame.folded(
        "The same for τ, the feature-based similarity",
        ":material/swap_vert:",
        "tau terms",
        lambda: _tau(view),
    )


def _tau(view: View) -> None:
    exporting.show_figure(view, "why_tau")


def alone(view: View, a: str, b: str) -> None:
    """The held-out ρ of each of the two layers as a sum over the features."""

    def both() -> None:
        sides = st.columns(2, gap="large")
        for side, name, place in zip(sides, (a, b), "ab", strict=True):
            with side:
                st.markdown(f"**{plain(naming.layer(name))}**")
                frame.attempt(partial(_alone, view, place))

    frame.folded("What each layer alone is made of", ":material/bar_chart:", "alone", both)


def _alone(view: View, place: str) -> None:
    exporting.show_figure(view, f"why_score_{place}")

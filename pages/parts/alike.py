"""The similarity that is looked at beside τ: RSA, or one that is computed when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import background, choices, stored

if TYPE_CHECKING:
    from mlem_core.analysis.similarities import Compared
    from mlem_core.tasks.followups import Followup
    from pages.parts.view import View

RSA = "rsa"


def choose() -> str:
    """Let the user choose the similarity; its name."""
    from mlem_core.pairs.similarities import SIMILARITIES

    return choices.choose_one(
        "By distances",
        list(SIMILARITIES),
        "similarity",
        RSA,
        format_func=lambda name: SIMILARITIES[name].label,
        help="What two layers are compared by, beside their features: the ranks of all distances "
        "(RSA), the squared distances themselves (CKA, where large distances count most), or who "
        "is among the nearest of whom (where only small ones count); or how far one layer can be "
        "turned onto the other (Procrustes), and whether their directions go together (CCA).",
    )


def chosen() -> str:
    """The name of the similarity that is looked at."""
    from mlem_core.pairs.similarities import SIMILARITIES

    name = choices.get_one("similarity", RSA)
    return name if name in SIMILARITIES else RSA


def of(view: View) -> Compared | None:
    """All layers by the similarity that is looked at; None where it is RSA, or not computed yet."""
    from mlem_core.analysis.similarities import find

    name = chosen()
    return None if name == RSA else find(view.analysis, name, stored.store())


def has_terms(view: View, *, say: bool = True) -> bool:
    """Whether features divide the similarity that is looked at; where not, a line says so."""
    from mlem_core.pairs.similarities import SIMILARITIES

    similarity = SIMILARITIES[chosen()]
    if say and similarity.no_terms:
        st.info(f"{similarity.no_terms} What follows is RSA.", icon=":material/info:")
    return similarity.divides


def offer(view: View) -> None:
    """A button that computes the similarity that is looked at, where it is not there yet."""
    from mlem_core.pairs.similarities import SIMILARITIES

    name = chosen()
    if name == RSA or of(view) is not None:
        return
    similarity = SIMILARITIES[name]
    st.caption(f"The {similarity.called} has not been computed yet; what is shown is RSA.")
    background.offer(
        work(view, name),
        f"Compute {similarity.short}",
        "Compares all pairs of stimuli in every layer again, in the background; about a second a "
        "layer, and models are run again whose representations are no longer there.",
    )


def work(view: View, name: str) -> Followup:
    """What computes a similarity of all layers."""
    return view.work("similarity", {"name": name})

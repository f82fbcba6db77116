"""The two layers that all figures look at: how they are chosen, how similar they are, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from mlem_core.base.typing import layer_name, parse_layer
from mlem_core.pairs.similarities import RSA
from pages.parts import background, choices, naming
from pages.parts.choices import plain
from pages.parts.screens import SCREENS

if TYPE_CHECKING:
    from mlem_core.analysis.similarities import LayerSimilarity
    from mlem_core.inference.explained import Explanation
    from mlem_core.tasks.followups import Followup
    from pages.parts.view import View


def choose_similarity(view: View) -> LayerSimilarity:
    """Let the user choose the similarity that is looked at beside τ; all layers by it.

    RSA where it is not computed yet; then there is the button that computes it.
    """
    from mlem_core.pairs.similarities import SIMILARITIES

    name = choices.choose_one(
        "By distances",
        list(SIMILARITIES),
        "similarity",
        RSA,
        format_func=lambda name: SIMILARITIES[name].label,
        help="What two layers are compared by, beside their features. RSA: ranks of all distances. "
        "CKA: squared distances, where large ones count most. Neighbours: which stimuli are "
        "nearest, where small ones count. Procrustes: one layer turned onto the other. CCA: "
        "directions that go together.",
    )
    of_layers = compared_layers(view)
    if name != of_layers.similarity.name:
        similarity = SIMILARITIES[name]
        st.caption(f"The {similarity.called} has not been computed yet; what is shown is RSA.")
        background.offer(
            view.work("similarity", {"name": name}),
            f"Compute {similarity.short}",
            "Compares all pairs of stimuli in every layer again, in the background; about a second "
            "a layer, and models are run again whose representations are no longer there.",
        )
    return of_layers


def chosen_similarity() -> str:
    """The name of the similarity that is looked at."""
    from mlem_core.pairs.similarities import SIMILARITIES

    name = choices.get_one("similarity", RSA)
    return name if name in SIMILARITIES else RSA


def compared_layers(view: View) -> LayerSimilarity:
    """All layers by the similarity that is looked at; by RSA where it is not computed yet."""
    return view.shown(similarity=chosen_similarity()).layer_similarity


def option(of_layers: LayerSimilarity) -> dict[str, Any]:
    """The option of figures that draws them by this similarity, which is not named if it is RSA."""
    similarity = of_layers.similarity
    return {} if similarity.of_ranks else {"similarity": similarity.name}


def explained_with_transfer(view: View) -> Explanation:
    """The explanation of the two layers with S_feat, S_rest and transfer.

    Without transfer where metrics are slow to fit and the work that makes intervals is not done.
    """
    from mlem_core.estimators.registry import estimator_named
    from mlem_core.inference.explanation import with_transfer
    from mlem_core.inference.partial import PARTS

    shown, n = view.shown(), len(PARTS)
    known = shown.why
    if len(known.partial) > n or estimator_named(view.selection.estimator).slow:
        return known

    def transfers() -> pd.DataFrame:
        return with_transfer(known, view.analysis, view.selection).partial.iloc[n:]

    with st.spinner("Carrying the metrics over …"):
        more = shown.once(("transfer", shown.pair), transfers)
    return replace(known, partial=pd.concat((known.partial, more), ignore_index=True))


def work_for_intervals(view: View, a: str, b: str, similarity: str = RSA) -> Followup:
    """The work that makes the finest intervals of two layers."""
    options = {
        "a": list(parse_layer(a)),
        "b": list(parse_layer(b)),
        "features": view.features,
        "estimator": view.selection.estimator,
        "interactions": view.selection.interactions,
        "similarity": similarity,
    }
    return view.work("error-bars", options)


def look_at_cell(view: View, points: list[dict[str, Any]]) -> None:
    """Look at the two layers of a cell of a matrix that was clicked, if it has two."""
    clicked = [point["customdata"] for point in points if "customdata" in point]
    layers = [layer_name(clicked[0][at : at + 2]) for at in (0, 2)] if clicked else []
    if len(set(layers)) == 2 and set(layers) <= set(view.layer_names):
        look_at(view, *layers)


def look_at(view: View, a: str, b: str) -> None:
    """Make two layers "model:layer" the pair that all pages look at."""
    choices.open_job(view.analysis_id)  # it may be shown without having been chosen
    choices.put_all({"a": [a], "b": [b]})


def open_why(view: View, a: str, b: str) -> None:
    """Open the canvas of two layers "model:layer"."""
    look_at(view, a, b)
    st.switch_page(SCREENS["home"].file)


def one_after_the_other(view: View, points: list[dict[str, Any]], where: str) -> None:
    """Two layers are chosen by two clicks, on points that stand for one layer each.

    Parameters
    ----------
    points : that are selected now; `customdata` begins with model and layer
    where : of the figure, in the key of the button
    """
    now = [layer_name(point["customdata"][:2]) for point in points if "customdata" in point]
    now = [layer for layer in dict.fromkeys(now) if layer in view.layer_names]
    # The layer of the click before is the other one of the pair.
    clicked = st.session_state.setdefault(f"clicked {view.job_id}", [])
    if now and now != clicked[-len(now) :]:
        clicked[:] = [*(layer for layer in clicked if layer not in now), *now][-2:]
    clicked[:] = [layer for layer in clicked if layer in view.layer_names]
    if len(clicked) == 2:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            a, b = clicked
            st.markdown(f"**{plain(naming.layer(a))}** and **{plain(naming.layer(b))}**")
            if st.button(
                "Look at these two",
                icon=SCREENS["home"].icon,
                key=f"look at {where}",
                type="primary",
                help="Shows how similar they are, and why.",
            ):
                open_why(view, a, b)
    elif clicked:
        st.info(
            f"{plain(naming.layer(clicked[0]))} is chosen; click a second layer.",
            icon=":material/ads_click:",
        )

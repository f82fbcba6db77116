"""A claim, put to every analysis variant that one could have chosen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.pairs.similarities import RSA
from pages.parts import background, choices, exporting, naming, stored, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View, pair_of_layers
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.base.typing import Layer
    from mlem_core.robustness.claims import Claim
    from mlem_core.robustness.multiverse import Choices, Multiverse

KINDS = {
    "top": "a feature matters most in the first layer",
    "above": "a feature matters more than another in the first layer",
    "more-in": "a feature matters more in the first layer than in the second",
    "closer": "the first layer is more like the second than like a third",
    "alike": "the similarity of the two layers is above a threshold",
}


def show_claim(view: View) -> None:
    """A claim about the layers, and whether it holds when the analysis is done otherwise."""
    from mlem_core.robustness.multiverse import find_multiverse

    asked = _ask(view)
    if asked is None:
        return
    claim, layers, varied = asked
    asked_of = layers, stored.store(), varied, claim.similarities
    multiverse = find_multiverse(view.analysis, *asked_of)
    _show_verdict(view, claim, multiverse)
    if multiverse is None:
        _offer_combinations(view, claim, layers, varied)
    else:
        _show_combinations(view, claim, multiverse)


def _ask(view: View) -> tuple[Claim, list[Layer], Choices] | None:
    """The claim, its layers and the choices to vary; None where they make no question yet."""
    from mlem_core.robustness.multiverse import choices_of

    a, b = pair_of_layers(view)
    # A claim about three layers has one more choice in its row.
    three = choices.get_one("claim") == "closer"
    row = st.columns([2, 1, 1] if three else 2)
    with row[0]:
        kind = choices.choose_one(
            "Claim", KINDS, "claim", "top",
            help="A statement about layers.",
        )  # fmt: skip
    names = [a, b]
    if kind == "closer":
        with row[1]:
            names.append(_third(view, a, b))
    with row[-1]:
        pooled = _with_pooling(view)
    if len(set(names)) < len(names):
        st.info(f"Choose {len(names)} different layers.", icon=":material/info:")
        return None
    varied = choices_of(view.analysis) | ({"pooling": pooled} if pooled else {})
    layers = [parse_layer(name) for name in names]
    claim = _chosen_claim(view, kind, layers)
    return None if claim is None else (claim, layers, varied)


def _show_verdict(view: View, claim: Claim, multiverse: Multiverse | None) -> None:
    """Whether the claim holds: in all combinations, and over other stimuli."""
    from mlem_core.robustness.claims import beyond, of_chance, over_stimuli, verdict

    intervals = uncertainty.intervals_of(view, claim.similarities[-1])
    stimuli = None if intervals is None else over_stimuli(claim, intervals)
    chance = uncertainty.importance_chance(view) if claim.features else None
    with st.container(border=True):
        sentence = claim.named(naming.now())
        if multiverse is not None:
            sentence = verdict(claim, multiverse, naming.now(), chance)
        elif stimuli is not None:
            holds = "does not hold"
            if stimuli.value > 0 and beyond(claim, chance) is not False:
                holds = "holds"
            sentence = f"{sentence}: {holds} in the analysis as it is."
        st.markdown(f"##### {plain(sentence)}")
        if stimuli is not None:
            st.markdown(plain(stimuli.sentence))
        if claim.features:
            st.caption(plain(of_chance(claim, chance, naming.now())))
            uncertainty.offer_chance(view)


def _offer_combinations(view: View, claim: Claim, layers: list[Layer], varied: Choices) -> None:
    pooled = "pooling" in varied
    n = math.prod(len(options) for options in varied.values())
    st.markdown(
        f"Analyses these {len(layers)} layers in all {n} combinations of "
        + plain(", ".join(f"{len(o)} × {name}" for name, o in varied.items()))
        + "."
    )
    options: dict[str, Any] = {"layers": layers} | ({"choices": varied} if pooled else {})
    if len(claim.similarities) > 1:
        options["similarities"] = list(claim.similarities)
    background.offer(
        view.work("multiverse", options),
        "Run all combinations",
        "Works in the background on stored representations; "
        + ("the models run once for each pooling." if pooled else "no model runs for it."),
    )


def _show_combinations(view: View, claim: Claim, multiverse: Multiverse) -> None:
    from mlem_core.robustness.claims import orders

    panel = Panel.of(view, "multiverse", claim=claim.text)
    if panel is not None:
        panel.show()
        exporting.show_table(
            panel.drawn.printed,
            "multiverse-choices",
            "By choice",
            "In how many of the analyses with each choice the claim holds, and its median margin.",
        )
    with st.expander("Without any claim", icon=":material/list:"):
        st.markdown("\n".join(f"- {plain(one)}" for one in orders(multiverse, naming.now())))
        st.caption("RSA: Spearman ρ; τ: weighted Kendall τ of the profiles.")
    for notice in multiverse.notices:
        st.caption(plain(notice))


def _third(view: View, a: str, b: str) -> str:
    """The third layer of a claim that has one."""
    others = [name for name in view.layer_names if name not in (a, b)]
    return choices.choose_one(
        "Third layer", view.layer_names, "c", (others or [a])[0], format_func=naming.layer,
        help="The layer that the first one is less like.",
    )  # fmt: skip


def _with_pooling(view: View) -> tuple[str, ...]:
    """The choices of pooling, if the user wants them varied and there are several."""
    from mlem_core.robustness.multiverse import analysis_poolings

    poolings = analysis_poolings(view.analysis)
    if len(poolings) < 2:
        return ()
    words = view.analysis.stimuli.word_index is not None
    wanted = choices.choose_one(
        "Pooling",
        ["as it is", "varied too"],
        "pooled",
        "as it is",
        help=(
            "A word is its last sub-token; varied, it is the mean over its sub-tokens too."
            if words
            else "A sentence is the mean over its tokens; varied, it is its last token too."
        ),
    )
    return poolings if wanted == "varied too" else ()


def _chosen_claim(view: View, kind: str, layers: list[Layer]) -> Claim | None:
    from mlem_core.robustness.claims import CLAIMS, Claim, measures

    names = view.all_features
    middle, right = st.columns(2)
    if CLAIMS[kind].similar:
        limit = 50
        with middle:
            measure = choices.choose_one(
                "By", measures(), "by", RSA,
                help="RSA compares distances, τ the orders of the features' importances.",
            )  # fmt: skip
        if CLAIMS[kind].limited:
            with right:
                limit = choices.whole_number(
                    "Threshold (%)", "limit", 10, -100, 100, help="The similarity in hundredths."
                )
        return Claim(kind, tuple(layers), measure=measure, threshold=limit / 100)
    results = view.results()
    if results is None:
        return None
    means = results.importance
    model, layer = layers[0]
    of_layer = means[(means["model"] == model) & (means["layer"] == layer)]
    mean = of_layer.groupby("feature")["importance"].mean().sort_values(ascending=False)
    ranked = [name for name in mean.index if name in names] or names
    with middle:
        feature = choices.choose_one(
            "Feature",
            names,
            "feature",
            ranked[0],
            format_func=naming.of_features(names),
            help="The feature that it is about.",
        )
    if kind == "above":
        with right:
            other = choices.choose_one(
                "Other feature", names, "other", next(n for n in [*ranked, *names] if n != feature),
                format_func=naming.of_features(names),
                help="The feature that it is compared with.",
            )  # fmt: skip
        if other == feature:
            st.info("Choose two different features.", icon=":material/info:")
            return None
        return Claim("above", (layers[0],), (feature, other))
    if kind == "more-in":
        return Claim("more-in", tuple(layers), (feature,))
    return Claim("top", (layers[0],), (feature,))

"""Confidence: intervals, what an artefact could have made, and whether a claim holds."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import streamlit as st

from mlem_core.base.typing import Layer, parse_layer
from mlem_core.figures.canvas import verdicts
from mlem_core.inference.intervals import importance_difference_table, score_table, similarity_table
from mlem_core.inference.resample import drawn_of
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.robustness.claims import (
    CLAIMS,
    Claim,
    beyond,
    measures,
    of_chance,
    orders,
    over_stimuli,
    verdict,
)
from mlem_core.robustness.flags import summary
from mlem_core.robustness.multiverse import Choices, Multiverse, choices_of, find_multiverse
from pages.parts import background, choices, exporting, frame, stored, uncertainty
from pages.parts.choices import inform, plain
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.view import View, chosen_similarity, pair_of_layers

KINDS = {
    "top": "a feature matters most in the first layer",
    "above": "a feature matters more than another in the first layer",
    "more-in": "a feature matters more in the first layer than in the second",
    "closer": "the first layer is more like the second than like a third",
    "alike": "the similarity of the two layers is above a threshold",
}


def _show_trust(view: View) -> None:
    parts = {
        "Verdicts": _verdicts,
        "Intervals and tests": _tests,
        "Audit of every layer": _audit,
        "A claim under other analysis variants": _show_claim,
    }
    for number, (title, show) in enumerate(parts.items()):
        if number:
            st.divider()
        st.subheader(title)
        frame.attempt(partial(show, view))


def _verdicts(view: View) -> None:
    """Whether each claim on the chosen two layers holds, fails, or is not tested."""
    shown = view.shown(similarity=chosen_similarity())
    if not shown.several:
        return
    table, icons = verdicts(shown), {"holds": ":green[●]", "fails": ":red[●]"}
    table["verdict"] = [f"{icons.get(one, ':gray[○]')}\xa0{one}" for one in table["verdict"]]
    table["claim"] = table["claim"].map(plain)
    st.table(table.set_index("claim"))
    st.caption(
        "Of the two layers that are chosen. Similar: the 95 % CI is above 0. No artefact: no check "
        "of the audit changes it. A contribution: its CI is above 0 and p, corrected over the "
        "features, is below .05."
    )


def _tests(view: View) -> None:
    """Intervals and tests of scores, importances, similarities and the chosen pair."""
    shown = view.shown()
    intervals = shown.intervals
    if intervals is None:
        st.markdown("There are no intervals yet of what is shown.")
        uncertainty.offer_intervals(view)
    else:
        drawn = drawn_of(len(view.analysis.stimuli), view.analysis.tables.n_pairs)
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
            chosen = shown.intervals_of(chosen_similarity()) or intervals
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
            one, other = (plain(stored.layer_title(layer)) for layer in (a, b))
            uncertainty.show_tests(
                view,
                intervals,
                importance_difference_table(intervals, parse_layer(a), parse_layer(b), correction),
                "difference-tests",
                "Where the two chosen layers differ",
                f"Importance in {one} less that in {other}, the same blocks left out on both sides "
                "(two-sided).",
            )
    title = "Is each layer's score above chance?"
    frame.folded_part(title, "casino", "chance", partial(uncertainty.score_chance, view))


def _audit(view: View) -> None:
    """Findings of the audit on every layer, or the button that makes it."""
    shown = view.shown()
    audit = shown.audit
    if audit is None:
        st.markdown(
            "Runs the analysis again without the stimuli at position 0, with cosine distance, with "
            "standardised units, without outlier units and with random weights, and says which "
            "conclusions change."
        )
        background.offer(
            view.work("audit", {}),
            "Audit every layer",
            "Works in the background on stored representations; only the control with random "
            "weights runs the models again. It takes a few minutes.",
        )
        return
    assert shown.flagged is not None
    said = shown.once(("audit in words", repr(shown.names)), lambda: summary(audit, shown.names))
    with st.container(border=True):
        st.markdown("\n".join(f"- {plain(one)}" for one in said))
    for notice in audit.notices:
        st.caption(plain(notice))
    exporting.show_figure(view, "audit")
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


def _show_claim(view: View) -> None:
    """A claim about the layers, and whether it holds when the analysis is done otherwise."""
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
    a, b = pair_of_layers(view)
    # A claim about three layers has one more choice in its row.
    three = choices.get_one("claim") == "closer"
    row = st.columns([2, 1] if three else 1)
    with row[0]:
        kind = choices.choose_one(
            "Claim", KINDS, "claim", "top",
            help="A statement about layers.",
        )  # fmt: skip
    names = [a, b]
    if kind == "closer":
        with row[1]:
            others = [name for name in view.layer_names if name not in (a, b)]
            third = choices.choose_one(
                "Third layer",
                stored.layer_titles(view.layer_names),
                "c",
                (others or [a])[0],
                help="The layer that the first one is less like.",
            )
            names.append(third)
    if len(set(names)) < len(names):
        inform(f"Choose {len(names)} different layers.")
        return None
    layers = [parse_layer(name) for name in names]
    claim = _chosen_claim(view, kind, layers)
    return None if claim is None else (claim, layers, choices_of(view.analysis))


def _show_verdict(view: View, claim: Claim, multiverse: Multiverse | None) -> None:
    """Whether the claim holds: in all combinations, and over other stimuli."""
    shown = view.shown()
    intervals = shown.intervals_of(claim.similarities[-1])
    stimuli = None if intervals is None else over_stimuli(claim, intervals)
    chance = shown.importance_chance if claim.features else None
    with st.container(border=True):
        sentence = claim.named(stored.names())
        if multiverse is not None:
            sentence = verdict(claim, multiverse, stored.names(), chance)
        elif stimuli is not None:
            holds = "does not hold"
            if stimuli.value > 0 and beyond(claim, chance) is not False:
                holds = "holds"
            sentence = f"{sentence}: {holds} in the analysis as it is."
        st.markdown(f"##### {plain(sentence)}")
        if stimuli is not None:
            st.markdown(plain(stimuli.sentence))
        if claim.features:
            st.caption(plain(of_chance(claim, chance, stored.names())))
            uncertainty.offer_chance(view)


def _offer_combinations(view: View, claim: Claim, layers: list[Layer], varied: Choices) -> None:
    n = math.prod(len(options) for options in varied.values())
    st.markdown(
        f"Analyses these {len(layers)} layers in all {n} combinations of "
        + plain(", ".join(f"{len(o)} × {name}" for name, o in varied.items()))
        + "."
    )
    options: dict[str, Any] = {"layers": layers}
    if len(claim.similarities) > 1:
        options["similarities"] = list(claim.similarities)
    background.offer(
        view.work("multiverse", options),
        "Run all combinations",
        "Works in the background on stored representations; no model runs for it.",
    )


def _show_combinations(view: View, claim: Claim, multiverse: Multiverse) -> None:
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
        st.markdown("\n".join(f"- {plain(one)}" for one in orders(multiverse, stored.names())))
        st.caption("RSA: Spearman ρ; τ: weighted Kendall τ of the profiles.")
    for notice in multiverse.notices:
        st.caption(plain(notice))


def _chosen_claim(view: View, kind: str, layers: list[Layer]) -> Claim | None:
    names = view.shown().all_features
    titles = stored.feature_titles(names)
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
    means = view.results.importance
    model, layer = layers[0]
    of_layer = means[(means["model"] == model) & (means["layer"] == layer)]
    mean = of_layer.groupby("feature")["importance"].mean().sort_values(ascending=False)
    ranked = [name for name in mean.index if name in names] or names
    with middle:
        feature = choices.choose_one(
            "Feature",
            titles,
            "feature",
            ranked[0],
            help="The feature that it is about.",
        )
    if kind == "above":
        second = next(name for name in [*ranked, *names] if name != feature)
        with right:
            other = choices.choose_one(
                "Other feature", titles, "other", second,
                help="The feature that it is compared with.",
            )  # fmt: skip
        if other == feature:
            inform("Choose two different features.")
            return None
        return Claim("above", (layers[0],), (feature, other))
    if kind == "more-in":
        return Claim("more-in", tuple(layers), (feature,))
    return Claim("top", (layers[0],), (feature,))


view_page(__file__, _show_trust)

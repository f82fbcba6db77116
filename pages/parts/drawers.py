"""The drawers of two layers: pairs of stimuli, what else explains, checks, how it is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core import extending
from mlem_core.base.text import plural, sentence_case
from mlem_core.base.typing import parse_layer
from mlem_core.figures.canvas import verdicts
from mlem_core.inference.explanation_text import tested_similarities
from mlem_core.inference.intervals import importance_difference_table, score_table
from mlem_core.inference.pair_contributions import PAIR_CONTRIBUTIONS
from mlem_core.inference.resample import interval_sample_sentence
from mlem_core.measures.decomposition import UNEXPLAINED, is_identity
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.stimuli.levels import STIMULUS
from pages.parts import choices, exporting, frame, screens, stored, uncertainty
from pages.parts.choices import inform, plain
from pages.parts.view import View, chosen_similarity, compared_layers, lacks

MOST = "add most"


def show_drawers(view: View) -> None:
    """A drawer of what is known of the two layers; all are closed at first."""
    drawers: dict[str, tuple[str, Callable[[View], None]]] = {
        "pairs": ("Pairs", _pairs),
        **{
            panel.part or panel.figure: (panel.title, partial(exporting.show_panel, panel=panel))
            for panel in extending.panels("details")
        },
        "checks": ("Checks", _checks),
        "how": ("How computed", _how),
        "stimuli": (sentence_case(plural(view.analysis.stimuli.level)), _stimuli),
    }
    name = choices.choose_detail({name: title for name, (title, _) in drawers.items()})
    if name:
        with st.container(border=True):
            frame.attempt(partial(drawers[name][1], view))


def _pairs(view: View) -> None:
    """The pairs of stimuli behind a term of RSA."""
    shown, (a, b) = view.shown(), view.pair
    terms = shown.why.terms
    # No pair is behind what any labels contribute.
    own = terms[~is_identity(terms)]
    terms = own.loc[own["value"].abs().sort_values(ascending=False).index, "term"]
    first, second = st.columns(2, vertical_alignment="bottom")
    largest = next(term for term in terms if term != UNEXPLAINED)
    with first:
        term = choices.choose_one(
            "Contribution of", stored.feature_titles(list(terms)), "term", largest,
            help="The feature whose contribution is looked at, or what is unexplained.",
        )  # fmt: skip
    with second:
        which = choices.choose_one(
            "Pairs",
            [MOST, "take most away"],
            "which",
            MOST,
            help="Pairs that are close (or far apart) in both layers add to the similarity. Pairs "
            "that differ between the layers reduce it.",
        )
    sides, most = [parse_layer(a), parse_layer(b)], which == MOST
    models = sorted({model for model, _ in sides})
    both = view.reselect(layers=tuple(sides))
    # They have been looked up before, or came with the example.
    looked_up = "The pairs are looked up in the representations of "
    pairs = PAIR_CONTRIBUTIONS.find(both, term=term, most=most)
    if pairs is None:
        if lacks(view.job_id, view.analysis, models, looked_up):
            return
        with st.spinner("Looking for the pairs of stimuli …"):
            pairs = PAIR_CONTRIBUTIONS.get(both, term=term, most=most)
    if pairs.empty:
        st.caption("There are no such pairs.")
        return
    _show_pairs(pairs, a, b, words=view.analysis.stimuli.word_index is not None)
    st.caption(
        f"The {len(pairs)} pairs that {which} to the contribution of "
        f"{plain(stored.names().feature(term))}. Each stimulus is in one of them at most. One pair "
        "contributes very little; these show the kind."
    )


def _show_pairs(pairs: pd.DataFrame, a: str, b: str, *, words: bool) -> None:
    """The pairs as a table: words in their sentences, or sentences."""
    texts = {"first_sentence": "first", "second_sentence": "second"}
    if words:
        texts = {"first_text": "first", "first_sentence": "in", "second_text": "second"}
        texts["second_sentence"] = "in"
    shares: dict[str, Any] = {
        f"distance_{side}": st.column_config.ProgressColumn(
            f"apart in {side.upper()}", format="percent", min_value=0.0, max_value=1.0,
            help="The share of all pairs that are nearer to one another in "
            f"{stored.layer_title(layer)}.",
        )
        for side, layer in zip("ab", (a, b), strict=True)
    }  # fmt: skip
    contribution = st.column_config.NumberColumn(
        format="%.2f", help="What this one pair adds to the similarity, in millionths."
    )
    st.dataframe(
        pairs.assign(contribution=pairs["contribution"] * 1e6),
        hide_index=True,
        key="pairs behind",
        column_order=[*texts, *shares, "contribution"],
        column_config={**texts, **shares, "contribution": contribution},
    )


def _checks(view: View) -> None:
    """Verdicts on the two layers, then intervals and tests, then the audit of every layer."""
    _verdicts(view)
    uncertainty.say_of_pair(view, *view.pair)
    frame.attempt(partial(_tests, view))
    for panel in extending.panels("checks"):
        frame.folded_part(
            panel.title, panel.icon, panel.figure, partial(exporting.show_panel, view, panel)
        )


def _verdicts(view: View) -> None:
    """Whether each claim on the two layers holds, fails, or is not tested, and why."""
    table = verdicts(view.shown(similarity=chosen_similarity()))
    icons = {"holds": ":green[●]", "fails": ":red[●]"}
    table["verdict"] = [
        f"{icons.get(verdict, ':gray[○]')}\xa0{verdict}" for verdict in table["verdict"]
    ]
    table["claim"] = table["claim"].map(plain)
    st.table(table.set_index("claim"))


def _tests(view: View) -> None:
    """Intervals and tests of scores, importances, similarities and the two layers."""
    context = view.shown()
    intervals = context.intervals
    if intervals is None:
        st.caption("Confidence intervals are not computed yet for what is shown.")
        uncertainty.offer_intervals(view)
    else:
        sample = interval_sample_sentence(len(view.analysis.stimuli), view.analysis.pairs.n_pairs)
        if sample:
            st.caption(sample)
        uncertainty.show_tests(
            view,
            intervals,
            score_table(intervals, view.layers),
            "importance-tests",
            "Tests of importances and scores",
            "Held-out ρ and importances of each layer; p says whether an importance is above 0 "
            "(one-sided).",
        )
        tested = context.find_intervals(chosen_similarity()) or intervals
        name, (a, b) = tested.similarity, view.pair
        uncertainty.show_tests(
            view,
            tested,
            tested_similarities(view.analysis, tested, view.layers),
            "similarity-tests",
            "Tests of similarities",
            f"Both similarities of every two layers; {name}_p says whether "
            f"{SIMILARITIES[name].short} is other than 0. The interval of the most similar two "
            "allows for their choice from so many pairs (chosen_from). The interval of τ is that "
            "of profiles drawn with the errors of their importances; it is a rough guide where few "
            "features matter.",
        )
        uncertainty.show_tests(
            view,
            intervals,
            importance_difference_table(intervals, parse_layer(a), parse_layer(b)),
            "difference-tests",
            "Where A and B differ",
            "Importance in A less that in B, the same blocks left out on both sides (two-sided).",
        )
    title = "Is each layer's score above chance?"
    frame.folded_part(title, "casino", "chance", partial(uncertainty.score_chance, view))


def _how(view: View) -> None:
    """Method and numbers behind the finding."""
    similarity = compared_layers(view).similarity
    if similarity.no_terms:
        inform(similarity.no_terms)
    shown = view.shown(similarity=chosen_similarity())
    why = shown.why
    sentences = [why.headline, why.how_sure, *why.notes]
    if similarity.divides:
        sentences.append(f"Features are coded {shown.coding}.")
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in sentences if sentence))
    exporting.show_figure(view, "why", similarity=chosen_similarity())
    screens.example_link()


def _stimuli(view: View) -> None:
    """The stimuli with their features, and how these are spread and go together."""
    stimuli = view.analysis.stimuli
    exporting.draw_table(
        stimuli.table,
        "stimuli",
        f"{plain(stimuli.name)}: {len(stimuli):,} stimuli. An empty cell is a missing value.",
        height=380,
        features=[feature.name for feature in stimuli.features],
        images=Path(view.analysis.spec.stimuli).parent if STIMULUS in stimuli.table else None,
    )
    exporting.show_tab(view, "stimuli")

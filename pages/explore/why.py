"""Why two layers are alike: their similarity as a sum over the features, and its intervals."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.figures import captions
from pages.parts import (
    alike,
    background,
    choices,
    exporting,
    frame,
    naming,
    stored,
    uncertainty,
)
from pages.parts.view import View, lacks
from pages.parts.wording import duration, plain

if TYPE_CHECKING:
    from mlem_core.inference.explained import Explanation
    from mlem_core.pairs.similarities import Similarity

MOST = "add most"


def show_why(view: View, a: str, b: str) -> None:
    """Why two layers are alike: in words, and as a sum."""
    from mlem_core.inference.chance import PERMUTATIONS
    from mlem_core.inference.cost import seconds_of_two

    of_layers = alike.compared_layers(view)
    chosen = alike.option(of_layers)
    if not of_layers.similarity.divides:
        _without_terms(view, of_layers.similarity, a, b)
        chosen = {}
    why = alike.explanation(view, a, b, **chosen)
    with st.container(border=True):
        alike.show_finding(view, alike.finding(view, why))
        st.caption(plain(why.sentence))
    exporting.show_figure(view, "why", **chosen)
    _numbers(why, a, b)
    if not why.alone:
        pair = why.layers
        asked = view.analysis, pair, view.selection.features
        seconds = view.once(("seconds of intervals", pair), lambda: seconds_of_two(*asked))
        background.offer(
            alike.work_for_intervals(view, a, b, **chosen),
            "Finer confidence intervals" if why.how else "Add confidence intervals",
            f"Blocks left out in turn, and the labels of each feature permuted {PERMUTATIONS} "
            f"times, in the background; about {duration(seconds or 0)}.",
        )


def _without_terms(view: View, similarity: Similarity, a: str, b: str) -> None:
    """How alike two layers are by a similarity that has no terms, above why their RSA is so."""
    why = alike.explanation(view, a, b, similarity.name)
    with st.container(border=True):
        st.markdown(f"##### {plain(why.finding)}.")
        for text in (why.how_sure, *why.notes):
            st.markdown(plain(text))
        st.caption(plain(f"{why.meaning[0].upper()}{why.meaning[1:]}"))
    if "lower" not in why.whole:
        background.offer(
            alike.work_for_intervals(view, a, b, similarity.name),
            "Add its confidence interval",
            "Blocks of stimuli left out in turn, in the background; some seconds.",
        )
    st.info(f"{similarity.no_terms} What follows is RSA.", icon=":material/info:")


def show_more(view: View, a: str, b: str) -> None:
    """What else there is to say of why two layers are alike, over the whole width."""
    by = alike.compared_layers(view).similarity
    if by.divides and not by.of_ranks:
        uncertainty.say_of_pair(view, a, b, by.name)
    else:
        # What RSA mixes, and the pairs behind a term of it.
        uncertainty.say_of_pair(view, a, b)
        frame.attempt(partial(_beside, view, a, b))
        why = alike.explanation(view, a, b)
        frame.folded_part(
            "The pairs of stimuli behind it",
            ":material/format_quote:",
            "pairs behind",
            partial(_pairs, view, why, a, b),
        )
    frame.folded_part(
        "The same for τ, the feature-based similarity",
        ":material/swap_vert:",
        "tau terms",
        partial(exporting.show_figure, view, "why_tau"),
    )
    frame.folded_part(
        "What each layer alone is made of",
        ":material/bar_chart:",
        "alone",
        partial(_alone, view, a, b),
    )


def _beside(view: View, a: str, b: str) -> None:
    """What RSA mixes, apart: alike in the features, alike in the rest, and transfer."""
    said = alike.explained_with_transfer(view, a, b).beside
    st.markdown("**Alike in what?** RSA mixes what the features explain with all else.")
    for place, one in zip(st.columns(len(said), gap="medium"), said, strict=True):
        value, _, interval = one.value.partition(" [")
        span = interval.rstrip("]").replace(", ", " to ")
        place.metric(plain(one.name), value, **uncertainty.below_metric(span))
        place.caption(plain(one.sentence))


def _alone(view: View, a: str, b: str) -> None:
    """The held-out ρ of each of the two layers as a sum over the features."""
    for side, name, place in zip(st.columns(2, gap="large"), (a, b), "ab", strict=True):
        with side:
            st.markdown(f"**{plain(naming.layer(name))}**")
            frame.attempt(partial(exporting.show_figure, view, f"why_score_{place}"))


def _numbers(why: Explanation, a: str, b: str) -> None:
    one, other = (plain(naming.now().layer_title(parse_layer(layer))) for layer in (a, b))
    # Which layers A and B are, the help says: their names would not fit beside each other.
    names = {
        why.similarity.name: why.similarity.short,
        "ceiling_a": "Best possible in A (ceiling)",
        "ceiling_b": "Best possible in B (ceiling)",
    }
    helps = {
        why.similarity.name: f"The correlation, over all pairs, of {why.similarity.statistic}.",
        "rsa": "Spearman ρ of the neural distances of the two layers over all pairs.",
        "ceiling_a": f"A is {one}. " + captions.ceiling_of("first", why.coding),
        "ceiling_b": f"B is {other}. " + captions.ceiling_of("second", why.coding),
    }
    # Beside RSA there is no room for the labels of both ceilings.
    places = [st.container(), *st.columns(2)]
    for place, (_, row) in zip(places, why.whole.iterrows(), strict=True):
        interval = ""
        if "lower" in row.index and pd.notna(row["lower"]):
            interval = f"{row['lower']:.2f} to {row['upper']:.2f}"
        place.metric(
            names[row["quantity"]],
            f"{row['value']:.2f}",
            **uncertainty.below_metric(interval),
            help=helps[row["quantity"]],
        )


def _pairs(view: View, why: Explanation, a: str, b: str) -> None:
    from mlem_core.measures.decomposition import IDENTITIES, UNEXPLAINED

    # No pair is behind what any labels contribute.
    own = why.terms[~why.terms["term"].isin(IDENTITIES)]
    terms = own.loc[own["value"].abs().sort_values(ascending=False).index, "term"]
    first, second = st.columns(2, vertical_alignment="bottom")
    with first:
        term = choices.choose_one(
            "Term", list(terms), "term", next(t for t in terms if t != UNEXPLAINED),
            format_func=naming.of_features(list(terms)),
            help="The feature whose contribution is looked at, or what is unexplained.",
        )  # fmt: skip
    with second:
        which = choices.choose_one(
            "Pairs",
            [MOST, "take most away"],
            "which",
            MOST,
            help="Pairs that both layers place alike add to the similarity, pairs that they place "
            "differently take from it.",
        )
    from mlem_core.inference.pair_contributions import kept_at, pair_contributions

    sides, most = [parse_layer(a), parse_layer(b)], which == MOST
    models = sorted({model for model, _ in sides})
    asked = view.analysis, stored.store(), sides, view.selection.features, term
    # They have been looked up before, or came with the example.
    looked_up = "The pairs are looked up in the representations of "
    if kept_at(*asked, most=most) is None and lacks(view, models, looked_up):
        return
    with st.spinner("Looking for the pairs of stimuli behind it …"):
        pairs = view.once(
            ("behind", *sides, term, most),
            lambda: pair_contributions(*asked, most=most),
        )
    if pairs is None or pairs.empty:
        st.caption("There are no such pairs.")
        return
    _show_pairs(pairs, a, b, words=view.analysis.stimuli.word_index is not None)
    st.caption(
        f"The {len(pairs)} pairs that {which} of the term "
        f"{plain(naming.now().feature(term))}, each stimulus in one of them at most; one pair "
        "contributes very little, they show the kind."
    )


def _show_pairs(pairs: pd.DataFrame, a: str, b: str, *, words: bool) -> None:
    """The pairs as a table: words in their sentences, or sentences."""
    table = pd.DataFrame(
        {
            "first": pairs["first_text"] if words else pairs["first_sentence"],
            "second": pairs["second_text"] if words else pairs["second_sentence"],
            f"apart in {a}": pairs["distance_a"],
            f"apart in {b}": pairs["distance_b"],
            "contribution": pairs["contribution"] * 1e6,
        }
    )
    if words:
        table.insert(1, "in", pairs["first_sentence"])
        table.insert(3, "in ", pairs["second_sentence"])
    shares: dict[str, Any] = {
        f"apart in {layer}": st.column_config.ProgressColumn(
            f"apart in {naming.now().layer(layer)}", format="percent", min_value=0.0, max_value=1.0,
            help="The share of all pairs that are nearer to one another in this layer.",
        )
        for layer in (a, b)
    }  # fmt: skip
    st.dataframe(
        table,
        hide_index=True,
        key="pairs behind",
        column_config={
            **shares,
            "contribution": st.column_config.NumberColumn(
                format="%.2f", help="What this one pair adds to the similarity, in millionths."
            ),
        },
    )

"""Why two layers are alike: their similarity as a sum over the features, and its intervals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions
from pages.explore import extremes, why_more
from pages.parts import (
    alike,
    audited,
    background,
    choices,
    explained,
    exporting,
    frame,
    naming,
    stored,
)
from pages.parts.view import View
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.similarities import Compared
    from mlem_core.inference.explained import Explanation

MOST = "add most"


@stored.kept(64, copied=True, show_spinner="Looking for the pairs of stimuli behind it …")
def _behind(
    job_id: str, a: str, b: str, features: tuple[str, ...], term: str, most: bool
) -> pd.DataFrame:
    from mlem_core.inference.pair_contributions import pair_contributions

    sides = [parse_layer(a), parse_layer(b)]
    analysis = stored.open_analysis(job_id)
    return pair_contributions(analysis, stored.store(), sides, features, term, most=most)


def show(view: View, a: str, b: str) -> None:
    """Why two layers are alike: in words, and as a sum."""
    from mlem_core.inference.explanation import REPLICATES
    from mlem_core.inference.permutation import TERM_PERMUTATIONS

    other = alike.of(view)
    if other is not None and not other.similarity.divides:
        _aligned(view, other, a, b)
        other = None
    chosen: dict[str, Any] = {} if other is None else {"similarity": other.similarity.name}
    why = explained.of_pair(view, a, b, **chosen)
    with st.container(border=True):
        if other is None:
            explained.in_words(view, explained.checked(view, why))
        else:
            st.markdown(f"##### {plain(why.headline)}".replace(" %", "\u00a0%"))
            for text in (why.how_sure, *why.notes):
                st.markdown(plain(text))
        st.caption(plain(why.sentence))
    exporting.show_figure(view, "why", **chosen)
    _numbers(why, a, b)
    if other is None:
        extremes.offer(view, "why")
    if "chance" not in why.terms:
        drawn = "Blocks left out in turn"
        if other is None:
            drawn = f"{REPLICATES:,} bootstrap replicates"
        background.offer(
            explained.intervals(view, a, b, **chosen),
            "Finer confidence intervals" if why.how else "Add confidence intervals",
            f"{drawn}, and labels permuted {TERM_PERMUTATIONS} times, in the background; about a "
            "minute.",
        )


def _aligned(view: View, other: Compared, a: str, b: str) -> None:
    """How alike two layers are by a similarity that has no terms, above why their RSA is so."""
    from mlem_core.inference.explanation import best_known
    from mlem_core.inference.procrustes_cca import alignment

    sides = parse_layer(a), parse_layer(b)
    found = replace(alignment(view.analysis, sides, other), names=naming.now())
    found = best_known(found, view.analysis, view.selection, stored.store())
    with st.container(border=True):
        st.markdown(f"##### {plain(found.finding)}.")
        for text in (found.how_sure, *found.notes):
            st.markdown(plain(text))
        st.caption(plain(f"{found.meaning[0].upper()}{found.meaning[1:]}"))
    if not found.how_sure:
        background.offer(
            view.work("alignment", {"a": sides[0], "b": sides[1], "similarity": alike.chosen()}),
            "Add its confidence interval",
            "Blocks of stimuli left out in turn, in the background; some seconds.",
        )
    st.info(f"{other.similarity.no_terms} What follows is RSA.", icon=":material/info:")


def more(view: View, a: str, b: str) -> None:
    """What else there is to say of why two layers are alike, over the whole width."""
    if alike.of(view) is None or not alike.has_terms(view, say=False):
        # The audit and the pairs behind a term are those of RSA.
        audited.say_of_pair(view, a, b)
        frame.attempt(partial(why_more.beside, view, a, b))
        why = explained.of_pair(view, a, b)
        frame.folded(
            "The pairs of stimuli behind it",
            ":material/format_quote:",
            "pairs behind",
            partial(_pairs, view, why, a, b),
        )
    why_more.tau(view)
    why_more.alone(view, a, b)


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
        if "lower" in row.index:
            interval = f"95 %: {row['lower']:.2f} to {row['upper']:.2f}"
        place.metric(
            names[row["quantity"]],
            f"{row['value']:.2f}",
            delta=interval or None,
            delta_color="off",
            delta_arrow="off",
            help=helps[row["quantity"]],
        )


def _pairs(view: View, why: Explanation, a: str, b: str) -> None:
    from mlem_core.measures.decomposition import UNEXPLAINED

    terms = why.terms.loc[why.terms["value"].abs().sort_values(ascending=False).index, "term"]
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
    models = sorted({parse_layer(layer)[0] for layer in (a, b)})
    if not (_kept(view, a, b, term, which) or _there(view, models)):
        st.caption(
            "The pairs are looked up in the representations of "
            f"{plain(' and '.join(map(naming.now().model, models)))}, which are not on this "
            "machine yet."
        )
        background.offer(
            view.work("representations", {"models": models}),
            "Get the representations",
            "Runs the models on the stimuli, in the background; some seconds for a small model.",
        )
        return
    pairs = _behind(view.job_id, a, b, view.selection.features, term, which == MOST)
    if pairs.empty:
        st.caption("There are no such pairs.")
        return
    words = view.analysis.stimuli.word_index is not None
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
    st.caption(
        f"The {len(pairs)} pairs that {which} of the term "
        f"{plain(naming.now().feature(term))}, each stimulus in one of them at most; one pair "
        "contributes very little, they show the kind."
    )


def _kept(view: View, a: str, b: str, term: str, which: str) -> bool:
    """Whether the pairs behind a term have been looked up before, or came with the example."""
    from mlem_core.inference.pair_contributions import kept_at

    sides, features = [parse_layer(a), parse_layer(b)], view.selection.features
    asked = view.analysis, stored.store(), sides, features, term
    return kept_at(*asked, most=which == MOST) is not None


def _there(view: View, models: list[str]) -> bool:
    """Whether the representations of these models are on this machine."""
    from mlem_core.analysis.maps import representations_of
    from mlem_core.base.errors import InputError

    try:
        for model in models:
            representations_of(view.analysis, model, stored.store())
    except InputError:
        return False
    return True

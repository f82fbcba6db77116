"""Why two layers are alike: their similarity as a sum over the features, and its intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions
from pages.parts import (
    audited,
    background,
    choices,
    explained,
    frame,
    stored,
    uncertainty,
    why_more,
)
from pages.parts.exporting import Panel
from pages.parts.opening import open_view
from pages.parts.view import View, two_layers
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.inference.explanation import Explanation
    from mlem_core.measures.decomposition import Decomposition

EXAMPLES = 8


@st.cache_data(max_entries=8, show_spinner="Dividing all similarities over the features …")
def _decomposition(
    job_id: str, features: tuple[str, ...], layers: tuple[str, ...]
) -> Decomposition:
    from mlem_core.measures.decomposition import decompose

    analysis = stored.open_analysis(job_id)
    at = [analysis.layers.index(parse_layer(layer)) for layer in layers]
    tables = analysis.tables.of_layers(at).of_features(features)
    return decompose(tables, analysis.rsa[at][:, at])


@st.cache_data(max_entries=64, show_spinner="Looking for the pairs of stimuli behind it …")
def _examples(
    job_id: str, a: str, b: str, features: tuple[str, ...], term: str, most: bool
) -> pd.DataFrame:
    from mlem_core.inference.explanation import contributing_pairs
    from mlem_core.inference.layer_pairs import LayerPairs

    analysis = stored.open_analysis(job_id)
    sides = [parse_layer(a), parse_layer(b)]
    pairs = LayerPairs.of(analysis, sides, stored.store(), features)
    return contributing_pairs(pairs, analysis.stimuli, term, n=EXAMPLES, most=most)


def body() -> None:
    view = open_view(
        "why",
        "Why two layers represent the stimuli alike: their similarity as a sum of what each "
        "feature contributes, and of what no feature explains.",
    )
    if view is None:
        return
    a, b = two_layers(view)
    if a == b:
        st.info("Choose two different layers.", icon=":material/info:")
        return
    frame.attempt(lambda: _two(view, a, b))
    st.divider()
    frame.attempt(lambda: _all(view))


def _two(view: View, a: str, b: str) -> None:
    from mlem_core import figures
    from mlem_core.inference.permutation import TERM_PERMUTATIONS
    from mlem_core.inference.tables import term_tests
    from mlem_core.pairs.units import Units

    two = explained.of_pair(view, a, b)
    why, how = two.why, two.how
    intervals, units = uncertainty.of(view), Units.of(view.analysis.stimuli)
    table = why.terms
    if intervals is not None and len(intervals.terms):
        tests, family = term_tests(intervals, *why.layers, uncertainty.chosen_correction())
        table = table.merge(tests, on="term")
        how += f"; p in the exported table: term other than 0, over a family of {family}"
    with st.container(border=True):
        # A share stays on one line with its sign.
        st.markdown(f"##### {plain(why.headline)}".replace(" %", "\u00a0%"))
        st.markdown(plain(f"{why.how_sure} {why.sentence}"))
    left, right = st.columns([3, 1], gap="large", vertical_alignment="top")
    with left:
        Panel(
            figures.waterfall(why.terms, view.all_features),
            table,
            "why",
            captions.why(_computed_on(view), how, units.over),
        ).show()
    with right:
        _numbers(why, a, b)
        background.offer(
            two.task,
            "Finer confidence intervals" if how else "Add confidence intervals",
            f"{explained.REPLICATES:,} bootstrap replicates, and labels permuted "
            f"{TERM_PERMUTATIONS} times, in the background; about a minute.",
        )
        for note in why.notes:
            st.caption(note)
    audited.say_of_pair(view, a, b)
    why_more.tau(view, a, b)
    why_more.alone(view, a, b)
    frame.attempt(lambda: _pairs(view, why, a, b))


def _computed_on(view: View) -> str:
    tables = view.analysis.tables
    counts = tables.n_stimuli, tables.n_pairs, tables.n_folds
    return f"{captions.coded(view.coding)} {captions.computed_on(*counts, view.held_out)}"


def _numbers(why: Explanation, a: str, b: str) -> None:
    names = {"rsa": "RSA", "ceiling_a": f"Ceiling of {a}", "ceiling_b": f"Ceiling of {b}"}
    helps = {
        "rsa": "Spearman ρ of the neural distances of the two layers over all pairs.",
        "ceiling_a": captions.ceiling_of("first", why.coding),
        "ceiling_b": captions.ceiling_of("second", why.coding),
    }
    for _, row in why.whole.iterrows():
        interval = ""
        if "lower" in row.index:
            interval = f"95 %: {row['lower']:.2f} to {row['upper']:.2f}"
        st.metric(
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
    st.subheader("The pairs of stimuli behind it")
    first, second = st.columns(2, vertical_alignment="bottom")
    with first:
        term = choices.choose_one(
            "Term", list(terms), "term", next(t for t in terms if t != UNEXPLAINED),
            help="The feature whose contribution is looked at, or what is unexplained.",
        )  # fmt: skip
    with second:
        which = choices.choose_one(
            "Pairs",
            ["add most", "take most away"],
            "which",
            "add most",
            help="Pairs that both layers place alike add to the similarity, pairs that they place "
            "differently take from it.",
        )
    models = sorted({parse_layer(layer)[0] for layer in (a, b)})
    if not _there(view, models):
        st.caption(
            "The pairs are looked up in the representations of "
            f"{plain(' and '.join(models))}, which are not on this machine yet."
        )
        background.offer(
            view.work("representations", {"models": models}),
            "Get the representations",
            "Runs the models on the stimuli, in the background; some seconds for a small model.",
        )
        return
    pairs = _examples(view.job_id, a, b, view.selection.features, term, which == "add most")
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
    share: Any = st.column_config.ProgressColumn(
        format="percent", min_value=0.0, max_value=1.0,
        help="The share of all pairs that are nearer to one another in this layer.",
    )  # fmt: skip
    st.dataframe(
        table,
        hide_index=True,
        key="pairs behind",
        column_config={
            f"apart in {a}": share,
            f"apart in {b}": share,
            "contribution": st.column_config.NumberColumn(
                format="%.2f", help="What this one pair adds to the similarity, in millionths."
            ),
        },
    )
    st.caption(
        f"The {len(pairs)} pairs that {which} of the term "
        f"{plain(term)}, each stimulus in one of them at most; one pair contributes "
        "very little, they show the kind."
    )


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


def _all(view: View) -> None:
    from mlem_core import figures

    st.subheader("All layers")
    if len(view.layers) < 2:
        st.info("It needs at least two layers.", icon=":material/info:")
        return
    decomposition = _decomposition(view.job_id, view.selection.features, tuple(view.layer_names))
    means = decomposition.summary(view.layers)
    pairs = (means["model_a"] + " and " + means["model_b"]).where(
        means["model_a"] != means["model_b"], "within " + means["model_a"]
    )
    st.dataframe(
        means.assign(pair=pairs).pivot(index="term", columns="pair", values="mean")
        .loc[list(decomposition.names), pairs.unique()].reset_index(),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in pairs.unique()
        },
    )  # fmt: skip
    st.caption(
        "What makes the models alike: for every two models (and within each) the mean of each term "
        "over their pairs of layers; a column adds up to the mean RSA correlation. "
        + _computed_on(view)
    )
    Panel(
        figures.term_matrices(
            {term: decomposition.matrix(term, view.layers) for term in decomposition.names}
        ),
        decomposition.table(view.layers),
        "why-layers",
        captions.why_layers(_computed_on(view)),
    ).show()


frame.page(body)

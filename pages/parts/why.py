"""Explanation of two layers' similarity: the canvas, and all else of the two below it.

The canvas as an element of a page stands here: the one place that knows both its sources and
Streamlit.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core import extending
from mlem_core.base.errors import InputError
from mlem_core.base.text import percent
from mlem_core.base.typing import parse_layer
from mlem_core.figures.canvas import canvas_data, compute_map, lacking_maps
from mlem_core.figures.context import FigureContext
from mlem_core.inference.explanation_text import settled
from mlem_core.inference.pair_contributions import PAIR_CONTRIBUTIONS
from mlem_core.measures.decomposition import UNEXPLAINED, is_identity
from mlem_core.report.canvas_files import script, style
from mlem_core.tasks.followups import Followup
from pages.parts import background, choices, exporting, frame, screens, stored, uncertainty
from pages.parts.choices import inform, plain
from pages.parts.view import (
    View,
    choose_similarity,
    chosen_similarity,
    has_pairs,
    lacks,
    select_pair,
)

_ENTRY = """
export default function ({ data, parentElement, setTriggerValue }) {
  const content = JSON.parse(new TextDecoder().decode(data));
  mount(parentElement.querySelector(".holder"), content, setTriggerValue);
}
"""


MOST = "add most"
DETAILS = "details"
OFTEN = 1.0  # seconds between two looks at how far it is


def show_pair(view: View) -> None:
    """Canvas of two layers, and what explains their similarity."""
    if has_pairs(view):
        frame.alone(partial(_canvas, view))


def _canvas(view: View) -> None:
    shown = view.shown(similarity=chosen_similarity())
    work = _pending_work(view, shown)
    progress = _progress(work)

    def chosen() -> None:
        select_pair(view, *st.session_state["canvas"]["pair"])

    holder = '<div class="holder" style="container-type: inline-size"></div>'
    code = script() + _ENTRY
    drawn = st.components.v2.component("canvas", html=holder, css=style(), js=code)
    drawn(
        # As bytes: Streamlit would write the same text twice.
        data=json.dumps(canvas_data(shown, progress)).encode(),
        key="canvas",
        on_pair_change=chosen,
        on_details_change=lambda: _open_details(st.session_state["canvas"]["details"]),
    )
    frame.folded_part("Details", "tune", DETAILS, partial(_details, view))
    _wait(shown, work, progress)


def _open_details(term: str) -> None:
    """Open what is below the canvas: all of it, or the pairs of stimuli behind a term."""
    st.session_state[f"folded {DETAILS}"] = True
    if term != "all":
        choices.put_all({"detail": ["pairs"], "term": [term]})


def _pending_work(view: View, shown: FigureContext) -> Followup | None:
    """The work that gives the two layers their intervals and chance; None where they have them."""
    if settled(shown.why):
        return None
    (a, b), by = shown.pair, shown.why.similarity.name
    options = {"a": a, "b": b, "features": view.features, "similarity": by}
    return view.work("error-bars", options)


def _progress(work: Followup | None) -> str:
    """How far some work is, in tenths; empty before it has begun."""
    stages = [] if work is None else work.status().stages
    return f": {percent(stages[-1].done * 10 // max(stages[-1].total, 1) / 10)}" if stages else ""


def _wait(shown: FigureContext, work: Followup | None, progress: str) -> None:
    """Have made what the canvas lacks: intervals and chance of the two layers, and their maps."""
    maps = lacking_maps(shown)
    background.give_way(work)
    if work is not None and (not work.folder.exists() or work.status().state == "cancelled"):
        with contextlib.suppress(InputError, OSError):
            background.begin_ahead(work)
    if maps or (work is not None and work.status().state in background.UNDER_WAY):
        st.fragment(_arrive, run_every=OFTEN)(shown, work, maps, progress, [])


def _arrive(
    shown: FigureContext,
    work: Followup | None,
    maps: list[Any],
    progress: str,
    looked: list[bool],
) -> None:
    """Draw the canvas anew once what it lacked is there, or its work has gone on.

    Not in the run that draws the page (`looked` is empty): the canvas is left time to appear, and
    a click on what stands below it is heard.
    """
    if not looked:
        looked.append(True)
        return
    made = False
    for layer in maps:
        with contextlib.suppress(InputError):
            compute_map(shown, layer)
            made = True
    done = work is not None and work.status().state not in background.UNDER_WAY
    if made or done or _progress(work) != progress:
        st.rerun()


def _details(view: View) -> None:
    """All else that is known of the two layers, a part at a time."""
    parts: dict[str, tuple[str, Callable[[View], None]]] = {
        "pairs": ("Pairs of stimuli", _pairs),
        **{
            panel.part or panel.figure: (panel.title, partial(exporting.show_panel, panel=panel))
            for panel in extending.panels("details")
        },
        "other": ("Other similarities", _others),
        "export": ("Figures and export", _figures),
    }
    titles = {name: title for name, (title, _) in parts.items()}
    now = choices.choose_part("Details", titles, "detail")
    uncertainty.say_of_pair(view, *view.pair)
    frame.attempt(partial(parts[now][1], view))


def _others(view: View) -> None:
    """The choice of the similarity that the canvas shows."""
    of_layers = choose_similarity(view)
    if of_layers.similarity.no_terms:
        inform(of_layers.similarity.no_terms)


def _figures(view: View) -> None:
    """Content of the canvas, as figures that can be saved."""
    similarity = chosen_similarity()
    left, right = st.columns(2, gap="large")
    with left:
        exporting.show_figure(view, "why", similarity=similarity)
        screens.example_link()
    with right:
        exporting.show_tab(view, "details")


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
            "Term", stored.feature_titles(list(terms)), "term", largest,
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
        f"The {len(pairs)} pairs that {which} of the term "
        f"{plain(stored.names().feature(term))}, each stimulus in one of them at most; one pair "
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
            f"apart in {stored.layer_title(layer)}", format="percent", min_value=0.0, max_value=1.0,
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

"""Uncertainty of what a view shows: its intervals and tests, and the flags of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from mlem_core.analysis.flags import pair_reasons, reasons
from mlem_core.base.text import fraction
from mlem_core.base.typing import parse_layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.importance_null import SCORE_CHANCE
from mlem_core.inference.intervals import (
    PERMUTATIONS,
    FamilyOfTests,
    LayerIntervals,
    family_of_tests,
)
from mlem_core.inference.resample import ZERO, generalises, how_computed, permuted_sample_sentence
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from pages.parts import background, exporting, frame, stored
from pages.parts.choices import plain
from pages.parts.view import View


def offer_intervals(view: View, similarity: str = RSA) -> None:
    """The button that makes them, or its progress; nothing where they are there."""
    shown = view.shown()
    known = shown.find_contribution_null(similarity) or not SIMILARITIES[similarity].divides
    if shown.find_intervals(similarity) is not None and known:
        return
    chosen = replace(view.selection, similarity=similarity)
    background.offer(
        view.work("intervals", chosen.to_dict()),
        "Compute confidence intervals and tests",
        f"Resamples {Units.from_stimuli(view.analysis.stimuli).over} and permutes the labels of "
        f"each feature {PERMUTATIONS} times, in the background: intervals and tests on all pages, "
        f"for all {len(view.layers)} layers. It takes some minutes, longer with many stimuli or "
        "layers.",
    )


def offer_chance(view: View) -> None:
    """The button that compares importances with chance, where that alone is missing."""
    chosen, shown = view.selection, view.shown()
    if chosen.interactions or estimator_named(chosen.estimator).slow:
        return
    if shown.find_contribution_null(RSA) is None or shown.importance_chance is not None:
        return
    background.offer(
        view.work("importance-chance", chosen.to_dict()),
        "Compare with chance",
        f"Permutes the labels of each feature {PERMUTATIONS} times and fits all "
        f"{len(view.layers)} layers anew, in the background: some minutes.",
    )


def show_tests(
    view: View,
    intervals: LayerIntervals,
    family: FamilyOfTests,
    name: str,
    title: str,
    caption: str,
) -> None:
    """A table of intervals and tests, folded away."""
    how = how_computed(intervals.estimator, intervals.units)
    claimed = generalises(intervals.units, seeds=view.analysis.spec.has_seeds)
    caption = f"{caption} {how} {ZERO} {claimed}"
    frame.folded_part(title, "rule", name, partial(_draw_tests, family, name, caption))


def _draw_tests(tests: FamilyOfTests, name: str, caption: str) -> None:
    exporting.draw_table(
        tests.table,
        name,
        f"{caption} p_corrected: over a family of {tests.family}.",
        column_config={
            column: st.column_config.NumberColumn(format="%.2g" if "_p" in f"_{column}" else "%.3f")
            for column in tests.table.select_dtypes("number")
            if column != "layer"
        },
    )


def score_chance(view: View) -> None:
    """Whether each layer's score is above chance."""
    if estimator_named(view.selection.estimator).slow:
        st.caption("It is tested with ridge, which is fitted quickly: run the analysis with it.")
        return
    permuted = Units.from_stimuli(view.analysis.stimuli).permuted(view.analysis.spec.folds_over)
    place = " (the place of a word)" * (view.analysis.stimuli.level == "word")
    sample = permuted_sample_sentence(len(view.analysis.stimuli), view.analysis.pairs.n_pairs)
    found = SCORE_CHANCE.find(view)
    if found is None:
        st.markdown(
            f"{permuted[0].upper() + permuted[1:]} change their labels, and every model is fitted "
            f"and scored again, {PERMUTATIONS} times. p is the share of times that the "
            f"score is as high. {sample}"
        )
        asked = view.selection.to_dict() | {"permutations": PERMUTATIONS}
        background.offer(
            view.work("chance", asked),
            "Test the scores",
            "Works in the background; about ten seconds a layer.",
        )
        return
    _draw_tests(
        family_of_tests(found, "scores"),
        "chance-tests",
        f"rho: held-out ρ; chance: its mean over labels permuted between {permuted}, where "
        f"what all labels share{place} is left as it is. {sample}".rstrip(),
    )


def around(interval: Sequence[float] | None) -> dict[str, Any]:
    """Arguments of `st.metric` that write an interval below its number."""
    if interval is None or interval[0] != interval[0]:
        return {}
    span = f"95 % CI {fraction(interval[0])} to {fraction(interval[1])}"
    return {"delta": span, "delta_color": "off", "delta_arrow": "off"}


def say_of_pair(view: View, a: str, b: str) -> None:
    """Sentences on the marks of two layers "model:layer" that a page compares."""
    marks = view.shown().marks
    one, other = stored.layer_title(a), stored.layer_title(b)
    names = {
        "a": f"The profile of {one}",
        "b": f"The profile of {other}",
        "both": f"The similarity of {one} and {other}",
    }
    by_measure = {measure: reasons(marks, measure) for measure in ("profiles", RSA, "tau")}
    marked = pair_reasons(by_measure, parse_layer(a), parse_layer(b))
    sentences = [plain(f"{names[side]}: {why}.") for side, why in marked.items()]
    if sentences:
        with st.expander("These layers are flagged", icon=":material/warning:"):
            st.markdown("\n".join(f"- {one}" for one in sentences))

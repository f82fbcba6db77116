"""Confidence intervals and tests of what a view shows, and the button that computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.text import minus
from mlem_core.base.typing import parse_layer
from pages.parts import background, choices, exporting, frame, stored
from pages.parts.wording import duration

if TYPE_CHECKING:
    from mlem_core.analysis.selection import Selection
    from mlem_core.inference.corrections import FamilyOfTests
    from mlem_core.inference.intervals import LayerIntervals
    from pages.parts.view import View

CORRECTION_NAMES = {
    "bh": "Benjamini-Hochberg (false discoveries)",
    "bonferroni": "Bonferroni (any false finding)",
    "none": "not corrected",
}


@stored.kept(16)
def _found(job_id: str, selection: Selection) -> LayerIntervals:
    from mlem_core.inference.layer_intervals import find

    intervals = find(stored.open_analysis(job_id), stored.store(), selection)
    if intervals is None:
        raise LookupError("no intervals yet")  # what raises is not kept
    return intervals


@stored.kept(64)
def _agreement(job_id: str, selection: Selection) -> tuple[float, float]:
    from mlem_core.inference.tables import agreement_interval

    return agreement_interval(_found(job_id, selection), selection.layers)[1:]


def of(view: View) -> LayerIntervals | None:
    """The intervals of what a view shows; None where they have not been computed."""
    try:
        return _found(view.job_id, view.selection)
    except LookupError:
        return None


def agreement(view: View) -> tuple[float, float] | None:
    """The interval of the agreement of both similarities; None where there is none."""
    return None if of(view) is None else _agreement(view.job_id, view.selection)


def offer(view: View) -> None:
    """The button that makes them, or its progress; nothing where they are there."""
    from mlem_core.pairs.resampling_units import Units

    if of(view) is not None:
        return
    background.offer(
        view.work("all-error-bars", view.selection.to_dict()),
        "Add confidence intervals and tests",
        f"Resamples {Units.of(view.analysis.stimuli).over} in the background: intervals and tests "
        f"on all pages, for all {len(view.layers)} layers. About {_minutes(view)}.",
    )


def _minutes(view: View) -> str:
    """By the pairs and layers; a guess from what the probing set took on two cores."""
    from mlem_core.pairs.resampling_units import Units

    rate = 5.0e-6 if Units.of(view.analysis.stimuli).two_way else 2.0e-6
    seconds = 20 + view.analysis.tables.n_pairs * len(view.layers) * rate
    return duration(seconds)


def tests(
    view: View,
    intervals: LayerIntervals,
    family: FamilyOfTests,
    name: str,
    title: str,
    caption: str,
) -> None:
    """A table of intervals and tests, folded away."""
    from mlem_core.inference.caveats import ZERO, generalises, how_computed

    def body() -> None:
        how = how_computed(intervals.estimator, intervals.units)
        claimed = generalises(intervals.units, seeds=view.analysis.spec.has_seeds)
        _tests(family, name, f"{caption} {how} {ZERO} {claimed}")

    frame.folded(title, ":material/rule:", name, body)


def _tests(tests: FamilyOfTests, name: str, caption: str) -> None:
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


def chance(view: View) -> None:
    """Whether each layer's score is above chance; folded away."""
    frame.folded(
        "Is each layer's score above chance?",
        ":material/casino:",
        "chance",
        lambda: _chance(view),
    )


def _chance(view: View) -> None:
    from mlem_core.estimators.registry import estimator_named
    from mlem_core.inference.caveats import permuted_of
    from mlem_core.inference.corrections import family_of_tests
    from mlem_core.inference.permutation import SCORE_PERMUTATIONS, find_chance
    from mlem_core.pairs.resampling_units import Units

    if estimator_named(view.selection.estimator).slow:
        st.caption("It is tested with ridge, which is fitted quickly; choose it in the sidebar.")
        return
    permuted = Units.of(view.analysis.stimuli).permuted(view.analysis.spec.folds_over)
    sample = permuted_of(len(view.analysis.stimuli), view.analysis.tables.n_pairs)
    found = find_chance(view.analysis, stored.store(), view.selection)
    if found is None:
        st.markdown(
            f"{permuted[0].upper() + permuted[1:]} change their labels, and every model is fitted "
            f"and scored again, {SCORE_PERMUTATIONS} times. p is the share of times that the "
            f"score is as high. {sample}"
        )
        asked = view.selection.to_dict() | {"permutations": SCORE_PERMUTATIONS}
        background.offer(
            view.work("chance", asked),
            "Test the scores",
            "Works in the background; about ten seconds a layer.",
        )
        return
    _tests(
        family_of_tests(found, "scores", chosen_correction()),
        "chance-tests",
        f"rho: held-out ρ; chance: its mean over labels permuted between {permuted}, where "
        f"what all labels share (the place of a word) is left as it is. {sample}".rstrip(),
    )


def choose_correction() -> str:
    """The choice of how p-values are corrected, drawn once for all tables of a page."""
    return choices.choose_one(
        "Correction for many tests",
        list(CORRECTION_NAMES),
        "correction",
        "bh",
        format_func=lambda one: CORRECTION_NAMES[one],
        help="What is done to the p-values of a family of tests, so that many tests do not make "
        "findings by chance.",
    )


def chosen_correction() -> str:
    """How p-values are corrected, the same on all pages."""
    chosen = choices.get_one("correction", "bh")
    return chosen if chosen in CORRECTION_NAMES else "bh"


def around(interval: tuple[float, float] | None) -> dict[str, Any]:
    """What a metric says of its interval: arguments of `st.metric`."""
    if interval is None or interval[0] != interval[0]:
        return {}
    text = minus(f"95 %: {interval[0]:.2f} to {interval[1]:.2f}")
    return {"delta": text, "delta_color": "off", "delta_arrow": "off"}


def of_pair(
    intervals: LayerIntervals | None, a: str, b: str
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Intervals of τ and RSA of two layers "model:layer"; None where there are none."""
    from mlem_core.inference.tables import similarity_table

    if intervals is None or a == b:
        return None, None
    layers = [parse_layer(a), parse_layer(b)]
    row = similarity_table(intervals, layers).table.iloc[0]
    tau, rsa = (
        (float(row[f"{name}_lower"]), float(row[f"{name}_upper"]))
        for name in ("weighted_tau", "rsa")
    )
    return tau, rsa

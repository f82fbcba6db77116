"""The choices that an analysis makes itself: how it is fitted, and what is coded by value.

Both are made once for all layers, on the pairs across folds
(`mlem_core.estimators.ridge_solver.across_folds`). What differs from the papers' choices, ridge and
coding as same or different, has to gain `GAIN` of ρ for each that does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.typing import IntArray
from mlem_core.data.folds import stimulus_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import can_resolve, estimator_named
from mlem_core.estimators.ridge_solver import FEWEST_TO_CHOOSE, GAIN, across_folds
from mlem_core.pairs.build import tables_without_layers
from mlem_core.pairs.columns import AUTO, feature_columns
from mlem_core.pairs.crossfit import share_alone
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables, same_or_different

# The entry of a manifest that says what was chosen, and the ρ of each choice.
CHOSEN = "chosen"
BY = "chosen by inner cross-validation"


def with_choices_open(spec: AnalysisSpec, stimuli: StimulusSet) -> AnalysisSpec:
    """The analysis whose tables tell which choices are best: by value what can be; ridge.

    With fewer than `FEWEST_TO_CHOOSE` folds nothing can be chosen: coded as same or different.
    """
    among, values = estimator_named(spec.estimator).among, spec.values
    if values == AUTO:
        values = recommended_values(stimuli, spec) if spec.folds >= FEWEST_TO_CHOOSE else ()
    return replace(spec, estimator=among[0] if among else spec.estimator, values=values)


def settled(
    spec: AnalysisSpec, stimuli: StimulusSet, tables_of: Callable[[IntArray], PairTables]
) -> tuple[AnalysisSpec, dict[str, Any]]:
    """The analysis with its choices made, and what its manifest says of them; none is {}.

    Parameters
    ----------
    spec, stimuli : the specification, and its stimuli with the features
    tables_of : gives the pair tables of all layers `with_choices_open` of the stimuli in these
        rows, a seeded sample of those that are more than `MOST_STIMULI`
    """
    first, names = with_choices_open(spec, stimuli), estimator_named(spec.estimator).among
    names = names or (spec.estimator,)
    codings = ((), first.values) if spec.values == AUTO and first.values else (first.values,)
    if spec.folds < FEWEST_TO_CHOOSE or len(names) * len(codings) == 1:
        return first, {}
    rows = np.random.default_rng(spec.seed).permutation(len(stimuli))[:MOST_STIMULI]
    tables = tables_of(np.sort(rows)).with_interactions(spec.interactions)
    of = {first.values: tables} | ({(): same_or_different(tables)} if len(codings) > 1 else {})
    rho = {
        (name, values): float(across_folds(of[values], ranked="rank" in name).mean())
        for name, values in itertools.product(names, codings)
    }

    def gained(choice: tuple[str, tuple[str, ...]]) -> float:
        return rho[choice] - GAIN * (names.index(choice[0]) + codings.index(choice[1]))

    estimator, values = max(rho, key=gained)
    scores = [[name, list(coded), round(score, 4)] for (name, coded), score in rho.items()]
    chosen = {"estimator": estimator, "values": list(values), "rho": scores}
    return replace(first, estimator=estimator, values=values), chosen


def said_of_choice(manifest: Mapping[str, Any], estimator: str) -> str:
    """The clause that follows the name of an estimator that was chosen; else empty."""
    return f", {BY}" if manifest.get(CHOSEN, {}).get("estimator") == estimator else ""


# With two values there is one distance between them, resolved or not.
FEWEST_VALUES = 3
# More patterns make a redraw slow: on the probing words 3,834 (part of speech) take .3 s for seven
# layers, 5,907 (person too) take seconds, since importance puts every value with every pattern.
# Natural text has more with no feature coded by value: coding by value costs it little.
MOST_PATTERNS = 5_000, 50_000
# Of the pairs inside a fold so many may have a pattern that no pair of other stimuli has: a ceiling
# of .66 lost .01 to .02 at a tenth, in simulations, and a third of itself at two thirds
# (docs/validation).
ALONE = 0.1
# Of more stimuli the pairs of a sample are looked at: seconds instead of half a minute.
MOST_STIMULI = 2_500


def resolvable(stimuli: StimulusSet) -> list[str]:
    """The features that can be resolved by value, in their order."""
    return [column.name for column in feature_columns(stimuli) if column.resolvable]


def recommended_values(stimuli: StimulusSet, spec: AnalysisSpec) -> tuple[str, ...]:
    """The features that an analysis had better resolve by value, in their order.

    Nominal features with at least three values, the one with most values first, each one added
    where the pairs inside a fold whose pattern no other pair has stay at or below `ALONE`, and the
    patterns at or below the first of `MOST_PATTERNS`, or the second where even with no feature
    coded by value there are more. Of more than `MOST_STIMULI` stimuli a seeded sample is looked at.

    Parameters
    ----------
    stimuli : with the features of the analysis
    spec : its folds, missing values, estimator and interactions; none is recommended where these
        two cannot resolve a feature, or where the stimuli cannot be put into the folds
    """
    if not can_resolve(spec.estimator, spec.interactions):
        return ()
    columns = [
        column
        for column in feature_columns(stimuli)
        if column.kind == "nominal" and column.resolvable and len(column.present) >= FEWEST_VALUES
    ]
    try:
        folds = stimulus_folds(stimuli, spec.folds_over, spec.folds, spec.seed)
    except InputError:
        return ()
    rows = np.sort(np.random.default_rng(spec.seed).permutation(len(stimuli))[:MOST_STIMULI])
    sample, chosen = stimuli.take(rows), set[str]()

    def indexed(names: set[str]) -> PairIndex:
        return PairIndex.build(feature_columns(sample, resolved=names), folds[rows], spec.missing)

    most = MOST_PATTERNS[indexed(chosen).n_patterns > MOST_PATTERNS[0]]
    for column in sorted(columns, key=lambda one: -len(one.present)):
        index = indexed(more := {*chosen, column.name})
        if index.n_patterns <= most and share_alone(tables_without_layers(index)) <= ALONE:
            chosen = more
    return tuple(column.name for column in feature_columns(stimuli) if column.name in chosen)

"""Which features can be resolved by value, and of which the stimuli have pairs enough for it."""

from __future__ import annotations

import numpy as np

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.data.folds import stimulus_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import can_resolve
from mlem_core.pairs.build import tables_without_layers
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.crossfit import share_alone
from mlem_core.pairs.patterns import PairIndex

# With two values there is one distance between them, resolved or not.
FEWEST_VALUES = 3
# More patterns make a redraw slow: on the probing words 3,834 (part of speech) take .3 s for seven
# layers, 5,907 (person too) take seconds, since importance puts every value with every pattern.
# Where no feature is coded by value and there are more, as many are no slower.
MOST_PATTERNS = 5_000
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
    patterns at or below `MOST_PATTERNS` or those with no feature coded by value. Of more than
    `MOST_STIMULI` stimuli a seeded sample is looked at.

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

    most = max(MOST_PATTERNS, indexed(chosen).n_patterns)
    for column in sorted(columns, key=lambda one: -len(one.present)):
        index = indexed(more := {*chosen, column.name})
        if index.n_patterns <= most and share_alone(tables_without_layers(index)) <= ALONE:
            chosen = more
    return tuple(column.name for column in feature_columns(stimuli) if column.name in chosen)

"""What is known before a run: the choices that an analysis makes itself, its time and its room.

How it is fitted, and what is coded by value, is chosen once for all layers, on the pairs across
folds (`mlem_core.estimators.ridge_solver.across_folds`). What differs from the papers' choices,
ridge and coding as same or different, has to gain `GAIN` of ρ for each that does.

Constants of time were measured on two cores of a laptop's speed; a busy machine takes longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.typing import IntArray
from mlem_core.base.work import cores
from mlem_core.data.folds import stimulus_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import can_resolve, estimator_named
from mlem_core.estimators.ridge_solver import FEWEST_TO_CHOOSE, GAIN, across_folds
from mlem_core.models.availability import Shape
from mlem_core.pairs.build import tables_without_layers
from mlem_core.pairs.columns import AUTO, FeatureColumn, feature_columns
from mlem_core.pairs.crossfit import share_alone
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.patterns import MAX_PATTERNS, MOST_CODES, PairIndex
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


# Seconds of one core.
START = 12.0  # torch and transformers are imported
OPEN = 1.0  # a model is opened ...
OPEN_QUANTISED = 17.0  # ... and one of 4-bit weights, which are made numbers
PER_PRODUCT = 5e-10  # of a token, a block and the square of its width
PER_TOKEN = 5e-5  # of a token in a block, whatever its width
PER_STEP = 2e-4  # the same where a block goes token by token
PER_PAIR = 8e-8  # of a pair in a layer, of all pairs: distances, ranks, sums by pattern
PER_SOME = 1.5e-7  # of a pair of a budget of them, which are computed one by one ...
PER_UNIT = 2.5e-10  # ... and for each unit
PER_SQUARE = 2.5e-9  # of a cell and two weights in a layer: the normal equations
# Bytes of a cell (pattern and block) in the table of a layer, and for each fold.
PER_CELL, PER_CELL_AND_FOLD = 6.0, 2.4
HEADER = 128  # bytes of an .npy file before the numbers
TOKENS_A_WORD = 1.3
# Of more weights the normal equations of all training sets take more than 2 GB, and minutes.
MOST_WEIGHTS = 600
ENOUGH = 1_000  # stimuli, whose pairs have all patterns that may be too many
UNKNOWN = Shape(12, 768)  # a model of unknown size


@dataclass(frozen=True)
class Cost:
    """An estimate.

    Attributes
    ----------
    seconds : of the run, without fetching models
    n_bytes : kept in the store: representations, pair tables, the analysis
    n_layers : whose pairs of stimuli are compared
    """

    seconds: float
    n_bytes: int
    n_layers: int


def cost_of(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    n_cells: int,
    models: Mapping[str, Shape | None],
    files: Sequence[int] = (),
) -> Cost:
    """Time and disk space of an analysis, where the store has nothing for it.

    Parameters
    ----------
    spec : its layers and folds
    stimuli : with the features of the analysis
    n_cells : of its pairs, see `mlem_core.data.doubts.Lint`
    models : the size of each model; None is unknown
    files : how many layers each representations file has
    """
    n = len(stimuli)
    tokens = TOKENS_A_WORD * sum(len(text.split()) + 1 for text in set(stimuli.sentences))
    seconds, n_bytes, n_layers = START * bool(models), 0.0, 0
    for known in models.values():
        shape = known or UNKNOWN
        product = PER_PRODUCT * shape.width**2
        step = PER_STEP if shape.recurrent else PER_TOKEN
        seconds += OPEN_QUANTISED if shape.quantised else OPEN
        kept = _chosen(spec, shape.blocks + 1)
        run = shape.blocks if spec.layers is None else min(shape.blocks, max(spec.layers))
        seconds += tokens * run * (product + step)
        n_bytes += kept * (4 * n * shape.width + HEADER)
        n_layers += kept
    n_layers += sum(_chosen(spec, layers) for layers in files)
    every, budget = n_pairs(n), spec.pairs or np.inf
    widths = [(known or UNKNOWN).width for known in models.values()] or [UNKNOWN.width]
    each = PER_PAIR if every <= budget else PER_SOME + PER_UNIT * max(widths)
    seconds += each * min(every, budget) * n_layers
    n_features = len(stimuli.features)
    n_weights = n_features * (n_features + 1) // 2 if spec.interactions else n_features
    seconds += PER_SQUARE * n_cells * n_weights**2 * n_layers
    per_cell = PER_CELL + PER_CELL_AND_FOLD * spec.folds
    # In the store of parts, and in the analysis.
    n_bytes += 2 * n_layers * n_cells * per_cell
    return Cost(seconds / min(2, cores()), round(n_bytes), n_layers)


def check_weights(columns: Sequence[FeatureColumn], spec: AnalysisSpec) -> None:
    """Raise where a model of these features has more weights than can be fitted.

    Parameters
    ----------
    columns : of the features, some of them resolved by value
    spec : whether products of two features have weights, too

    Raises InputError: more than `MOST_WEIGHTS` weights.
    """
    values, n = [len(column.names) for column in columns], len(columns)
    n_weights = sum(v * (v + 1) // 2 or 1 for v in values)
    if spec.interactions and not any(values):  # else the run says that it cannot be
        n_weights = n * (n + 1) // 2
    if n_weights > MOST_WEIGHTS:
        raise InputError(
            f"the {n} features make a model of {n_weights:,} weights; expected at most "
            f"{MOST_WEIGHTS}, so choose fewer features, no interactions, or code fewer features by "
            "value."
        )


def check_cost(columns: Sequence[FeatureColumn], spec: AnalysisSpec) -> None:
    """Raise before any model runs where features make too many weights or patterns.

    Parameters are those of `check_weights`.

    Raises as `check_weights`; more patterns in the first `ENOUGH` stimuli than are compared.
    """
    check_weights(columns, spec)
    if len(columns) * MAX_PATTERNS > MOST_CODES:
        first = [replace(column, values=column.values[:ENOUGH]) for column in columns]
        PairIndex.build(first, np.zeros(len(first[0].values), dtype=np.int64), spec.missing)


def _chosen(spec: AnalysisSpec, n_layers: int) -> int:
    return n_layers if spec.layers is None else sum(layer < n_layers for layer in spec.layers)

"""What is known before a run: the choices that an analysis makes itself, its time and its room.

How it is fitted, and what is coded by value, is chosen for all layers together and anew in each
outer fold, by ρ in its inner folds. The papers' choice, ridge and coding as same or different,
stays unless another gains more than `GAIN` and more than the standard error of the gain over the
inner folds (Breiman et al. 1984). Scores and importances of a fold are those of its choice; where
one must hold, as for contributions, it is that of most folds.

Constants of time were measured on two cores of a laptop's speed; a busy machine takes longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.progress import PlannedStage
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.estimators.ridge_solver import GAIN, inner_scores
from mlem_core.pairs.column_builder import MAX_COLUMNS
from mlem_core.pairs.columns import AUTO, FeatureColumn, feature_columns
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.pair_columns import number_of_columns
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.representations.registry import Shape
from mlem_core.stimuli.stimulus_set import StimulusSet

# The entry of a manifest that says what was chosen, in each fold too, and the ρ of each choice.
CHOSEN = "chosen"
BY = "chosen by inner cross-validation"


class Choice(NamedTuple):
    """An estimator, and the features that are coded by value."""

    estimator: str
    values: tuple[str, ...]


def possible_choices(spec: AnalysisSpec, stimuli: StimulusSet) -> list[Choice]:
    """The choices among which an analysis of these stimuli chooses, the papers' first."""
    names = estimator_named(spec.estimator).among or (spec.estimator,)
    codings = [spec.values]
    if spec.values == AUTO:
        codings = [*dict.fromkeys(((), recommended_values(stimuli, spec)))]
    return list(itertools.starmap(Choice, itertools.product(names, codings)))


def choose(
    spec: AnalysisSpec, choices: Sequence[Choice], pairs: PairStatistics
) -> tuple[Choice, dict[str, Any]]:
    """The choice of most folds, and what a manifest says of the choices.

    Parameters
    ----------
    spec : as requested
    choices : several of `possible_choices`
    pairs : pair statistics of all layers, in the coding of the last of the choices
    """
    rho = {
        choice: inner_scores(pairs, ranked="rank" in choice.estimator, by_value=bool(choice.values))
        for choice in choices
    }
    by_fold = best_by_fold(rho)
    best = max(rho, key=by_fold.count)
    return best, {
        "estimator": best.estimator,
        "values": list(best.values),
        "folds": [[name, list(coded)] for name, coded in by_fold],
        "rho": [
            [name, list(coded), round(float(np.nanmean(score)), 4)]
            for (name, coded), score in rho.items()
        ],
        "requested": {"estimator": spec.estimator, "values": list(spec.values)},
    }


def sampled_rows(n_stimuli: int, seed: int) -> IntArray:
    """The rows, ascending, of a seeded sample of at most `MOST_STIMULI` stimuli."""
    return np.sort(np.random.default_rng(seed).permutation(n_stimuli)[:MOST_STIMULI])


def best_by_fold(scores: Mapping[Choice, FloatArray]) -> list[Choice]:
    """The choice of each outer fold, of those that are scored, the papers' first.

    `scores` are (n_folds, n_folds) each, see `mlem_core.estimators.ridge_solver.inner_scores`.
    """
    first, *others = scores
    by_fold = [first] * len(scores[first])
    for fold in range(len(by_fold)):
        for choice in others:
            gains = np.delete(scores[choice][:, fold] - scores[by_fold[fold]][:, fold], fold)
            error = gains.std(ddof=1) / np.sqrt(len(gains))
            if gains.mean() > max(GAIN, error):
                by_fold[fold] = choice
    return by_fold


def fold_choices(manifest: Mapping[str, Any]) -> list[Choice]:
    """The choice of each fold; none where nothing was to be chosen."""
    folds = manifest.get(CHOSEN, {}).get("folds", ())
    return [Choice(estimator, tuple(values)) for estimator, values in folds]


def said_of_choice(manifest: Mapping[str, Any], estimator: str, how: str = BY) -> str:
    """The clause that follows the name of an estimator that was chosen, and how; else empty."""
    chosen, by_fold = manifest.get(CHOSEN, {}), fold_choices(manifest)
    if chosen.get("estimator") != estimator:
        return ""
    n_folds = by_fold.count(Choice(estimator, tuple(chosen["values"])))
    return f", {how} in {n_folds} of {len(by_fold)} folds"


def choices_table(manifest: Mapping[str, Any]) -> pd.DataFrame:
    """The choice of each fold: fold, estimator, values (coded by value, with "; " between)."""
    rows = [(k, name, "; ".join(values)) for k, (name, values) in enumerate(fold_choices(manifest))]
    return pd.DataFrame(rows, columns=["fold", "estimator", "values"])


# With two values there is one distance between them, resolved or not.
FEWEST_VALUES = 3
# Features are coded by value, of themselves, up to so many columns: more take minutes.
MOST_BY_VALUE = 600
# Of more stimuli the pairs of a sample are looked at: seconds instead of half a minute.
MOST_STIMULI = 2_500


def recommended_values(stimuli: StimulusSet, spec: AnalysisSpec) -> tuple[str, ...]:
    """The features that an analysis tries to resolve by value, in their order.

    Nominal features with at least three values, those with fewest values first, while there are at
    most `MOST_BY_VALUE` columns of pairs.

    Parameters
    ----------
    stimuli : with the features of the analysis
    spec : its estimator and interactions; none is recommended where these cannot resolve a feature
    """
    if spec.interactions or not estimator_named(spec.estimator).resolves:
        return ()
    columns = feature_columns(stimuli)
    nominal = [
        column
        for column in columns
        if column.kind == "nominal"
        and column.has_few_values
        and len(column.present) >= FEWEST_VALUES
    ]
    by_value: set[str] = set()
    for column in sorted(nominal, key=lambda column: len(column.present)):
        more = {*by_value, column.name}
        coded = [c.with_names() if c.name in more else c for c in columns]
        if number_of_columns(coded) <= MOST_BY_VALUE:
            by_value = more
    return tuple(column.name for column in columns if column.name in by_value)


# Seconds of one core.
START = 12.0  # torch and transformers are imported
OPEN = 1.0  # a model is opened ...
OPEN_QUANTISED = 17.0  # ... and one of 4-bit weights, which are made numbers
PER_PRODUCT = 5e-10  # of a token, a block and the square of its width
PER_TOKEN = 5e-5  # of a token in a block, whatever its width
PER_STEP = 2e-4  # the same where a block goes token by token
PER_PAIR = 8e-8  # of a pair in a layer, of all pairs: distances and ranks
PER_SOME = 1.5e-7  # of a pair of a budget of them, which are computed one by one ...
PER_UNIT = 2.5e-10  # ... and for each unit
PER_COLUMN = 2e-9  # of a pair and a column in a layer: products of the columns with the distances
PER_SORT = 1.2e-5  # of a test pair in a layer: predictions are sorted for each strength and fold
HEADER = 128  # bytes of an .npy file before the numbers
TOKENS_A_WORD = 1.3
UNKNOWN = Shape(12, 768)  # a model of unknown size
MODELS, PAIRS = "representations", "pairs of stimuli"


@dataclass(frozen=True)
class Cost:
    """An estimate.

    Attributes
    ----------
    stages : of the run, in their order, without fetching models
    n_bytes : kept in the store: representations, pair statistics, the analysis
    n_layers : whose pairs of stimuli are compared
    """

    stages: list[PlannedStage]
    n_bytes: int
    n_layers: int

    @property
    def seconds(self) -> float:
        """Time of the run, until its result can be looked at."""
        return sum(stage.seconds for stage in self.stages)


def planned_stage(
    stage: str, model: str | None, seconds: float, speeds: Mapping[str, float]
) -> PlannedStage:
    """A stage with the time that it takes on this machine.

    Parameters
    ----------
    seconds : of one core of a laptop
    speeds : as of `estimate_cost`
    """
    return PlannedStage(stage, model, seconds * speeds.get(stage, default_speed()))


def default_speed() -> float:
    """Seconds of a stage that was never measured here, for one of one core of a laptop."""
    return 1 / min(2, cores())


def estimate_cost(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    n_columns: int,
    models: Mapping[str, Shape | None],
    files: Sequence[int] = (),
    speeds: Mapping[str, float] | None = None,
) -> Cost:
    """Time and disk space of an analysis, where the store has nothing for it.

    Parameters
    ----------
    spec : its layers and folds
    stimuli : with the features of the analysis
    n_columns : of its pairs, see `mlem_core.stimuli.table_warnings.Lint`
    models : the size of each model; None is unknown
    files : how many layers each representations file has
    speeds : how many times as long as one core of a laptop stages took here, by their names
    """
    n = len(stimuli)
    tokens = TOKENS_A_WORD * sum(len(text.split()) + 1 for text in set(stimuli.sentences))
    n_bytes, n_layers, start, seconds = 0.0, 0, START, list[tuple[str, str | None, float]]()
    for name, known in models.items():
        shape = known or UNKNOWN
        product = PER_PRODUCT * shape.width**2
        step = PER_STEP if shape.recurrent else PER_TOKEN
        opening = start + (OPEN_QUANTISED if shape.quantised else OPEN)
        kept, start = _chosen(spec, shape.blocks + 1), 0.0
        run = shape.blocks if spec.layers is None else min(shape.blocks, max(spec.layers))
        seconds.append((MODELS, name, opening + tokens * run * (product + step)))
        n_bytes += kept * (4 * n * shape.width + HEADER)
        n_layers += kept
    n_layers += sum(_chosen(spec, layers) for layers in files)
    every, budget = n_pairs(n), spec.pairs or np.inf
    widths = [(known or UNKNOWN).width for known in models.values()] or [UNKNOWN.width]
    each = PER_PAIR if every <= budget else PER_SOME + PER_UNIT * max(widths)
    compared = min(every, budget)
    tested = compared / spec.folds
    each_layer = compared * (each + PER_COLUMN * n_columns) + PER_SORT * tested
    seconds.append((PAIRS, None, each_layer * n_layers))
    # In the store, and in the analysis: test pairs, and sums by columns and blocks of folds.
    n_bytes += 2 * n_layers * (4 * tested + 16 * n_columns * spec.folds**2)
    stages = [planned_stage(*stage, speeds or {}) for stage in seconds]
    return Cost(stages, round(n_bytes), n_layers)


def check_columns(columns: Sequence[FeatureColumn], spec: AnalysisSpec) -> None:
    """Raise before any model runs where pairs of these features have too many columns.

    Parameters
    ----------
    columns : of the features, some of them resolved by value
    spec : whether products of two features are columns, too

    Raises InputError: more than `MAX_COLUMNS` columns.
    """
    n_columns, n = number_of_columns(columns, spec.interactions), len(columns)
    if n_columns > MAX_COLUMNS:
        raise InputError(
            f"the {n} features make a model of {n_columns:,} weights; expected at most "
            f"{MAX_COLUMNS:,}, so choose fewer features, no interactions, code fewer features by "
            "value, or merge their rare values (--merge-rare)."
        )


def _chosen(spec: AnalysisSpec, n_layers: int) -> int:
    return n_layers if spec.layers is None else sum(layer < n_layers for layer in spec.layers)

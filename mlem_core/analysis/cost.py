"""Time and disk space of a run, estimated before it starts.

The constants were measured on two cores of a laptop's speed; a busy machine takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.work import cores
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models.availability import Shape
from mlem_core.pairs.columns import FeatureColumn
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.patterns import MAX_PATTERNS, MOST_CODES, PairIndex

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
# What a model of unknown size is counted as.
UNKNOWN = Shape(12, 768)


@dataclass(frozen=True)
class Cost:
    """An estimate.

    Attributes
    ----------
    seconds : of the run, without what is fetched
    n_bytes : kept in the store: representations, pair tables, the analysis
    n_fetched : bytes from the hub
    n_layers : whose pairs of stimuli are compared
    """

    seconds: float
    n_bytes: int
    n_fetched: int
    n_layers: int


def cost_of(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    n_cells: int,
    models: Mapping[str, Shape | None],
    files: Sequence[int] = (),
    n_fetched: int = 0,
) -> Cost:
    """Time and disk space of an analysis, where the store has nothing for it.

    Parameters
    ----------
    spec : its layers and folds
    stimuli : with the features of the analysis
    n_cells : of its pairs, see `mlem_core.data.doubts.Lint`
    models : the size of each model; None is unknown
    files : how many layers each representations file has
    n_fetched : bytes from the hub
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
    if every <= budget:
        seconds += PER_PAIR * every * n_layers
    else:
        widths = [(known or UNKNOWN).width for known in models.values()]
        each = PER_SOME + PER_UNIT * (max(widths) if widths else UNKNOWN.width)
        seconds += each * budget * n_layers
    n_features = len(stimuli.features)
    n_weights = n_features * (n_features + 1) // 2 if spec.interactions else n_features
    seconds += PER_SQUARE * n_cells * n_weights**2 * n_layers
    per_cell = PER_CELL + PER_CELL_AND_FOLD * spec.folds
    # In the store of parts, and in the analysis.
    n_bytes += 2 * n_layers * n_cells * per_cell
    return Cost(seconds / min(2, cores()), round(n_bytes), n_fetched, n_layers)


def check_weights(columns: Sequence[FeatureColumn], interactions: bool) -> None:
    """Raise where a model of these features has more weights than can be fitted.

    Parameters
    ----------
    columns : of the features, some of them resolved by value
    interactions : whether products of two features have weights, too

    Raises
    ------
    InputError
        More than `MOST_WEIGHTS` weights.
    """
    values = tuple(column.names for column in columns)
    interactions = interactions and not any(values)  # else the run says that it cannot be
    n, of_values = len(columns), sum(len(v) * (len(v) + 1) // 2 or 1 for v in values)
    n_weights = n * (n + 1) // 2 if interactions else of_values
    if n_weights > MOST_WEIGHTS:
        fewer = " or no interactions" if interactions else ""
        fewer = ", or code fewer features by value" if any(values) else fewer
        raise InputError(
            f"the {n} features make a model of {n_weights:,} weights; expected at most "
            f"{MOST_WEIGHTS}, so choose fewer features{fewer}."
        )


def check_cost(columns: Sequence[FeatureColumn], spec: AnalysisSpec) -> None:
    """Raise before any model runs where features make too many weights or patterns.

    Parameters
    ----------
    columns : of the features, some of them resolved by value

    Raises as `check_weights`; more patterns in the first `ENOUGH` stimuli than are compared.
    """
    check_weights(columns, spec.interactions)
    if len(columns) * MAX_PATTERNS > MOST_CODES:
        first = [replace(column, values=column.values[:ENOUGH]) for column in columns]
        PairIndex.build(first, np.zeros(len(first[0].values), dtype=np.int64), spec.missing)


def _chosen(spec: AnalysisSpec, n_layers: int) -> int:
    if spec.layers is None:
        return n_layers
    return sum(layer < n_layers for layer in spec.layers)

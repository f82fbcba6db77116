"""Mean profiles of groups of models, and of a trajectory at each step: importances and score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.numbers import student_quantile
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.groups.estimates import mean_estimate
from mlem_core.groups.members import NO_STEP, Members
from mlem_core.inference.intervals import LayerIntervals, Left

RHO, IMPORTANCE = "rho", "importance"
COLUMNS = (
    "group", "step", "members", "layer", "depth", "quantity", "feature",
    "value", "sd", "lower", "upper",
)  # fmt: skip


def layer_scores(results: Results, selection: Selection) -> tuple[FloatArray, list[str]]:
    """Held-out ρ and importances of the layers of a selection, means over folds.

    Returns
    -------
    (n_layers, 1 + n_columns), and the names of the columns: features and interactions
    """
    by = ["model", "layer"]
    means = results.importance.groupby([*by, "feature"], sort=False)["importance"].mean()
    wide, layers = means.unstack("feature", sort=False), list(selection.layers)
    rho = results.scores.groupby(by, sort=False)["rho"].mean()
    both = (rho.loc[layers].to_numpy()[:, None], wide.loc[layers].to_numpy(dtype=np.float64))
    return np.concatenate(both, axis=1), list(wide.columns)


def layer_scores_left(
    bounds: LayerIntervals | None, selection: Selection, columns: Sequence[str]
) -> Left | None:
    """ρ and importances without each block of stimuli, (n_blocks, n_layers, 1 + n_columns).

    None where there are no intervals, or where they are of other features.
    """
    if bounds is None or list(bounds.columns) != list(columns):
        return None
    # Their second number is the ceiling.
    without = np.delete(bounds.scores_without[:, bounds.places(selection.layers)], 1, axis=-1)
    return Left(without, bounds.sizes)


def mean_profiles(
    members: Members,
    layers: Sequence[Layer],
    values: FloatArray,
    columns: Sequence[str],
    stimuli: Left | None = None,
) -> pd.DataFrame:
    """Held-out ρ and importances of each group at each of its steps, means over the members there.

    Parameters
    ----------
    layers : (model, number) of each of n_layers layers
    values : (n_layers, 1 + n_columns) ρ and importances
    columns : features, and interactions where they are weighed
    stimuli : the values without each block of stimuli; None: intervals are over members alone

    Returns
    -------
    group, step (`NO_STEP` where the group is no trajectory), members (how many), layer (of the
    shallowest member, others matched by relative depth; missing: the mean over layers), depth
    (relative), quantity ("rho" or "importance"), feature, value, sd (over members), lower, upper.
    sd and interval are NaN for one member
    """
    quantities, features = [RHO, *[IMPORTANCE] * len(columns)], ["", *columns]
    tables = []
    for group, name in enumerate(members.groups):
        first = members.shallowest(group)
        numbers = np.array([*(layers[place][1] for place in members.places[first]), -1])
        depths = np.array([*members.depths[first], np.nan])
        rows = _with_mean(members, group, values)
        left = None
        if stimuli is not None:
            left = np.stack([_with_mean(members, group, one) for one in stimuli.without])
        steps = members.steps[members.members_of(group)]
        for step in np.unique(steps):
            own, without = rows[steps == step], None
            if left is not None and stimuli is not None:
                without = Left(left[:, steps == step], stimuli.sizes)
            mean = own.mean(axis=0)
            sd = own.std(axis=0, ddof=1) if len(own) > 1 else np.full_like(mean, np.nan)
            lower, upper = _interval(own, without, bool(step != NO_STEP))
            each = (
                name,
                int(step),
                len(own),
                np.repeat(numbers, len(quantities)),
                np.repeat(depths, len(quantities)),
                quantities * len(numbers),
                features * len(numbers),
                *(one.ravel() for one in (mean, sd, lower, upper)),
            )
            tables.append(pd.DataFrame(dict(zip(COLUMNS, each, strict=True))))
    if not tables:
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.concat(tables, ignore_index=True)
    whole = table["layer"].astype("Int64")
    return table.assign(layer=whole.mask(whole < 0))


def _with_mean(members: Members, group: int, values: FloatArray) -> FloatArray:
    """(n_in_group, n_depths + 1, n_columns) the profiles of members, and last the mean of each."""
    own = members.profiles_of(group, values)
    return np.concatenate((own, own.mean(axis=1, keepdims=True)), axis=1)


def _interval(
    values: FloatArray, stimuli: Left | None, is_step: bool
) -> tuple[FloatArray, FloatArray]:
    """The ends (...) of the interval of the mean over members (n, ...), NaN for one."""
    found, n = mean_estimate(values, stimuli), len(values)
    if is_step:
        # Symmetric about the mean as a number of the table, to the last digit.
        reach = (found.upper - found.lower) / 2
    elif stimuli is None and n > 1:
        reach = student_quantile(n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    else:
        return found.lower, found.upper
    return found.value - reach, found.value + reach


def nearest_depth(table: pd.DataFrame, depth: float | None) -> pd.DataFrame:
    """The rows of each trajectory at its layer nearest to a relative depth; None: of the mean.

    Parameters
    ----------
    table : trajectory, layer, depth, ..., as `GroupSummary.trajectories`
    """
    if depth is None:
        return table[table["layer"].isna()]
    kept = []
    for _, own in table[table["layer"].notna()].groupby("trajectory", sort=False):
        depths = own["depth"].unique()
        nearest = depths[np.abs(depths - depth).round(12).argmin()]
        kept.append(own[own["depth"] == nearest])
    return pd.concat(kept) if kept else table.iloc[:0]

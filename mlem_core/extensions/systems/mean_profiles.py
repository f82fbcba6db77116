"""Mean profiles of groups and trajectories, and intervals over models x stimuli.

Members of a group are drawn with replacement; two copies of one member are no pair, as they would
be identical. Each draw of members meets a draw of the stimuli: the similarities of models
move as their values without blocks of sentences (and of words) do, each block weighted by a random
sign. The draws give an interval its shape and the jackknife its size: leaving out each member of a
group in turn, and each block, with the degrees of freedom of so few members (Welch and
Satterthwaite). What models and stimuli vary in together is in both, so that an interval is somewhat
too wide rather than too narrow.

Groups are not drawn: an interval speaks of other members of these groups, not of other groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Selection
from mlem_core.analysis.results import Results
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.extensions.systems.model_groups import Members
from mlem_core.inference.group_means import interval_reach, mean_estimate
from mlem_core.inference.intervals import Left
from mlem_core.inference.resample import Estimate, shaped, standard_error

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
    values : (n_layers, 1 + n_columns) ρ and importances
    stimuli : the values without each block of stimuli; None: intervals are over members alone

    Returns
    -------
    group, step (`NO_STEP` where the group is no trajectory), members (how many), layer (of the
    shallowest member, others matched by relative depth; missing: the mean over layers), depth
    (relative), quantity ("rho" or "importance"), feature, value, sd (over members), lower, upper.
    sd and interval are NaN for one member
    """
    names = {"quantity": [RHO, *[IMPORTANCE] * len(columns)], "feature": ["", *columns]}
    quantities, tables = pd.DataFrame(names), []
    for group, name in enumerate(members.groups):
        first = members.shallowest(group)
        numbers = [*(layers[place][1] for place in members.places[first]), None]
        depths = pd.DataFrame({"layer": numbers, "depth": [*members.depths[first], np.nan]})
        rows = _with_mean(members, group, values)
        left = None
        if stimuli is not None:
            left = np.stack(
                [_with_mean(members, group, replicate) for replicate in stimuli.without]
            )
        steps = members.steps[members.group_members(group)]
        for step in np.unique(steps):
            at_step, without = rows[steps == step], None
            if left is not None and stimuli is not None:
                without = Left(left[:, steps == step], stimuli.sizes)
            mean, lower, upper, *_ = mean_estimate(at_step, without)
            sd = at_step.std(axis=0, ddof=1) if len(at_step) > 1 else np.full_like(mean, np.nan)
            table = depths.merge(quantities, how="cross").assign(
                value=mean.ravel(), sd=sd.ravel(), lower=lower.ravel(), upper=upper.ravel()
            )
            tables.append(table.assign(group=name, step=int(step), members=len(at_step)))
    profiles = pd.concat(tables or [pd.DataFrame(columns=list(COLUMNS))], ignore_index=True)
    return profiles[list(COLUMNS)].astype({"layer": "Int64"})


def _with_mean(members: Members, group: int, values: FloatArray) -> FloatArray:
    """(n_in_group, n_depths + 1, n_columns) the profiles of members, and last the mean of each."""
    profiles = members.member_profiles(group, values)
    return np.concatenate((profiles, profiles.mean(axis=1, keepdims=True)), axis=1)


REPLICATES = 1000
# A statistic of similarities (..., n_members, n_members), by each one's group and how often it
# counts: `group_means` or `group_similarities` of `mlem_core.extensions.systems.model_groups`.
Statistic = Callable[[FloatArray, IntArray, FloatArray], FloatArray]


def estimate(
    statistic: Statistic,
    matrix: FloatArray,
    group_of: IntArray,
    stimuli: Left | None = None,
    *,
    n_replicates: int = REPLICATES,
) -> Estimate:
    """A statistic of similarities of models, with its interval over members and stimuli.

    Parameters
    ----------
    matrix : (n_terms, n_members, n_members); the diagonal is not looked at
    stimuli : the matrix without each block of stimuli; None: the interval is over members alone

    Returns
    -------
    arrays (n_terms, ...). An interval is NaN where it is not defined without some member
    (fewer than three in the group whose members are compared), and where no group has two members
    """
    every = np.ones(len(group_of))
    value = statistic(matrix, group_of, every)
    variance, freedom = _member_variance(statistic, matrix, group_of)
    rng = np.random.default_rng(0)
    # How often each member is drawn (n_replicates, n_members), within its group.
    drawn = np.ones((n_replicates, len(group_of)))
    for group in range(int(group_of.max()) + 1):
        members = np.flatnonzero(group_of == group)
        size = len(members)
        drawn[:, members] = rng.multinomial(size, np.full(size, 1 / size), size=n_replicates)
    moved = np.zeros((n_replicates, 1, 1, 1))
    if stimuli is not None:
        error = standard_error(statistic(stimuli.without, group_of, every), stimuli.sizes)
        variance = [*variance, error**2]
        freedom = [*freedom, min(stimuli.sizes) - 1]
        moved, _ = stimuli.moves(n_replicates, rng)
    if not len(freedom):
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    replicates = np.stack(
        [
            statistic(matrix + step, group_of, weights)
            for step, weights in zip(moved, drawn, strict=True)
        ]
    )
    reach = interval_reach(np.stack(variance), np.array(freedom))
    # Members that are drawn so that nothing is compared say nothing of the shape.
    replicates = np.where(np.isfinite(replicates), replicates, value)
    return Estimate(value, *shaped(value, replicates, reach))


def _member_variance(
    statistic: Statistic, matrix: FloatArray, group_of: IntArray
) -> tuple[list[FloatArray], list[int]]:
    """Jackknife variance over the members of each group that has two, and degrees of freedom."""
    variances, freedom = [], []
    for group in range(int(group_of.max()) + 1):
        members = np.flatnonzero(group_of == group)
        n = len(members)
        if n < 2:
            continue
        others = 1.0 - np.eye(len(group_of))[members]
        without = [statistic(matrix, group_of, weights) for weights in others]
        variances.append((n - 1) * np.stack(without).var(axis=0))
        freedom.append(n - 1)
    return variances, freedom

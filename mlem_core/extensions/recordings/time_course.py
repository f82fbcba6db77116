"""Importance of each feature over the regions or time points of a recording, and its onset.

p is corrected over all features and time points at once, by the largest statistic of permuted
labels. When a feature becomes significant depends on how many stimuli and subjects there are, and
is no property of a brain. So the onset is the time at which the importance reaches half of its
maximum, between time points by a straight line: going back from the first time point that is
significant and above half. A feature that is nowhere significant has no onset. The onset of the
jackknife's curves follows weak and slow features too little, so its interval is from the onsets of
curves that are drawn with the jackknife's errors, over stimuli and subjects.

Sources: Miller, Patterson and Ulrich (1998), onsets at a part of the maximum and their jackknife;
Nichols and Holmes (2002), the largest statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.context import FITS, SelectionContext, Stage, selection_key
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import student_quantile
from mlem_core.base.typing import FloatArray
from mlem_core.extensions.recordings.region_similarity import Recording, find_recordings
from mlem_core.inference.block_influence import (
    check_blocks,
    fitted_target,
    jackknife_fit_scores,
    resampled_blocks,
)
from mlem_core.inference.group_means import mean_estimate
from mlem_core.inference.importance_null import IMPORTANCE_NULL, ImportanceNull
from mlem_core.inference.intervals import PERMUTATIONS, SIGNIFICANT, Left
from mlem_core.inference.permutation_null import corrected_p
from mlem_core.inference.resample import squared_effect_bounds, standard_error

ONSET_DRAWS = 1_000


@dataclass(frozen=True)
class TimeCourse:
    """Importances over regions or time points, with the onsets of features.

    Attributes
    ----------
    importance : recording, region (its number), time (NaN of regions), feature, importance (mean
        over subjects), lower, upper, p (corrected over all features and regions of a recording)
    onsets : recording, feature, peak (the time of the largest importance), significant_from (the
        first time with p < .05), onset, lower, upper; NaN in the last three without an onset
    """

    importance: pd.DataFrame
    onsets: pd.DataFrame


def compute_time_course(context: SelectionContext, permutations: int = PERMUTATIONS) -> TimeCourse:
    """Importances over the regions and time points of all recordings of an analysis.

    Raises InputError: no recording; interactions; too few sentences; representations that are no
    longer in the store.
    """
    recordings = find_recordings(context.analysis)
    if not recordings:
        raise InputError(
            "a time course is of files with regions or time points, found none; say what the "
            "layers of a file are with --axis NAME=time:ms or --axis NAME=region."
        )
    importances, onsets = [], []
    for recording in recordings:
        layers = tuple(layer for of in recording.layers_by_subject() for layer in of)
        of_layers = context.reselect(layers=layers)
        null = IMPORTANCE_NULL.find(of_layers, permutations=permutations)
        if null is None:
            null = IMPORTANCE_NULL.get(of_layers, permutations=permutations)
        values, left = _importances(context, recording)
        p = simultaneous_p(null, len(recording.subjects))
        times = recording.times(context.analysis)
        importances.append(_importance_table(context, recording, values, left, p, times))
        for feature, name in enumerate(context.selection.features):
            without = Left(left.without[..., feature], left.sizes)
            onset = find_onset(times, values[..., feature], without, p[:, feature])
            onsets.append({"recording": recording.name, "feature": name, **onset})
    table = pd.DataFrame(onsets)
    timed = table["peak"].notna()
    return TimeCourse(pd.concat(importances, ignore_index=True), table[timed])


def simultaneous_p(null: ImportanceNull, n_subjects: int) -> FloatArray:
    """(n_regions, n_features) p of the mean over subjects, corrected over all of these.

    `null` is of the regions of the first subject, then those of the second, and so on.
    """
    n_rows, n_features, n_layers = null.draws.shape
    known = null.table["chance"].notna().to_numpy().reshape(n_layers, n_features).all(axis=0)
    means = null.draws.reshape(n_rows, n_features, n_subjects, -1).mean(axis=2)
    n_regions = means.shape[2]
    p = corrected_p(means.reshape(n_rows, -1), np.repeat(known, n_regions))
    return p.reshape(n_features, n_regions).T


def _importances(context: SelectionContext, recording: Recording) -> tuple[FloatArray, Left]:
    """(n_subjects, n_regions, n_features) importances, and their mean without each block."""
    target = fitted_target(context.selection.estimator)
    values, without = [], []
    for layers in recording.layers_by_subject():
        subject = context.reselect(layers=tuple(layers))
        check_blocks(context.analysis, subject.selection)
        fits = FITS.get(subject)
        n_pairs = context.analysis.compute_pairs(subject.selection).n_pairs
        blocks = resampled_blocks(subject, with_distances=target == "distance")
        scores = jackknife_fit_scores(blocks, fits, n_pairs, target)
        values.append(fits.mean_scores[:, 1:])
        without.append(scores[..., 1:])
    return np.stack(values), Left(np.mean(without, axis=0), blocks.sizes)


def _importance_table(
    context: SelectionContext,
    recording: Recording,
    values: FloatArray,
    left: Left,
    p: FloatArray,
    times: FloatArray,
) -> pd.DataFrame:
    """`TimeCourse.importance` of a recording."""
    mean = values.mean(axis=0)
    if len(values) == 1:
        reach = standard_error(*left) * student_quantile(max(1, min(left.sizes) - 1))
        lower, upper = squared_effect_bounds(mean, reach)
    else:
        _, lower, upper, *_ = mean_estimate(values, Left(left.without[:, None], left.sizes))
    regions = pd.DataFrame({"region": recording.layers, "time": times})
    features = pd.DataFrame({"feature": context.selection.features})
    table = regions.merge(features, how="cross").assign(
        importance=mean.ravel(), lower=lower.ravel(), upper=upper.ravel(), p=p.ravel()
    )
    table.insert(0, "recording", recording.name)
    return table


def find_onset(
    times: FloatArray, values: FloatArray, left: Left, p: FloatArray
) -> dict[str, float]:
    """Onset of a feature, its interval, and the times by which it was found.

    Parameters
    ----------
    times : (n_times,) ascending
    values : (n_subjects, n_times) importances
    left : their mean without each block of stimuli
    p : (n_times,) corrected

    Returns
    -------
    peak, significant_from, onset, lower, upper. The last two are NaN where onset is
    """
    mean, n = values.mean(axis=0), len(values)
    significant = np.flatnonzero(p < SIGNIFICANT)
    first = float(times[significant[0]]) if len(significant) else np.nan
    onset = {"peak": float(times[mean.argmax()]), "significant_from": first}
    onset |= dict.fromkeys(("onset", "lower", "upper"), np.nan)
    if not len(significant):
        return onset
    above = significant[mean[significant] >= mean.max() / 2]
    start = int(above[0] if len(above) else mean.argmax())
    onset["onset"] = value = time_of_half(times, mean, start)
    ends = np.cumsum(left.sizes)[:2]
    # Of stimuli, where words recur of these too, and of subjects.
    kinds = np.split(left.without, ends)[: len(ends)]
    if n > 1:
        kinds.append((values.sum(axis=0) - values) / (n - 1))
    curves = _draw_curves(mean, kinds)
    drawn = np.array([time_of_half(times, curve, int(curve.argmax())) for curve in curves])
    lower, upper = np.percentile(np.where(np.isnan(drawn), times[0], drawn), [2.5, 97.5])
    onset |= {"lower": min(float(lower), value), "upper": max(float(upper), value)}
    return onset


def _draw_curves(mean: FloatArray, kinds: Sequence[FloatArray]) -> FloatArray:
    """Curves (`ONSET_DRAWS`, n_times) with the errors of a mean, by t.

    Parameters
    ----------
    kinds : each (n_units, n_times), the mean without each unit of one kind
    """
    rng = np.random.default_rng(0)
    curves = np.tile(mean, (ONSET_DRAWS, 1))
    for without in kinds:
        n = len(without)
        deviations = (without - without.mean(axis=0)) * np.sqrt((n - 1) / n)
        draws = rng.standard_normal((ONSET_DRAWS, n)) @ deviations
        curves += draws * np.sqrt((n - 1) / rng.chisquare(n - 1, (ONSET_DRAWS, 1)))
    return curves


def time_of_half(times: FloatArray, curve: FloatArray, start: int) -> float:
    """Time at which a curve (n_times,) crosses half of its maximum on its way up to a place.

    The place is the first from `start` on that is above half. NaN where the curve is above half
    from its beginning.
    """
    half = curve.max() / 2
    above = np.flatnonzero(curve[start:] >= half)
    end = start + int(above[0]) if len(above) else int(curve.argmax())
    below = np.flatnonzero(curve[:end] < half)
    if not len(below):
        return np.nan
    at = int(below[-1])
    part = (half - curve[at]) / (curve[at + 1] - curve[at])
    return float(times[at] + part * (times[at + 1] - times[at]))


def _key(context: SelectionContext, permutations: int = PERMUTATIONS) -> dict[str, Any]:
    spec, every = context.analysis.spec, context.all_layers
    axes = dict(spec.axis_names)
    return selection_key(every, groups=spec.groups, axes=axes, permutations=permutations)


TIME_COURSE = Stage[TimeCourse]("time-course", 2, TimeCourse, compute_time_course, key=_key)

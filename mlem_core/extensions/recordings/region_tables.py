"""Tables and sentences of layers beside regions, and of importances over regions and time."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext
from mlem_core.base.text import listed, minus
from mlem_core.extensions.recordings.region_similarity import (
    REGION_SIMILARITY,
    compared_layers,
    find_recordings,
)
from mlem_core.extensions.recordings.time_course import TIME_COURSE
from mlem_core.report.analysis_tables import ComputedTables, TableInput
from mlem_core.tasks.followups import JobType, Options


def region_tables(inputs: TableInput, name: str) -> ComputedTables:
    """Tables of the recordings of an analysis: layers where intervals were requested, importances
    where chance was.
    """
    analysis, permutations = inputs.analysis, inputs.permutations
    if inputs.store is None or not find_recordings(analysis):
        return ComputedTables({})
    context = SelectionContext.from_analysis(analysis, inputs.store, inputs.progress)
    tables, notices, findings = dict[str, pd.DataFrame](), list[str](), list[str]()
    if inputs.intervals is not None and compared_layers(analysis):
        similarity = REGION_SIMILARITY.get(context)
        tables |= {"region_similarity.csv": similarity.layers, "best_layers.csv": similarity.best}
        notices.append("p in region_similarity.csv is corrected over all regions and layers.")
    if permutations:
        course = TIME_COURSE.get(context, permutations=permutations)
        tables["region_importance.csv"] = course.importance
        notices.append("p in region_importance.csv is corrected over all regions and features.")
        if not course.onsets.empty:
            tables["onsets.csv"] = course.onsets
            findings = onset_sentences(analysis, course.onsets)
    return ComputedTables(tables, notices, findings)


def sentences(context: SelectionContext) -> list[str]:
    """Sentences on the onsets of the recordings, where they are computed."""
    course = TIME_COURSE.find(context)
    return [] if course is None else onset_sentences(context.analysis, course.onsets)


def onset_sentences(analysis: Analysis, onsets: pd.DataFrame) -> list[str]:
    """A sentence on each onset, and one on the features of a recording that have none."""
    sentences, names = list[str](), analysis.names
    for recording in find_recordings(analysis):
        table = onsets[onsets["recording"] == recording.name]
        unit, over = recording.unit(analysis), recording.over(analysis)
        for _, feature, _, significant, *onset in table.dropna().itertuples(index=False):
            value, lower, upper = (minus(f"{time:.4g}") for time in onset)
            sentences.append(
                f"{recording.name}: the importance of {names.feature(feature)} reaches half of its "
                f"maximum at {value} {unit}, 95 % CI {lower} to {upper} {unit} (over {over}). It "
                f"exceeds permuted labels from {minus(f'{significant:.4g}')} {unit} on."
            )
        absent = table.loc[table["significant_from"].isna(), "feature"]
        if len(absent):
            sentences.append(
                f"{recording.name}: no onset of {listed([*map(names.feature, absent)], last='or')}"
                ", which at no time exceeds permuted labels."
            )
    return sentences


def _models(context: SelectionContext, options: Options) -> Iterable[str]:
    return [model for model, _ in context.analysis.layers]


REGIONS_JOB = JobType(lambda context, options: REGION_SIMILARITY.get(context), models=_models)
TIME_JOB = JobType(lambda context, options: TIME_COURSE.get(context), models=_models)

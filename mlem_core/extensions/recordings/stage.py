"""Subjects and models as the rest of the program reads them: kept beforehand, tables, bands."""

from __future__ import annotations

import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.subjects import subject_layers
from mlem_core.extending import Band
from mlem_core.extensions.recordings.model_comparison import (
    MOST_MODELS,
    ModelComparison,
    compare_models,
)
from mlem_core.extensions.recordings.noise_ceilings import NOISE_CEILINGS, SUBJECT_CEILINGS
from mlem_core.extensions.recordings.rdms import RDMS
from mlem_core.figures.context import FigureContext
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.pairs.similarities import RSA
from mlem_core.report.analysis_tables import ComputedTables, TableInput
from mlem_core.storage.store import Store

CEILING = "Grey band: noise ceiling of the RSA with the subjects, lower to upper."


def tables(inputs: TableInput, name: str) -> ComputedTables:
    """Tables of the noise ceilings and of the models beside them; none without a store."""
    context = SelectionContext(inputs.analysis, inputs.selection, inputs.store, inputs.progress)
    if inputs.store is None or not subject_layers(inputs.analysis):
        return ComputedTables({})
    context.remember("results", inputs.results)
    has_intervals = inputs.intervals is not None
    comparison = beside_subjects(context, intervals=has_intervals)
    if comparison is None:
        return ComputedTables({})
    files = {"noise_ceilings.csv": comparison.ceilings, "model_ceilings.csv": comparison.models}
    notices = []
    if has_intervals:
        files["model_differences.csv"] = comparison.differences
        if comparison.differences.empty:
            notices.append(
                f"model_differences.csv compares every two of up to {MOST_MODELS} models; there "
                "are more, so choose layers (--layers)."
            )
    return ComputedTables(files, notices, comparison.sentences)


def beside_subjects(context: SelectionContext, *, intervals: bool = True) -> ModelComparison | None:
    """Models beside the groups of subjects of a context; None without such a group.

    With `intervals` over subjects and stimuli, and tests. What is computed is kept in the store, so
    that figures show it.

    Raises as `mlem_core.extensions.recordings.noise_ceilings.compute_noise_ceilings`.

    Examples
    --------
    >>> X = analysis.stimuli.table[["colour", "size"]]
    >>> V4, noise = X.replace({"red": 0, "blue": 4}), np.random.default_rng(0).random((2, 120, 2))
    >>> compared = compare({"V4": V4}, X, subjects={"brain": V4.to_numpy() + noise})
    >>> beside_subjects(compared.context).models["model"].tolist()
    ['features', 'array']
    """
    ceilings = NOISE_CEILINGS.get(context)
    if ceilings.empty:
        return None
    _keep_matrices(context)
    if not intervals:
        return compare_models(context, ceilings)
    of_layers = LAYER_INTERVALS.get(context.reselect(similarity=RSA))
    return compare_models(context, ceilings, of_layers, SUBJECT_CEILINGS.get(context))


def _keep_matrices(context: SelectionContext) -> None:
    """Computes `RDMS` where all pairs have a distance."""
    if not context.analysis.lacks_pairs:
        RDMS.get(context)


def prepare(analysis: Analysis, store: Store, selection: Selection) -> None:
    """Keep noise ceilings, matrices of distances, and with intervals ceilings of each subject.

    Raises as `mlem_core.extensions.recordings.noise_ceilings.compute_noise_ceilings`.
    """
    context = SelectionContext(analysis, selection, store)
    if subject_layers(analysis):
        NOISE_CEILINGS.get(context)
        _keep_matrices(context)
        if LAYER_INTERVALS.find(context.reselect(similarity=RSA)) is not None:
            SUBJECT_CEILINGS.get(context)


def has_intervals(analysis: Analysis, store: Store) -> bool:
    """Whether the store has all that intervals of models beside subjects need."""
    context = SelectionContext.from_analysis(analysis, store)
    return not subject_layers(analysis) or SUBJECT_CEILINGS.find(context) is not None


def bands(context: FigureContext) -> list[Band]:
    """Noise ceilings behind the importances of subjects."""
    ceilings = NOISE_CEILINGS.find(context)
    if ceilings is None:
        return []
    members = pd.DataFrame(context.names.groups.items(), columns=["model", "group"])
    return [Band("noise ceiling", CEILING, ceilings.merge(members, on="group"))]


def find_comparison(context: FigureContext) -> ModelComparison | None:
    """Models beside the subjects of a context, from what was computed; None without subjects."""
    ceilings = NOISE_CEILINGS.find(context)
    if ceilings is None:
        return None
    intervals = context.find_intervals(RSA)
    of_subjects = SUBJECT_CEILINGS.find(context)
    key = "models beside subjects", intervals is None, of_subjects is None
    return context.once(key, lambda: compare_models(context, ceilings, intervals, of_subjects))

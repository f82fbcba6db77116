"""What else explains two layers, as work in the background, in an example, and as further runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import Layer, Report
from mlem_core.extensions.candidates.candidate_search import CANDIDATES, CandidateSearch
from mlem_core.figures.context import FigureContext
from mlem_core.stimuli.candidates import SURPRISAL, added_column, added_features
from mlem_core.storage.store import Store
from mlem_core.tasks.followups import JobType


def pair_search(context: FigureContext) -> CandidateSearch | None:
    """What else explains the two layers of a context, where it has been computed."""
    if not context.several:
        return None
    return CANDIDATES.find(context.reselect(layers=context.pair))


def sentences(context: FigureContext) -> list[str]:
    """What was found, in sentences."""
    search = pair_search(context)
    return [] if search is None else list(search.sentences)


def remark(context: FigureContext) -> str:
    """Sentence on the best candidate; empty where none is known, or of another similarity."""
    search = pair_search(context) if context.why.similarity.of_ranks else None
    return search.best if search else ""


def runs_with_candidates(context: FigureContext) -> dict[str, AnalysisSpec]:
    """The analysis with each candidate beyond chance that can be a feature, by a button's label."""
    search, spec = pair_search(context), context.analysis.spec
    # An option of an extension, which may not be there.
    features = vars(spec).get("add")
    if search is None or features is None:
        return {}
    # Surprisal is of one of the models.
    entries = (*added_features(), *(f"{SURPRISAL}:{model}" for model in spec.models))
    added = {added_column(entry): entry for entry in entries}
    runs = {}
    for name, label in zip(search.columns["candidate"], search.columns["label"], strict=True):
        if name in added:
            change: dict[str, Any] = {"add": (*features, added[name])}
            runs[f"Add {label}"] = replace(spec, **change)
    return runs


def search_for_example(
    analysis: Analysis, pair: tuple[Layer, Layer], store: Store, report: Report
) -> list[Path | None]:
    """Entries of the store with what else explains two layers of the example."""
    context = SelectionContext.from_analysis(analysis, store, report).reselect(layers=pair)
    CANDIDATES.get(context)
    return [CANDIDATES.folder(context)]


JOB = JobType(lambda context, options: CANDIDATES.get(context))

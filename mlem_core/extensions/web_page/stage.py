"""The page of an analysis, made in the background."""

from __future__ import annotations

from pathlib import Path

from mlem_core.base.files import scratch
from mlem_core.extensions.web_page.page import write_page
from mlem_core.figures.context import Drawing, FigureContext
from mlem_core.tasks.followups import JobInput, JobType, Made

PAGE = "explorer.html"


def _page(job: JobInput) -> Made:
    a, b = job.layers("a", "b")
    drawing, results = Drawing((a, b), job.store), job.analysis.results_of(job.selection())
    with scratch("page") as folder:
        path = write_page(
            FigureContext(job.analysis, job.selection(), results, drawing),
            Path(folder) / PAGE,
            str(job.options["title"]),
            stimuli=bool(job.options["stimuli"]),
            progress=job.report,
        )
        return {PAGE: path.read_bytes()}


JOB = JobType(_page, in_store=False)

"""The page of an analysis, made in the background."""

from __future__ import annotations

from mlem_core.extensions.web_page.page import write_page
from mlem_core.figures.context import FigureContext, FigureOptions
from mlem_core.tasks.followups import JobInput, JobType

PAGE = "explorer.html"


def _page(job: JobInput) -> None:
    a, b = job.layers("a", "b")
    drawing, results = FigureOptions((a, b), job.store), job.analysis.results_of(job.selection())
    write_page(
        FigureContext(job.analysis, job.selection(), results, drawing),
        job.folder / PAGE,
        str(job.options["title"]),
        stimuli=bool(job.options["stimuli"]),
        progress=job.report,
    )


JOB = JobType(_page, in_store=False)

"""The page of an analysis, made in the background."""

from __future__ import annotations

from pathlib import Path

from mlem_core.analysis.context import SelectionContext
from mlem_core.extensions.web_page.page import write_page
from mlem_core.figures.context import FigureContext, FigureOptions
from mlem_core.tasks.followups import JobType, Options

PAGE = "explorer.html"


def _page(context: SelectionContext, options: Options, folder: Path) -> None:
    a, b = ((str(model), int(layer)) for model, layer in (options["a"], options["b"]))
    write_page(
        FigureContext(
            context.analysis, context.selection, context.store, drawing=FigureOptions((a, b))
        ),
        folder / PAGE,
        str(options["title"]),
        stimuli=bool(options["stimuli"]),
        progress=context.report,
    )


JOB = JobType(write=_page, models=lambda context, options: ())

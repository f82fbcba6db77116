"""The command that writes a result as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.bars import Bars
from mlem_core.cli.streams import tell


def export(options: argparse.Namespace) -> None:
    """Write the page of a result."""
    from mlem_core.cli.found import result_of
    from mlem_core.figures.context import Drawing, FigureContext
    from mlem_core.report.page import write_page
    from mlem_core.storage.store import Store

    store = Store()
    with Bars() as bars:
        analysis = result_of(options.result, AnalysisSpec(), store, bars.show)
        selection, title = analysis.select(), options.title or Path(analysis.stimuli.name).stem
        context = FigureContext(analysis, selection, analysis.results(), Drawing(store=store))
        path = write_page(
            context,
            options.html,
            title,
            options.pairs,
            stimuli=not options.without_stimuli,
            progress=bars.show,
        )
    tell(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")

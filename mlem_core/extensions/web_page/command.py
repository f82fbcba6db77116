"""The command `export`: a result as one page, or as a zip of everything."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.progress import Bars
from mlem_core.base.typing import Layer, parse_layer
from mlem_core.cli.inputs import open_result
from mlem_core.cli.streams import complain, tell, typed
from mlem_core.figures.context import FigureContext
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument("result", metavar="RESULT", help="a folder that analyze wrote")
    command.add_argument("--html", metavar="FILE.html", help="the page to write")
    command.add_argument("--zip", metavar="FILE.zip", help="the zip to write")
    command.add_argument("--title", help="of the page; by default the name of the stimuli")
    command.add_argument(
        "--pair",
        dest="pairs",
        action="append",
        type=typed(_pair),
        metavar="MODEL:LAYER,MODEL:LAYER",
        help="explain these two layers; may be given several times; by default every two",
    )
    command.add_argument(
        "--without-stimuli",
        action="store_true",
        help="leave the words and sentences out of the page; the values of their features stay",
    )


def _pair(text: str) -> tuple[Layer, Layer]:
    a, _, b = text.partition(",")
    return parse_layer(a.strip()), parse_layer(b.strip())


def export(options: argparse.Namespace) -> None:
    """Write a result as one page, or as a zip of everything."""
    from mlem_core.extensions.web_page.page import write_page
    from mlem_core.figures.export import missing_glyphs
    from mlem_core.report.archive import write_archive

    if (options.html is None) == (options.zip is None):
        raise InputError("expected one file to write: --html FILE.html or --zip FILE.zip.")
    if options.zip is not None and options.without_stimuli:
        raise InputError("--without-stimuli goes with --html; the zip has the stimuli.")
    store = Store()
    with Bars() as bars:
        analysis, table_options = open_result(options.result, AnalysisSpec(), store, bars.show)
        if options.zip is not None:
            path = write_archive(analysis, options.zip, store, table_options, progress=bars.show)
        else:
            title = options.title or Path(analysis.stimuli.name).stem
            path = write_page(
                FigureContext.from_analysis(analysis, store),
                options.html,
                title,
                options.pairs,
                stimuli=not options.without_stimuli,
                progress=bars.show,
            )
    if options.zip is not None:
        labels = [feature.name for feature in analysis.stimuli.features]
        values = (set(analysis.stimuli.table[name]) for name in labels)
        complain(*filter(None, [missing_glyphs([*labels, *map(str, chain(*values))])]))
    tell(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")

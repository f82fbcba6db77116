"""A zip of everything: the tables that `analyze` writes, with figures, methods and inputs.

manifest.json      parameters, seed, models and versions, from which `mlem rerun` runs it again
*.csv              the tables of `analyze --out`
stimuli.csv        the stimuli as they were read; rdms.npz: distances of features given as RDMs
figures/           every figure, as SVG and PDF, or as interactive HTML; their captions
methods.md, methods.tex, references.bib
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from plotly.offline import get_plotlyjs

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import write_tables
from mlem_core.base.files import replacing, scratch
from mlem_core.base.text import as_markdown
from mlem_core.base.typing import Progress, Report
from mlem_core.figures.context import FigureContext, RenderedFigure
from mlem_core.figures.export import can_write_images, one_browser
from mlem_core.figures.plots import all_figures
from mlem_core.report.analysis_tables import TableOptions, analysis_tables
from mlem_core.report.formats import pictures, zip_files
from mlem_core.report.methods import texts, uncertainty
from mlem_core.report.portable import model_names, portable, renamed, renamed_context
from mlem_core.stimuli.saved_stimuli import save_stimuli
from mlem_core.storage.store import Store


def write_archive(
    analysis: Analysis,
    target: Path | str,
    store: Store,
    options: TableOptions | None = None,
    *,
    images: bool | None = None,
    progress: Report | None = None,
) -> Path:
    """Write the zip of an analysis; it appears whole or not at all.

    It has no path of this machine. A model that is a folder is called by the folder's name in it,
    and its figures show no intervals, which are kept under the folder's path.

    Parameters
    ----------
    target : path of the zip
    options : which tables it has
    images : whether figures are SVG and PDF, which takes a browser, or HTML; by default what this
        machine can do
    progress : called as tables are computed and figures are drawn

    Raises InputError as `analysis_tables`.
    """
    report = progress or (lambda _: None)
    options = options or TableOptions()
    context = FigureContext.from_analysis(analysis, store, report)
    computed = analysis_tables(analysis, context.results, options, store, report)
    names = model_names(analysis)
    if names:
        context = renamed_context(context, names)
    leaving = portable(analysis, names)
    manifest = {**leaving.manifest, "options": options.to_dict()}
    tables = renamed(computed.tables, names)
    with scratch("archive") as home:
        folder = home / "files"
        write_tables(folder, tables, manifest)
        save_stimuli(analysis.whole, folder)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    shown = context.results, context.selection, context.drawing.names
    written = texts(leaving, *shown, uncertainty(context))
    files |= {name: text.encode() for name, text in written.items()}
    files |= _figure_files(all_figures(context, report), images, report)
    with replacing(Path(target)) as temporary:
        temporary.write_bytes(zip_files(files))
    return Path(target)


def _figure_files(
    drawn: dict[str, RenderedFigure], images: bool | None, progress: Report
) -> dict[str, bytes]:
    """The pictures of figures, and their captions."""
    images = can_write_images() if images is None else images
    captions = [
        f"**{name}**: {as_markdown(figure.title)}. {as_markdown(figure.caption)}\n"
        for name, figure in drawn.items()
    ]
    files = {"figures/captions.md": "\n".join(captions).encode()}
    with one_browser() if images else contextlib.nullcontext():
        for done, (name, figure) in enumerate(drawn.items()):
            progress(Progress("figures", None, done, len(drawn), "figures"))
            for form in pictures(images):
                content = form.write(figure, name, None)
                path = f"figures/{name}.{form.name}"
                files[path] = content if images else _link_plotly(content)
    progress(Progress("figures", None, len(drawn), len(drawn), "figures"))
    return files if images else {**files, "figures/plotly.min.js": get_plotlyjs().encode()}


def _link_plotly(page: bytes) -> bytes:
    """The page with the one copy of Plotly beside it instead of 4 MB in it."""
    for tag in (b"<script>", b'<script type="text/javascript">'):  # of Plotly 7, and of 6
        script = tag + get_plotlyjs().encode() + b"</script>"
        page = page.replace(script, b'<script src="plotly.min.js"></script>')
    return page

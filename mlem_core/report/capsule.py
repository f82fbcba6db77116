"""A capsule: one zip with an analysis, all that was made of it, and what is needed to run it again.

    capsule.json      what was asked and what is shown; the digest of every other file
    manifest.json     versions, models, parameters, seed
    stimuli.csv       the stimuli as they were given
    rdms.npz          the distances of features that are given by them
    tables/           every table as CSV
    figures/          every figure, as SVG and PDF, or as interactive HTML; their captions
    latex/            every figure and its table, to be included in a paper
    pair_tables/      the finished analysis, from which every table follows
    representations/  the files that stood for models, where they are small
    methods.md, methods.tex, references.bib, versions.txt, README.txt

The same analysis gives the same bytes. `mlem_core.report.verify` runs a capsule again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import platform
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.files import RDMS, save
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.held import scratch
from mlem_core.base.labels import Names
from mlem_core.base.text import as_markdown
from mlem_core.base.typing import Progress, Report
from mlem_core.data.given import save_rdms
from mlem_core.data.roles import as_csv
from mlem_core.groups.summary import GroupSummary
from mlem_core.report import beside, latex
from mlem_core.report.contents import (
    FORMAT,
    MOST_REPLICATES,
    About,
    DrawnAs,
    ShownOf,
    SourceFile,
    as_csv_file,
    as_json,
    tables_as_csv,
    why_alike,
)
from mlem_core.report.figures import Drawing, Drawn, Shown, all_figures
from mlem_core.report.methods import methods_paragraph, versions_text
from mlem_core.report.portable import (
    content_of,
    in_names,
    in_results,
    in_table,
    of_layer,
    own_names,
    portable,
    renamed,
    sources_of,
)
from mlem_core.report.references import bibtex
from mlem_core.storage.files import replacing

DEFAULT_DRAWING = Drawing()
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say

# What the writers of PDF, SVG and HTML make up anew each time.
_DATES = re.compile(rb"(/(?:Creation|Mod)Date ?\(D:)\d{14}")
_NAMES = re.compile(
    rb"((?<=[\"#])(?:(?:top)?defs-|clip|legend\d?|g|p)|(?<=[\"#]p[0-9a-f]{6}-)"
    rb"|(?<= )trace|(?<=[\"xy-])cb)"
    rb"([0-9a-f]{6})(?![0-9a-f])"
)
_ELEMENTS = re.compile(rb'<div id="([0-9a-f-]{36})"')

_README = """\
A capsule of MLEM Explorer: an analysis, what was made of it, and what is needed to run it again.

Verify it:  python -m mlem_core verify THIS.zip
It runs the models on the stimuli once more, makes every file anew and says what differs.

tables/ has every table as CSV (intervals, audit and claims where they had been made; `verify` does
not compute audit and claims again), figures/ every figure with its caption, latex/ the figures and
tables for a paper, methods.md a paragraph that says what was done, references.bib what it rests on,
manifest.json the parameters, models and versions.
"""


def write(
    analysis: Analysis,
    target: Path | str,
    selection: Selection | None = None,
    *,
    results: Results | None = None,
    drawing: Drawing = DEFAULT_DRAWING,
    progress: Report | None = None,
) -> Path:
    """Write a capsule; it appears whole or not at all.

    A model that is a folder of this machine is called by the folder's name in it, and its figures
    show no intervals, which are kept under the folder's path.

    Parameters
    ----------
    target : path of the zip
    selection : what is shown; None is the whole analysis
    results : the tables of that, where they have been computed before
    drawing : how the figures are drawn
    progress : called as the figures are drawn

    Raises
    ------
    InputError
        As `Analysis.results`; a representations file that has gone or changed.
    """
    selection = analysis.select() if selection is None else selection
    results = analysis.results_of(selection) if results is None else results
    shown = Shown(analysis, selection, results, drawing)
    derived, intervals = beside.how_sure(shown), beside.in_intervals(shown)
    again = drawing.replicates <= MOST_REPLICATES
    names, sources = own_names(analysis), sources_of(analysis)
    tables = {name: in_table(table, names) for name, table in {**derived, **intervals}.items()}
    if names:
        shown = called(shown, names)
    leaving = portable(analysis, names, sources)
    paths = dict(analysis.spec.representations)
    files = {
        **contents(shown, leaving, progress),
        **{f"tables/{name}": as_csv_file(table) for name, table in tables.items()},
        **{
            source.file: content_of(source, paths[name])
            for name, source in sources.items()
            if source.included
        },
    }
    display = shown.drawing.names
    drawn = DrawnAs(
        images="figures/plotly.min.js" not in files,
        maps="latex/stimulus_map_a.tex" in files,
        narrow=drawing.narrow,
        flags=drawing.flags,
        options=dict(drawing.options),
        features=dict(display.features),
        models=dict(display.models),
        by=drawn_by(),
    )
    about = replace(
        described(shown, leaving, sources, drawn),
        folders=tuple(names.values()),
        files={name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        derived=tuple(sorted(derived if again else tables)),
        replicates=drawing.replicates if again and intervals else 0,
    )
    files["capsule.json"] = as_json(about.sealed())
    return _zip(files, Path(target))


def described(
    shown: Shown, leaving: Analysis, sources: Mapping[str, SourceFile], drawn: DrawnAs
) -> About:
    """What `capsule.json` says of an analysis, of no file yet and without what takes long."""
    return About(
        format=FORMAT,
        spec=leaving.spec.to_dict(),
        kinds={feature.name: feature.kind for feature in leaving.whole.features},
        shown=_shown(shown.selection, shown.analysis),
        representations=dict(sources),
        models={
            name: facts["weights"]
            for name, facts in leaving.manifest["models"].items()
            if "weights" in facts
        },
        folders=(),
        files={},
        pair=shown.pair if shown.several else None,
        derived=(),
        drawn=drawn,
    )


def called(shown: Shown, names: Mapping[str, str]) -> Shown:
    """What is shown, its models called as `names` say; nothing is found in the store by these."""
    analysis = renamed(shown.analysis, names)
    selection = shown.selection
    layers = tuple(of_layer(layer, names) for layer in selection.layers)
    selection = replace(selection, layers=layers)
    pair = of_layer(shown.pair[0], names), of_layer(shown.pair[1], names)
    drawing = replace(
        shown.drawing, pair=pair, store=None, names=in_names(shown.drawing.names, names)
    )
    return Shown(analysis, selection, in_results(shown.results, names), drawing)


def contents(shown: Shown, leaving: Analysis, progress: Report | None = None) -> dict[str, bytes]:
    """The files of a capsule that follow from an analysis, by their names.

    Parameters
    ----------
    shown : what is drawn
    leaving : the analysis as it leaves the machine, see `mlem_core.report.portable.portable`
    progress : called as the figures are drawn
    """
    results, drawing = shown.results, shown.drawing
    drawn = all_figures(shown, progress)
    files = {
        "README.txt": _README.encode(),
        "manifest.json": as_json(leaving.manifest),
        "stimuli.csv": as_csv(leaving.whole),
        **_distances(leaving),
        **_texts(leaving, results, shown.selection, drawing.names),
        **{f"tables/{name}": data for name, data in tables_as_csv(results).items()},
        **_pair_tables(leaving),
        **_figure_files(drawn, drawing, progress),
        **_printed(drawn),
    }
    if shown.several:
        why = why_alike(shown.analysis, shown.selection, shown.pair)
        files |= {f"tables/{name}": as_csv_file(table) for name, table in why.items()}
    of_groups = GroupSummary(shown.analysis, results, shown.selection).tables()
    files |= {f"tables/{name}": as_csv_file(table) for name, table in of_groups.items()}
    return files


def drawn_by() -> dict[str, str]:
    """What draws the figures of this machine, in the versions that decide their bytes."""
    found = {name: importlib.metadata.version(name) for name in ("plotly", "kaleido")}
    return {**found, "platform": platform.platform()}


def _texts(
    analysis: Analysis, results: Results, selection: Selection, names: Names
) -> dict[str, bytes]:
    """The methods paragraph in both forms, the references and the versions."""
    methods = {
        name: methods_paragraph(
            analysis,
            results,
            estimator=selection.estimator,
            interactions=selection.interactions,
            form=form,
            names=names,
        )
        for form, name in (("markdown", "methods.md"), ("tex", "methods.tex"))
    }
    texts = {
        **methods,
        "references.bib": bibtex(analysis.manifest),
        "versions.txt": versions_text(analysis.manifest),
    }
    return {name: text.encode() for name, text in texts.items()}


def _pair_tables(analysis: Analysis) -> dict[str, bytes]:
    """The finished analysis, without the stimuli."""
    with scratch("capsule") as folder:
        save(analysis, folder)
        return {
            f"pair_tables/{path.name}": path.read_bytes()
            for path in sorted(Path(folder).iterdir())
            if path.name not in ("stimuli.csv", RDMS)
        }


def _distances(analysis: Analysis) -> dict[str, bytes]:
    """Those of features that are given by them."""
    if not analysis.whole.rdms:
        return {}
    file = BytesIO()
    save_rdms(analysis.whole, file)
    return {RDMS: file.getvalue()}


def _shown(selection: Selection, analysis: Analysis) -> ShownOf:
    """The entry `shown`."""
    whole = analysis.select()
    return ShownOf(
        None if selection.features == whole.features else selection.features,
        None if selection.layers == whole.layers else selection.layers,
        selection.estimator,
        selection.interactions,
    )


def _printed(drawn: dict[str, Drawn]) -> dict[str, bytes]:
    """The captions of all figures, and the figures and their tables as LaTeX."""
    captions = [
        f"**{name}**: {as_markdown(one.title)}. {as_markdown(one.caption)}\n"
        for name, one in drawn.items()
    ]
    width = figures.Paper().width_mm
    texts = {"figures/captions.md": "\n".join(captions)}
    for name, one in drawn.items():
        file = f"figures/{name}.pdf"
        texts[f"latex/{name}.tex"] = "\n".join(
            (
                latex.figure(file, width, one.caption, f"fig:{name}", one.title),
                latex.table(one.printed, "", f"tab:{name}", title=one.title),
            )
        )
    return {name: text.encode() for name, text in texts.items()}


def _figure_files(
    drawn: dict[str, Drawn], drawing: Drawing, progress: Report | None
) -> dict[str, bytes]:
    images = drawing.images
    images = figures.can_write_images() if images is None else images
    files = {}
    with figures.one_browser() if images else contextlib.nullcontext():
        for done, (name, one) in enumerate(drawn.items()):
            if progress is not None:
                progress(Progress("figures", None, done, len(drawn), "figures"))
            for form in ("svg", "pdf") if images else ("html",):
                data = figures.as_file(one.figure, form, title=one.title, caption=one.caption)
                files[f"figures/{name}.{form}"] = _steady(data, form)
    if progress is not None:
        progress(Progress("figures", None, len(drawn), len(drawn), "figures"))
    return files if images else {**files, "figures/plotly.min.js": _plotly()}


def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


def _steady(data: bytes, form: str) -> bytes:
    """A figure's file without the random names and dates that its writer puts in."""
    if form == "pdf":
        return _DATES.sub(rb"\g<1>19800101000000", data)
    if form == "svg":
        seen: dict[bytes, int] = {}
        return _NAMES.sub(
            lambda name: name[1] + b"%06d" % seen.setdefault(name[2], len(seen)), data
        )
    for number, name in enumerate(dict.fromkeys(_ELEMENTS.findall(data))):
        data = data.replace(name, b"%036d" % number)
    # One copy of Plotly beside the pages instead of 4 MB in each.
    return data.replace(
        b"<script>" + _plotly() + b"</script>", b'<script src="plotly.min.js"></script>'
    )


def _zip(files: dict[str, bytes], target: Path) -> Path:
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path])
    return target

"""A capsule: one zip with an analysis, all that was made of it, and what is needed to run it again.

    capsule.json      what was asked and what is shown; the digest of every other file
    manifest.json     versions, models, parameters, seed
    stimuli.csv       the stimuli as they were given
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
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.files import save
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, with_files
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.typing import Progress, Report
from mlem_core.data.roles import as_csv
from mlem_core.report import beside, latex
from mlem_core.report.contents import FORMAT, as_csv_file, tables_as_csv, why_alike
from mlem_core.report.figures import Drawing, Drawn, Shown, all_figures
from mlem_core.report.methods import methods_paragraph, versions_text
from mlem_core.report.references import bibtex
from mlem_core.storage.files import replacing, scratch
from mlem_core.storage.store import sha256_file

# Larger representation files are named by their digest instead.
LARGEST_FILE = 8_000_000
DEFAULT_DRAWING = Drawing()
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say

# What the writers of PDF, SVG and HTML make up anew each time.
_DATES = re.compile(rb"(/(?:Creation|Mod)Date ?\(D:)\d{14}")
_NAMES = re.compile(
    rb"((?<=[\"#])(?:(?:top)?defs-|clip|legend|g)|(?<= )trace|(?<=[\"xy-])cb)"
    rb"([0-9a-f]{6})(?![0-9a-f])"
)
_ELEMENTS = re.compile(rb'<div id="([0-9a-f-]{36})"')

_README = """\
A capsule of MLEM Explorer: an analysis, what was made of it, and what is needed to run it again.

Verify it:  python -m mlem_core verify THIS.zip
It runs the models on the stimuli once more and says which numbers differ.

tables/ has every table as CSV (intervals, audit and claims where they had been made; `verify` does
not compute these again), figures/ every figure with its caption, latex/ the figures and tables for
a paper, methods.md a paragraph that says what was done, references.bib what it rests on,
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
    drawn = all_figures(shown, progress)
    derived = beside.how_sure(shown)
    portable, sources = _portable(analysis)
    paths = dict(analysis.spec.representations)
    files = {
        "README.txt": _README.encode(),
        "manifest.json": _json(portable.manifest),
        "stimuli.csv": as_csv(analysis.whole),
        **_texts(analysis, results, selection, drawing.names),
        **{f"tables/{name}": data for name, data in tables_as_csv(results).items()},
        **{f"tables/{name}": as_csv_file(table) for name, table in derived.items()},
        **_pair_tables(portable),
        **{
            source["file"]: Path(paths[name]).read_bytes()
            for name, source in sources.items()
            if source["included"]
        },
        **_figure_files(drawn, drawing, progress),
        **_printed(drawn),
    }
    if shown.several:
        why = why_alike(analysis, selection, shown.pair)
        files |= {f"tables/{name}": as_csv_file(table) for name, table in why.items()}
    about = {
        "format": FORMAT,
        "spec": portable.spec.to_dict(),
        "kinds": {feature.name: feature.kind for feature in analysis.whole.features},
        "shown": _shown(selection, analysis),
        "pair": [list(layer) for layer in shown.pair] if shown.several else None,
        "derived": sorted(derived),
        "representations": sources,
        "models": {
            name: facts["weights"]
            for name, facts in analysis.manifest["models"].items()
            if "weights" in facts
        },
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    files["capsule.json"] = _json(about)
    return _zip(files, Path(target))


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
            if path.name != "stimuli.csv"
        }


def _shown(selection: Selection, analysis: Analysis) -> dict[str, Any]:
    """The entry `shown`: null stands for all features, or all layers, of the analysis."""
    whole = analysis.select().to_dict()
    return {
        name: None if name in ("features", "layers") and value == whole[name] else value
        for name, value in selection.to_dict().items()
    }


def _printed(drawn: dict[str, Drawn]) -> dict[str, bytes]:
    """The captions of all figures, and the figures and their tables as LaTeX."""
    captions = [f"**{name}**: {one.title}. {one.caption}\n" for name, one in drawn.items()]
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


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _portable(analysis: Analysis) -> tuple[Analysis, dict[str, dict[str, Any]]]:
    """The analysis with paths inside the capsule, and the files that stand for models in it."""
    sources: dict[str, dict[str, Any]] = {}
    for number, (name, path) in enumerate(analysis.spec.representations):
        facts = analysis.manifest["models"].get(name)
        if facts is None:
            continue  # it was left out
        file = Path(path)
        if not file.is_file() or sha256_file(file) != facts["sha256"]:
            raise InputError(
                f"the representations file {file.name!r} of {name} has gone or changed since the "
                "analysis; run the analysis again."
            )
        sources[name] = {
            "file": f"representations/{number:02d}{file.suffix.lower()}",
            "sha256": facts["sha256"],
            "included": file.stat().st_size <= LARGEST_FILE,
        }
    files = [(name, source["file"]) for name, source in sources.items()]
    spec = with_files(as_written(analysis.spec, "stimuli.csv"), files)
    parameters = AnalysisSpec.from_dict(analysis.manifest["parameters"])
    parameters = with_files(as_written(parameters, "stimuli.csv"), files)
    manifest = {**analysis.manifest, "parameters": parameters.to_dict()}
    return replace(analysis, spec=spec, manifest=manifest), sources


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

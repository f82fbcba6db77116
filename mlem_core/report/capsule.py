"""A capsule: one zip with an analysis, all that was made of it, and what is needed to run it again.

    capsule.json      what was specified and what is shown; the digest of every other file
    manifest.json     versions, models, parameters, seed
    stimuli.csv       the stimuli as they were given
    rdms.npz          the distances of features that are given by them
    tables/           every table as CSV
    figures/          every figure, as SVG and PDF, or as interactive HTML; their captions
    latex/            every figure and its table, to be included in a paper
    pair_tables/      the finished analysis, from which every table follows
    representations/  the files that stood for models, where they are small
    methods.md, methods.tex, references.bib, versions.txt, README.txt

`mlem_core.report.verify` runs a capsule again and compares its numbers and parameters; figures and
texts follow from these.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.files import RDMS, save_analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.similarities import kept_similarity
from mlem_core.base.files import replacing, scratch
from mlem_core.base.text import as_markdown
from mlem_core.base.typing import Progress, Report
from mlem_core.figures.plots import Drawing, FigureContext, RenderedFigure, all_figures
from mlem_core.groups.noise_ceilings import ceiling_tables
from mlem_core.groups.summary import GroupSummary, group_tables
from mlem_core.inference.explanation import best_known, explain, explanation_of
from mlem_core.inference.importance_chance import CHANCE, SCORE_PERMUTATIONS
from mlem_core.inference.intervals import importance_difference_table
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.report.contents import (
    FORMAT,
    MOST_REPLICATES,
    About,
    DrawnAs,
    SourceFile,
    as_json,
    content_of,
    in_names,
    in_results,
    in_table,
    of_layer,
    own_names,
    portable,
    renamed,
    sources_of,
    write_zip,
)
from mlem_core.report.formats import as_latex, csv_bytes, pictures
from mlem_core.report.methods import texts, uncertainty, versions_text
from mlem_core.robustness.erasure import kept_erasures
from mlem_core.robustness.flags import audit_tables

DEFAULT_DRAWING = Drawing()
# Stimuli, and the distances of features that are given by them.
GIVEN = ("stimuli.csv", RDMS)

_README = """\
A capsule of MLEM Explorer: an analysis, what was made of it, and what is needed to run it again.

Verify it:  mlem verify THIS.zip
It runs the models on the stimuli once more, makes every table anew and says which numbers differ.

tables/ has every table as CSV (intervals and audit where they had been made; `verify` does not
compute the audit again), manifest.json the parameters, models and versions. From these
follow, and are not compared: figures/ with every figure and its caption, latex/ with the figures
and tables for a paper, methods.md, a paragraph that says what was done, and references.bib.
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

    Raises as `Analysis.results`; a representations file that has gone or changed.
    """
    selection = analysis.select() if selection is None else selection
    results = analysis.results_of(selection) if results is None else results
    shown = FigureContext(analysis, selection, results, drawing)
    derived, intervals = how_sure(shown), in_intervals(shown)
    again = drawing.replicates <= MOST_REPLICATES
    names, sources = own_names(analysis), sources_of(analysis)
    tables = {name: in_table(table, names) for name, table in {**derived, **intervals}.items()}
    if names:
        shown = called(shown, names)
    leaving = portable(analysis, names, sources)
    paths = dict(analysis.spec.representations)
    drawn = all_figures(shown, progress)
    files = {
        **contents(shown, leaving),
        **{f"tables/{name}": csv_bytes(table) for name, table in tables.items()},
        **{
            source.file: content_of(source, paths[name])
            for name, source in sources.items()
            if source.included
        },
        **_figure_files(drawn, shown.drawing.images, progress),
        **_printed(drawn),
    }
    about = replace(
        described(shown, leaving, sources),
        folders=tuple(names.values()),
        files={name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        derived=tuple(sorted(derived if again else tables)),
        replicates=drawing.replicates if again and intervals else 0,
    )
    files["capsule.json"] = as_json(about.sealed())
    with replacing(Path(target)) as temporary:
        write_zip(files, temporary)
    return Path(target)


def described(shown: FigureContext, leaving: Analysis, sources: Mapping[str, SourceFile]) -> About:
    """Contents of `capsule.json` for an analysis, of no file yet and without what takes long."""
    drawing = shown.drawing
    return About(
        format=FORMAT,
        spec=leaving.spec.to_dict(),
        kinds={feature.name: feature.kind for feature in leaving.whole.features},
        shown=shown.selection,
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
        drawn=DrawnAs(
            options=dict(drawing.options),
            features=dict(drawing.names.features),
            models=dict(drawing.names.models),
        ),
    )


def called(shown: FigureContext, names: Mapping[str, str]) -> FigureContext:
    """Context with the models named by `names`; nothing is found in the store by these."""
    analysis = renamed(shown.analysis, names)
    selection = shown.selection
    layers = tuple(of_layer(layer, names) for layer in selection.layers)
    selection = replace(selection, layers=layers)
    pair = of_layer(shown.pair[0], names), of_layer(shown.pair[1], names)
    drawing = replace(
        shown.drawing, pair=pair, store=None, names=in_names(shown.drawing.names, names)
    )
    return FigureContext(analysis, selection, in_results(shown.results, names), drawing)


def contents(shown: FigureContext, leaving: Analysis) -> dict[str, bytes]:
    """The files of a capsule that follow from an analysis, but for figures, by their names.

    Parameters
    ----------
    shown : what is shown
    leaving : the analysis as it leaves the machine, see `mlem_core.report.contents.portable`
    """
    names = shown.drawing.names
    written = texts(leaving, shown.results, shown.selection, names, uncertainty(shown))
    written |= {"README.txt": _README, "versions.txt": versions_text(leaving.manifest)}
    return {
        **{name: text.encode() for name, text in written.items()},
        "manifest.json": as_json(leaving.manifest),
        **{f"tables/{name}": csv_bytes(table) for name, table in tables_of(shown).items()},
        **_finished(leaving),
    }


def tables_of(shown: FigureContext) -> dict[str, pd.DataFrame]:
    """The tables that follow from the pair tables."""
    analysis, results, selection = shown.analysis, shown.results, shown.selection
    correlations = results.feature_correlations.rename_axis("feature").reset_index()
    tables = {**results.tables(), "feature_correlations.csv": correlations}
    if shown.several:
        tables |= _why_alike(shown)
    summary = GroupSummary(analysis, results, selection, chance=shown.chance_of(RSA))
    return tables | group_tables(summary)


def _why_alike(shown: FigureContext) -> dict[str, pd.DataFrame]:
    """The RSA of two layers as a sum over the features, and that of every two layers."""
    analysis, selection, layers = shown.analysis, shown.selection, list(shown.selection.layers)
    own, rsa = analysis.subset(selection)
    why, split = explain(analysis, *shown.pair, features=selection.features), decompose(own, rsa)
    if (chance := shown.chance_of(RSA)) is not None:
        split = chance.of_all(split)
    return {"why.csv": why.terms, "why_layers.csv": split.table(layers)}


def _finished(analysis: Analysis) -> dict[str, bytes]:
    """The finished analysis: its pair tables, and beside them the stimuli as they were given."""
    with scratch("capsule") as folder:
        save_analysis(analysis, folder)
        return {
            path.name if path.name in GIVEN else f"pair_tables/{path.name}": path.read_bytes()
            for path in sorted(Path(folder).iterdir())
        }


def _printed(drawn: dict[str, RenderedFigure]) -> dict[str, bytes]:
    """The captions of all figures, and the figures and their tables as LaTeX."""
    captions = [
        f"**{name}**: {as_markdown(one.title)}. {as_markdown(one.caption)}\n"
        for name, one in drawn.items()
    ]
    files = {"figures/captions.md": "\n".join(captions)}
    paper = figures.Paper()
    files |= {f"latex/{name}.tex": as_latex(one, name, paper) for name, one in drawn.items()}
    return {name: text.encode() for name, text in files.items()}


def _figure_files(
    drawn: dict[str, RenderedFigure], images: bool | None, progress: Report | None
) -> dict[str, bytes]:
    images = figures.can_write_images() if images is None else images
    files = {}
    with figures.one_browser() if images else contextlib.nullcontext():
        for done, (name, one) in enumerate(drawn.items()):
            if progress is not None:
                progress(Progress("figures", None, done, len(drawn), "figures"))
            for form in pictures(images):
                for path, data in form.write(one, name, None).items():
                    files[f"figures/{path}"] = data if images else _without_plotly(data)
    if progress is not None:
        progress(Progress("figures", None, len(drawn), len(drawn), "figures"))
    return files if images else {**files, "figures/plotly.min.js": plotly_source().encode()}


def plotly_source() -> str:
    """The script of Plotly."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _without_plotly(page: bytes) -> bytes:
    """The page with the one copy of Plotly beside it instead of 4 MB in it."""
    for tag in (b"<script>", b'<script type="text/javascript">'):  # of Plotly 7, and of 6
        script = tag + plotly_source().encode() + b"</script>"
        page = page.replace(script, b'<script src="plotly.min.js"></script>')
    return page


Tables = dict[str, pd.DataFrame]


def how_sure(shown: FigureContext) -> Tables:
    """Tables of what takes long, where made: audit, two layers, what else, noise ceilings.

    They take long, and are written where they have been made. `verify` only names those that are
    no intervals; these it computes again.
    """
    analysis, store = shown.analysis, shown.drawing.store
    tables = Tables() if shown.audit is None else audit_tables(shown.audit)
    tables |= _similarities(shown)
    chance = analysis.kept(CHANCE, store, shown.selection, permutations=SCORE_PERMUTATIONS)
    if chance is not None:
        tables["chance.csv"] = chance
    if (rest := shown.rest) is not None:
        tables |= rest.written("what_else")
    if store is not None and shown.noise_ceilings is not None:
        tables |= ceiling_tables(analysis, shown.results, store)
    why = shown.why if shown.several else None
    if why is not None and why.alone and len(why.terms):
        # Those of the two layers that were resampled alone.
        parts = {"": why.terms, "_whole": why.whole}
        tables |= {f"why_resampled{part}.csv": table for part, table in parts.items()}
    if store is not None and shown.several:
        erased = kept_erasures(analysis, store, shown.pair)
        tables |= {} if erased.empty else {"erasures.csv": erased}
    return tables


def _similarities(shown: FigureContext) -> Tables:
    """Similarities other than RSA of what is shown, and their terms."""
    tables, store = Tables(), shown.drawing.store
    if store is None or not shown.several:
        return tables
    for name in SIMILARITIES:
        found = None if name == RSA else kept_similarity(shown.analysis, name, store)
        if found is not None:
            own, chance = found.of(shown.analysis, shown.selection), shown.chance_of(name)
            tables |= own.written(chance and chance.of_all(own.decomposed()))
            two = explain(shown.analysis, *shown.pair, shown.selection.features, compared=found)
            two = best_known(two, shown.analysis, shown.selection, store, chance=chance)
            divides = found.similarity.divides
            tables |= {f"why_{name}.csv": two.terms} if divides else {f"pair_{name}.csv": two.whole}
    return tables


def in_intervals(shown: FigureContext) -> Tables:
    """Confidence intervals and tests, where they have been made."""
    intervals, tables = shown.intervals, Tables()
    if intervals is None or shown.score_tests is None:
        return {}
    tables["intervals.csv"] = shown.score_tests.table
    if shown.similarity_tests is not None:
        tables["similarity_intervals.csv"] = shown.similarity_tests.table
        differences = importance_difference_table(intervals, *shown.pair, shown.correction)
        tables["difference_intervals.csv"] = differences.table
        if len(intervals.terms):
            if (chance := shown.chance_of(RSA)) is not None:
                chance = chance.of_layers(list(map(shown.selection.layers.index, shown.pair)))
            why = explanation_of(shown.why, intervals, chance)
            tables["why_whole_intervals.csv"] = why.whole
            tables["why_intervals.csv"] = why.terms
    return tables

"""One HTML page with what a screen shows of an analysis: no server, no network, one file.

The canvas is that of Explore, its contributions of every two layers computed beforehand; below it
stand the distances of systems, the tables to download and the methods. What is in it is data,
packed into one element of the page and put there as text: names and sentences of users are never
markup.
"""

from __future__ import annotations

import base64
import functools
import gzip
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from plotly.offline import get_plotlyjs

from mlem_core.analysis.analysis import check_layers
from mlem_core.analysis.similarities import compute_rsa
from mlem_core.base.errors import InputError
from mlem_core.base.files import replacing
from mlem_core.base.text import many
from mlem_core.base.typing import Counted, Layer, Report, counting
from mlem_core.figures.canvas import canvas_data, compute_map, map_coordinates, pair_data
from mlem_core.figures.plots import FIGURES, FigureContext, draw
from mlem_core.inference.explanation import explain, explanations
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.similarities import RSA
from mlem_core.report.analysis_tables import TableInput, default_tables
from mlem_core.report.canvas_files import script, style
from mlem_core.report.formats import csv_bytes
from mlem_core.report.methods import texts, uncertainty
from mlem_core.report.portable import model_names, portable, renamed_context

# Of more layers the pairs are those that one chooses.
MOST_LAYERS = 400
# With its licence beside it; letters of European languages, others are the reader's own.
FONT = Path(__file__).parent / "font" / "page-sans.woff2"
# Below the canvas, in their order; the last of these show stimuli.
SHOWN, OF_STIMULI = ("system_distances", "model_comparison"), ("group_rdms",)


def write_page(
    context: FigureContext,
    target: Path | str,
    title: str,
    pairs: Sequence[tuple[Layer, Layer]] | None = None,
    *,
    stimuli: bool = True,
    progress: Report | None = None,
) -> Path:
    """Write the page of an analysis; it appears whole or not at all.

    A model that is a folder of this machine is called by the folder's name in it.

    Parameters
    ----------
    context : of figures; maps of its stimuli are made where representations are in the store
    title : of the page
    pairs : of layers that are explained; None is every two
    stimuli : whether the words and sentences are in it, and the name and digest of their file
    progress : called as layers are laid out and explained

    Raises InputError: one layer alone; more than `MOST_LAYERS` layers and no `pairs`; a pair
    that is not among the layers.
    """
    layers = context.selection.layers
    if len(layers) < 2:
        raise InputError("found one layer; a page compares layers, and expects at least two.")
    check_layers(itertools.chain(*(pairs or ())), layers)
    if pairs is None and len(layers) > MOST_LAYERS:
        raise InputError(
            f"found {len(layers)} layers, and a page explains every two of at most {MOST_LAYERS}; "
            "name the pairs, or choose fewer layers."
        )
    report = progress or (lambda _: None)
    content = _content(context, pairs, stimuli, report)
    names = model_names(context.analysis)
    if names:
        # What stands in it would name folders of this machine.
        context = renamed_context(context, names)
    analysis = portable(context.analysis, names)
    if not stimuli:
        file = Path(analysis.stimuli.name).stem
        title = re.sub(rf"^{re.escape(file)}\b", "Stimuli", title)
        unnamed = {**analysis.manifest["stimuli"], "name": "", "digest": ""}
        # Notices name stimuli and their file.
        manifest = {**analysis.manifest, "stimuli": unnamed}
        analysis = replace(analysis, notices=[], manifest=manifest)
    written = texts(
        analysis, context.results, context.selection, context.names, uncertainty(context)
    )
    content |= {
        "tables": {name: csv_bytes(table).decode() for name, table in _tables(context).items()},
        "figures": list(_figures(context, stimuli)),
        "methods": written["methods.md"],
        "references": written["references.bib"],
    }
    models = {model for model, _ in context.selection.layers}
    made_with = f"MLEM Explorer {analysis.manifest['versions'].get('mlem') or ''}".strip()
    page = _template().render(
        title=title,
        about=f"{many(len(layers), 'layer')} of {many(len(models), 'model')}, "
        f"{many(len(analysis.stimuli), 'stimulus')}. Made with {made_with}.",
        font=base64.b64encode(FONT.read_bytes()).decode(),
        canvas_style=style(),
        canvas_script=script(),
        plotly=_packed(get_plotlyjs() if content["figures"] else ""),
        content=_packed(json.dumps(content)),
    )
    with replacing(Path(target)) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(target)


def _tables(context: FigureContext) -> dict[str, pd.DataFrame]:
    """The tables that follow from the statistics of pairs, by file name."""
    analysis, results, selection = context.analysis, context.results, context.selection
    chance = context.find_contribution_null(RSA)
    split = decompose(analysis.compute_pairs(selection).moments)
    if chance is not None:
        split = chance.subtract_from_all(split)
    inputs = TableInput(analysis, selection, results, compute_rsa(analysis), chance)
    correlations = results.feature_correlations.rename_axis("feature").reset_index()
    return {
        **results.tables(),
        "feature_correlations.csv": correlations,
        "why.csv": explain(analysis, *context.pair, features=selection.features).terms,
        "why_layers.csv": split.table(list(selection.layers)),
        **default_tables(inputs).tables,
    }


def _content(
    context: FigureContext,
    pairs: Sequence[tuple[Layer, Layer]] | None,
    stimuli: bool,
    report: Report,
) -> dict[str, Any]:
    """The canvas without its pair, the maps of all layers, and what explains each pair."""
    layers = context.selection.layers
    canvas = canvas_data(context)
    if canvas["maps"] is not None:
        _add_maps(canvas, context, counting(report, "maps", "layers"), stimuli=stimuli)
    every = list(itertools.combinations(layers, 2))
    if pairs is not None:
        every = list(dict.fromkeys((context.pair, *pairs)))
    explained, told = dict[str, Any](), counting(report, "contributions", "pairs of layers")
    similarity = RSA if context.compared is None else context.compared.similarity.name
    found = explanations(context.analysis, every, context.selection.features, context.compared)
    for done, (pair, why) in enumerate(zip(every, found, strict=True)):
        told(done, len(every))
        of_pair = replace(context, drawing=replace(context.drawing, pair=pair))
        of_pair.remember(("why", pair, similarity), why)
        explained[" ".join(str(layers.index(layer)) for layer in pair)] = pair_data(of_pair)
    for name in pair_data(context):
        del canvas[name]
    return {"canvas": {**canvas, "alone": True}, "pairs": explained}


def _add_maps(
    canvas: dict[str, Any], context: FigureContext, progress: Counted, *, stimuli: bool
) -> None:
    """Add the maps of all layers to the canvas, and take out the stimuli unless they are shown."""
    layers = context.selection.layers
    for done, layer in enumerate(layers):
        progress(done, len(layers))
        with suppress(InputError):
            compute_map(context, layer)
        points = map_coordinates(context, layer)
        if points is not None:
            canvas["maps"][str(done)] = points
    if context.analysis.stimuli.level == "stimulus":
        canvas["sentences"] = [
            Path(label).name if os.path.isabs(label) else label for label in canvas["sentences"]
        ]
    if not stimuli:
        canvas |= {
            "stimuli": None,
            "words": None,
            "places": [None] * len(canvas["places"]),
            "sentences": [f"stimulus {n + 1}" for n in range(len(canvas["sentences"]))],
        }


def _figures(context: FigureContext, stimuli: bool) -> Iterator[dict[str, Any]]:
    for name in (name for name in SHOWN + OF_STIMULI * stimuli if name in FIGURES):
        drawn = draw(name, context)
        if drawn is not None:
            figure = json.loads(drawn.figure.to_json())
            yield {"title": drawn.title, "caption": drawn.caption, "figure": figure}


def _packed(text: str) -> str:
    """Text as the page unpacks it: gzip in base64, the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@functools.cache
def _template() -> jinja2.Template:
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=folder, autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html.jinja")

"""An analysis as it leaves this machine: without the paths of its files and folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.labels import Names
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.data.datasets import SETS
from mlem_core.figures.context import FigureContext
from mlem_core.models.registry import base_name, comes_along, packaged

STIMULI = "stimuli.csv"
# As manifests of models of the hub and of packages have their revision.
_VERSIONED = re.compile(r"[0-9a-f]{40}|\S+ \S+")


def own_names(analysis: Analysis) -> dict[str, str]:
    """Names outside of this machine for models that were folders or files of this machine.

    Returns
    -------
    the name of the folder, by the model's name in the analysis; two of one name are numbered
    """
    models: Mapping[str, Mapping[str, Any]] = analysis.manifest["models"]
    taken = {*models, *packaged()}
    found: dict[str, str] = {}
    for name in analysis.spec.models:
        whole = base_name(name)
        if comes_along(name) or not _of_this_machine(whole, models.get(name)):
            continue
        own = Path(whole).expanduser().name or "model"
        # Behind the @ stands the training step.
        (stem, *revision), number = re.split("(?=@)", own + name[len(whole) :]), 2
        called = "".join((stem, *revision))
        while called in taken - {name}:
            called, number = "".join((f"{stem}-{number}", *revision)), number + 1
        found[name] = called
        taken.add(called)
    return found


def _of_this_machine(name: str, facts: Mapping[str, Any] | None) -> bool:
    if facts is not None:
        return not _VERSIONED.fullmatch(str(facts["revision"]))
    # It was left out.
    return name.startswith(("/", ".", "~", "\\")) or Path(name).expanduser().exists()


def portable(
    analysis: Analysis,
    names: Mapping[str, str],
    files: Mapping[str, str] | None = None,
    *,
    with_stimuli: bool = True,
) -> Analysis:
    """The analysis without paths of this machine.

    Parameters
    ----------
    names : what its models that are folders of this machine are called, see `own_names`
    files : path beside the manifest of each file that stands for a model; None is its name alone
    with_stimuli : whether `write_csv` writes the stimuli beside the manifest, as `STIMULI`; without
        them the manifest says how the user's own file was read
    """
    given = analysis.spec.representations
    if files is None:
        files = {name: Path(path).name for name, path in given}
    paths = [(name, files[name]) for name, _ in given if name in files]

    def moved(spec: AnalysisSpec) -> AnalysisSpec:
        spec = with_files(spec, paths)
        if with_stimuli:
            return as_written(spec, STIMULI)
        stimuli = spec.stimuli if spec.stimuli in SETS else Path(spec.stimuli).name
        rdms = tuple((name, Path(path).name) for name, path in spec.rdms)
        return replace(spec, stimuli=stimuli, rdms=rdms)

    named = renamed(analysis, names)
    # The paths of files that were left out stand in the notices.
    notices = [
        _replaced(one, {path: Path(path).name for _, path in given}) for one in named.notices
    ]
    parameters = moved(AnalysisSpec.from_dict(named.manifest["parameters"]))
    manifest = {
        **named.manifest,
        "parameters": parameters.to_dict(),
        "stimuli": {**named.manifest["stimuli"], "as_written": with_stimuli},
        "notices": notices,
    }
    return replace(named, spec=moved(named.spec), manifest=manifest, notices=notices)


def renamed_context(context: FigureContext, names: Mapping[str, str]) -> FigureContext:
    """Context of figures with its models renamed; nothing is found in the store by these names."""
    selection = context.selection
    layers = tuple(of_layer(layer, names) for layer in selection.layers)
    pair = of_layer(context.pair[0], names), of_layer(context.pair[1], names)
    display_names = in_names(context.drawing.names, names)
    return FigureContext(
        renamed(context.analysis, names),
        replace(selection, layers=layers),
        in_results(context.results, names),
        replace(context.drawing, pair=pair, store=None, names=display_names),
    )


def renamed(analysis: Analysis, names: Mapping[str, str]) -> Analysis:
    """The analysis with its models called as `names` say."""
    manifest = analysis.manifest
    models = {names.get(name, name): facts for name, facts in manifest["models"].items()}
    parameters = AnalysisSpec.from_dict(manifest["parameters"])
    notices = in_sentences(analysis.notices, names)
    manifest = {
        **manifest,
        "parameters": _with_models(parameters, names).to_dict(),
        "models": models,
        "notices": notices,
    }
    return replace(
        analysis,
        spec=_with_models(analysis.spec, names),
        layers=[of_layer(layer, names) for layer in analysis.layers],
        manifest=manifest,
        notices=notices,
        maps={of_layer(layer, names): points for layer, points in analysis.maps.items()},
        pair_errors=in_table(analysis.pair_errors, names),
    )


def in_results(results: Results, names: Mapping[str, str]) -> Results:
    """The tables of an analysis with its models called so."""
    tables = {
        each.name: in_table(getattr(results, each.name), names)
        for each in fields(results)
        if isinstance(getattr(results, each.name), pd.DataFrame)
    }
    return replace(results, layers=[of_layer(layer, names) for layer in results.layers], **tables)


def _with_models(spec: AnalysisSpec, names: Mapping[str, str]) -> AnalysisSpec:
    return with_models(spec, [names.get(name, name) for name in spec.models], names)


def of_layer(layer: Layer, names: Mapping[str, str]) -> Layer:
    """A layer, its model called as `names` say."""
    return names.get(layer[0], layer[0]), layer[1]


def in_table(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """A table whose cells and headings that are a model, or "model:layer", are called so."""
    if not names:
        return table

    def named(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        if cell in names:
            return names[cell]
        model, colon, _ = cell.rpartition(":")
        if colon and model in names:
            return layer_name(of_layer(parse_layer(cell), names))
        # Sentences name layers too.
        return _replaced(cell, _in_words(names))

    columns = {
        name: table[name].map(named)
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    renamed = table.assign(**columns).rename(columns=named)
    return renamed if isinstance(table.index, pd.RangeIndex) else renamed.rename(index=named)


def in_names(called: Names, names: Mapping[str, str]) -> Names:
    """Display names of features and models, by the new names of the models."""
    models = {names.get(name, name): text for name, text in called.models.items()}
    layers = {
        layer_name(of_layer(parse_layer(name), names)): text for name, text in called.layers.items()
    }
    return Names(called.features, models, layers)


def in_sentences(sentences: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Sentences with the models of this machine called as `names` say."""
    said = _in_words(names)
    return [_replaced(sentence, said) for sentence in sentences]


def _in_words(names: Mapping[str, str]) -> dict[str, str]:
    # A name without a separator may be a word of any sentence.
    return {name: own for name, own in names.items() if "/" in name or "\\" in name}


def _replaced(text: str, by: Mapping[str, str]) -> str:
    for long in sorted(by, key=len, reverse=True):
        text = text.replace(long, by[long])
    return text

"""An analysis as it leaves the machine: names of files and folders, no paths."""

from __future__ import annotations

import hashlib
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
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.models.registry import base_name, comes_along, packaged
from mlem_core.report.contents import SourceFile
from mlem_core.storage.digests import Digested, changed

# Larger representation files are named by their digest instead.
LARGEST_FILE = 8_000_000
# As manifests of models of the hub and of packages have their revision.
_VERSIONED = re.compile(r"[0-9a-f]{40}|\S+ \S+")


def own_names(analysis: Analysis) -> dict[str, str]:
    """What models are called in a capsule that were folders or files of this machine.

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
    analysis: Analysis, names: Mapping[str, str], sources: Mapping[str, SourceFile]
) -> Analysis:
    """The analysis with paths inside the capsule, its models called as `names` say."""
    files = [(name, source.file) for name, source in sources.items()]
    named = renamed(analysis, names)
    # The paths of files that were left out stand in the notices.
    said = {path: Path(path).name for _, path in analysis.spec.representations}
    notices = [_replaced(notice, said) for notice in named.notices]
    parameters = AnalysisSpec.from_dict(named.manifest["parameters"])
    parameters = with_files(as_written(parameters, "stimuli.csv"), files)
    manifest = {**named.manifest, "parameters": parameters.to_dict(), "notices": notices}
    spec = with_files(as_written(named.spec, "stimuli.csv"), files)
    return replace(named, spec=spec, manifest=manifest, notices=notices)


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
        # Sentences, such as what is claimed, name layers too.
        return _replaced(cell, _in_words(names))

    columns = {
        name: table[name].map(named)
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    renamed = table.assign(**columns).rename(columns=named)
    return renamed if isinstance(table.index, pd.RangeIndex) else renamed.rename(index=named)


def in_names(called: Names, names: Mapping[str, str]) -> Names:
    """What features and models are called, by the names that models have in the capsule."""
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


def content_of(source: SourceFile, path: str) -> bytes:
    """The bytes of a file that stands for a model; InputError where it has changed meanwhile."""
    data = Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise changed(Path(path).name)
    return data


def sources_of(analysis: Analysis) -> dict[str, SourceFile]:
    """The files that stand for models, where they are in the capsule, and whether they are.

    Raises
    ------
    InputError
        A file that has gone or changed.
    """
    sources = {}
    for number, (name, path) in enumerate(analysis.spec.representations):
        facts = analysis.manifest["models"].get(name)
        if facts is None:
            continue  # it was left out
        file = Path(path)
        if not file.is_file() or Digested.of(file).digest != facts["sha256"]:
            raise InputError(
                f"the representations file {file.name!r} of {name} has gone or changed since the "
                "analysis; run the analysis again."
            )
        sources[name] = SourceFile(
            f"representations/{number:02d}{file.suffix.lower()}",
            facts["sha256"],
            file.stat().st_size <= LARGEST_FILE,
        )
    return sources

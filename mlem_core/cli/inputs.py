"""Analyses and results that the options of a command name."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.layer_sources import file_representations, get_representations
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError, unknown
from mlem_core.base.text import listed, short
from mlem_core.base.typing import Layer, Report, layer_name, parse_layer
from mlem_core.cli.options import spec_from_options
from mlem_core.cli.streams import complain
from mlem_core.report.analysis_tables import MANIFEST, TableOptions, read_manifest
from mlem_core.storage.store import Store


def checked_spec(options: argparse.Namespace) -> AnalysisSpec:
    """The analysis of these options; says at once how its stimuli were read."""
    spec = spec_from_options(options)
    if "models" in vars(options):
        spec.check()
    complain(*spec.load_stimuli().notes)
    return spec


def leftover_tables(folder: str, tables: list[str]) -> list[str]:
    """A warning of tables that stay in a folder though they are of another analysis."""
    named = f"{listed(tables)} in {short(folder)}"
    return [f"Of another analysis, as another command wrote them: {named}."] * bool(tables)


def new_notices(analysis: Analysis) -> list[str]:
    """Notices of an analysis that were not given before the run."""
    return [notice for notice in analysis.notices if notice not in analysis.whole.notes]


def two_results(
    options: argparse.Namespace, store: Store, report: Report
) -> tuple[Analysis, Analysis]:
    """Two results, stimulus sets or halves; what is in the store is not computed again.

    Raises
    ------
    InputError
        One without --halves, or two with it; a result whose stimuli or models have changed since.
    """
    names = [options.first, *filter(None, [options.second])]
    if len(names) == 1 + options.halves:
        result = "two results with --halves" if options.halves else "one result"
        raise InputError(f"found {result}; expected two results, or one and --halves.")
    spec, halves = spec_from_options(options), ("first", "second")
    names *= 1 + options.halves
    results = [
        open_result(name, spec, store, report, half=half if options.halves else "")[0]
        for name, half in zip(names, halves, strict=True)
    ]
    return results[0], results[1]


def open_result(
    name: str, given: AnalysisSpec, store: Store, report: Report, *, half: str = ""
) -> tuple[Analysis, TableOptions]:
    """The result in a folder that `analyze` wrote, or of a stimulus set with given choices.

    Beside it stand the options of the tables in the folder.

    Raises
    ------
    InputError
        No such stimulus set; stimuli or models that are not those of the folder's run.
    """
    path = Path(name) / MANIFEST
    manifest = read_manifest(path) if path.is_file() else None
    if manifest is None:
        spec = replace(given, stimuli=name)
    else:
        # Both halves are fitted and coded as all of them were.
        spec = AnalysisSpec.from_dict(manifest.parameters) if half else manifest.requested
    analysis = run(replace(spec, half=half) if half else spec, store, report)
    if manifest is None or half:
        return analysis, TableOptions()
    models = analysis.manifest["models"]
    if gone := [model for model in manifest.models if model not in models]:
        why = " ".join(analysis.notices)
        raise InputError(f"{short(name)} is a result of {listed(gone)}, not to be had now: {why}")
    same = [
        same_content(manifest.models[model], facts)
        for model, facts in models.items()
        if model in manifest.models
    ]
    if not all(same) or manifest.stimuli.digest != analysis.manifest["stimuli"]["digest"]:
        raise InputError(f"the stimuli or models of {short(name)} are not those of that run.")
    return analysis, manifest.table_options


def analysis_of_two(
    options: argparse.Namespace, store: Store, report: Report, beside: tuple[int, ...] = ()
) -> Analysis:
    """The analysis of the two layers of the options, `first` and `second`, which become layers.

    Without a second one, of the first alone.

    Parameters
    ----------
    beside : other layers that the analysis has, unless the options name some

    Raises
    ------
    InputError
        Bad input; a layer that its model does not have, or one layer twice.
    """
    spec = spec_from_options(options)
    named = [options.first] if options.second is None else [options.first, options.second]
    both = _numbered(spec, named)
    options.first, options.second = both[0], (*both, None)[1]
    files = dict(spec.representations)
    options.models += [
        name for name in dict(both) if name not in files and name not in options.models
    ]
    if options.layers is None:
        # Other layers have no part in it.
        options.layers = tuple(sorted({*beside, *(number for _, number in both)}))
    analysis = run(checked_spec(options), store, report)
    for model, number in both:
        if (model, number) not in analysis.layers and model in analysis.manifest["models"]:
            there = get_representations(analysis, model, store).every_layer
            if number not in there:
                raise unknown(f"layer of {model}", str(number), map(str, there))
    return analysis


def _numbered(spec: AnalysisSpec, named: Iterable[str]) -> tuple[Layer, ...]:
    """Layers that are named by number, or by their name in a representations file."""

    def numbered(text: str) -> Layer:
        model, _, layer_name = text.rpartition(":")
        path = dict(spec.representations).get(model)
        if path is None or layer_name.isdecimal():
            return parse_layer(text)
        source = file_representations(spec, spec.load_stimuli(), path, model)
        names = {name: int(n) for n, name in source.facts.get("layer_names", {}).items()}
        if layer_name not in names:
            raise unknown(f"layer of {model}", layer_name, [*names] or map(str, source.layers))
        return model, names[layer_name]

    both = tuple(map(numbered, named))
    if len(both) > len({*both}):
        raise InputError(
            f"found the layer {layer_name(both[0])} twice; expected two layers that are compared, "
            "such as minilm:3 and gpt2:5."
        )
    return both

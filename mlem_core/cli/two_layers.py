"""The analysis of the two layers, or the one, that a command names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import file_representations, representations_of
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import Layer, Report, layer_name, parse_layer
from mlem_core.cli.options import spec_from_options
from mlem_core.storage.store import Store


def analysis_of_two(
    options: argparse.Namespace,
    spec: Callable[[argparse.Namespace], AnalysisSpec],
    store: Store,
    report: Report,
    beside: tuple[int, ...] = (),
) -> Analysis:
    """The analysis of the two layers of the options, `first` and `second`, which become layers.

    Without a second one, of the first alone.

    Parameters
    ----------
    spec : the checked analysis of options
    beside : other layers that the analysis has, unless the options name some

    Raises
    ------
    InputError
        Bad input; a layer that its model does not have, or one layer twice.
    """
    asked = spec_from_options(options)
    named = [options.first] if options.second is None else [options.first, options.second]
    both = _numbered(asked, named)
    options.first, options.second = both[0], (*both, None)[1]
    files = dict(asked.representations)
    options.models += [
        name for name in dict(both) if name not in files and name not in options.models
    ]
    if options.layers is None:
        # Other layers have no part in it.
        options.layers = tuple(sorted({*beside, *(number for _, number in both)}))
    analysis = run(spec(options), store, report)
    _check_there(both, analysis, store)
    return analysis


def _numbered(spec: AnalysisSpec, named: Iterable[str]) -> tuple[Layer, ...]:
    """Layers that are named by number, or by their name in a representations file."""

    def numbered(text: str) -> Layer:
        model, _, own = text.rpartition(":")
        path = dict(spec.representations).get(model)
        if path is None or own.isdecimal():
            return parse_layer(text)
        source = file_representations(spec, spec.load_stimuli(), path, model)
        names = {name: int(n) for n, name in source.facts.get("layer_names", {}).items()}
        if own not in names:
            raise unknown(f"layer of {model}", own, [*names] or map(str, source.layers))
        return model, names[own]

    both = tuple(map(numbered, named))
    if len(both) > len({*both}):
        raise InputError(
            f"found the layer {layer_name(both[0])} twice; expected two layers that are compared, "
            "such as minilm:3 and gpt2:5."
        )
    return both


def _check_there(layers: Iterable[Layer], analysis: Analysis, store: Store) -> None:
    """Raise InputError for a layer that its model has not, with those that it has."""
    for model, number in layers:
        if (model, number) not in analysis.layers and model in analysis.manifest["models"]:
            there = representations_of(analysis, model, store).every_layer
            if number not in there:
                raise unknown(f"layer of {model}", str(number), map(str, there))

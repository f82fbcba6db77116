"""An analysis as it leaves this machine: without the paths of its files and folders."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.results import Results
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, further_files
from mlem_core.base.labels import Names
from mlem_core.figures.context import FigureContext, FigureOptions
from mlem_core.representations.model_paths import find_local_model
from mlem_core.representations.registry import base_name, comes_along, packaged
from mlem_core.stimuli.saved_stimuli import STIMULI

# Their fields may hold names of models.
_RENAMED = (Analysis, AnalysisSpec, FigureOptions, Names, Results, Selection)


def model_names(analysis: Analysis) -> dict[str, str]:
    """Names outside of this machine for models that are its folders or files, by their paths.

    A model is called by the name of its folder; two of one name are numbered.
    """
    spec = analysis.spec
    taken = {*spec.models, *dict(spec.representations), *packaged()}
    names: dict[str, str] = {}
    for path in dict.fromkeys(map(base_name, spec.models)):
        absolute = os.path.isabs(os.path.expanduser(path))
        if comes_along(path) or not (absolute or find_local_model(path)):
            continue
        # Behind the @ stands the training step.
        stem, at, step = (Path(path).name or "model").partition("@")
        name, number = stem + at + step, 2
        while name in taken - {path}:
            name, number = f"{stem}-{number}{at}{step}", number + 1
        names[path] = name
        taken.add(name)
    return names


def portable(analysis: Analysis, names: Mapping[str, str]) -> Analysis:
    """The analysis without paths of this machine, of the stimuli that `write_csv` writes.

    Parameters
    ----------
    names : of `model_names`; a file that stands for a model is called by its name
    """
    spec = analysis.spec
    files = {
        path: Path(path).name
        for field in ("representations", *further_files())
        for _, path in getattr(spec, field)
    }
    analysis = renamed(analysis, files | {**names})
    manifest = analysis.manifest
    parameters = as_written(AnalysisSpec.from_dict(manifest["parameters"]), STIMULI)
    stimuli = {**manifest["stimuli"], "as_written": True}
    manifest = {**manifest, "parameters": parameters.to_dict(), "stimuli": stimuli}
    return replace(analysis, spec=as_written(analysis.spec, STIMULI), manifest=manifest)


def renamed_context(context: FigureContext, names: Mapping[str, str]) -> FigureContext:
    """Context of figures with its models renamed; nothing is found in the store by these names."""
    changed = FigureContext(
        renamed(context.analysis, names),
        renamed(context.selection, names),
        drawing=renamed(replace(context.drawing, pair=context.pair), names),
    )
    changed.remember("results", renamed(context.results, names))
    return changed


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value with each path in its texts replaced by the name that stands for it.

    Parameters
    ----------
    value : a text, a table, an analysis or a part of it, or a list, tuple or dictionary of these
    names : by path
    """
    if not names:
        return value
    paths = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    whole_path = re.compile(rf"(?<![\w./~-])(?:{paths})(?![\w/-])")
    return _changed(value, lambda text: whole_path.sub(lambda path: names[path[0]], text))


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, pd.DataFrame):
        return _changed_table(value, change)
    if isinstance(value, Mapping):
        return {_changed(key, change): _changed(entry, change) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_changed(entry, change) for entry in value)
    if isinstance(value, _RENAMED):
        parts = {part.name: getattr(value, part.name) for part in fields(value)}
        return replace(value, **_changed(parts, change))
    return value


def _changed_table(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with each text in its cells and headings changed."""
    changed = partial(_changed, change=change)
    columns = {
        name: table[name].map(changed)
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    table = table.assign(**columns).rename(columns=changed)
    return table if isinstance(table.index, pd.RangeIndex) else table.rename(index=changed)

"""The representations of an analysis: of its models and files, and how they are found again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.backends import backend_in_use
from mlem_core.analysis.model_source import EVERY, NO_SUBJECTS
from mlem_core.analysis.spec import AnalysisSpec, compares_repetitions, names_in_section
from mlem_core.analysis.transforms import view
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import check_fields
from mlem_core.base.text import listed, span
from mlem_core.base.typing import FloatArray, Layer, Report, counting
from mlem_core.pairs.distances import PRECOMPUTED, SQUARED, squared_distances
from mlem_core.representations import layers as representations
from mlem_core.representations.arrays import from_file, n_subjects
from mlem_core.representations.layers import Representations
from mlem_core.representations.model_paths import unread_weights
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

_HINT = re.compile(r" \(did you mean [^()]*\?\)")
# In the notice of what could not be had.
LEFT_OUT = re.compile(r" (was|were) left out: ")
VERSION_OF_REPETITIONS = 2  # counted up when distances over repetitions become others


def with_subjects(spec: AnalysisSpec) -> AnalysisSpec:
    """Specification with a system for each subject of a file of several, in a group of its name.

    The systems are called NAME@subject1 and so on. Where the file is in a group already, they are
    in the place of its name there.

    Raises InputError, before a file is opened: a choice that does not exist. Then: a file that is
    to have several subjects and has none, or cannot be read.
    """
    check_fields(spec)
    said = dict(spec.subjects)
    of: dict[str, tuple[str, ...]] = {}
    for name, path in spec.representations:
        distances = name in spec.precomputed or spec.distance == PRECOMPUTED
        # Distances are known by their shape; a file that is not there is left to the run.
        needed = said.get(name) == EVERY
        if needed or (distances and name not in said and Path(path).is_file()):
            options = spec.file_options(name)
            n = n_subjects(Path(path), distances=distances, needed=needed, **options)
            of |= {name: tuple(f"{name}@subject{k}" for k in range(1, n + 1))} if n else {}
    if not of:
        return spec

    def each(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(one for name in names for one in of.get(name, (name,)))

    def pairs(given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((one, value) for name, value in given for one in each([name]))

    numbers = tuple((one, str(k)) for own in of.values() for k, one in enumerate(own, start=1))
    others = {*names_in_section("files")} - {"precomputed", "subjects"}
    further: dict[str, Any] = {field: pairs(getattr(spec, field)) for field in others}
    grouped = {one for _, members in spec.groups for one in members}
    groups = ((group, each(members)) for group, members in spec.groups)
    return replace(
        spec,
        representations=pairs(spec.representations),
        precomputed=each(spec.precomputed),
        **further,
        subjects=(*(one for one in spec.subjects if one[0] not in of), *numbers),
        groups=(*groups, *((name, own) for name, own in of.items() if name not in grouped)),
    )


def layer_sources(
    spec: AnalysisSpec, whole: StimulusSet, store: Store, report: Report
) -> tuple[dict[Layer, Representations], list[str]]:
    """The representations that each layer of an analysis is of, and notices of what is left out.

    Raises InputError: no model or no layer is left.
    """
    found, notices = _all_representations(spec, whole, store, report)
    rows = spec.kept.rows(whole)
    if len(rows) < len(whole):
        without = {"all": "", "without-first": ", those at position 0"}[spec.positions]
        half = "" if spec.half == "both" else f", all but the {spec.half} half"
        gone = f"{len(whole) - len(rows)} of {len(whole)} stimuli{without}{half}"
        notices.append(f"{gone}, were left out.")
    sources = dict[Layer, Representations]()
    for one in found:
        source = view(one, rows, spec.kept.identity, spec.units)
        chosen = [n for n in source.layers if spec.layers is None or n in spec.layers]
        if not chosen:
            none_of, there = ", ".join(map(str, spec.layers or ())), span(source.every_layer, 2)
            notices.append(
                f"{source.name} was left out: it has none of the layers {none_of}; it has {there}."
            )
        sources |= {(source.name, n): source for n in chosen}
    if not sources:
        raise InputError(notices[-1])
    if asked := sorted({*(spec.layers or ())} - {n for _, n in sources}):
        notices.append(f"No model has the layers {', '.join(map(str, asked))}; they were left out.")
    return sources, notices


def _all_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, store: Store, report: Report
) -> tuple[list[Representations], list[str]]:
    found: list[Representations] = []
    files: list[Representations] = []
    errors: dict[str, InputError] = {}
    # Files are read first: what is wrong with them shows before a model has run for minutes.
    for name, path in spec.representations:
        try:
            files.append(file_representations(spec, stimuli, path, name))
        except InputError as error:
            errors[name] = error
    backend = backend_in_use()
    failed = {} if backend is None else backend.extract_models(spec, stimuli, store, report)
    for name in spec.models:
        try:
            if name in failed:
                raise failed[name]
            found.append(model_representations(spec, stimuli, name, store, report))
        except InputError as error:
            errors[name] = error
    notices = _unavailable_models(errors)
    if not found and not files:
        if len(errors) == 1:
            raise next(iter(errors.values()))
        raise InputError("no model is left: " + " ".join(notices))
    for source in found:
        notices += unread_weights(source.name)
        if n_unknown := source.facts.get("unknown_words"):
            notices.append(
                f"{source.name} knows no token for {n_unknown:,} of {len(stimuli):,} stimuli: the "
                "one for what is unknown stands for each, so that it represents them by their "
                "place and context alone."
            )
    notices += [f"A layer was left out: {why}" for source in files for why in source.left_out]
    notices += [note for source in files for note in source.notes]
    return [*found, *files], notices


def _unavailable_models(errors: Mapping[str, InputError]) -> list[str]:
    """A sentence on each model or file that cannot be had; one on models that share a reason."""
    whose: dict[str, list[str]] = {}
    for name, error in errors.items():
        this = rf"the model (folder )?{re.escape(repr(name))}"
        why = _HINT.sub("", re.sub(this, "each", str(error)))
        whose.setdefault(why, []).append(name)
    return [
        f"{listed(names)} were left out: {why}"
        if len(names) > 1
        else f"{names[0]} was left out: {errors[names[0]]}"
        for why, names in whose.items()
    ]


def model_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, name: str, store: Store, report: Report
) -> Representations:
    """`mlem_core.representations.layers.from_model` for one model of an analysis."""
    sentences = counting(report, "representations", "sentences", name)
    return representations.from_model(stimuli, name, store, spec.extraction, sentences)


def file_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, path: str, name: str
) -> Representations:
    """`mlem_core.representations.arrays.from_file` for one file of an analysis."""
    subject = dict(spec.subjects).get(name, "0")
    read_file = partial(
        from_file,
        path,
        stimuli,
        name,
        subject=0 if subject == NO_SUBJECTS else int(subject),
        split=subject == NO_SUBJECTS,
        by_number=":" in dict(spec.axes).get(name, ""),
        **spec.file_options(name),
    )
    if compares_repetitions(spec, name):
        return repetition_distances(read_file(repetitions=True), spec.distance)
    distances = spec.neural_distance(name) == PRECOMPUTED
    source = read_file(distances=distances)
    if distances and (spec.distance != PRECOMPUTED or spec.already_squared):
        # The same file taken as representations, or for other distances, is another source.
        facts = {**source.facts, "distances": True, "source_identity": source.identity}
        identity = f"{source.identity} distances{SQUARED * spec.already_squared}"
        read = partial(_roots, source) if spec.already_squared else source.__getitem__
        source = source.with_arrays(read, identity=identity, facts=facts)
    return source


def _roots(source: Representations, layer: int) -> FloatArray:
    """The distances of a layer whose squares are given; below 0 remains below 0."""
    squares = source[layer].astype(np.float64)
    return np.asarray(np.copysign(np.sqrt(np.abs(squares)), squares))


def repetition_distances(repeated: Representations, distance: str) -> Representations:
    """Distances (n_stimuli, n_stimuli) over the repetitions of each stimulus."""
    return repeated.with_arrays(
        partial(_repetition_distances, repeated, distance),
        identity=f"{repeated.identity} {distance} {VERSION_OF_REPETITIONS}",
        facts={**repeated.facts, "distances": True, "source_identity": repeated.identity},
        distances=True,
    )


def _repetition_distances(repeated: Representations, distance: str, layer: int) -> FloatArray:
    from scipy.spatial.distance import squareform

    where = f"{repeated.name} layer {layer}"
    squared = squared_distances(repeated[layer], distance, layer=where)
    return np.asarray(squareform(np.sqrt(squared)))


def get_representations(analysis: Analysis, model: str, store: Store) -> Representations:
    """The representations of one of the models of an analysis, from the store or from its file.

    Raises InputError: they are no longer in the store, or the file has gone; or its content, or the
    weights of the model, are others than those that were analysed.
    """
    spec, files = analysis.spec, dict(analysis.spec.representations)
    source: Representations | None
    if model in files:
        source = file_representations(spec, analysis.whole, files[model], model)
    else:
        source = representations.kept_states(analysis.whole, model, store, spec.extraction)
    if source is None:
        raise InputError(
            f"the representations of {model} are no longer in the store; run the analysis "
            "again to have them."
        )
    analysed = analysis.manifest["models"].get(model, {})
    if not same_content(analysed, source.facts):
        raise InputError(
            f"{model} is no longer what was analysed: its files have changed; run the analysis "
            "again."
        )
    return view(source, analysis.rows, spec.kept.identity, spec.units)


def missing_representations(analysis: Analysis, models: Sequence[str], store: Store) -> list[str]:
    """Names of the models for which `get_representations` has nothing."""
    missing = []
    for model in models:
        try:
            get_representations(analysis, model, store)
        except InputError:
            missing.append(model)
    return missing

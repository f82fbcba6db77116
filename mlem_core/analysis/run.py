"""The run of an analysis, from the stimuli to the pair tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis import pair_errors
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.diagnostics import feature_findings
from mlem_core.analysis.manifest import manifest_of
from mlem_core.analysis.maps import from_file
from mlem_core.analysis.pair_errors import DesignScores
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.transforms import kept_stimuli, stimuli_kept, view
from mlem_core.base.bars import reporting
from mlem_core.base.errors import InputError
from mlem_core.base.text import span
from mlem_core.base.typing import FloatArray, IntArray, Layer, Progress, Report
from mlem_core.data.folds import FEWEST_TESTED, stimulus_folds, tested
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models import representations
from mlem_core.models.representations import Representations
from mlem_core.pairs import tables_io
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.columns import chosen_to_resolve, feature_columns
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.rank_store import PairRanks
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.torch_backend import cuda_device
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store


def run(
    spec: AnalysisSpec,
    store: Store,
    progress: Report | bool | None = None,
    stimuli: StimulusSet | None = None,
) -> Analysis:
    """Run an analysis from top to bottom.

    Representations and pair tables come from the store when nothing that they depend on has
    changed. A model or file that cannot be used is left out, with a notice, if another remains.

    Parameters
    ----------
    progress : called as the work goes on; by default a progress bar on a terminal and in a
        notebook, with False none
    stimuli : those of `spec`, where they have been read before

    Raises
    ------
    InputError
        Whatever the user gave that cannot be used; no model is left.
    """
    with reporting(progress) as report:
        return _run(spec, store, report, stimuli)


def _run(spec: AnalysisSpec, store: Store, report: Report, stimuli: StimulusSet | None) -> Analysis:
    spec.check()
    given = spec.load_stimuli() if stimuli is None else stimuli
    whole = given.select(spec.features)
    stimuli = stimuli_kept(whole, spec.positions)
    folds = _folds(whole, spec)
    resolved = chosen_to_resolve(feature_columns(stimuli), spec.values)
    found, notices = _all_representations(spec, whole, store, report)
    notices = [*whole.notes, *notices]
    rows = kept_stimuli(whole, spec.positions)
    found = [view(source, rows, spec.positions, spec.units) for source in found]
    if len(rows) < len(whole):
        left_out = len(whole) - len(rows)
        notices.append(f"{left_out} of {len(whole)} stimuli, those at position 0, were left out.")
    sources, layers = _chosen_layers(spec, found, notices)
    by_layer = {layer: sources[layer[0]] for layer in layers}
    tables, rsa, notes, kept, errors = _tables(
        spec, stimuli, (folds, resolved), by_layer, store, report
    )
    layers = [layers[i] for i in kept]
    findings = feature_findings(tables.with_interactions(spec.interactions))
    notices += [*notes, *(finding.sentence for finding in findings)]
    for (model, layer), squares in zip(layers, tables.rank_squares, strict=True):
        if squares == 0:
            notices.append(
                f"{model} layer {layer} represents all stimuli alike (every distance is the same); "
                "its scores and importances are 0."
            )
    named = replace(spec, values=resolved)
    manifest = manifest_of(named, whole, stimuli, sources, layers, notices)
    return Analysis(
        spec, stimuli, layers, tables, rsa, folds, notices, manifest, whole, pair_errors=errors
    )


def _folds(whole: StimulusSet, spec: AnalysisSpec) -> IntArray:
    """Those of all stimuli, so that a sentence is in the same fold whichever words are left out."""
    every = stimulus_folds(whole, spec.folds_over, spec.folds, spec.seed)
    folds = every[kept_stimuli(whole, spec.positions)]
    smallest = int(tested(folds, spec.folds).min())
    if smallest < FEWEST_TESTED:
        raise InputError(
            f"a fold is left with {smallest} stimuli without those at position 0; each of the "
            f"{spec.folds} folds needs at least {FEWEST_TESTED}, so choose fewer folds or keep all "
            "positions."
        )
    return folds


def model_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, name: str, store: Store, report: Report
) -> Representations:
    """`mlem_core.models.representations.from_model` for one model of an analysis."""

    def sentences(done: int, total: int) -> None:
        report(Progress("representations", name, done, total, "sentences"))

    return representations.from_model(stimuli, name, store, spec.extraction, sentences)


def _all_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, store: Store, report: Report
) -> tuple[list[Representations], list[str]]:
    found: list[Representations] = []
    files: list[Representations] = []
    errors: dict[str, InputError] = {}
    # Files are read first: what is wrong with them shows before a model has run for minutes.
    for name, path in spec.representations:
        try:
            files.append(from_file(spec, stimuli, path, name))
        except InputError as error:
            errors[name] = error
    for name in spec.models:
        try:
            found.append(model_representations(spec, stimuli, name, store, report))
        except InputError as error:
            errors[name] = error
    notices = [f"{name} was left out: {error}" for name, error in errors.items()]
    if not found and not files:
        if len(errors) == 1:
            raise next(iter(errors.values()))
        raise InputError("no model is left: " + " ".join(notices))
    notices += [f"A layer was left out: {why}" for source in files for why in source.left_out]
    return [*found, *files], notices


def _chosen_layers(
    spec: AnalysisSpec, found: Sequence[Representations], notices: list[str]
) -> tuple[dict[str, Representations], list[Layer]]:
    layers: list[Layer] = []
    for source in found:
        chosen = [n for n in source.layers if spec.layers is None or n in spec.layers]
        if not chosen:
            notices.append(
                f"{source.name} was left out: it has none of the layers "
                f"{', '.join(str(n) for n in spec.layers or ())}; it has {span(source.layers, 2)}."
            )
        layers += [(source.name, n) for n in chosen]
    if not layers:
        raise InputError(notices[-1])
    asked = set(spec.layers or ()) - {n for _, n in layers}
    if asked:
        notices.append(
            f"No model has the layers {', '.join(str(n) for n in sorted(asked))}; they were left "
            "out."
        )
    return {source.name: source for source in found}, layers


class _LayerTables(NamedTuple):
    """What the layers give that can be used.

    tables, rsa : of these layers
    notes : sentences about what is not exact or was left out
    kept : which of the layers these are, by position
    errors : how much the choice of the pairs matters, see `mlem_core.analysis.pair_errors`
    """

    tables: PairTables
    rsa: FloatArray
    notes: list[str]
    kept: list[int]
    errors: pd.DataFrame


def _save(found: _LayerTables, folder: Path) -> None:
    tables_io.save(found.tables, folder / "tables.npz")
    np.save(folder / "rsa.npy", found.rsa)
    about = {"notes": found.notes, "layers": found.kept}
    (folder / "notes.json").write_text(json.dumps(about), encoding="utf-8")
    pair_errors.save(found.errors, folder)


def _load(folder: Path) -> _LayerTables:
    about = json.loads((folder / "notes.json").read_text(encoding="utf-8"))
    return _LayerTables(
        tables_io.load(folder / "tables.npz"),
        np.load(folder / "rsa.npy", allow_pickle=False),
        list(about["notes"]),
        list(about["layers"]),
        pair_errors.load(folder),
    )


TABLES = Stage("pair-tables", 3, _save, _load)


def _tables(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    coding: tuple[IntArray, Sequence[str]],
    sources: Mapping[Layer, Representations],
    store: Store,
    report: Report,
) -> _LayerTables:
    """The tables of the layers that can be used; if none can, what is wrong with the first one.

    `coding` is the fold of each stimulus, and the features that are resolved by value.
    """
    folds, resolved = coding
    design = PairDesign.of(folds, spec.pairs or None, spec.seed)

    def progress(done: int, total: int) -> None:
        report(Progress("pair tables", None, done, total, "layers"))

    def make() -> _LayerTables:
        progress(0, len(sources))
        columns = feature_columns(stimuli, resolved=resolved)
        index = PairIndex.build(columns, folds, spec.missing, design=design)
        errors: dict[int, InputError] = {}
        scores = DesignScores(spec.estimator, spec.interactions)
        with PairRanks(len(sources), design.n_pairs, store.root) as ranks:

            def failed(position: int, error: InputError) -> None:
                errors[position] = error
                if len(errors) == len(sources):
                    raise errors[0]
                ranks.put(position, np.zeros(ranks.n_pairs, dtype=np.uint32))

            tables = pair_tables(
                index,
                [lambda source=source, n=n: source[n] for (_, n), source in sources.items()],  # type: ignore[misc]
                names=[f"{model} layer {n}" for model, n in sources],
                distance=[spec.distance_of(model) for model, _ in sources],
                train_ranks=True,
                options=PassOptions(
                    keep_ranks=ranks.put,
                    keep_classes=ranks.put_classes,
                    of_design=scores.put,
                    failed=failed,
                    progress=progress,
                    device=cuda_device(spec.device),
                ),
            )
            kept = [i for i in range(len(sources)) if i not in errors]
            rsa = ranks.rsa()[np.ix_(kept, kept)]
            notes = [f"A layer was left out: {errors[i]}" for i in sorted(errors)]
            if ranks.bound > 0:
                notes.append(
                    f"The {ranks.n_pairs:,} pairs of a layer do not fit the memory at once, so "
                    f"that ranks are exact to within {ranks.bound:.1g} of the pairs among which "
                    "they are."
                )
            of_pairs = pair_errors.none()
            if not design.is_complete:
                parts = ranks.rsa(design.starts[design.parts])[:, kept][:, :, kept]
                layers = [list(sources)[i] for i in kept]
                of_pairs = scores.table(layers, kept, tables, rsa, parts)
                about = tables.n_pairs, n_pairs(len(stimuli)), design.n_designs
                notes = [pair_errors.sentence(of_pairs, *about), *notes]
        return _LayerTables(tables, rsa, [*index.notes, *notes], kept, of_pairs)

    depends_on = {
        "stimuli": stimuli.digest,
        "layers": [[source.identity, n] for (_, n), source in sources.items()],
        "missing": spec.missing,
        "distance": spec.distance,
        **spec.pair_choices,
        **({} if design.is_complete else {"pairs": [design.n_pairs, spec.estimator]}),
    }
    return TABLES.get(store, depends_on, make)

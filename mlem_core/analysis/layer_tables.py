"""The pair tables of an analysis: made from its representations, or found in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis import pair_errors
from mlem_core.analysis.layer_units import LayerUnits, Passed
from mlem_core.analysis.pair_errors import DesignScores
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.room import check_disk, check_memory, give_back_memory
from mlem_core.base.text import many, minus
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer, Report, counting
from mlem_core.data.folds import untested_items
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import estimator_named
from mlem_core.models.representations import Representations
from mlem_core.pairs.build import (
    LARGE,
    LayerWork,
    PassOptions,
    load_pair_tables,
    pair_tables,
    save_pair_tables,
)
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.patterns import PairIndex, bytes_of_cell
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks
from mlem_core.pairs.tables import PairTables, coarse_notes
from mlem_core.scale.executor import executor
from mlem_core.storage.store import InFile, Stage, Store

# Twice the rank of a pair is kept in 32 bits.
MOST_PAIRS = 2**31 - 1
# Stimuli and layers on which it is measured what distances in bins cost.
MEASURED, MEASURED_LAYERS = 400, 3


class LayerTables(NamedTuple):
    """Pair tables and RSA correlations of the layers that can be used.

    tables, rsa : of these layers
    notes : sentences about what is not exact or was left out
    kept : which of the layers these are, by position
    errors : how much the choice of the pairs matters, see `mlem_core.analysis.pair_errors`
    """

    tables: Annotated[PairTables, InFile(save_pair_tables, load_pair_tables)]
    rsa: FloatArray
    notes: list[str]
    kept: list[int]
    errors: pd.DataFrame


TABLES = Stage("pair-tables", 4, LayerTables)


def layer_tables(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    coding: tuple[IntArray, Sequence[str]],
    sources: Mapping[Layer, Representations],
    store: Store,
    report: Report,
) -> LayerTables:
    """The tables of the layers that can be used; if none can, what is wrong with the first one.

    `coding` is the fold of each stimulus, and the features that are resolved by value.
    """
    folds, resolved = coding
    items = untested_items(folds, stimuli.groups, stimuli.items)
    design = PairDesign.of(folds, spec.pairs or None, spec.seed, items=items)
    progress = counting(report, "pair tables", "layers")
    on_cluster: list[LayerUnits | None] = []

    def make() -> LayerTables:
        progress(0, len(sources))
        _check_room(design, sources, store)
        columns = feature_columns(stimuli, resolved=resolved)
        index = PairIndex.build(columns, folds, spec.missing, design=design)
        check_memory(
            2 * index.n_cells * len(sources) * bytes_of_cell(spec.folds),
            f"the pair tables of {len(sources)} layers with {index.n_cells:,} cells",
            "choose fewer layers or features, or code fewer features by value",
        )
        units = _units(index, spec, sources, depends_on, store)
        on_cluster.append(units)
        found = _made(index, spec, sources, units, store, progress)
        usable = [list(sources.items())[i] for i in found.kept]
        found.notes.extend(_cost_of_bins(index, columns, spec, usable))
        give_back_memory()
        return found

    some: dict[str, Any] = {}
    if not design.is_complete:
        some["pairs"] = [design.n_pairs, spec.estimator, "halves"]
    depends_on = {
        "stimuli": stimuli.digest,
        "layers": [[source.identity, n] for (_, n), source in sources.items()],
        **spec.pair_choices,
        **some,
    }
    found = TABLES.get(store, depends_on, make)
    for units in filter(None, on_cluster):
        units.forget()
    return found


def _cost_of_bins(
    index: PairIndex,
    columns: Sequence[FeatureColumn],
    spec: AnalysisSpec,
    sources: Sequence[tuple[Layer, Representations]],
) -> list[str]:
    """Sentences on the change of ρ by bins, measured on some stimuli; none without bins."""
    if not index.notes:
        return []
    some = np.random.default_rng(spec.seed).permutation(len(index.folds))[:MEASURED]
    rows, layers = np.sort(some), sources[:: -(-len(sources) // MEASURED_LAYERS)]
    plain = [replace(column, values=column.values[rows], names=()) for column in columns]
    rho = []
    for like in (index, None):
        folds, every = index.folds[rows], len(rows) ** 2
        own = PairIndex.build(plain, folds, spec.missing, most_cells=every, like=like)
        tables = pair_tables(
            own,
            [lambda source=source, n=n: source.of(n, rows) for (_, n), source in layers],  # type: ignore[misc]
            distance=[spec.distance_of(model) for (model, _), _ in layers],
        )
        rho.append(estimator_named("ridge").model().cross_validate(tables).rho.mean())
    return [
        f"The bins change held-out ρ by {minus(f'{rho[0] - rho[1]:+.4f}')} on average, measured on "
        f"{many(len(layers), 'layer')} and {len(rows):,} stimuli with all features coded as same "
        "or different, or by how much they differ."
    ]


def _made(
    index: PairIndex,
    spec: AnalysisSpec,
    sources: Mapping[Layer, Representations],
    units: LayerUnits | None,
    store: Store,
    progress: Counted,
) -> LayerTables:
    design = index.design
    scores = DesignScores(spec.estimator, spec.interactions)
    if units is None:
        found = _here(index, spec, sources, scores, store, progress)
    else:
        found = units.passed(scores, progress)
    kept = [i for i in range(len(sources)) if i not in found.errors]
    rsa = found.rsa[np.ix_(kept, kept)]
    notes = [f"A layer was left out: {found.errors[i]}" for i in sorted(found.errors)]
    of_pairs = pair_errors.none()
    if found.of_designs is not None:
        parts = found.of_designs[:, kept][:, :, kept]
        layers = [list(sources)[i] for i in kept]
        of_pairs = scores.table(layers, kept, found.tables, rsa, parts)
        about = found.tables.n_pairs, n_pairs(design.n_stimuli), design.n_designs
        notes = [pair_errors.errors_sentence(of_pairs, *about), *notes]
    return LayerTables(
        found.tables, rsa, [*index.notes, *coarse_notes(found.tables), *notes], kept, of_pairs
    )


def _here(
    index: PairIndex,
    spec: AnalysisSpec,
    sources: Mapping[Layer, Representations],
    scores: DesignScores,
    store: Store,
    progress: Counted,
) -> Passed:
    """The pass over the pairs of all layers by the cores of this machine."""
    design, errors = index.design, dict[int, InputError]()
    ranks = PairRanks(len(sources), design.n_pairs, store.root)

    def failed(position: int, error: InputError) -> None:
        errors[position] = error
        if len(errors) == len(sources):
            raise errors[0]

    tables = pair_tables(
        index,
        [lambda source=source, n=n: source[n] for (_, n), source in sources.items()],  # type: ignore[misc]
        names=[f"{model} layer {n}" for model, n in sources],
        distance=[spec.distance_of(model) for model, _ in sources],
        train_ranks=True,
        options=PassOptions(
            keep_ranks=ranks.put,
            of_design=scores.put,
            failed=failed,
            progress=progress,
        ),
    )
    parts = None if design.is_complete else ranks.rsa(design.starts[design.parts])
    return Passed(tables, errors, ranks.rsa(), parts)


def _units(
    index: PairIndex,
    spec: AnalysisSpec,
    sources: Mapping[Layer, Representations],
    depends_on: Mapping[str, Any],
    store: Store,
) -> LayerUnits | None:
    """The layers as the work of a cluster; None where work is done here."""
    if executor().is_here:
        return None
    works, keys = [], []
    for (model, number), source in sources.items():
        name, distance = f"{model} layer {number}", spec.distance_of(model)
        works.append(LayerWork(distance, name, True, True, True))
        # Of this analysis alone: another one that is done at the same time forgets its own.
        own = {"layer": [source.identity, number], "interactions": spec.interactions}
        keys.append({"of": dict(depends_on), **own})
    return LayerUnits(index, sources, works, keys, store, executor())


def _check_room(design: PairDesign, sources: Mapping[Layer, Representations], store: Store) -> None:
    """Raise before anything is computed where memory or disk will not do."""
    pairs, n_layers = design.n_pairs, len(sources)
    if pairs > MOST_PAIRS:
        raise InputError(
            f"found {pairs:,} pairs of stimuli; a layer can have {MOST_PAIRS:,} at most, so choose "
            "fewer (--pairs)."
        )
    (_, number), source = next(iter(sources.items()))
    rows = 3 * source[number].nbytes
    if not executor().is_here:
        # The memory of the workers is another; the ranks of all layers are files.
        memory, disk = 0, 4 * pairs * n_layers
    else:
        at_once = 1 if pairs > LARGE else min(cores(), n_layers)
        # Distances and ranks of the layers at once; cell and, of some pairs, the partner of each.
        each = 12 * at_once + 4 + 8 * (not design.is_complete)
        of_ranks = 4 * pairs * n_layers
        memory, disk = each * pairs + at_once * rows, of_ranks * (of_ranks > IN_MEMORY_BYTES)
        memory += of_ranks - disk
    what = f"comparing {pairs:,} pairs of stimuli in {n_layers} layers"
    fewer = f"choose fewer pairs (--pairs {max(10 * design.n_stimuli, pairs // 4)})"
    check_memory(memory, what, fewer)
    check_disk(store.root, disk, what, f"{fewer} or another folder for the store (MLEM_CACHE)")

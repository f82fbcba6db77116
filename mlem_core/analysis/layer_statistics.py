"""The pair statistics of an analysis: made from its representations, or found in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis import pair_errors
from mlem_core.analysis.backends import backend_in_use
from mlem_core.analysis.pair_errors import design_errors, errors_sentence
from mlem_core.analysis.spec import AnalysisSpec, compares_repetitions
from mlem_core.base.errors import InputError
from mlem_core.base.labels import NAMES
from mlem_core.base.parallel import cores
from mlem_core.base.resources import check_free, check_memory, give_back_memory
from mlem_core.base.text import listed, many, percent
from mlem_core.base.typing import FloatArray, IntArray, Layer, Report, counted, counting
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.pairs.columns import FeatureColumn, resolved_columns
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks
from mlem_core.pairs.statistics import (
    LARGE,
    ComparedPairs,
    LayerPass,
    LayerSource,
    LayerStatistics,
    PairStatistics,
    passes_over_layers,
)
from mlem_core.pairs.statistics_file import load_statistics, save_statistics
from mlem_core.pairs.variance_shares import NEARLY_ALL, VarianceShares
from mlem_core.representations.layers import Representations
from mlem_core.stimuli.folds import FEWEST_TESTED, untested_items
from mlem_core.stimuli.presentation import times_in_lags
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import EntryKind, InFile, Store

# Twice the rank of a pair is kept in 32 bits.
MOST_PAIRS = 2**31 - 1


class AnalysisStatistics(NamedTuple):
    """Pair statistics of the layers that can be used.

    pairs : statistics of these layers
    notes : sentences about what is not exact or was left out
    positions : which of the layers these are
    errors : how much the choice of the pairs matters, see `mlem_core.analysis.pair_errors`
    variance : model, layer, first, unit, see `mlem_core.pairs.variance_shares`
    """

    pairs: Annotated[PairStatistics, InFile(save_statistics, load_statistics)]
    notes: list[str]
    positions: list[int]
    errors: pd.DataFrame
    variance: pd.DataFrame


STATISTICS = EntryKind("pair-statistics", 2, AnalysisStatistics)


def layer_statistics(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    folds: IntArray,
    sources: Mapping[Layer, Representations],
    store: Store,
    report: Report,
) -> AnalysisStatistics:
    """Statistics of the layers that can be used; if none can, what is wrong with the first one.

    `folds` are (n_stimuli,), the fold of each stimulus.
    """
    columns = resolved_columns(stimuli, spec.values)
    items = untested_items(folds, stimuli.groups, stimuli.items)
    missing = missing_pairs(spec, sources)
    places = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *missing.values()]))
    times = times_in_lags(stimuli, spec.lag)
    design = PairDesign.from_budget(
        folds, spec.pairs or None, spec.seed, items=items, times=times
    ).without(places)
    progress = counting(report, "pairs of stimuli", "layers")
    depends_on = {
        "stimuli": stimuli.identity,
        "layers": [[source.identity, number] for (_, number), source in sources.items()],
        "interactions": spec.interactions,
        # Whose scores have errors from the choice of the pairs.
        "estimator": None if design.n_designs == 1 else spec.estimator,
        **spec.pair_choices,
    }
    digest = store.key(STATISTICS.name, STATISTICS.version, **depends_on)
    first = None if stimuli.word_index is None else stimuli.word_index == 0
    passes = LayerPasses(digest, columns, folds, items, times, places, first, spec, store.root)
    backend = backend_in_use()

    def make() -> AnalysisStatistics:
        progress(0, len(sources))
        _check_room(design, sources, store)
        compared = passes.compared(design)
        if missing or times is not None:
            _check_tested(compared, missing, spec.lag)
        check_memory(
            8 * sum(test.n_sums for test in compared.tests) * len(sources),
            f"the test pairs of {len(sources)} layers",
            "choose fewer layers or stimuli",
        )
        if backend is None:
            rows: list[LayerSource] = [
                partial(source.__getitem__, number) for (_, number), source in sources.items()
            ]
            distances = [spec.neural_distance(model) for model, _ in sources]
            names = [NAMES.layer_title(layer) for layer in sources]
            passed = passes_over_layers(compared, rows, distances, names)
            results = counted(enumerate(passed), len(sources), progress)
        else:
            results = backend.pass_over_layers(passes, sources, store, progress)
        statistics = _join_layers(compared, spec, list(sources), results, store)
        if missing:
            note = (
                "Pairs of stimuli without a distance in "
                f"{listed([*map(NAMES.layer_title, missing)], most=5)} are left out of every "
                f"layer: {len(places):,} of {n_pairs(len(stimuli)):,}."
            )
            pairs = replace(statistics.pairs, missing=places)
            statistics = statistics._replace(pairs=pairs, notes=[note, *statistics.notes])
        if times is not None:
            note = _lag_note(statistics.pairs, spec.lag, design.n_pairs)
            statistics = statistics._replace(notes=[note, *statistics.notes])
        give_back_memory()
        return statistics

    statistics = STATISTICS.get(store, depends_on, make)
    if backend is not None:
        backend.discard_passes(passes, sources, store)
    return statistics


def missing_pairs(
    spec: AnalysisSpec, sources: Mapping[Layer, Representations]
) -> dict[Layer, IntArray]:
    """Places, among all pairs, of those that a layer of given distances has none for, by layer."""
    missing = {}
    for (model, number), source in sources.items():
        if spec.neural_distance(model) == PRECOMPUTED and not compares_repetitions(spec, model):
            unknown = np.isnan(source[number])
            places = np.flatnonzero(unknown[np.triu_indices(len(unknown), 1)])
            if len(places):
                missing[model, number] = places
    return missing


def _check_tested(compared: ComparedPairs, missing: Mapping[Layer, IntArray], lag: str) -> None:
    """Raise InputError where too few pairs have a distance, and are outside a lag, for a fold."""
    counts = [len(test.first) for test in compared.tests]
    if min(counts) >= FEWEST_TESTED:
        return
    of_which, remedy = f"that came further apart than {lag}", "choose a shorter lag or fewer folds"
    if missing:
        most = max(missing, key=lambda layer: len(missing[layer]))
        of_which = "that have a distance in every layer"
        lacking = f"{NAMES.layer_title(most)} lacks {many(len(missing[most]), 'pair')}"
        remedy = f"leave out layers or stimuli ({lacking})"
    raise InputError(
        f"fold {np.argmin(counts)} is left with {many(min(counts), 'pair')} of stimuli {of_which}; "
        f"each fold needs at least {FEWEST_TESTED}, so {remedy}."
    )


def _lag_note(pairs: PairStatistics, lag: str, n_compared: int) -> str:
    """How many of the compared pairs a lag leaves out, in a sentence."""
    untested = pairs.moments.untested
    n_near = 0 if untested is None else int(untested.near.sum())
    return (
        f"Stimuli that came closer to each other than {lag} are no pair: "
        f"{n_near:,} of {n_compared:,}."
    )


def _join_layers(
    compared: ComparedPairs,
    spec: AnalysisSpec,
    layers: Sequence[Layer],
    results: Iterator[tuple[int, LayerPass | InputError]],
    store: Store,
) -> AnalysisStatistics:
    """Statistics of all layers from the pass over each, without those that have an error."""
    ranks = PairRanks(len(layers), compared.design.n_pairs, store.root)
    statistics: list[LayerStatistics] = []
    variance: list[tuple[Any, ...]] = []
    errors: dict[int, InputError] = {}
    for position, result in results:
        if not isinstance(result, InputError):
            ranks.put(position, result.doubled)
            statistics.append(result.statistics)
            variance.append((*layers[position], *result.variance))
            continue
        errors[position] = result
        if len(errors) == len(layers):
            raise errors[0]
    positions = [position for position in range(len(layers)) if position not in errors]
    products = compared.rank_products(ranks, positions)
    pairs = compared.together(statistics, products)
    notes = [f"A layer was left out: {errors[position]}" for position in sorted(errors)]
    shares = pd.DataFrame(variance, columns=["model", "layer", *VarianceShares._fields])
    if one_unit := [
        f"{row.model} layer {row.layer} ({percent(row.unit)})"
        for row in shares[shares["unit"] >= NEARLY_ALL].itertuples()
    ]:
        notes.append(
            f"One unit has nearly all of the variance of {listed(one_unit, most=5)}, so that "
            "distances tell little else: look whether it is a measurement or a number of the row."
        )
    if compared.design.n_designs == 1:
        return AnalysisStatistics(pairs, notes, positions, pair_errors.none(), shares)
    n_designs, n_stimuli = compared.design.n_designs, compared.design.n_stimuli
    used = [layers[position] for position in positions]
    without_design = compared.leave_designs_out(statistics, products)
    of_choice = design_errors(used, pairs, without_design, spec.estimator)
    sentence = errors_sentence(of_choice, pairs.n_pairs, n_pairs(n_stimuli), n_designs)
    return AnalysisStatistics(pairs, [sentence, *notes], positions, of_choice, shares)


def training_pairs(
    pairs: PairStatistics,
    design: PairDesign,
    spec: AnalysisSpec,
    sources: Sequence[tuple[Layer, Representations]],
) -> TrainingPairs:
    """Pairs of some layers for an estimator that is fitted to single pairs.

    Parameters
    ----------
    pairs : statistics of these layers
    design : the pairs that are compared
    sources : (model, layer) and representations of each layer
    """

    def distances(position: int) -> FloatArray:
        layer, source = sources[position]
        distance = spec.neural_distance(layer[0])
        rows = np.asarray(source[layer[1]])
        return squared_distances(rows, distance, design=design, layer=NAMES.layer_title(layer))

    folds = pairs.moments.folds
    return TrainingPairs.from_columns(pairs.columns, folds, len(sources), distances, design)


@dataclass(frozen=True)
class LayerPasses:
    """What the pass over each layer of an analysis needs, but for its rows.

    digest : of all that the others hold, and of the layers
    """

    digest: str
    columns: Sequence[FeatureColumn] = field(compare=False)
    folds: IntArray = field(compare=False)
    items: IntArray | None = field(compare=False)
    times: FloatArray | None = field(compare=False)
    missing: IntArray = field(compare=False)
    first: NDArray[np.bool_] | None = field(compare=False)
    spec: AnalysisSpec = field(compare=False)
    root: Path = field(compare=False)

    def compared(self, design: PairDesign) -> ComparedPairs:
        """The compared pairs of a design."""
        spec = self.spec
        compared = ComparedPairs.from_features(
            self.columns, self.folds, spec.missing, interactions=spec.interactions, design=design
        )
        return replace(compared, first=self.first)


def _check_room(design: PairDesign, sources: Mapping[Layer, Representations], store: Store) -> None:
    """Raise before anything is computed where memory or disk will not do."""
    pairs, n_layers = design.n_pairs, len(sources)
    if pairs > MOST_PAIRS:
        raise InputError(
            f"found {pairs:,} pairs of stimuli; a layer can have {MOST_PAIRS:,} at most, so choose "
            "fewer (--pairs)."
        )
    (_, number), source = next(iter(sources.items()))
    of_ranks = 4 * pairs * n_layers
    disk = of_ranks * (of_ranks > IN_MEMORY_BYTES)
    memory = of_ranks - disk
    if backend_in_use() is not None:
        # The memory of the workers is another; the store has the ranks of each layer, too.
        disk += of_ranks
    else:
        at_once = 1 if pairs > LARGE else min(cores(), n_layers)
        # Distances and ranks of the layers at once; of some pairs, the partner of each.
        memory += (12 * at_once + 8 * (not design.is_complete)) * pairs
        memory += at_once * 3 * source[number].nbytes
    what = f"comparing {pairs:,} pairs of stimuli in {n_layers} layers"
    fewer = f"choose fewer pairs (--pairs {max(10 * design.n_stimuli, pairs // 4)})"
    check_free(store.root, memory, disk, what, fewer)

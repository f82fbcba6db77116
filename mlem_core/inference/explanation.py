"""Why two layers are alike: the explanation made, and given intervals and transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection, check_layers
from mlem_core.analysis.similarities import Compared, rows_of
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import names_in
from mlem_core.base.typing import Counted, Layer, layers_in
from mlem_core.inference import caveats, partial
from mlem_core.inference.explained import Explanation
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.procrustes_cca import Alignment, aligned_interval
from mlem_core.inference.replicates import resampled_terms, resampled_transfers
from mlem_core.inference.resample import Replicates
from mlem_core.inference.tables import partial_intervals, terms_and_whole
from mlem_core.measures.decomposition import ceilings_of, decompose
from mlem_core.measures.partial import Explained
from mlem_core.measures.shapley import EXACT_FEATURES
from mlem_core.pairs.alignments import components
from mlem_core.pairs.resampling_units import StimulusUnits, Units
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.pairs.tables import PairTables
from mlem_core.storage.stage import Stage, Tables
from mlem_core.storage.store import Store

# Bootstrap replicates of two layers, where nothing else is asked.
REPLICATES = 1_000
_STAGE = Stage[Tables]("pair-intervals", 2, dict)

# Two layers by a similarity with terms by feature, or without.
Pair = TypeVar("Pair", Explanation, Alignment)


def layer_of(asked: Layer | str) -> Layer:
    """The layer ("minilm", 3) or "minilm:3"; InputError where that is none, or several."""
    layers = layers_in(asked)
    if len(layers) != 1:
        raise InputError(f"found {len(layers)} layers in {asked!r}; expected one, as minilm:3.")
    return layers[0]


def explain(
    analysis: Analysis,
    a: Layer | str,
    b: Layer | str,
    features: Sequence[str] | None = None,
    *,
    seed: int = 0,
    compared: Compared | None = None,
) -> Explanation:
    """Why two layers of an analysis are alike; `with_intervals` adds confidence intervals.

    Parameters
    ----------
    a, b : ("minilm", 3) or "minilm:3"
    features : only these; by default all of the analysis
    seed : of the orders of features that are sampled with more than 12 of them
    compared : all layers of the analysis by another similarity, see
        `mlem_core.analysis.similarities.compared`; None is RSA

    Raises
    ------
    InputError
        A layer or feature that the analysis does not have; a similarity without terms by feature.
    """
    first, second = (layer_of(layer) for layer in (a, b))
    check_layers((first, second), analysis.layers)
    at = [analysis.layers.index(layer) for layer in (first, second)]
    whole_tables, values = analysis.tables, analysis.rsa
    if compared is not None:
        compared.similarity.check_divides()
        whole_tables, values = compared.tables, compared.values
    tables = whole_tables.of_layers(at)
    if features is not None:
        tables = tables.of_features(names_in(features))
    split = decompose(tables, values[np.ix_(at, at)], seed=seed)
    ceilings = ceilings_of(split.terms.sum(axis=0))
    similarity = SIMILARITIES["rsa"] if compared is None else compared.similarity
    quantities = [similarity.name, "ceiling_a", "ceiling_b"]
    whole = pd.DataFrame({"quantity": quantities, "value": [split.rsa[0, 1], *ceilings]})
    beside = pd.DataFrame(columns=["quantity", "value"])
    if similarity.name == "rsa":
        beside = partial.parts(tables, split.rsa[0, 1])
    others = Units.of(analysis.stimuli).others
    both = (first, second)
    return Explanation(
        both,
        split.pair(0, 1),
        whole,
        others=others,
        coding=tables.coding,
        names=analysis.names,
        partial=beside,
        similarity=similarity,
    )


def explanation_of(intervals: LayerIntervals, a: Layer, b: Layer, coding: str) -> Explanation:
    """Why two layers are alike, as the intervals of all layers know it.

    Its values are those of `explain`, but for rounding.

    Parameters
    ----------
    coding : of the features, see `mlem_core.pairs.columns.coding`

    Raises
    ------
    InputError
        As `mlem_core.inference.tables.terms_and_whole`.
    """
    terms, whole = terms_and_whole(intervals, a, b)
    units = intervals.units
    notes, how = caveats.of_size(units), f"blocks of {units.each} left out in turn"
    return Explanation((a, b), terms, whole, notes, units.others, coding, how=how)


def with_intervals(
    why: Pair,
    analysis: Analysis,
    store: Store,
    n_replicates: int = REPLICATES,
    seed: int = 0,
    progress: Counted | None = None,
) -> Pair:
    """An explanation, or alignment, with confidence intervals, and what chance gives of terms.

    Intervals are over sentences and, where they recur, words.

    Parameters
    ----------
    why : of two layers of the analysis
    store : where the representations are
    n_replicates : bootstrap replicates; similarities other than RSA have the jackknife alone

    Raises
    ------
    InputError
        Too few replicates or sentences; more than 12 features; representations that are no longer
        in the store.
    """
    if isinstance(why, Alignment):
        return _of_alignment(why, analysis, store, seed, progress)
    n_features = len(why.features)
    if n_features > EXACT_FEATURES:
        raise InputError(
            f"found {n_features} features; intervals of the terms can be had for up to "
            f"{EXACT_FEATURES}, so choose fewer features."
        )
    if why.similarity.name != "rsa":
        return _by_jackknife(why, analysis, store, seed, progress)
    return _by_bootstrap(why, analysis, store, n_replicates, seed, progress)


def _by_bootstrap(
    why: Explanation,
    analysis: Analysis,
    store: Store,
    n_replicates: int,
    seed: int,
    progress: Counted | None,
) -> Explanation:
    """`with_intervals` of RSA."""
    from mlem_core.inference.permutation import chance_terms, permuted_terms

    features, n = list(why.features["term"]), len(why.terms)
    pairs = LayerPairs.of(analysis, why.layers, store, features)
    resampled = resampled_terms(pairs, n_replicates, seed, progress)
    if pairs.design is not analysis.design:
        # The value is from all pairs of the analysis, its error from fewer: a little too large.
        own = np.diagonal(Explained.of(_of_two(analysis, why)).whole)
        resampled = resampled.around(np.array([*why.terms["value"], *why.whole["value"], *own]))
    beside = _partial_with_intervals(why, pairs, resampled, n_replicates, seed, progress)
    bounds, size = resampled.estimate(), (len(analysis.stimuli), analysis.tables.n_pairs)
    if not pairs.design.is_complete:
        pairs = LayerPairs.of_sample(analysis, why.layers, store, features)
    chance = chance_terms(permuted_terms(pairs, seed=seed))
    return replace(
        why,
        terms=why.terms.assign(
            lower=bounds.lower[:n], upper=bounds.upper[:n], chance=[*chance, np.nan]
        ),
        whole=why.whole.assign(lower=bounds.lower[n:-2], upper=bounds.upper[n:-2]),
        partial=beside,
        notes=(
            *caveats.of_size(Units.of(analysis.stimuli)),
            *filter(None, (caveats.drawn_of(*size), caveats.permuted_of(*size))),
        ),
        how=_how(why, analysis, n_replicates),
    )


def kept_intervals(
    why: Pair,
    analysis: Analysis,
    store: Store,
    n_replicates: int = REPLICATES,
    progress: Counted | None = None,
) -> Pair:
    """An explanation, or alignment, with intervals as of `with_intervals`; kept in the store."""

    def make() -> Tables:
        made = with_intervals(why, analysis, store, n_replicates, progress=progress)
        notes = pd.DataFrame({"note": list(made.notes)}, dtype=object)
        return {name: getattr(made, name) for name in made.TABLES} | {"notes": notes}

    tables = _STAGE.get(store, _key(why, analysis, n_replicates), make)
    return _with_tables(why, analysis, n_replicates, tables)


def best_known(
    why: Pair,
    analysis: Analysis,
    selection: Selection,
    store: Store | None,
    intervals: LayerIntervals | None = None,
    n_replicates: int = REPLICATES,
) -> Pair:
    """An explanation, or alignment, with the best intervals that there are; computes none.

    Those that `kept_intervals` has made, else those of all layers, else none.

    Parameters
    ----------
    why : by any similarity
    selection : how metrics that are transferred are fitted
    intervals : of layers among which the two are
    """
    fitted = why
    if isinstance(why, Explanation):
        fitted = replace(why, estimator=selection.estimator, interactions=selection.interactions)
    tables = None
    if store is not None:
        tables = _STAGE.find(store, _key(fitted, analysis, n_replicates))
    if tables is not None:
        return _with_tables(fitted, analysis, n_replicates, tables)
    if not isinstance(why, Explanation) or why.similarity.name != "rsa":
        return why
    if intervals is None or not len(intervals.terms):
        return why
    found = explanation_of(intervals, *why.layers, why.coding)
    parts = partial_intervals(intervals, *why.layers, why.partial.iloc[: len(partial.PARTS)])
    beside = pd.concat((parts, why.partial.iloc[len(partial.PARTS) :]), ignore_index=True)
    return replace(found, names=why.names, partial=beside)


def _key(why: Explanation | Alignment, analysis: Analysis, n_replicates: int) -> dict[str, Any]:
    """What the intervals depend on; those of an alignment on no feature, and no metric model."""
    chosen: Selection | Sequence[Layer] = why.layers
    if isinstance(why, Explanation):
        features = tuple(why.features["term"])
        chosen = Selection(features, why.layers, why.estimator, why.interactions)
    return analysis.key(chosen, similarity=why.similarity.name, replicates=n_replicates)


def _with_tables(why: Pair, analysis: Analysis, n_replicates: int, tables: Tables) -> Pair:
    """An explanation, or alignment, with the intervals that are kept in `tables`."""
    known: dict[str, Any] = {name: tables[name] for name in why.TABLES}
    if isinstance(why, Explanation):
        known["how"] = _how(why, analysis, n_replicates)
    return replace(why, notes=tuple(tables["notes"]["note"]), **known)


def _how(why: Explanation, analysis: Analysis, n_replicates: int) -> str:
    """How the intervals of two layers are computed, for a caption."""
    from mlem_core.inference.permutation import TERM_PERMUTATIONS

    units = Units.of(analysis.stimuli)
    drawn = f"{n_replicates:,} bootstrap replicates"
    if why.similarity.name != "rsa":
        drawn = f"blocks of {units.each} left out in turn"
    return (
        f"{drawn}; chance in the table: what a term is to be above, from labels permuted "
        f"{TERM_PERMUTATIONS} times between {units.permuted(analysis.spec.folds_over)}"
    )


def _by_jackknife(
    why: Explanation, analysis: Analysis, store: Store, seed: int, progress: Counted | None
) -> Explanation:
    """`with_intervals` of a similarity that is not of ranks."""
    from mlem_core.inference.similarity_terms import of_analysis, terms_by_chance, terms_interval

    features = list(why.features["term"])
    pairs, squared = of_analysis(analysis, why.similarity, why.layers, features, store)
    _, lower, upper, *_ = terms_interval(pairs, why.similarity, squared, seed, progress)
    chance, n = terms_by_chance(pairs, why.similarity, squared, seed), len(why.terms)
    return replace(
        why,
        terms=why.terms.assign(lower=lower[:n], upper=upper[:n], chance=[*chance, np.nan]),
        whole=why.whole.assign(lower=lower[n:], upper=upper[n:]),
        notes=caveats.of_size(Units.of(analysis.stimuli)),
        how=_how(why, analysis, 0),
    )


def _of_alignment(
    found: Alignment, analysis: Analysis, store: Store, seed: int, progress: Counted | None
) -> Alignment:
    """`with_intervals` of a similarity that has no terms."""
    layers = [components(rows_of(analysis, layer, store)()) for layer in found.layers]
    units = StimulusUnits.of(analysis.stimuli, analysis.folds)
    interval = aligned_interval(found.similarity, layers, units, seed, progress)
    whole = found.whole.assign(**interval.columns("lower", "upper"))
    return replace(found, whole=whole, notes=caveats.of_size(Units.of(analysis.stimuli)))


def with_transfer(
    why: Explanation, analysis: Analysis, selection: Selection | None = None
) -> Explanation:
    """An explanation with what the metric of each layer makes of the other.

    Parameters
    ----------
    selection : how the metrics are fitted; None: as those of the analysis. Their features are those
        of the explanation

    Raises
    ------
    InputError
        An estimator that cannot be fitted to these features.
    """
    fitted = analysis.select() if selection is None else selection
    why = replace(why, estimator=fitted.estimator, interactions=fitted.interactions)
    found = partial.transfers(_of_two(analysis, why), why.estimator)
    parts = why.partial.iloc[: len(partial.PARTS)]
    return replace(why, partial=pd.concat((parts, found), ignore_index=True))


def _partial_with_intervals(
    why: Explanation,
    pairs: LayerPairs,
    resampled: Replicates,
    n_replicates: int,
    seed: int,
    progress: Counted | None,
) -> pd.DataFrame:
    """What is beside the terms, with intervals; `resampled` as `resampled_terms` gives it."""
    split, n = len(partial.PARTS), len(why.terms) - 1
    bounds = resampled.made_into(lambda values: partial.parts_of(values, n)).estimate()
    found = [partial.bounded(why.partial.iloc[:split], bounds)]
    transfers = why.partial.iloc[split:]
    if len(transfers):
        if pairs.tables.interactions != why.interactions:
            pairs = replace(pairs, tables=pairs.tables.with_interactions(why.interactions))
        again = resampled_transfers(pairs, why.estimator, n_replicates, seed, progress)
        # Where not all pairs are drawn again; else it is there.
        around = again.around(transfers["value"].to_numpy(dtype=np.float64))
        found.append(partial.bounded(transfers, around.estimate()))
    return pd.concat(found, ignore_index=True)


def _of_two(analysis: Analysis, why: Explanation) -> PairTables:
    """The pair tables of an explanation."""
    at = [analysis.layers.index(layer) for layer in why.layers]
    own = analysis.tables.of_layers(at).of_features(list(why.features["term"]))
    return own.with_interactions(why.interactions)

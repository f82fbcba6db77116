"""All layers at once: confidence intervals of all their numbers, and terms of similarity by chance.

Blocks of sentences are left out in turn, and of words where words recur, always the same of these
stimuli. All pairs are compared again each time, for RSA (or any other similarity) and its terms,
and models are fitted again; of two layers alone (`mlem_core.inference.explanation`) it gives the
same. Bootstrap replicates give the intervals of scores and importances their shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import CONFIDENCE
from mlem_core.base.typing import FloatArray, Report, counting
from mlem_core.inference.bootstrap import decompositions
from mlem_core.inference.chance import Chance, chance_at_level
from mlem_core.inference.intervals import LayerIntervals, Left
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.replicates import Comparison, resampled_scores
from mlem_core.inference.resample import PERMUTED, REPLICATES, standard_error
from mlem_core.measures.decomposition import ceilings_of, divide
from mlem_core.measures.importance import mean_scores
from mlem_core.measures.shapley import sampled_orders
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.designs import n_pairs, resampled_part
from mlem_core.pairs.resampling_units import Blocks, RankedPairs, StimulusUnits, Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.pairs.tables import PairTables, joined, without_training_ranks
from mlem_core.storage.store import Stage, Store

STAGE = Stage("error-bars", 4, LayerIntervals, compressed=True)
_SEED = 0
# Layers whose pairs are in memory together, by what their ranks and distances may take.
CHUNK_BYTES = 2**30
# Rank classes of all layers, which are in memory together.
MOST_BYTES = 8 * 2**30


def known_intervals(
    analysis: Analysis,
    store: Store,
    selection: Selection | None = None,
    *,
    n_replicates: int = REPLICATES,
) -> LayerIntervals | None:
    """The intervals if they are in the store, or came with the example; computes nothing.

    Those of all layers of the analysis answer for any of them. Otherwise as `layer_intervals`.
    """
    selection = analysis.select() if selection is None else selection
    for layers in (selection.layers, tuple(analysis.layers)):
        chosen = replace(selection, layers=layers)
        stored = STAGE.find(store, _asked(analysis, chosen, n_replicates))
        if stored is not None:
            return stored
    return None


def layer_intervals(
    analysis: Analysis,
    store: Store,
    selection: Selection | None = None,
    *,
    n_replicates: int = REPLICATES,
    report: Report | None = None,
) -> LayerIntervals:
    """The confidence intervals of layers of an analysis; kept in the store.

    Raises InputError: too few sentences or replicates; representations that are no longer in the
    store; more layers than fit into memory.

    Parameters
    ----------
    selection : None is the whole analysis
    n_replicates : bootstrap replicates, for the shape of intervals and for those of τ
    report : called as the work goes on; what it raises stops the work
    """
    chosen = analysis.select() if selection is None else selection
    say = report or (lambda _: None)
    return STAGE.get(
        store,
        _asked(analysis, chosen, n_replicates),
        lambda: _compute(analysis, store, chosen, n_replicates, say),
    )


def _asked(analysis: Analysis, selection: Selection, n_replicates: int) -> dict[str, Any]:
    """The key of intervals: it names a number of replicates that is not the usual one."""
    asked = analysis.key(selection)
    if n_replicates != REPLICATES:
        asked["draws"] = n_replicates
    return asked


def _compute(
    analysis: Analysis, store: Store, selection: Selection, n_replicates: int, report: Report
) -> LayerIntervals:
    layers, estimator, blocks = selection.layers, selection.estimator, blocks_of(analysis)
    if selection.similarity != RSA:
        # Scores, profiles and τ are those that stand beside RSA.
        of_rsa = replace(selection, similarity=RSA)
        known = layer_intervals(analysis, store, of_rsa, n_replicates=n_replicates, report=report)
        draws = _draws(analysis, store, selection, blocks, report)
        by = _values_and_terms(draws, blocks.sizes)
        return replace(known, similarity=selection.similarity, **by)
    n = resampled_part(analysis.design, analysis.folds).n_pairs
    if 2 * n * len(layers) > MOST_BYTES:
        raise InputError(
            f"found {len(layers)} layers of {n:,} pairs; confidence intervals of so many at once "
            f"do not fit into memory, so choose at most {MOST_BYTES // (2 * n)} layers."
        )
    chunks, profiles = [], []
    told = counting(report, "confidence intervals of scores", "fits")

    def scored(pairs: LayerPairs, start: int) -> None:
        def counted(done: int, n: int) -> None:
            told(start * n + done * len(pairs.layers), len(layers) * n)

        counted(0, len(blocks.weights))
        scores = resampled_scores(pairs, estimator, n_replicates, _SEED, counted)
        chunks.append((*scores.estimate()[:3], scores.left_out))
        profiles.append(scores.rescaled()[..., 2:])

    whole, tables = _whole(analysis, store, selection, scored)
    values, lower, upper, without = (
        np.concatenate(arrays, axis=axis)
        for arrays, axis in zip(zip(*chunks, strict=True), (0, 0, 0, 1), strict=True)
    )
    # Resampled pairs are ranked in classes; that hardly moves an importance, but it can change the
    # order of two that are about 0, and τ with it.
    shown_tables = selection.of_tables(analysis.tables, analysis.layers)
    exact = mean_scores(shown_tables, selection.estimator)
    shift = exact - values
    lower, upper = np.minimum(lower + shift, exact), np.maximum(upper + shift, exact)
    shown = None if whole.design is analysis.design else analysis.subset(selection)
    return LayerIntervals(
        layers=layers,
        features=tuple(tables.features),
        columns=tables.columns.parts,
        estimator=estimator,
        scores=exact,
        scores_lower=lower,
        scores_upper=upper,
        scores_without=without + shift,
        units=Units.of(analysis.stimuli),
        sizes=blocks.sizes,
        **_tau(exact[:, 2:], np.concatenate(profiles, axis=1) + shift[:, 2:]),
        **_around(shown, _values_and_terms(_of_ranks(whole, tables, blocks, report), blocks.sizes)),
    )


def _whole(
    analysis: Analysis,
    store: Store,
    selection: Selection,
    visit: Callable[[LayerPairs, int], None] = lambda *_: None,
) -> tuple[RankedPairs, PairTables]:
    """The ranked pairs of all layers of a selection, and their coarse tables.

    Parameters
    ----------
    visit : called with the pairs of some layers, and the place of the first of these
    """
    layers, classes, parts = selection.layers, [], []
    step = max(2, CHUNK_BYTES // (16 * resampled_part(analysis.design, analysis.folds).n_pairs))
    for start in range(0, len(layers), step):
        chunk = layers[start : start + step]
        pairs = LayerPairs.of(analysis, chunk, store, selection.features, selection.interactions)
        visit(pairs, start)
        classes.append(pairs.whole.classes)
        parts.append(pairs.coarse.tables)
    return replace(pairs.coarse.whole, classes=np.concatenate(classes)), joined(parts)


def _around(shown: tuple[PairTables, FloatArray] | None, of_part: dict[str, Any]) -> dict[str, Any]:
    """Results of a part of the pairs, shifted to the values of all pairs of the analysis.

    Parameters
    ----------
    shown : pair tables and RSA of the layers; None where the part is all of the pairs
    """
    if shown is None:
        return of_part
    tables, rsa = shown
    without = of_part["values_without"] + (rsa - of_part["values"])
    around = of_part | {"values": rsa, "values_without": without}
    if len(of_part["terms"]):
        divided = divide(CrossFit.of(tables.coarse))
        rest = rsa - divided.whole[0]
        around["terms"] = np.concatenate((divided.terms[:, 0], rest[None]))
        around["ceilings"] = ceilings_of(divided.whole)[0]
    return around


def _tau(profiles: FloatArray, replicates: FloatArray) -> dict[str, Any]:
    """τ of profiles (n_layers, n_columns), and its interval from replicates of them."""
    tau, tail = weighted_tau(profiles), (1 - CONFIDENCE) / 2
    resampled = np.stack([weighted_tau(replicate) for replicate in replicates])
    return {
        "tau": tau,
        "tau_lower": np.minimum(np.quantile(resampled, tail, axis=0), tau),
        "tau_upper": np.maximum(np.quantile(resampled, 1 - tail, axis=0), tau),
    }


def blocks_of(analysis: Analysis) -> Blocks:
    """The blocks of stimuli that the intervals of an analysis leave out in turn."""
    return StimulusUnits.of(analysis.stimuli, analysis.folds).blocks()


def _draws(
    analysis: Analysis, store: Store, selection: Selection, blocks: Blocks, report: Report
) -> FloatArray:
    """The similarity of a selection and its terms, of all stimuli, then without each block.

    Returns
    -------
    (1 + n_blocks, n_features + 2, n_layers, n_layers), as `bootstrap.decompositions` has them; the
    similarity alone, (1 + n_blocks, 1, ...), where it has no terms or with more than 12 features
    """
    similarity = SIMILARITIES[selection.similarity]
    if similarity.of_ranks:
        return _of_ranks(*_whole(analysis, store, selection), blocks, report)
    layers, features = selection.layers, selection.features
    comparison = Comparison.of(analysis, similarity, layers, features, store)
    counted = counting(report, f"confidence intervals of {similarity.short}", "blocks")
    return comparison.draws(blocks.weights > 0, counted)


def _of_ranks(whole: RankedPairs, tables: PairTables, blocks: Blocks, report: Report) -> FloatArray:
    """`_draws` of RSA.

    Parameters
    ----------
    whole : all pairs by cells of the tables, which are of the same layers
    """
    exact = sampled_orders(tables.codes) == 0
    priority = CrossFit.of(tables).priority if exact else None
    weights = np.concatenate((np.ones((1, len(whole.groups)), dtype=np.uint8), blocks.weights))
    counted = counting(report, f"confidence intervals of {SIMILARITIES[RSA].short}", "blocks")
    tables = without_training_ranks(tables)
    return decompositions(whole.by_stimulus, tables, priority, False, weights, counted)


def _values_and_terms(draws: FloatArray, sizes: Sequence[int]) -> dict[str, Any]:
    """A similarity, its terms and ceilings: the values and the jackknife.

    Parameters
    ----------
    draws : of `_draws`
    sizes : of the blocks
    """
    values, terms = draws[:, -1], _terms(draws)
    ceilings = np.zeros(values.shape[:2])
    if draws.shape[1] > 1:
        ceilings = ceilings_of(draws[:, -2])
    return {
        "values": values[0],
        "values_without": values[1:],
        "terms": terms[0],
        "terms_error": standard_error(terms[1:], sizes),
        "ceilings": ceilings[0],
        "ceilings_error": standard_error(ceilings[1:], sizes),
    }


def _terms(draws: FloatArray) -> FloatArray:
    """The terms, "unexplained" last, of draws of `_draws`; none where these have none."""
    if draws.shape[1] == 1:
        return draws[:, :0]
    return np.concatenate((draws[:, :-2], draws[:, -1:] - draws[:, -2:-1]), axis=1)


LEFT = Stage("terms-without", 4, Left)


def stimuli_left(
    analysis: Analysis, store: Store, selection: Selection | None = None, *, report: Report
) -> Left:
    """The similarity of a selection and its terms without each block; kept in the store.

    Raises as `layer_intervals`.

    Returns
    -------
    of (n_blocks, n_features + 2, n_layers, n_layers): the features, "unexplained" and the
    similarity; that alone where it has no terms, or with more than 12 features
    """
    chosen = analysis.select() if selection is None else selection

    def make() -> Left:
        blocks = blocks_of(analysis)
        draws = _draws(analysis, store, replace(chosen, interactions=False), blocks, report)[1:]
        return Left(np.concatenate((_terms(draws), draws[:, -1:]), axis=1), blocks.sizes)

    return LEFT.get(store, analysis.key(chosen), make)


LAYER_CHANCE = Stage("terms-chance", 1, Chance, compressed=True)


def chance_of_layers(
    analysis: Analysis,
    store: Store,
    selection: Selection | None = None,
    *,
    report: Report | None = None,
) -> Chance | None:
    """Contributions of each feature to every two layers under permuted labels; kept in the store.

    The same permutations for all layers, `PERMUTATIONS` of them.

    Raises InputError: representations that are no longer in the store; more layers than fit into
    memory.

    Parameters
    ----------
    selection : its features, layers and similarity count; None is the whole analysis
    report : called as the features are done

    Returns
    -------
    None for a similarity without terms
    """
    chosen = analysis.select() if selection is None else selection
    similarity, layers, features = SIMILARITIES[chosen.similarity], chosen.layers, chosen.features
    if not similarity.divides:
        return None
    counted = counting(report or (lambda _: None), "permuting labels", "features")

    def make() -> Chance:
        if not similarity.of_ranks:
            compared = Comparison.of(analysis, similarity, layers, features, store)
            return compared.chance(analysis.stimuli, counted)
        n = min(len(analysis.stimuli), PERMUTED)
        if resampled_part(analysis.design, analysis.folds).is_complete:
            n = len(analysis.stimuli)
        most = MOST_BYTES // (12 * n_pairs(n))
        if len(layers) > most:
            raise InputError(
                f"found {len(layers)} layers; chance is computed for at most {most} of {n:,} "
                "stimuli at once, so choose fewer layers."
            )
        pairs = LayerPairs.of_sample(analysis, layers, store, features, False)
        return chance_at_level(pairs, analysis.stimuli, progress=counted)

    return LAYER_CHANCE.get(store, chance_key(analysis, chosen), make)


def known_layer_chance(
    analysis: Analysis, store: Store | None, selection: Selection
) -> Chance | None:
    """`chance_of_layers` where it is kept; that of all layers answers for any of them."""
    if store is None:
        return None
    for layers in (selection.layers, tuple(analysis.layers)):
        found = LAYER_CHANCE.find(store, chance_key(analysis, replace(selection, layers=layers)))
        if found is not None:
            return found.of_layers([layers.index(layer) for layer in selection.layers])
    return None


def chance_key(analysis: Analysis, selection: Selection) -> dict[str, Any]:
    """Key of contributions by chance: no metric is fitted."""
    return analysis.key(replace(selection, estimator="", interactions=False))

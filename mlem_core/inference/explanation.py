"""Explanation of two layers' similarity: made, and given intervals and chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection, check_layers
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.similarities import SIMILARITY, LayerSimilarity, compute_rsa
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import student_quantile
from mlem_core.base.parameters import split_names
from mlem_core.base.typing import Counted, FloatArray, Layer, counting, parse_layers, split_progress
from mlem_core.inference.block_influence import (
    BlockSums,
    ComparedLayers,
    check_blocks,
    jackknife_rsa,
)
from mlem_core.inference.explanation_text import Explanation, as_chosen
from mlem_core.inference.intervals import LayerIntervals, term_estimate, terms_and_whole
from mlem_core.inference.layer_intervals import compute_layer_chance
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import ContributionNull, chance_at_level, chance_note
from mlem_core.inference.resample import (
    PERMUTED,
    interval_sample_sentence,
    jackknife,
    permuted_sample_sentence,
    sample_size_caveats,
)
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.storage.store import Store, Tables

INFLUENCE = "from the influence of each block of stimuli"
LEFT_OUT = "blocks of stimuli left out in turn, terms by their influence"


def parse_one_layer(asked: Layer | str) -> Layer:
    """The layer ("minilm", 3) or "minilm:3"; InputError where that is none, or several."""
    layers = parse_layers(asked)
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
    compared: LayerSimilarity | None = None,
) -> Explanation:
    """Explanation of two layers' similarity; `with_intervals` adds confidence intervals.

    >>> explain(analysis, "m:0", "m:1").terms["term"].tolist()
    ['colour', 'size', 'unexplained']

    Of a similarity that has no terms by feature it is the number alone.

    Parameters
    ----------
    a, b : ("minilm", 3) or "minilm:3"
    features : only these; by default all of the analysis
    seed : of the orders of features, where these are sampled
    compared : all layers of the analysis by a similarity, see
        `mlem_core.analysis.similarities.compared`; None is RSA

    Raises
    ------
    InputError
        A layer or feature that the analysis does not have.
    """
    pair = parse_one_layer(a), parse_one_layer(b)
    check_layers(pair, analysis.layers)
    chosen = analysis.pairs.features if features is None else split_names(features)
    (why,) = explanations(analysis, [pair], chosen, compared, seed)
    return why


def explanations(
    analysis: Analysis,
    pairs: Sequence[tuple[Layer, Layer]],
    features: Sequence[str],
    compared: LayerSimilarity | None = None,
    seed: int = 0,
) -> Iterator[Explanation]:
    """Explanation of each of many pairs of layers, as `explain` gives it.

    All layers are decomposed at once.
    """
    layers = list(dict.fromkeys(layer for pair in pairs for layer in pair))
    of_layers = compute_rsa(analysis) if compared is None else compared
    similarity, values = of_layers.similarity, of_layers.values_among(layers)
    at = [analysis.layers.index(layer) for layer in layers]
    statistics = of_layers.pairs.select_layers(at).select_features(features)
    units = Units.from_stimuli(analysis.stimuli)
    split = decompose(statistics.moments, seed=seed) if similarity.divides else None
    for pair in pairs:
        i, j = map(layers.index, pair)
        terms = pd.DataFrame(columns=["term", "value"])
        whole = pd.DataFrame({"quantity": [similarity.name], "value": [values[i, j]]})
        if split is not None:
            terms = split.pair(i, j)
            whole = whole.assign(value=[split.rsa[i, j]])
        yield Explanation(
            pair,
            terms,
            whole,
            others=units.others,
            coding=statistics.columns.coding,
            names=analysis.names,
            similarity=similarity,
            held_out=units.held_out(analysis.spec.folds_over),
        )


def explanation_from_intervals(
    why: Explanation, intervals: LayerIntervals, chance: ContributionNull | None = None
) -> Explanation:
    """An explanation of two layers, as the intervals of all layers know it.

    Its values are those of `explain`, but for rounding.

    Raises as `mlem_core.inference.intervals.terms_and_whole`.

    Parameters
    ----------
    chance : of the two layers, which contributions are beyond then
    """
    terms, whole = terms_and_whole(intervals, *why.layers)
    units, similarity = intervals.units, SIMILARITIES[intervals.similarity]
    notes, how = sample_size_caveats(units), INFLUENCE
    if chance is not None:
        residual_error = partial(intervals.residual_error, *why.layers)
        terms = subtract_chance_with_intervals(terms, chance, residual_error, intervals.sizes)
        why, notes = replace(why, controls=chance.control_table()), (*notes, *chance.notes)
        how += f"; {chance_note(chance.n_permutations)}"
    why = replace(why, others=units.others, similarity=similarity, how=how)
    return replace(why, terms=terms, whole=whole, notes=notes)


def with_intervals(
    why: Explanation, analysis: Analysis, store: Store, progress: Counted | None = None
) -> Explanation:
    """An explanation with confidence intervals, and what chance gives of its terms.

    >>> why = with_intervals(explain(analysis, "m:0", "m:1"), analysis, store)

    Intervals are over sentences and, where they recur, words, from the influence of blocks of them:
    those that `mlem_core.inference.layer_intervals` gives.

    Parameters
    ----------
    why : of two layers of the analysis
    store : where the representations are
    progress : called with the number of steps done and their total

    Raises
    ------
    InputError
        Too few sentences; representations that are no longer in the store.
    """
    similarity, chance = why.similarity, None
    size = len(analysis.stimuli), analysis.pairs.n_pairs
    notes = (
        *sample_size_caveats(Units.from_stimuli(analysis.stimuli)),
        interval_sample_sentence(*size),
    )
    selection = explained_selection(why, analysis)
    check_blocks(analysis, selection)
    first, second, third = split_progress(progress, 3)
    if similarity.of_ranks:
        pairs = LayerPairs.from_analysis(analysis, selection, store, most_stimuli=PERMUTED)
        blocks = BlockSums.from_pairs(pairs, analysis.stimuli, progress=first)
        compared = jackknife_rsa(analysis.compute_pairs(selection), blocks, second)
        chance = chance_at_level(pairs, analysis.stimuli, why.permutations, progress=third)
        notes = (*notes, permuted_sample_sentence(*size))
    else:
        layers = ComparedLayers.from_analysis(analysis, selection, store, first)
        compared = layers.without(second)
        if similarity.divides:
            chance = layers.chance(analysis.stimuli, third, why.permutations)
    terms = why.terms.assign(**dict.fromkeys(("lower", "upper", "chance", "p"), np.nan))
    if chance is not None:
        error = compared.residual_error
        terms = subtract_chance_with_intervals(why.terms, chance, error, compared.sizes)
        why, notes = replace(why, controls=chance.control_table()), (*notes, *chance.notes)
    by_t = jackknife(
        why.whole["value"].to_numpy(np.float64),
        compared.values_without[:, 0, -1:],
        compared.sizes,
        (-1.0, 1.0),
    )
    return replace(
        why,
        terms=terms,
        whole=why.whole.assign(lower=by_t.lower, upper=by_t.upper),
        notes=tuple(filter(None, notes)),
        how=_how(why),
    )


def subtract_chance_with_intervals(
    terms: pd.DataFrame,
    chance: ContributionNull,
    residual_error: Callable[[FloatArray], FloatArray],
    sizes: Sequence[int],
) -> pd.DataFrame:
    """Contributions beyond chance, with their intervals and those of their shares.

    A share r = T / S has the error of T - r S, over S: the similarity varies with the stimuli too.

    Parameters
    ----------
    terms : term, value and maybe error, of the features and "unexplained"
    chance : of the two layers
    residual_error : standard errors (n_features + 1,) of T - r S for shares r, see
        `mlem_core.inference.intervals.LayerIntervals.residual_error`
    sizes : how many blocks they are from, of each kind

    Returns
    -------
    term, value, lower, upper, chance, p, unit, share_lower, share_upper; identities have no
    interval of their shares
    """
    values, table = terms["value"].to_numpy(np.float64), chance.subtract_chance(terms)
    beyond, n = table["value"].to_numpy(np.float64), len(chance.features)
    total = values.sum() if values.sum() > 0 else np.nan
    # Chance is a mean over permutations, a sampled contribution one over orders: both errors stand
    # beside that of the stimuli.
    sampled = terms["error"].to_numpy()[:-1] if "error" in terms else 0.0
    more = student_quantile(chance.n_permutations - 1) * np.hypot(chance.error, sampled)
    none = np.full(len(chance.identities), np.nan)
    shares = np.append(beyond[:n], beyond[-1]) / total
    errors = residual_error(np.zeros(n + 1)), residual_error(shares) / total
    for name, scale, error in zip(("", "share_"), (1.0, total), errors, strict=True):
        bounds = term_estimate(values / scale, error, sizes)
        for sign, end in ((-1, "lower"), (1, "upper")):
            far = np.hypot(getattr(bounds, end) - values / scale, np.append(more, 0.0) / scale)
            table[name + end] = beyond / scale + sign * np.concatenate((far[:n], none, far[n:]))
    columns = ["term", "value", "lower", "upper", "chance", "p", "unit"]
    return table[[*columns, "share_lower", "share_upper"]]


def explained_selection(why: Explanation, analysis: Analysis) -> Selection:
    """The two layers of an explanation and its features, as a selection of their analysis."""
    features = tuple(why.features["term"]) or analysis.pairs.features
    spec = analysis.spec
    return Selection(
        features, why.layers, spec.estimator, analysis.pairs.interactions, why.similarity.name
    )


def with_chance(why: Explanation, context: SelectionContext) -> Explanation:
    """An explanation, as `explain` gives it, whose contributions are beyond chance.

    Without contributions it stays as it is; where pairs have no distance, a note says so.

    Raises InputError: representations that are no longer in the store.
    """
    if not why.similarity.divides:
        return why
    if lacks_pairs := context.analysis.lacks_pairs:
        return replace(why, notes=(*why.notes, lacks_pairs))
    of_pair = replace(context, selection=explained_selection(why, context.analysis))
    return _subtract_chance(why, compute_layer_chance(of_pair, why.permutations))


def _subtract_chance(why: Explanation, chance: ContributionNull) -> Explanation:
    """An explanation whose contributions are beyond chance of its two layers."""
    terms, notes = chance.subtract_chance(why.terms), (*why.notes, *chance.notes)
    return replace(why, terms=terms, controls=chance.control_table(), notes=notes)


def compute_pair_intervals(context: SelectionContext) -> Tables:
    """Tables of the explanation of the two selected layers, as of `with_intervals`."""
    analysis, selection, store = context.analysis, context.selection, context.required_store
    by = SIMILARITY.get(context, name=selection.similarity)
    a, b = selection.layers
    why = explain(analysis, a, b, selection.features, compared=by)
    progress = counting(context.report, "blocks left out", "blocks")
    bounded = with_intervals(why, analysis, store, progress)
    notes = pd.DataFrame({"note": list(bounded.notes)}, dtype=object)
    return {name: getattr(bounded, name) for name in bounded.TABLES} | {"notes": notes}


def _pair_key(context: SelectionContext) -> dict[str, Any]:
    """Key of the intervals of two layers; without terms it names no feature."""
    analysis, selection = context.analysis, context.selection
    name = selection.similarity
    if not SIMILARITIES[name].divides:
        return analysis.key(selection.layers, similarity=name)
    # No metric is fitted; the key names that of the analysis.
    fitted = replace(
        selection, estimator=analysis.spec.estimator, interactions=analysis.pairs.interactions
    )
    return analysis.key(fitted, similarity=name)


PAIR_INTERVALS = Stage[Tables]("pair-intervals", 8, dict, compute_pair_intervals, key=_pair_key)


def best_known(
    why: Explanation,
    context: SelectionContext,
    intervals: LayerIntervals | None = None,
    chance: ContributionNull | None = None,
) -> Explanation:
    """An explanation with the best intervals that there are; computes none.

    Those of `PAIR_INTERVALS`, else those of all layers, else none; of the most similar two of the
    selection they hold for all that these were chosen from (`as_chosen`).

    Parameters
    ----------
    why : by any similarity
    context : whose layers the two may be the most similar of
    intervals : of layers among which the two are
    chance : of the layers of the selection, by the same similarity
    """
    if intervals is not None and intervals.similarity != why.similarity.name:
        intervals = None
    analysis, layers = context.analysis, context.selection.layers
    of_pair = replace(context, selection=explained_selection(why, analysis))
    tables = PAIR_INTERVALS.find(of_pair)
    if tables is not None:
        return as_chosen(apply_intervals(why, tables), analysis, layers, intervals)
    of_two = None
    if chance is not None and {*why.layers} <= {*layers}:
        of_two = chance.select_layers(list(map(layers.index, why.layers)))
        why = _subtract_chance(why, of_two)
    if intervals is not None and len(intervals.terms):
        why = explanation_from_intervals(why, intervals, of_two)
    return as_chosen(why, analysis, layers, intervals)


def add_intervals(why: Explanation, context: SelectionContext) -> Explanation:
    """An explanation with the intervals of `PAIR_INTERVALS`, computed where they are not kept."""
    of_pair = replace(context, selection=explained_selection(why, context.analysis))
    return apply_intervals(why, PAIR_INTERVALS.get(of_pair))


def apply_intervals(why: Explanation, tables: Tables) -> Explanation:
    """An explanation with the intervals of `PAIR_INTERVALS`."""
    known: dict[str, Any] = {name: tables[name] for name in why.TABLES}
    notes, how = tuple(tables["notes"]["note"]), _how(why)
    return replace(why, notes=notes, how=how, **known)


def _how(why: Explanation) -> str:
    """Computation of the intervals of two layers, for a caption."""
    how = f"{INFLUENCE}; {chance_note(why.permutations)}"
    return how if why.similarity.of_ranks else how.replace(INFLUENCE, LEFT_OUT)

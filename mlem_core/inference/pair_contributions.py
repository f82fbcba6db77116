"""The pairs of stimuli behind a term: what each adds to the similarity of two layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import solve

from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.base.errors import unknown
from mlem_core.base.typing import FloatArray
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.contributions import fold_equations, rank_scale, shapley_coefficients
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.designs import PairDesign, pair_places, pairs_among
from mlem_core.pairs.moments import PairMoments

# Of so many of the pairs that contribute most, examples are picked.
CANDIDATES = 20_000
KEPT = 8  # examples of a term


def pair_terms(moments: PairMoments, ranks: Sequence[NDArray[np.uint32]], term: str) -> FloatArray:
    """Contribution of each pair of stimuli to a term of two layers' RSA correlation, in units of ρ.

    With b the coefficients that a feature adds in a layer, fitted outside a fold
    (`mlem_core.measures.contributions.shapley_coefficients`), a pair inside the fold with the
    columns z adds ½ (rᴬ z'bᴮ + rᴮ z'bᴬ) to the term of the feature: its own rank in one layer, with
    what the feature predicts of it in the other, learnt from other stimuli. Ranks and predictions
    are centred over the pairs that test the fold. A pair of two folds adds nothing to a feature.
    "unexplained" is the rest of rᴬ rᴮ. The sum over all pairs is the term.

    Raises InputError: an unknown term; fewer than two folds.

    Parameters
    ----------
    moments : of all pairs of the stimuli in two layers
    ranks : of each layer (n_pairs,) twice the average rank of each pair
    term : a feature, or "unexplained"

    Returns
    -------
    (n_pairs,) in condensed order
    """
    columns = moments.columns
    if term not in (*columns.features, UNEXPLAINED):
        raise unknown("term", term, (*columns.features, UNEXPLAINED))
    equations = fold_equations(moments)
    scale = rank_scale(equations)[0, 1]
    all_pairs, n = PairDesign.complete(moments.n_stimuli), moments.n_stimuli
    explained, blocks = np.zeros(all_pairs.n_pairs), np.ones(moments.n_blocks, dtype=bool)
    # In no sum at all, and in none of a fold.
    near, untested = (
        pair_places(*moments.left_out_among(blocks, fold)[:2], n) for fold in (None, 0)
    )
    for fold, of_fold in enumerate(equations):
        # In condensed order, the pairs that test the fold.
        places = np.setdiff1d(pairs_among(np.flatnonzero(moments.folds == fold), n), untested)
        if not len(places):
            continue
        if term == UNEXPLAINED:
            # Of all features together.
            coefficients = solve(of_fold.gram, of_fold.outside, assume_a="pos").T
        else:
            feature = columns.features.index(term)
            coefficients = shapley_coefficients(columns, of_fold, feature)
        predictions = columns.predictions(coefficients, *all_pairs.ends(places))
        predictions -= predictions.mean(axis=1, keepdims=True)
        for layer, other in ((0, 1), (1, 0)):
            doubled = ranks[layer][places].astype(np.float64)
            doubled -= doubled.mean()
            explained[places] += scale / 4 * doubled * predictions[other]
    if term != UNEXPLAINED:
        return explained
    squares = np.diag(moments.rank_covariances(blocks))
    if not squares.all():
        return -explained
    in_one, in_other = (doubled.astype(np.float64) - (len(explained) + 1) for doubled in ranks)
    products = in_one * in_other / (4 * np.sqrt(squares.prod()))
    products[near] = 0.0
    return products - explained


def contributing_pairs(
    pairs: LayerPairs, term: str, n: int = KEPT, most: bool = True
) -> pd.DataFrame:
    """The pairs of stimuli that contribute most to a term, as examples.

    A stimulus stands in one of them at most, so that one unusual word does not fill the table.

    Parameters
    ----------
    most : False gives those that take most away

    Returns
    -------
    contribution (in units of ρ), first, second (rows of the stimuli from 0), distance_a and
    distance_b (the share of pairs that are nearer in each layer, 0 to 1)
    """
    added = pair_terms(pairs.statistics.moments, pairs.ranks, term)
    size = min(CANDIDATES, len(added))
    signed = added if most else -added
    top = np.argpartition(signed, len(signed) - size)[-size:]
    top = top[np.argsort(-signed[top], kind="stable")]
    first, second = PairDesign.complete(pairs.statistics.moments.n_stimuli).ends(top)
    if pairs.rows is not None:
        first, second = pairs.rows[first], pairs.rows[second]
    used, rows = set[int](), list[int]()
    for row, ends in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        if signed[top[row]] <= 0 or len(rows) == n:
            break
        if used.isdisjoint(ends):
            used.update(ends)
            rows.append(row)
    places = top[rows]
    distance_a, distance_b = ((ranks[places] - 1.0) / (2.0 * len(added)) for ranks in pairs.ranks)
    return pd.DataFrame(
        {
            "contribution": added[places],
            "first": first[rows],
            "second": second[rows],
            "distance_a": distance_a,
            "distance_b": distance_b,
        }
    )


def compute_pair_contributions(
    context: SelectionContext, term: str, most: bool = True
) -> pd.DataFrame:
    """`contributing_pairs` of the two layers of a selection.

    Raises as `LayerPairs.from_analysis`; InputError: an unknown term.
    """
    analysis, selected = context.analysis, context.selection
    selection = analysis.select(selected.features, selected.layers)
    pairs = LayerPairs.from_analysis(analysis, selection, context.required_store)
    return contributing_pairs(pairs, term, most=most)


def _with_texts(
    context: SelectionContext, table: pd.DataFrame, term: str, most: bool = True
) -> pd.DataFrame:
    """The pairs with first_text, second_text (the word, or the sentence) and their sentences."""
    stimuli = context.analysis.stimuli
    texts, sentences = (np.array(of, dtype=object) for of in (stimuli.words, stimuli.sentences))
    first, second = table["first"], table["second"]
    return table.assign(
        first_text=texts[first],
        second_text=texts[second],
        first_sentence=sentences[first],
        second_sentence=sentences[second],
    )


def _pairs_key(context: SelectionContext, term: str, most: bool = True) -> dict[str, Any]:
    """Kept ones need no representations, and no metric is fitted."""
    selection = context.selection
    features = list(selection.features)
    return context.analysis.key(selection.layers, features=features, term=term, most=most)


PAIR_CONTRIBUTIONS = Stage[pd.DataFrame](
    "pairs-behind", 3, pd.DataFrame, compute_pair_contributions, key=_pairs_key, unpack=_with_texts
)

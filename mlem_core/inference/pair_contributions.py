"""The pairs of stimuli behind a term: what each adds to the similarity of two layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.errors import unknown
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.decomposition import SAMPLED, UNEXPLAINED
from mlem_core.measures.shapley import sampled_orders, shapley
from mlem_core.pairs.crossfit import CrossFit, FeatureSet
from mlem_core.storage.store import Stage, Store

# Of so many of the pairs that contribute most, examples are picked.
CANDIDATES = 20_000
KEPT = 8  # examples of a term


def contributions(pairs: LayerPairs, term: str) -> FloatArray:
    """Contribution of each pair of stimuli to a term of two layers' RSA correlation, in units of ρ.

    With m_fᴬ the Shapley value of feature f for the mean rank in layer A, outside a fold, of a
    pattern, a pair inside the fold adds ½ (rᴬ m_fᴮ + rᴮ m_fᴬ) to the term of f: its own rank in one
    layer, with what the feature predicts of it in the other, learnt from other stimuli. A pair of
    two folds adds nothing to a feature. "unexplained" is the rest of rᴬ rᴮ. The sum over all pairs
    is the term.

    Raises InputError: an unknown term; fewer than two folds.

    Parameters
    ----------
    pairs : of two layers
    term : a feature, or "unexplained"

    Returns
    -------
    (n_pairs,) in the order of the design
    """
    pairs = pairs.coarse
    tables, n_pairs = pairs.tables, len(pairs.cells)
    if term not in (*tables.features, UNEXPLAINED):
        raise unknown("term", term, (*tables.features, UNEXPLAINED))
    fit = CrossFit.of(tables)

    def means(chosen: FeatureSet) -> FloatArray:
        of_set = fit.means(chosen)[..., 0]
        by_pattern: FloatArray = of_set[chosen.group]
        return by_pattern

    split = shapley(fit.whole, means, orders=sampled_orders(tables.codes, SAMPLED))
    of_features = split.whole if term == UNEXPLAINED else split.terms[tables.features.index(term)]
    middle = n_pairs + 1.0
    a, b = (0.5 * (ranks - middle) for ranks in pairs.ranks)
    scale = fit.spread[0].prod()
    if scale == 0:
        return np.zeros(n_pairs)
    fitted = np.zeros(n_pairs)
    inside = [
        pairs.design.among(np.flatnonzero(pairs.folds == k))[0] for k in range(tables.n_folds)
    ]
    used = sum(len(at) > 0 for at in inside)
    for fold, at in enumerate(inside):
        pattern = pairs.pattern[at]
        for own, other in ((a, 1), (b, 0)):
            if len(at):
                centred = own[at] - own[at].mean()
                fitted[at] += centred * of_features[pattern, other, fold] / (2 * len(at) * used)
    added: FloatArray = (a * b / n_pairs - fitted if term == UNEXPLAINED else fitted) / scale
    return added


def contributing_pairs(
    pairs: LayerPairs, stimuli: StimulusSet, term: str, n: int = 10, most: bool = True
) -> pd.DataFrame:
    """The pairs of stimuli that contribute most to a term, as examples.

    A stimulus stands in one of them at most, so that one unusual word does not fill the table.

    Parameters
    ----------
    most : False gives those that take most away

    Returns
    -------
    contribution (in units of ρ), first, second (rows of the stimuli from 0), first_text,
    second_text (the word, or the sentence), first_sentence, second_sentence, distance_a and
    distance_b (the share of pairs that are nearer in each layer, 0 to 1)
    """
    added = contributions(pairs, term)
    size = min(CANDIDATES, len(added))
    signed = added if most else -added
    top = np.argpartition(signed, len(signed) - size)[-size:]
    top = top[np.argsort(-signed[top], kind="stable")]
    first, second = pairs.design.ends(top)
    used: set[int] = set()
    picked: list[tuple[int, int, int]] = []
    for at, i, j in zip(top, first, second, strict=True):
        if signed[at] <= 0 or len(picked) == n:
            break
        if i not in used and j not in used:
            used |= {int(i), int(j)}
            picked.append((int(at), int(i), int(j)))
    total = 2.0 * len(added)
    rows = [
        (added[at], i, j, *((float(ranks[at]) - 1.0) / total for ranks in pairs.ranks))
        for at, i, j in picked
    ]
    return _with_texts(pd.DataFrame(rows, columns=list(_NUMBERS)).astype(_NUMBERS), stimuli)


# What is kept; the texts are those of the stimuli.
_NUMBERS: dict[str, Any] = {
    "contribution": np.float64,
    "first": np.int64,
    "second": np.int64,
    "distance_a": np.float64,
    "distance_b": np.float64,
}
_STAGE = Stage("pairs-behind", 2, pd.DataFrame)


def pair_contributions(
    analysis: Analysis,
    store: Store,
    layers: Sequence[Layer],
    features: Sequence[str],
    term: str,
    *,
    most: bool = True,
) -> pd.DataFrame:
    """`contributing_pairs` of two layers of an analysis, `KEPT` of them; kept in the store.

    Raises as `LayerPairs.of`, where it is not kept yet; an unknown term.
    """

    def make() -> pd.DataFrame:
        pairs = LayerPairs.of(analysis, layers, store, features)
        return contributing_pairs(pairs, analysis.stimuli, term, KEPT, most)[list(_NUMBERS)]

    kept = _STAGE.get(store, _key(analysis, layers, features, term, most), make)
    return _with_texts(kept, analysis.stimuli)


def kept_at(
    analysis: Analysis,
    store: Store,
    layers: Sequence[Layer],
    features: Sequence[str],
    term: str,
    *,
    most: bool = True,
) -> Path | None:
    """The folder of kept `pair_contributions`; None where they would need the representations."""
    return _STAGE.where(store, _key(analysis, layers, features, term, most))


def _key(
    analysis: Analysis, layers: Sequence[Layer], features: Sequence[str], term: str, most: bool
) -> dict[str, Any]:
    return analysis.key(layers, features=list(features), term=term, most=most)


def _with_texts(table: pd.DataFrame, stimuli: StimulusSet) -> pd.DataFrame:
    texts, sentences = (np.array(of, dtype=object) for of in (stimuli.words, stimuli.sentences))
    first, second = table["first"], table["second"]
    return table.assign(
        first_text=texts[first],
        second_text=texts[second],
        first_sentence=sentences[first],
        second_sentence=sentences[second],
    )

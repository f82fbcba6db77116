"""Why two layers are alike: their RSA correlation, divided over the features.

The rank of a pair's distance in a layer is, for its pattern p of feature differences, the mean
r̄_p of that pattern's pairs and a rest. By the law of total covariance the sum of products of ranks
of two layers A and B is Σ_p n_p r̄_pᴬ r̄_pᴮ, what the features account for, and the same sum of the
rests, what they do not. v(S), the first sum when only the features S tell pairs apart, is divided
over the features by Shapley values. Everything is divided by √(Σ rᴬ² Σ rᴮ²), so that all terms are
in units of ρ and add up to the RSA correlation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.base.errors import unknown
from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.measures.shapley import EXACT_FEATURES, ORDERS, shapley, summed
from mlem_core.pairs.ranks import predicted_ranks
from mlem_core.pairs.tables import PairTables

UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Decomposition:
    """RSA correlations of n_layers layers as sums over features.

    Attributes
    ----------
    features : (n_features,) names
    terms : (n_features, n_layers, n_layers) what each feature contributes, in units of ρ
    unexplained : (n_layers, n_layers) the rest; it may be negative
    rsa : (n_layers, n_layers) their sum
    error : None where exact, or the standard errors of `terms` from sampling orders of features
    """

    features: tuple[str, ...]
    terms: FloatArray
    unexplained: FloatArray
    rsa: FloatArray
    error: FloatArray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The features and "unexplained"."""
        return (*self.features, UNEXPLAINED)

    @property
    def values(self) -> FloatArray:
        """(n_features + 1, n_layers, n_layers) all terms; their sum over the first axis is RSA."""
        return np.concatenate((self.terms, self.unexplained[None]))

    def pair(self, a: int, b: int) -> pd.DataFrame:
        """The terms of two layers, by position: term, value (and error where sampled)."""
        terms = pd.DataFrame({"term": self.names, "value": self.values[:, a, b]})
        if self.error is not None:
            terms["error"] = [*self.error[:, a, b], np.nan]
        return terms

    def matrix(self, term: str, layers: Sequence[Layer]) -> pd.DataFrame:
        """One term for every two layers, square, "model:layer".

        Raises
        ------
        InputError
            An unknown term.
        """
        if term not in self.names:
            raise unknown("term", term, self.names)
        names = [layer_name(layer) for layer in layers]
        square = self.values[self.names.index(term)]
        return pd.DataFrame(square, index=names, columns=names)

    def table(self, layers: Sequence[Layer]) -> pd.DataFrame:
        """All terms of every two different layers, a row a term.

        Returns
        -------
        model_a, layer_a, model_b, layer_b, term, value, rsa
        """
        a, b = np.triu_indices(len(layers), 1)
        n = len(self.names)
        models = np.array([model for model, _ in layers], dtype=object)
        numbers = np.array([number for _, number in layers], dtype=np.int64)
        pairs = {"model_a": models[a], "layer_a": numbers[a]}
        pairs |= {"model_b": models[b], "layer_b": numbers[b]}
        frame = pd.DataFrame({name: np.repeat(column, n) for name, column in pairs.items()})
        frame["term"] = np.tile(np.array(self.names, dtype=object), len(a))
        frame["value"] = self.values[:, a, b].T.ravel()
        frame["rsa"] = np.repeat(self.rsa[a, b], n)
        return frame

    def summary(self, layers: Sequence[Layer]) -> pd.DataFrame:
        """Each term for every two models (one model with itself too), over their layer pairs.

        A layer is not paired with itself.

        Returns
        -------
        model_a, model_b, term, mean, share (of the mean RSA), and the two layers between which the
        term is largest in size, with its value: layer_a, layer_b, largest
        """
        table = self.table(layers)
        rows = []
        by = ["model_a", "model_b"]
        for (one, other), pairs in table.groupby(by, sort=False):
            whole = pairs["value"].sum() / pairs["term"].eq(UNEXPLAINED).sum()
            for term, part in pairs.groupby("term", sort=False):
                top = part.loc[part["value"].abs().idxmax()]
                mean = part["value"].mean()
                rows.append(
                    {
                        "model_a": one,
                        "model_b": other,
                        "term": term,
                        "mean": mean,
                        "share": mean / whole if whole else np.nan,
                        "layer_a": top["layer_a"],
                        "layer_b": top["layer_b"],
                        "largest": top["value"],
                    }
                )
        columns = ["model_a", "model_b", "term", "mean", "share", "layer_a", "layer_b", "largest"]
        return pd.DataFrame(rows, columns=columns)


def _ratio(products: FloatArray, squares: FloatArray) -> FloatArray:
    return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)


def by_pattern(tables: PairTables) -> tuple[FloatArray, FloatArray]:
    """Pairs (n_patterns,) and sums of centred ranks (n_patterns, n_layers) of each pattern."""
    n = len(tables.codes)
    counts = np.bincount(tables.cell_pattern, tables.counts, n).astype(np.float64)
    sums = np.zeros((n, tables.n_layers))
    occurring = summed(tables.cell_pattern, tables.rank_sums.T)
    sums[: len(occurring)] = occurring
    return counts, sums


def decompose(
    tables: PairTables,
    rsa: FloatArray,
    *,
    exact_up_to: int = EXACT_FEATURES,
    orders: int = ORDERS,
    seed: int = 0,
) -> Decomposition:
    """The RSA correlation of every two layers as a sum over the features of the tables.

    Exact up to `EXACT_FEATURES` features; with more, Shapley values are means over sampled orders
    of the features, with their standard errors, and still add up exactly.

    Parameters
    ----------
    tables : pair tables of n_layers layers; `of_layers` and `of_features` choose
    rsa : (n_layers, n_layers) their RSA correlations
    orders : sampled orders, each with its reverse

    Source: Salle et al. 2024, section 4 (feature-agnostic similarity), divided over the features.
    """
    counts, sums = by_pattern(tables)
    squares = np.outer(tables.rank_squares, tables.rank_squares) ** 0.5

    def explained(sums: FloatArray, _: object) -> FloatArray:
        n, ranks = sums[:, :1], sums[:, 1:]
        return _ratio((ranks / np.maximum(n, 1.0)).T @ ranks, squares)

    stacked = np.concatenate((counts[:, None], sums), axis=1)
    divided = shapley(
        tables.codes, stacked, explained, exact_up_to=exact_up_to, orders=orders, seed=seed
    )
    return Decomposition(tables.features, divided.terms, rsa - divided.whole, rsa, divided.error)


def score_terms(tables: PairTables, weights: FloatArray) -> FloatArray:
    """How the held-out ρ of each layer's model divides over the features.

    The decomposition of the layer with its model: the predicted ranks are constant within a
    pattern, so nothing is unexplained, and the terms of a fold add up to its ρ. A feature without
    weight has a term too where it correlates with one that has.

    Parameters
    ----------
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.base.FoldFits`

    Returns
    -------
    (n_layers, n_folds, n_features)
    """
    n_layers, n_folds, _ = weights.shape
    terms = np.zeros((n_layers, n_folds, len(tables.features)))
    for fold in range(n_folds):
        at = tables.held_out(fold)
        pattern = tables.cell_pattern[at]
        counts = tables.counts[at]
        ranks = predicted_ranks(weights[:, fold] @ tables.terms[pattern].T, counts)
        squares = ((ranks**2) @ counts) * tables.within_squares[:, fold]
        stacked = np.concatenate(
            (counts[:, None], tables.within_sums[:, at].T, (ranks * counts).T), axis=1
        )

        def explained(sums: FloatArray, _: object, squares: FloatArray = squares) -> FloatArray:
            n, true, predicted = np.split(sums, [1, 1 + n_layers], axis=1)
            return _ratio((true * predicted / np.maximum(n, 1.0)).sum(axis=0), np.sqrt(squares))

        terms[:, fold] = shapley(tables.codes[pattern], stacked, explained).terms.T
    return terms


def tau_terms(profiles: FloatArray) -> FloatArray:
    """What each feature adds to, or takes from, the weighted Kendall τ of every two layers.

    τ is a sum over pairs of features, + the pair's weight where both layers put the two in the same
    order and - where not, divided by a constant. Each feature gets half of every pair that it is
    in, which is the Shapley value of that sum: τ_f = Σ_{g≠f} ½ w_fg s_fg / Z. The terms add up to
    τ; a feature with a negative term is one that the two layers rank differently. The weights w_fg
    are those of the ranking of all features.

    Parameters
    ----------
    profiles : (n_layers, n_features) importances, averaged over folds

    Returns
    -------
    (n_features, n_layers, n_layers); 0 where τ is not defined

    Source: Vigna (2015) for τ.
    """
    n_layers, n = profiles.shape
    terms = np.zeros((n, n_layers, n_layers))
    if n < 2:
        return terms
    signs = np.sign(profiles[:, :, None] - profiles[:, None, :])
    for a in range(n_layers):
        for b in range(a, n_layers):
            for first, second in ((a, b), (b, a)):
                order = np.lexsort((profiles[second], profiles[first]))[::-1]
                share = np.empty(n)
                share[order] = 1.0 / np.arange(1, n + 1)
                weight = share[:, None] + share[None, :]
                np.fill_diagonal(weight, 0.0)
                scale = (weight * signs[a] ** 2).sum() * (weight * signs[b] ** 2).sum()
                if scale > 0:
                    agree = (weight * signs[a] * signs[b]).sum(axis=1) / np.sqrt(scale)
                    terms[:, a, b] += agree / 2
            terms[:, b, a] = terms[:, a, b]
    return terms

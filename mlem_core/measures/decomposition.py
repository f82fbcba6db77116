"""RSA correlation of two layers, divided over the features.

v(S) is what the features S explain of the correlation of the ranks of two layers A and B, computed
between disjoint sets of stimuli: the mean rank in A of a pattern of feature differences comes from
the stimuli outside a fold, the ranks in B are those of the pairs inside it, and both ways are
averaged (`mlem_core.pairs.crossfit`). A feature of pure noise therefore adds 0 on average, however
many patterns it makes. v is divided over the features by Shapley values; what is left of the RSA
correlation is not explained by these features. Everything is in units of ρ and adds up to RSA.
`discordant_pairs` are those to look at: where both similarities disagree, or nothing explains RSA.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from mlem_core.base.errors import check_choice
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.measures.contributions import contributions
from mlem_core.measures.shapley import (
    EXACT_FEATURES,
    FeatureSubsets,
    Shapley,
    sampled_orders,
    shapley,
)
from mlem_core.measures.similarity import average_ranks, pairs_of_layers, tau_by_chance
from mlem_core.pairs.crossfit import CrossFit, FeatureSet, both_ways, outside_cells
from mlem_core.pairs.layer_sums import SimilaritySums
from mlem_core.pairs.ranks import predicted_ranks
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.pairs.tables import PairTables, summed

UNEXPLAINED = "unexplained"
# What any labels of words (items, sentences) contribute, see `mlem_core.inference.chance`.
IDENTITIES = ("word identity", "item identity", "sentence identity", "group identity")
# With more than `EXACT_FEATURES` features so many random orders, each with its reverse.
SAMPLED = 10
# Draws of up to so many layers are divided in one pass; with more, matrix products are quicker.
FEW_LAYERS = 4


@dataclass(frozen=True)
class Decomposition:
    """RSA correlations of n_layers layers as sums over features.

    features : (n_features,) names
    terms : (n_features, n_layers, n_layers) what each feature contributes, in units of ρ
    unexplained : (n_layers, n_layers) the rest; it may be negative
    rsa : (n_layers, n_layers) their sum
    error : None where exact, or the standard errors of `terms` from sampling orders of features
    chance, p : of the terms, where they are beyond chance, see `mlem_core.inference.chance`; the
        features then have identities among them
    """

    features: tuple[str, ...]
    terms: FloatArray
    unexplained: FloatArray
    rsa: FloatArray
    error: FloatArray | None = None
    chance: FloatArray | None = None
    p: FloatArray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The features and "unexplained"."""
        return (*self.features, UNEXPLAINED)

    @property
    def values(self) -> FloatArray:
        """(n_features + 1, n_layers, n_layers) all terms; their sum over the first axis is RSA."""
        return np.concatenate((self.terms, self.unexplained[None]))

    def pair(self, a: int, b: int) -> pd.DataFrame:
        """The terms of two layers, by position: term, value (error where sampled; chance, p)."""
        terms = pd.DataFrame({"term": self.names, "value": self.values[:, a, b]})
        for name, beside in self._beside.items():
            terms[name] = [*beside[:, a, b], np.nan]
        return terms

    @property
    def _beside(self) -> dict[str, FloatArray]:
        """Values by name that are known beside the terms."""
        beside = {"error": self.error, "chance": self.chance, "p": self.p}
        return {name: values for name, values in beside.items() if values is not None}

    def matrix(self, term: str, layers: Sequence[Layer]) -> pd.DataFrame:
        """Square of one term for every two layers, "model:layer".

        Raises InputError: an unknown term.
        """
        check_choice("term", term, self.names)
        names = [layer_name(layer) for layer in layers]
        square = self.values[self.names.index(term)]
        return pd.DataFrame(square, index=names, columns=names)

    def table(self, layers: Sequence[Layer]) -> pd.DataFrame:
        """All terms of every two different layers, a row a term.

        Returns model_a, layer_a, model_b, layer_b, term, value, rsa; chance and p where they are
        known.
        """
        a, b = np.triu_indices(len(layers), 1)
        n, pairs = len(self.names), pairs_of_layers(layers)
        frame = pairs.loc[pairs.index.repeat(n)].reset_index(drop=True)
        frame["term"] = np.tile(np.array(self.names, dtype=object), len(a))
        frame["value"] = self.values[:, a, b].T.ravel()
        frame["rsa"] = np.repeat(self.rsa[a, b], n)
        for name, beside in self._beside.items():
            if name != "error":
                square = np.concatenate((beside, np.full((1, *self.rsa.shape), np.nan)))
                frame[name] = square[:, a, b].T.ravel()
        return frame

    def summary(self, layers: Sequence[Layer]) -> pd.DataFrame:
        """Each term for every two models (one model with itself too), over their layer pairs.

        A layer is not paired with itself.

        Returns model_a, model_b, term, mean, share (of the mean RSA), and the two layers between
        which the term is largest in size, with its value: layer_a, layer_b, largest.
        """
        rows = []
        by = ["model_a", "model_b"]
        for models, pairs in self.table(layers).groupby(by, sort=False):
            whole = pairs["value"].sum() / pairs["term"].eq(UNEXPLAINED).sum()
            for term, part in pairs.groupby("term", sort=False):
                top, mean = part.loc[part["value"].abs().idxmax()], part["value"].mean()
                largest = top[["layer_a", "layer_b", "value"]]
                rows.append((*models, term, mean, mean / whole if whole else np.nan, *largest))
        columns = [*by, "term", "mean", "share", "layer_a", "layer_b", "largest"]
        return pd.DataFrame(rows, columns=columns)


def by_pattern(tables: PairTables) -> tuple[FloatArray, FloatArray]:
    """Pairs (n_patterns,) and sums of centred ranks (n_patterns, n_layers) of each pattern."""
    n = len(tables.codes)
    counts = np.bincount(tables.cell_pattern, tables.counts, n).astype(np.float64)
    sums = np.zeros((n, tables.n_layers))
    occurring = summed(tables.cell_pattern, tables.rank_sums.T)
    sums[: len(occurring)] = occurring
    return counts, sums


def with_sums(tables: PairTables, found: SimilaritySums) -> PairTables:
    """Tables whose `decompose` divides another similarity of their layers.

    What is centred ranks there are the values that it is the correlation of.
    """
    return replace(tables, rank_sums=found.sums, rank_squares=found.squares)


def decompose(
    tables: PairTables | PairStatistics,
    rsa: FloatArray,
    *,
    priority: IntArray | None = None,
    exact_up_to: int = EXACT_FEATURES,
    orders: int = SAMPLED,
    seed: int = 0,
) -> Decomposition:
    """The RSA correlation of every two layers as a sum over the features of the tables.

    Terms are cross-fitted. Exact up to `EXACT_FEATURES` features; with more, Shapley values are
    means over sampled orders of the features, with their standard errors, and still add up exactly.

    Parameters
    ----------
    tables : pair tables of n_layers layers; `of_layers` and `of_features` choose
    rsa : (n_layers, n_layers) their RSA correlations
    priority : see `mlem_core.pairs.crossfit.CrossFit`
    orders : sampled orders, each with its reverse

    Raises InputError: tables of one fold.

    Source: Salle et al. 2024, section 4 (feature-agnostic similarity), divided over the features.
    """
    if isinstance(tables, PairStatistics):
        shares = contributions(tables.moments, exact_up_to=exact_up_to, seed=seed)
        return Decomposition(
            tables.features, shares.terms, rsa - shares.terms.sum(axis=0), rsa, shares.error
        )
    tables = tables.coarse
    sampled = sampled_orders(tables.codes, orders, exact_up_to)
    divided = divide(CrossFit.of(tables, priority), sampled, seed)
    terms, whole = divided.terms[:, 0], divided.whole[0]
    error = None if divided.error is None else divided.error[:, 0]
    return Decomposition(tables.features, terms, rsa - whole, rsa, error)


def divide(fit: CrossFit, orders: int | None = None, seed: int = 0) -> Shapley:
    """Shapley values of what features explain, in each draw of the stimuli.

    `orders` are as in `shapley`; None is up to `SAMPLED`.

    Returns Shapley of arrays (n_draws, n_layers, n_layers).
    """
    orders = sampled_orders(fit.codes, SAMPLED) if orders is None else orders
    if len(fit.priority) <= FEW_LAYERS and orders == 0:
        sets = FeatureSubsets.of(fit.codes, fit.priority)
        if sets is not None:
            values = both_ways(sets.explained(fit.sums), fit.spread)
            terms = np.tensordot(sets.shares, values, axes=(1, 1))
            return Shapley(terms, values[:, 0])

    return shapley(fit.whole, fit.explained, orders=orders, seed=seed)


def ceilings_of(whole: FloatArray) -> FloatArray:
    """Cross-fitted feature ceilings (..., n_layers), from what all features explain of each layer.

    `whole` is (..., n_layers, n_layers) v of all features. Below 0 it counts as 0.
    """
    own: FloatArray = np.diagonal(whole, axis1=-2, axis2=-1)
    return np.sqrt(np.maximum(own, 0.0))


def score_terms(tables: PairTables, weights: FloatArray) -> FloatArray:
    """Contribution of each feature to the held-out ρ of each layer's model.

    v(S) is the covariance of the true ranks of a fold's pairs with what the model predicts for them
    when it knows the features S only: the mean of its predictions over pairs of stimuli outside the
    fold that have the pattern, the others of their features as they come. (Means over the fold's
    own pairs would give a feature of pure noise that tells all pairs apart as much as the features
    of the model.) With all features that is the prediction itself, so the terms of a fold add up to
    its ρ. A feature without weight has a term too where it correlates with one that has.

    `weights` are (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`.

    Returns (n_layers, n_folds, n_features).
    """
    n_layers, n_folds, _ = weights.shape
    n = len(tables.codes)
    terms = np.zeros((n_layers, n_folds, len(tables.features)))
    for fold in range(n_folds):
        at, outside = tables.held_out(fold), outside_cells(tables, fold)
        sums = np.zeros((n, 2, 1 + n_layers))
        sums[tables.cell_pattern[at], 0, 0] = tables.counts[at]
        sums[tables.cell_pattern[at], 0, 1:] = tables.within_sums[:, at].T
        # Predictions are ranked among those of the fold's pairs, whichever pairs they are of.
        ranks = predicted_ranks(tables.terms.predictions(weights[:, fold]), sums[:, 0, 0]).T
        sums[:, 1, 0] = np.bincount(tables.cell_pattern[outside], tables.counts[outside], n)
        sums[:, 1, 1:] = ranks * sums[:, 1, :1]
        squares = (ranks**2 * sums[:, 0, :1]).sum(axis=0) * tables.within_squares[:, fold]
        fit = CrossFit.of_sums(tables.codes, sums[..., None, None], np.ones((1, n_layers)))

        explained = partial(_predicted_ranks, fit, ranks, np.sqrt(squares))
        terms[:, fold] = shapley(fit.whole, explained).terms.T
    return terms


def _predicted_ranks(
    fit: CrossFit, ranks: FloatArray, scale: FloatArray, chosen: FeatureSet
) -> FloatArray:
    """(n_layers,) correlation with the ranks inside a fold of what a set of features predicts."""
    inside = chosen.sums.reshape(len(chosen.sums), 2, -1)[:, 0, 1:]
    if len(chosen.features) == fit.codes.shape[1]:
        predicted = np.empty_like(ranks)
        predicted[chosen.group] = ranks
    else:
        predicted = fit.means(chosen)[:, :, 0, 0]
    products = (predicted * inside).sum(axis=0)
    return np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)


def tau_terms(profiles: FloatArray) -> FloatArray:
    """Contribution of each feature to the weighted Kendall τ of every two layers.

    τ is a sum over pairs of features, + the pair's weight where both layers put the two in the same
    order and - where not, divided by a constant. Each feature gets half of every pair that it is
    in, which is the Shapley value of that sum: τ_f = Σ_{g≠f} ½ w_fg s_fg / Z. The terms add up to
    τ; a feature with a negative term is one that the two layers rank differently. The weights w_fg
    are those of the ranking of all features.

    `profiles` are (n_layers, n_features) importances, averaged over folds.

    Returns (n_features, n_layers, n_layers); 0 where τ is not defined.

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


# What counts as discordant; conventions, which a caption has to name.
FEWEST = 10  # pairs: of fewer a rank says little
APART = 0.5  # of the pairs lie between the ranks of RSA and τ
PREDICTED = 0.1  # held-out ρ; below it, the order of the importances is mostly noise
NOT_EXPLAINED = 0.75  # share of the RSA correlation
MOST = 3  # pairs of a kind
COLUMNS = ["kind", "layer_a", "layer_b", "rsa", "tau", "above_rsa", "above_tau", "unexplained"]


def discordant_pairs(
    decomposition: Decomposition,
    tau: FloatArray,
    rho: FloatArray,
    layers: list[Layer],
    n_features: int,
    left_out: Collection[frozenset[Layer]] = (),
) -> pd.DataFrame:
    """The pairs of layers that are least what the others lead to expect.

    Of the pairs of different models (or of layers of the only one that are not neighbours), in
    which both layers are predicted by their features (held-out ρ of at least `PREDICTED`):
    "distances", similar by distances and not by features: RSA is above at least `APART` more of the
    pairs than τ is, and τ is no higher than that of profiles in random order; "features", the
    other way round, with τ higher than that. Of all pairs: "unexplained", whose RSA is above the
    median and is not explained to `NOT_EXPLAINED` or more.

    Parameters
    ----------
    decomposition : of the RSA correlations of n_layers layers
    tau : (n_layers, n_layers) weighted Kendall τ of their profiles
    rho : (n_layers,) held-out ρ of each
    layers : (model, number) of each
    n_features : how many numbers a profile has
    left_out : pairs that are not to be named, because an audit changes them

    Returns kind, layer_a, layer_b ("model:layer"), rsa, tau, above_rsa and above_tau (share of the
    pairs that are below it, ties half), unexplained (share of RSA); at most `MOST` of a kind, the
    most surprising first, a layer in one of them at most. Empty where there are fewer than `FEWEST`
    pairs.
    """
    rsa, unexplained = decomposition.rsa, decomposition.unexplained
    a, b = np.triu_indices(len(layers), 1)
    models = np.array([model for model, _ in layers], dtype=object)
    if len(set(models)) > 1:
        kept = models[a] != models[b]
    else:
        kept = b - a > 1
    kept &= (np.isfinite(rsa) & np.isfinite(tau))[a, b]
    a, b = a[kept], b[kept]
    if len(a) < FEWEST:
        return pd.DataFrame(columns=COLUMNS)
    of_rsa, of_tau = rsa[a, b], tau[a, b]
    above_rsa, above_tau = ((average_ranks(of) - 0.5) / len(of) for of in (of_rsa, of_tau))
    share = np.divide(unexplained[a, b], of_rsa, out=np.zeros(len(a)), where=of_rsa > 0)
    named = np.array(
        [
            frozenset((layers[i], layers[j])) not in left_out
            for i, j in zip(a.tolist(), b.tolist(), strict=True)
        ]
    )
    predicted = named & (np.minimum(rho[a], rho[b]) >= PREDICTED)
    chance, apart = tau_by_chance(n_features), above_rsa - above_tau
    kinds = {
        "distances": (predicted & (apart >= APART) & (of_tau <= chance), apart),
        "features": (predicted & (apart <= -APART) & (of_tau > chance), -apart),
        "unexplained": (named & (above_rsa > 0.5) & (share >= NOT_EXPLAINED), share * of_rsa),
    }
    rows = []
    for kind, (those, size) in kinds.items():
        order = np.flatnonzero(those)[np.argsort(-size[those], kind="stable")]
        for at in _each_layer_once(order.tolist(), a, b):
            names = layer_name(layers[a[at]]), layer_name(layers[b[at]])
            values = of_rsa[at], of_tau[at], above_rsa[at], above_tau[at], share[at]
            rows.append((kind, *names, *map(float, values)))
    return pd.DataFrame(rows, columns=COLUMNS)


def _each_layer_once(order: Iterable[int], a: np.ndarray, b: np.ndarray) -> list[int]:
    """The first of some pairs, without those that share a layer with one before."""
    taken: set[int] = set()
    chosen: list[int] = []
    for at in order:
        two = {int(a[at]), int(b[at])}
        if len(chosen) < MOST and not two & taken:
            chosen.append(at)
            taken |= two
    return chosen

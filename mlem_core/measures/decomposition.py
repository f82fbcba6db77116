"""RSA correlation of two layers, divided over the features.

v(S) is the covariance of the ranks of two layers A and B that the columns of the features S
explain, computed between disjoint sets of stimuli (`mlem_core.measures.contributions`). A feature
of pure noise therefore adds 0 on average. v is divided over the features by Shapley values; what is
left of the RSA correlation is not explained by the additive metric: interactions of features belong
to it unless they are columns. Everything is in units of ρ and adds up to RSA.
`discordant_pairs` are those to look at: where both similarities disagree, or nothing explains RSA.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.base.errors import check_choice
from mlem_core.base.parallel import one_thread_each
from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.measures.contributions import (
    EXACT_FEATURES,
    ORDERS,
    fold_equations,
    rank_scale,
    weighted_subsets,
)
from mlem_core.measures.similarity import pairs_of_layers, tau_by_chance
from mlem_core.pairs.moments import PairMoments

UNEXPLAINED = "unexplained"
IDENTITY = " identity"


def is_identity(terms: pd.DataFrame) -> pd.Series[bool]:
    """Whether each term is what permuted labels of a unit contribute, as "word identity" of words.

    Parameters
    ----------
    terms : term, and unit where chance is known, see `mlem_core.inference.permutation_null`
    """
    if "unit" not in terms:
        return pd.Series(False, index=terms.index)
    return terms["term"] == terms["unit"] + IDENTITY


def sort_terms(terms: pd.DataFrame) -> pd.DataFrame:
    """Terms by size, the largest first; identities and what is unexplained come last."""
    last = is_identity(terms) + 2 * (terms["term"] == UNEXPLAINED)
    keys = pd.DataFrame({"last": last, "size": -terms["value"].abs()})
    return terms.loc[keys.sort_values(["last", "size"], kind="stable").index]


@dataclass(frozen=True)
class Decomposition:
    """RSA correlations of n_layers layers as sums over features.

    features : (n_features,) names
    terms : (n_features, n_layers, n_layers) what each feature contributes, in units of ρ
    unexplained : (n_layers, n_layers) the rest; it may be negative
    rsa : (n_layers, n_layers) their sum
    error : None where exact, or the standard errors of `terms` from sampling orders of features
    chance, p : of the terms, where they are beyond chance, see
        `mlem_core.inference.permutation_null`; the features then have identities among them
    units : (n_features,) those whose labels were permuted, of an identity its own; else ()
    """

    features: tuple[str, ...]
    terms: FloatArray
    unexplained: FloatArray
    rsa: FloatArray
    error: FloatArray | None = None
    chance: FloatArray | None = None
    p: FloatArray | None = None
    units: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The features and "unexplained"."""
        return (*self.features, UNEXPLAINED)

    @property
    def values(self) -> FloatArray:
        """(n_features + 1, n_layers, n_layers) all terms; their sum over the first axis is RSA."""
        return np.concatenate((self.terms, self.unexplained[None]))

    def pair(self, a: int, b: int) -> pd.DataFrame:
        """The terms of two layers, by position.

        Returns term, value; error where sampled; chance, p and unit where they are known.
        """
        terms = pd.DataFrame({"term": self.names, "value": self.values[:, a, b]})
        for name, values in self._known_values.items():
            terms[name] = [*values[:, a, b], np.nan]
        return terms.assign(unit=[*self.units, ""]) if self.units else terms

    @property
    def _known_values(self) -> dict[str, FloatArray]:
        """Values by name that are known beside the terms."""
        columns = {"error": self.error, "chance": self.chance, "p": self.p}
        return {name: values for name, values in columns.items() if values is not None}

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

        Returns model_a, layer_a, model_b, layer_b, term, value, rsa; chance, p and unit where they
        are known.
        """
        a, b = np.triu_indices(len(layers), 1)
        n, pairs = len(self.names), pairs_of_layers(layers)
        frame = pairs.loc[pairs.index.repeat(n)].reset_index(drop=True)
        frame["term"] = np.tile(np.array(self.names, dtype=object), len(a))
        frame["value"] = self.values[:, a, b].T.ravel()
        frame["rsa"] = np.repeat(self.rsa[a, b], n)
        for name, values in self._known_values.items():
            if name != "error":
                square = np.concatenate((values, np.full((1, *self.rsa.shape), np.nan)))
                frame[name] = square[:, a, b].T.ravel()
        if self.units:
            frame["unit"] = np.tile(np.array([*self.units, ""], dtype=object), len(a))
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
            similarity = pairs["value"].sum() / pairs["term"].eq(UNEXPLAINED).sum()
            for term, part in pairs.groupby("term", sort=False):
                top, mean = part.loc[part["value"].abs().idxmax()], part["value"].mean()
                largest = top[["layer_a", "layer_b", "value"]]
                rows.append(
                    (*models, term, mean, mean / similarity if similarity else np.nan, *largest)
                )
        columns = [*by, "term", "mean", "share", "layer_a", "layer_b", "largest"]
        return pd.DataFrame(rows, columns=columns)


def decompose(moments: PairMoments, *, seed: int = 0) -> Decomposition:
    """The RSA correlation of every two layers as a sum over the features.

    Contributions are cross-fitted. Exact up to `EXACT_FEATURES`; with more they are means over
    `ORDERS` sampled orders of the features, with their standard errors, and still add up exactly.

    Raises InputError: moments of one fold.

    Source: Salle et al. 2024, section 4 (feature-agnostic similarity), divided over the features.
    """
    equations = fold_equations(moments)
    columns, n_layers = moments.columns, moments.n_layers
    n_features = len(columns.features)
    scale = rank_scale(equations)
    is_exact = n_features <= EXACT_FEATURES
    by_draw = np.zeros((1 if is_exact else ORDERS, n_features, n_layers, n_layers))
    # Many small systems of equations, for which several threads would only be in the way.
    with one_thread_each():
        for fold in equations:
            for draw, subset, shares in weighted_subsets(columns, fold, seed):
                counted = np.flatnonzero(shares)
                by_draw[draw, counted] += np.multiply.outer(shares[counted], subset.explained)
    terms = by_draw.sum(axis=0) * scale
    error = None
    if not is_exact:
        error = by_draw.std(axis=0, ddof=1) * np.sqrt(ORDERS) * np.abs(scale)
    unexplained = moments.rsa - terms.sum(axis=0)
    return Decomposition(columns.features, terms, unexplained, moments.rsa, error)


# What counts as discordant; conventions, which a caption has to name.
FEWEST = 10  # pairs: of fewer a rank says little
APART = 0.5  # of the pairs lie between the ranks of RSA and τ
PREDICTED = 0.1  # held-out ρ; below it, the order of the importances is mostly noise
NOT_EXPLAINED = 0.75  # share of the RSA correlation
MOST = 3  # pairs of a kind
COLUMNS = ["kind", "layer_a", "layer_b", "rsa", "tau", "above_rsa", "above_tau", "unexplained"]


def discordant_pairs(
    rsa: FloatArray,
    tau: FloatArray,
    rho: FloatArray,
    layers: list[Layer],
    n_features: int,
    left_out: Collection[frozenset[Layer]] = (),
    unexplained: FloatArray | None = None,
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
    rsa : (n_layers, n_layers) RSA correlations of the layers
    tau : (n_layers, n_layers) weighted Kendall τ of their profiles
    rho : (n_layers,) held-out ρ of each
    layers : (model, number) of each
    n_features : how many numbers a profile has
    left_out : pairs that are not to be named, because an audit changes them
    unexplained : (n_layers, n_layers) what no feature explains of each RSA; None: not known, and no
        pair is named for it

    Returns kind, layer_a, layer_b ("model:layer"), rsa, tau, above_rsa and above_tau (share of the
    pairs that are below it, ties half), unexplained (share of RSA); at most `MOST` of a kind, the
    most surprising first, a layer in one of them at most. Empty where there are fewer than `FEWEST`
    pairs.
    """
    a, b = np.triu_indices(len(layers), 1)
    models = np.array([model for model, _ in layers], dtype=object)
    if len(set(models)) > 1:
        comparable = models[a] != models[b]
    else:
        comparable = b - a > 1
    comparable &= (np.isfinite(rsa) & np.isfinite(tau))[a, b]
    a, b = a[comparable], b[comparable]
    if len(a) < FEWEST:
        return pd.DataFrame(columns=COLUMNS)
    of_rsa, of_tau = rsa[a, b], tau[a, b]
    above_rsa, above_tau = (
        (pd.Series(values).rank().to_numpy() - 0.5) / len(values) for values in (of_rsa, of_tau)
    )
    share = np.zeros(len(a))
    if unexplained is not None:
        share = np.divide(unexplained[a, b], of_rsa, out=share, where=of_rsa > 0)
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
        taken = set[int]()
        for at in order.tolist():
            ends = {int(a[at]), int(b[at])}
            if taken & ends or len(taken) == 2 * MOST:
                continue
            taken |= ends
            names = layer_name(layers[a[at]]), layer_name(layers[b[at]])
            values = of_rsa[at], of_tau[at], above_rsa[at], above_tau[at], share[at]
            rows.append((kind, *names, *map(float, values)))
    return pd.DataFrame(rows, columns=COLUMNS)

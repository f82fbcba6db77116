"""Similarity of layers: feature-based (weighted Kendall τ), feature-agnostic (RSA), and maps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import PairColumns

# Up to so many features every order is looked at (5,040 of them), with more so many random ones.
_ALL_ORDERS, _ORDERS = 7, 10_000
_AT_ONCE = 2**22


def weighted_tau(profiles: FloatArray) -> FloatArray:
    """Weighted Kendall τ of every two importance profiles.

    Hyperbolic weights, averaged over both rankings (Vigna 2015, as `scipy.stats.weightedtau`
    computes it). Profiles without any order (all importances equal) have τ = 0 with every other,
    those that are not known (NaN) have none.

    `profiles` are (n_layers, n_features) importances, averaged over folds.

    Returns (n_layers, n_layers).

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, appendix F.
    """
    n_layers, n_features = profiles.shape
    tau = np.zeros((n_layers, n_layers))
    sign = np.sign(profiles[:, :, None] - profiles[:, None, :])
    # Where both layers rank two features alike, either order gives the same sum over features.
    below = (sign < 0) | (sign == 0) & ~np.tri(n_features, dtype=bool)
    for a in range(n_layers):
        # Features in the order of layer a and, where they are tied there, of the other layer.
        rank = ((sign[a] < 0) | (sign[a] == 0) & below).sum(axis=2)
        weight = 1 / (1 + rank)
        pairs = weight[:, :, None] + weight[:, None, :]
        both = np.einsum("ij,lij,lij->l", sign[a], sign, pairs)
        of_a = np.einsum("ij,lij->l", np.abs(sign[a]), pairs)
        other = np.einsum("lij,lij->l", np.abs(sign), pairs)
        ordered = (of_a > 0) & (other > 0)
        tau[a, ordered] = both[ordered] / np.sqrt(of_a[ordered] * other[ordered])
    tau = (tau + tau.T) / 2
    np.fill_diagonal(tau, 1.0)
    unknown = np.isnan(profiles).any(axis=1)
    tau[unknown], tau[:, unknown] = np.nan, np.nan
    return tau


@lru_cache(maxsize=64)
def tau_by_chance(n_features: int) -> float:
    """The |τ| that 95 of 100 pairs of profiles in random order do not exceed.

    Of the weighted Kendall τ of `weighted_tau`, all orders of n_features different importances
    being as likely: exact up to 7 features, with more from 10,000 seeded permutations.
    """
    if n_features < 2:
        return 1.0
    if n_features <= _ALL_ORDERS:
        orders = np.array(list(itertools.permutations(range(n_features))))
    else:
        rows = np.tile(np.arange(n_features), (_ORDERS, 1))
        orders = np.random.default_rng(0).permuted(rows, axis=1)
    upper = np.triu_indices(n_features, 1)
    weight = 1.0 / np.arange(n_features, 0, -1)
    taus = []
    for part in np.array_split(orders, math.ceil(len(orders) * len(upper[0]) / _AT_ONCE)):
        # One profile ascends; the other's orders of two features are those of its places.
        signs = np.sign(part[:, upper[1]] - part[:, upper[0]])
        drawn, other = (
            drawn[..., upper[0]] + drawn[..., upper[1]] for drawn in (weight, weight[part])
        )
        taus.append((signs * (drawn + other)).sum(axis=1) / (2 * drawn.sum()))
    return float(np.quantile(np.abs(np.concatenate(taus)), 0.95, method="higher"))


def agreement(first: FloatArray, second: FloatArray) -> float:
    """Spearman ρ of the upper triangles of two similarity matrices.

    Parameters
    ----------
    first, second : (n_layers, n_layers)

    Returns float; NaN with fewer than three layers or where one triangle is constant.
    """
    upper = np.triu_indices(len(first), 1)
    a, b = first[upper], second[upper]
    if len(a) < 2 or not (np.ptp(a) > 0 and np.ptp(b) > 0):
        return float("nan")
    return float(np.corrcoef(pd.Series(a).rank(), pd.Series(b).rank())[0, 1])


class Candidates(NamedTuple):
    """The pairs of layers among which the most similar is looked at first.

    first, second : (n_pairs,) the places of their layers
    cell : (n_pairs,) the same number for members of the same two groups at the same layers
    what : what they are pairs of, "layers of two models"
    """

    first: IntArray
    second: IntArray
    cell: IntArray
    what: str

    def means(self, values: FloatArray) -> FloatArray:
        """Means over members (..., n_cells) of what pairs have (..., n_pairs)."""
        order = np.argsort(self.cell, kind="stable")
        starts = np.unique(self.cell[order], return_index=True)[1]
        sums: FloatArray = np.add.reduceat(values[..., order], starts, axis=-1)
        return sums / np.bincount(self.cell)

    def best(self, values: FloatArray) -> int:
        """The pair to look at first: the highest of those members whose mean is the highest."""
        of_best = self.cell == self.means(values).argmax()
        return int(np.where(of_best, values, -np.inf).argmax())


def candidates(
    rsa: FloatArray,
    layers: Sequence[Layer],
    files: Collection[str] = (),
    groups: Mapping[str, str] | None = None,
) -> Candidates:
    """The pairs of layers to choose the most similar from: of two models, or of the only one.

    Two models of a group are similar without saying: models of two groups come first.

    Layer 0 of a language model, its embeddings, knows no context, and words that are spelled alike
    are similar there in every model: it counts only where there is nothing else.

    Parameters
    ----------
    rsa : (n_layers, n_layers) Spearman ρ; NaN where it is not defined
    layers : (model, number) of each
    files : names of the models that come from a file, whose layer 0 is a layer as any other
    groups : of models that share one with others, its name
    """
    models = np.array([model for model, _ in layers], dtype=object)
    kin = np.array([(groups or {}).get(model, model) for model in models], dtype=object)
    deep = np.array([number > 0 or model in files for model, number in layers])
    upper, aside = np.triu(np.isfinite(rsa), 1), "" if deep.all() else ", embeddings left aside"
    of_two = "two models" if len({*kin}) == len({*models}) else "models of two groups"
    apart, others = (names[:, None] != names for names in (kin, models))
    tried = [
        (upper & pairs & some, f"layers of {name}{more}")
        for pairs, name in ((apart, of_two), (others, "two models"), (upper, "one model"))
        for some, more in ((np.outer(deep, deep), aside), (upper, ""))
    ]
    allowed, what = next((names for names in tried if names[0].any()), tried[-1])
    sides = [f"{group}:{number}" for group, (_, number) in zip(kin, layers, strict=True)]
    side, (first, second) = np.unique(sides, return_inverse=True)[1], np.nonzero(allowed)
    low, high = np.sort((side[first], side[second]), axis=0)
    cell = np.unique(low * len(layers) + high, return_inverse=True)[1]
    return Candidates(first, second, cell, what)


def most_alike(
    rsa: FloatArray,
    layers: Sequence[Layer],
    files: Collection[str] = (),
    groups: Mapping[str, str] | None = None,
) -> tuple[Layer, Layer]:
    """The two layers to look at first, of `candidates`, whose parameters these are.

    Returns two different layers in the order of `layers`; of one layer, that one twice.
    """
    pairs = candidates(rsa, layers, files, groups)
    if not len(pairs.cell):
        return layers[0], layers[-1]
    at = pairs.best(rsa[pairs.first, pairs.second])
    return layers[pairs.first[at]], layers[pairs.second[at]]


def pairs_of_layers(layers: Sequence[Layer], **squares: FloatArray) -> pd.DataFrame:
    """Every two different layers, a row each: model_a, layer_a, model_b, layer_b, and more.

    `squares` are (n_layers, n_layers); each gives a column of its name.
    """
    a, b = np.triu_indices(len(layers), 1)
    models = np.array([model for model, _ in layers], dtype=object)
    numbers = np.array([number for _, number in layers], dtype=np.int64)
    ends = {"model_a": models[a], "layer_a": numbers[a]}
    ends |= {"model_b": models[b], "layer_b": numbers[b]}
    return pd.DataFrame(ends | {name: values[a, b] for name, values in squares.items()})


def mds_map(dissimilarities: FloatArray, *, max_iter: int = 300) -> FloatArray:
    """Map in two dimensions whose distances come close to the dissimilarities (metric MDS).

    Starts from classical MDS, so that the map is the same each time; the axes are the principal
    ones, each turned so that its largest coordinate is positive.

    `dissimilarities` are (n, n) symmetric, zero on the diagonal.

    Returns (n, 2), NaN where a dissimilarity is.

    Source: Salle et al. 2024, figures 2 and 4 (Kruskal 1964).
    """
    n = len(dissimilarities)
    if np.isnan(dissimilarities).any():
        return np.full((n, 2), np.nan)
    if n < 3 or not dissimilarities.any():
        points = np.zeros((n, 2))
        if n == 2:
            points[:, 0] = np.array([-0.5, 0.5]) * dissimilarities[0, 1]
        return points
    symmetric = (dissimilarities + dissimilarities.T) / 2
    np.fill_diagonal(symmetric, 0.0)
    points = _majorised(symmetric, _classical_mds(symmetric), max_iter)
    points -= points.mean(axis=0)
    turned: FloatArray = points @ np.linalg.svd(points, full_matrices=False)[2].T
    largest = turned[np.abs(turned).argmax(axis=0), [0, 1]]
    return turned * np.where(largest < 0, -1.0, 1.0)


def map_stress(dissimilarities: FloatArray, points: FloatArray) -> float:
    """Error of the distances in a map: Kruskal's stress-1, 0 where it shows all of them.

    √(Σ (d - δ)² / Σ d²) over pairs, d the distance in the map and δ the dissimilarity.

    Parameters
    ----------
    dissimilarities : (n, n) symmetric, zero on the diagonal
    points : (n, 2) of `mds_map`

    Returns float; NaN where all points are one and the same.

    Source: Kruskal 1964; the `normalized_stress` of scikit-learn's MDS.
    """
    placed = _apart(points)
    norm = float((placed**2).sum())
    off = float(((placed - dissimilarities) ** 2).sum())
    return math.sqrt(off / norm) if norm > 0 else float("nan")


def _apart(points: FloatArray) -> FloatArray:
    """(n, n) distances of points (n, 2)."""
    x, y = (column[:, None] - column[None, :] for column in points.T)
    return np.sqrt(x * x + y * y)


def _majorised(symmetric: FloatArray, points: FloatArray, max_iter: int) -> FloatArray:
    """Points (n, 2) of the lowest stress near some others, by Guttman's transform (SMACOF).

    It ends when a step lowers the stress by less than a millionth of the sum of the squared
    distances.

    Source: de Leeuw 1977; Borg and Groenen 2005, chapter 8.
    """
    stress, distances = np.inf, _apart(points)
    for _ in range(max_iter):
        ratio = symmetric / np.where(distances > 0, distances, 1e-5)
        points = (ratio.sum(axis=1)[:, None] * points - ratio @ points) / len(points)
        distances, before = _apart(points), stress
        stress = float(((distances - symmetric) ** 2).sum())
        if before - stress < 1e-6 * float((distances**2).sum()):
            break
    return points


def _classical_mds(symmetric: FloatArray) -> FloatArray:
    """Classical MDS in two dimensions (Torgerson 1952).

    Dissimilarities that no points have (three layers may be enough) leave an axis without length,
    where that of scikit-learn takes a root of a negative number.
    """
    centred = symmetric**2
    centred = centred - centred.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(-centred / 2)
    return np.asarray(vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0)))


def clustering(rsa: FloatArray) -> FloatArray:
    """Hierarchical clustering of layers by average linkage on 1 − RSA, similar leaves side by side.

    An RSA that is not defined counts as 0.

    `rsa` is (n_layers, n_layers) Spearman ρ.

    Returns (n_layers - 1, 4) linkage as `scipy.cluster.hierarchy` has it, leaves in optimal order.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    if len(rsa) < 2:
        return np.zeros((0, 4))
    apart = 1.0 - np.nan_to_num(rsa)
    np.fill_diagonal(apart, 0.0)
    condensed = squareform(apart, checks=False)
    return np.asarray(linkage(condensed, method="average", optimal_ordering=True))


def correlations_of_features(moments: PairMoments) -> FloatArray:
    """Pearson correlations (n_features, n_features) of the squared feature distances.

    Over all compared pairs; a feature that is coded by value counts as it would as same or
    different. NaN for a feature whose distance is the same in all pairs.

    Source: Salle et al. 2024, figure S5.
    """
    weights = plain_columns(moments.columns)
    gram = moments.within(np.ones(moments.n_blocks, dtype=bool)).gram
    return _correlations(weights @ gram @ weights.T)


def plain_columns(columns: PairColumns) -> FloatArray:
    """(n_features, n_columns) the squared distance of each feature as a sum of the columns."""
    weights = np.zeros((len(columns.features), len(columns)))
    alone = columns.first_feature == columns.second_feature
    weights[columns.first_feature[alone], alone] = columns.as_distance[alone]
    return weights


def correlations_of_predictions(moments: PairMoments, weights: FloatArray) -> FloatArray:
    """Pearson correlations (n_features, n_features) of what each feature predicts.

    Of the parts of the prediction over all compared pairs, in the coding that was fitted; the mean
    over the layers and folds in which both features have weight, NaN where there is none.

    `weights` are (n_layers, n_folds, n_columns).
    """
    columns = moments.columns
    gram = moments.within(np.ones(moments.n_blocks, dtype=bool)).gram
    part = columns.first_feature == np.arange(len(columns.features))[:, None]
    part &= columns.first_feature == columns.second_feature
    correlations = []
    for metric in weights.reshape(-1, len(columns)):
        of_features = part * metric
        correlations.append(_correlations(of_features @ gram @ of_features.T))
    return np.asarray(np.ma.masked_invalid(correlations).mean(axis=0).filled(np.nan))


def _correlations(covariance: FloatArray) -> FloatArray:
    """Correlations of a covariance matrix; NaN where a variance is 0 but for rounding."""
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    both = spread[:, None] * spread
    constant = both <= 1e-12 * max(float(both.max(initial=0.0)), 1e-300)
    correlation = np.divide(covariance, both, out=np.zeros_like(covariance), where=~constant)
    correlation[constant] = np.nan
    return correlation

"""The slow way: explicit pairs, loops and libraries, to hold the statistics of pairs against."""

import itertools
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist
from scipy.stats import rankdata, spearmanr, zscore
from sklearn.linear_model import Ridge

from mlem_core.measures.contributions import STABLE
from mlem_core.measures.decomposition import decompose


def random_features(n, seed=0):
    """Nominal and ordered features of n stimuli, with missing values in both."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["noun", "verb", "other"], n),
            "length": rng.integers(1, 6, n).astype(float),
            "gender": rng.choice(np.array(["f", "m", None], dtype=object), n),
            "frequency": rng.random(n).round(1),
        }
    )
    frame.loc[rng.random(n) < 0.2, "length"] = np.nan
    return frame


def random_layer(features, seed=0, units=7):
    """Representations (n_stimuli, units) that depend on some of the features."""
    layer = np.random.default_rng(seed).standard_normal((len(features), units))
    layer[:, 0] += 2.0 * (features["kind"] == "noun")
    layer[:, 1] += 3.0 * features["length"].fillna(3.0) / 5
    return layer.astype(np.float32)


def random_folds(n, n_folds=5, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(n) % n_folds)


def pairs(n):
    return np.triu_indices(n, 1)


def feature_distances(features, missing="ignore"):
    """(n_pairs, n_features), a pair and a feature at a time."""
    columns = []
    for name in features.columns:
        values = features[name].tolist()
        ordered = features[name].dtype.kind == "f"
        if ordered:
            low, high = np.nanmin(values), np.nanmax(values)
            values = [(v - low) / (high - low) for v in values]
        column = []
        for i, j in zip(*pairs(len(values)), strict=True):
            a, b = values[i], values[j]
            gone = (pd.isna(a), pd.isna(b))
            if any(gone):
                column.append(float(missing == "level" and not all(gone)))
            else:
                column.append(abs(a - b) if ordered else float(a != b))
        columns.append(column)
    return np.array(columns).T


def products(distances):
    """(n_pairs, F (F + 1) / 2): squares of feature distances, then twice each product."""
    a, b = np.triu_indices(distances.shape[1], 1)
    return np.hstack([distances**2, 2 * distances[:, a] * distances[:, b]])


def squared(layer):
    return pdist(layer.astype(np.float64)) ** 2


def held_out(folds, fold, items=None):
    """The pairs that a fold tests; folds over both are (n, 2), of the sentence and of the item.

    With items, two of one are not tested.
    """
    i, j = pairs(len(folds))
    test = (folds.reshape(len(folds), -1) == fold).all(axis=1)
    same = np.zeros(len(i), dtype=bool) if items is None else items[i] == items[j]
    return test[i] & test[j] & ~same


def training(folds, *left_out):
    i, j = pairs(len(folds))
    stays = ~np.isin(folds.reshape(len(folds), -1), left_out).any(axis=1)
    return stays[i] & stays[j]


def scaled(target):
    return (target - target.min()) / (target.max() - target.min())


def rho(prediction, target):
    # Predictions of one pattern differ in their last bits; as ties they must be equal.
    return float(spearmanr(np.round(prediction, 12), target).statistic)


def ridge(x, y, alpha):
    """Weights of at least 0 and an intercept, as exact as scikit-learn gets."""
    return Ridge(alpha=alpha, positive=True, tol=1e-12, max_iter=100_000).fit(x, y)


def best_alpha(x, target, folds, outer, alphas, y, items=None):
    """Which α predicts best, over the folds other than the outer one; and ρ in each of them.

    That ρ is of the α that is best in the others; NaN in the outer fold. `y(use)` is what is fitted
    on the pairs that are used, `target` what is scored.
    """
    inner_folds = sorted(set(folds.ravel().tolist()) - {outer})
    scores = np.full((len(alphas), max(inner_folds + [outer]) + 1), np.nan)
    for row, alpha in zip(scores, alphas, strict=True):
        for inner in inner_folds:
            use, test = training(folds, outer, inner), held_out(folds, inner, items)
            row[inner] = rho(x[test] @ ridge(x[use], y(use), alpha).coef_, target[test])

    def first_best(over):
        means = scores[:, over].mean(axis=1)
        return int(np.argmax(means >= max(means) - 1e-9))

    cross_fitted = np.full(scores.shape[1], np.nan)
    for inner in inner_folds:
        cross_fitted[inner] = scores[first_best([k for k in inner_folds if k != inner]), inner]
    return alphas[first_best(inner_folds)], cross_fitted


def hold_ridge(fits, layer, fold, x, target, folds, alphas, target_of="distance", items=None):
    """A layer's α, weights and scores of a fold are those of nested loops over scikit-learn.

    Returns ρ in each inner fold with the α that is best in the others.

    x : (n_pairs, n_columns) the terms; target_of : "distance" or "rank", what is fitted
    """

    def y(own):
        return scaled(target[own]) if target_of == "distance" else ranks[own]

    use, test = training(folds, fold), held_out(folds, fold, items)
    ranks = rankdata(target) / len(target)
    alpha, inner_rho = best_alpha(x, target, folds, fold, alphas, y, items)
    assert fits.alpha[layer, fold] == alpha
    weights = fits.weights[layer, fold]
    np.testing.assert_allclose(weights, ridge(x[use], y(use), alpha).coef_, atol=1e-6)
    scores = (rho(x[test] @ weights, target[test]), rho_a(x[test] @ weights, target[test]))
    np.testing.assert_allclose((fits.rho[layer, fold], fits.rho_a[layer, fold]), scores, atol=1e-9)
    return inner_rho


def rho_a(prediction, target):
    a, b = rankdata(np.round(prediction, 12)), rankdata(target)
    n = len(a)
    return float((a - a.mean()) @ (b - b.mean()) / ((n**3 - n) / 12))


def explained(x, ranks, folds, tests):
    """(n_layers, n_layers) v: covariances inside each fold of what is fitted outside it.

    Parameters
    ----------
    x : (n_pairs, n_columns) columns of a set of features
    ranks : (n_layers, n_pairs)
    folds : of the stimuli, see `held_out`
    tests : for each fold (n_pairs,) which pairs test it
    """
    found = np.zeros((len(ranks), len(ranks)))
    for fold, inside in enumerate(tests):
        outside = training(folds, fold)
        a, b = x[outside] - x[outside].mean(axis=0), x[inside] - x[inside].mean(axis=0)
        ridge_rows = np.diag(np.sqrt(STABLE * (a**2).sum(axis=0)))
        targets = np.pad(
            ranks[:, outside].T - ranks[:, outside].mean(axis=1), ((0, len(b.T)), (0, 0))
        )
        beta = np.linalg.lstsq(np.vstack((a, ridge_rows)), targets, rcond=None)[0]
        one_way = beta.T @ (b.T @ ranks[:, inside].T)
        found += (one_way + one_way.T) / 2
    return found


def contributions(x, features, ranks, folds, items=None, squares=None):
    """(n_features, n_layers, n_layers) contributions to the correlations of ranks, by brute force.

    In units of the spreads of the ranks inside the folds.

    Parameters
    ----------
    x : (n_pairs, n_columns)
    features : for each column the set of features that it belongs to
    ranks : (n_layers, n_pairs)
    squares : (n_layers,) squared spreads inside the folds, where they are not those of the ranks
    """
    folds = np.asarray(folds)
    tests = [held_out(folds, fold, items) for fold in range(folds.max() + 1)]

    def value(members):
        own = [column for column, of in enumerate(features) if {*of} <= {*members}]
        return explained(x[:, own], ranks, folds, tests)

    if squares is None:
        squares = sum(ranks[:, inside].var(axis=1) * inside.sum() for inside in tests)
    terms = shapley_values(value, 1 + max(max(of) for of in features))
    return terms / np.sqrt(np.outer(squares, squares))


def ceilings(x, target, folds):
    """(n_folds,) cross-fitted ceilings: means over equal pairs inside the other folds."""
    n_folds = folds.max() + 1
    fold_of, ranks = np.full(len(target), -1), np.zeros(len(target))
    for fold in range(n_folds):
        inside = held_out(folds, fold)
        fold_of[inside] = fold
        ranks[inside] = zscore(rankdata(target[inside]))
    rows = np.unique(np.round(x, 9), axis=0, return_inverse=True)[1].ravel()
    found = []
    for fold in range(n_folds):
        products = []
        for pair in np.flatnonzero(fold_of == fold):
            others = (rows == rows[pair]) & (fold_of >= 0) & (fold_of != fold)
            products.append(ranks[pair] * (ranks[others].mean() if others.any() else 0.0))
        found.append(np.sqrt(max(0.0, np.mean(products))))
    return np.array(found)


def shapley_values(value, n):
    """What each of n features adds to the value (a number, or an array) of a set, over every order.

    `value` takes a tuple of features.
    """
    of, orders = lru_cache(value), list(itertools.permutations(range(n)))
    terms = np.zeros((n, *np.shape(of(()))))
    for order in orders:
        for at, feature in enumerate(order):
            before, now = (tuple(sorted(order[: at + more])) for more in (0, 1))
            terms[feature] += of(now) - of(before)
    return terms / len(orders)


def permuting(columns):
    """What permutes these columns of terms together, for `drop`."""

    def permute(x, rng):
        x[:, columns] = rng.permutation(x[:, columns])
        return x

    return permute


def drop(x, weights, target, permute, n=400):
    """What a score loses where terms are permuted over pairs: the mean, and its standard error."""
    rng = np.random.default_rng(0)
    whole = rho(x @ weights, target)
    drops = [whole - rho(permute(x.copy(), rng) @ weights, target) for _ in range(n)]
    return float(np.mean(drops)), float(np.std(drops) / np.sqrt(n))


def beside_one(moments, features):
    """The Shapley value of features beside the others as one: of a game of two."""
    columns = moments.columns
    rest = [number for number in range(len(columns.features)) if number not in features]

    def explained(players):
        if not players:
            return 0.0
        names = [columns.features[number] for number in sorted(players)]
        return decompose(moments.select_features(names)).terms.sum(axis=0)

    every = explained([*features, *rest])
    return (explained(list(features)) + every - explained(rest)) / 2

"""The slow way: explicit pairs, loops and libraries, to hold the pair tables against."""

import itertools
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist
from scipy.stats import rankdata, spearmanr
from sklearn.linear_model import Ridge


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


def held_out(folds, fold):
    """The pairs that a fold tests; folds over both are (n, 2), of the sentence and of the item."""
    i, j = pairs(len(folds))
    test = (folds.reshape(len(folds), -1) == fold).all(axis=1)
    return test[i] & test[j]


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


def best_alpha(x, target, folds, outer, alphas, y):
    """Which α predicts best, over the folds other than the outer one.

    `y(use)` is what is fitted on the pairs that are used, `target` what is scored.
    """
    means = []
    for alpha in alphas:
        scores = []
        for inner in set(folds.ravel().tolist()) - {outer}:
            use, test = training(folds, outer, inner), held_out(folds, inner)
            scores.append(rho(x[test] @ ridge(x[use], y(use), alpha).coef_, target[test]))
        means.append(np.mean(scores))
    return alphas[int(np.argmax(np.array(means) >= max(means) - 1e-9))]


def hold_ridge(fits, layer, fold, x, target, folds, alphas, target_of):
    """A layer's α, weights and scores of a fold are those of nested loops over scikit-learn.

    x : (n_pairs, n_columns) the terms; target_of : "distance" or "rank", what is fitted
    """

    def y(own):
        return scaled(target[own]) if target_of == "distance" else ranks[own]

    use, test = training(folds, fold), held_out(folds, fold)
    ranks = np.full(len(target), np.nan)
    ranks[use] = rankdata(target[use]) / use.sum()
    alpha = best_alpha(x, target, folds, fold, alphas, y)
    assert fits.alpha[layer, fold] == alpha
    weights = fits.weights[layer, fold]
    np.testing.assert_allclose(weights, ridge(x[use], y(use), alpha).coef_, atol=1e-6)
    scores = (rho(x[test] @ weights, target[test]), rho_a(x[test] @ weights, target[test]))
    np.testing.assert_allclose((fits.rho[layer, fold], fits.rho_a[layer, fold]), scores, atol=1e-9)


def rho_a(prediction, target):
    a, b = rankdata(np.round(prediction, 12)), rankdata(target)
    n = len(a)
    return float((a - a.mean()) @ (b - b.mean()) / ((n**3 - n) / 12))


def cell_sums(target, pairs, cell, n_cells, part=None):
    """Ranks of a target among some pairs, less their mean: added up by cell, and their squares.

    With `part` they are ranks within each part, as many times as there are pairs in all of them.
    """
    part = np.zeros(len(target), dtype=int) if part is None else part
    ranks = np.zeros(len(target))
    for own in (pairs & (part == k) for k in np.unique(part[pairs])):
        ranks[own] = (rankdata(target[own]) - (own.sum() + 1) / 2) * (pairs.sum() / own.sum())
    return np.bincount(cell[pairs], ranks[pairs], n_cells), float(ranks @ ranks)


def hold_sums(tables, layer, target, cell, folds, ends=None, rtol=1e-9, part=None):
    """All that the tables hold of a layer is what its pairs give, ranked by SciPy.

    Parameters
    ----------
    tables : the pair tables, with ranks among training pairs
    target, cell : (n_pairs,) the squared distance and the cell of each pair
    folds : (n,), or (n, 2) of the sentence and of the item
    ends : the stimuli of the pairs; all pairs where it is not given
    part : (n_pairs,) the part in which each is ranked; all in one where it is not given
    """
    i, j = pairs(len(folds)) if ends is None else ends
    of, n = folds.reshape(len(folds), -1), len(tables.counts)

    def same(found, squares, among, own=slice(None)):
        expected, own_squares = cell_sums(target, among, cell, n, part)
        np.testing.assert_allclose(found[own], expected[own], atol=1e-6)
        np.testing.assert_allclose(squares, own_squares)

    np.testing.assert_array_equal(tables.counts, np.bincount(cell, minlength=n))
    np.testing.assert_allclose(tables.target_sums[layer], np.bincount(cell, target, n), rtol=rtol)
    same(tables.rank_sums[layer], tables.rank_squares[layer], np.ones(len(target), dtype=bool))
    for fold in range(tables.n_folds):
        inside = (of[i] == fold).all(axis=1) & (of[j] == fold).all(axis=1)
        own = tables.held_out(fold)
        assert tables.counts[own].sum() == inside.sum()
        same(tables.within_sums[layer], tables.within_squares[layer, fold], inside, own)
        train = tables.training_ranks[layer, fold], tables.train_squares[layer, fold]
        same(*train, (of[i] != fold).all(axis=1) & (of[j] != fold).all(axis=1))
    for block in np.unique(tables.cell_block):
        own = target[tables.cell_block[cell] == block]
        ends_of = tables.target_low[layer, block], tables.target_high[layer, block]
        np.testing.assert_allclose(ends_of, (own.min(), own.max()), rtol=max(rtol, 1e-7), atol=1e-9)


def coarser_means(x, values, order, inside, outside):
    """For each pair inside, the mean over those outside that the features do not tell from it.

    Where there is none, features are dropped until there is, the last in the order first.
    """
    found, others, kept = [], x[outside], list(order)
    for pair in inside:
        for size in range(len(kept), -1, -1):
            same = np.isclose(others[:, kept[:size]], x[pair, kept[:size]]).all(axis=1)
            if same.any():
                found.append(values[outside][same].mean())
                break
    return np.array(found)


def explained_in(x, ranks, others, folds, fold, order):
    """The covariance of one layer's means outside a fold with ranks of another inside it."""
    inside = np.flatnonzero(held_out(folds, fold))
    outside = np.flatnonzero(training(folds, fold))
    means = coarser_means(x, ranks, order, inside, outside) - ranks[outside].mean()
    return float(np.mean(means * (others[inside] - others[inside].mean())))


def cross_fitted(x, a, b, folds, chosen, priorities):
    """v(S): means of one layer's ranks outside a fold, with ranks of the other inside it.

    Parameters
    ----------
    x : (n_pairs, n_features) feature distances
    a, b : (n_pairs,) ranks
    chosen : the features in S
    priorities : for each layer all features, the one that is dropped last first
    """
    one_way = [
        explained_in(x, ranks, others, folds, fold, [f for f in priority if f in chosen])
        for ranks, others, priority in ((a, b, priorities[0]), (b, a, priorities[1]))
        for fold in sorted(set(folds[folds >= 0].tolist()))
    ]
    return float(np.mean(one_way) / (a.std() * b.std()))


def priority(x, ranks, folds):
    """The features by what each alone explains of a layer, the most first."""
    n = x.shape[1]
    alone = [cross_fitted(x, ranks, ranks, folds, [f], [range(n)] * 2) for f in range(n)]
    return sorted(range(n), key=lambda f: -round(alone[f], 9))


def ceiling(x, target, folds, fold):
    """What a function of the features, learnt outside a fold, reaches inside it."""
    ranks, own = rankdata(target), np.zeros(len(target))
    inside = held_out(folds, fold)
    own[inside] = rankdata(target[inside])
    share = explained_in(x, ranks, own, folds, fold, priority(x, ranks, folds))
    return float(np.sqrt(max(0.0, share / (ranks.std() * own[inside].std()))))


def shapley_values(value, n):
    """What each of n features adds to the value of a set, over every order of them."""
    terms, of = np.zeros(n), lru_cache(value)
    orders = list(itertools.permutations(range(n)))
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

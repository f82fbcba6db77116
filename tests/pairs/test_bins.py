"""Numeric features in bins: each by itself, as few as fit, beside features coded by value."""

import itertools
import re

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, sums_of

from mlem_core.estimators.normal_equations import held_out_correlations, moments, training_blocks
from mlem_core.pairs.patterns import bytes_of_cell

N, MOST = 130, 6_500


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    kinds = rng.choice(np.array([*"abcd", None], dtype=object), N)
    features = pd.DataFrame({"kind": kinds, "number": rng.integers(0, 3, N).astype(float)})
    features["gender"] = rng.choice(np.array(["f", "m", None], dtype=object), N)
    features["position"] = rng.integers(0, 30, N).astype(float)
    features["length"] = rng.exponential(size=N).round(2)
    folds = explicit.random_folds(N)
    index = index_of(features, folds, resolved=["kind", "gender"], most_cells=MOST)
    return features, folds, index, explicit.random_layer(features.assign(length=3.0))


def bins_said(index):
    """The number of bins and the correlation that are said of each feature."""
    found = [re.search(r"'(.+)' .* into (\d+) bins.* at (0\.\d+)", note) for note in index.notes]
    return {one[1]: (int(one[2]), float(one[3])) for one in found if one}


def test_each_feature_has_bins_of_its_own_and_as_many_as_fit(case):
    features, folds, index, _ = case
    said = bins_said(index)
    assert index.n_cells <= MOST and set(said) == {"position", "length"}
    exact = explicit.feature_distances(features)
    found = index.patterns[index.pair_pattern]
    np.testing.assert_allclose(found[:, :3], exact[:, :3])
    for f, (occupied, correlation) in zip((3, 4), (said["position"], said["length"]), strict=True):
        # The largest distance is in the middle of the last bin.
        n_bins = round(0.5 / (1 - found[:, f].max()))
        middle = (np.ceil(np.round(exact[:, f] * n_bins, 9)) - 0.5) / n_bins
        np.testing.assert_allclose(found[:, f], np.where(exact[:, f] > 0, middle, 0.0))
        assert len(np.unique(found[:, f])) - 1 == occupied <= n_bins
        between = np.corrcoef(exact[:, f] ** 2, found[:, f] ** 2)[0, 1]
        assert correlation == pytest.approx(between, abs=1e-4) and between < 1
    more = {"resolved": ["kind", "gender"]}
    np.testing.assert_array_equal(
        index_of(features, folds, most_cells=index.n_cells, **more).codes, index.codes
    )
    fewer = index_of(features, folds, most_cells=index.n_cells - 1, **more)
    assert fewer.n_cells < index.n_cells
    again = index_of(features, folds, like=index, **more)
    np.testing.assert_array_equal(again.cell, index.cell)
    whole = index_of(features, folds, **more)
    assert not whole.notes and whole.n_cells > MOST


def test_normal_equations_are_those_of_the_explicit_pairs_in_bins(case):
    features, folds, index, layer = case
    tables = sums_of(index, [layer])
    distances, (i, j) = index.patterns[index.pair_pattern], explicit.pairs(N)
    columns = []
    for f, name in enumerate(features):
        texts = ["(missing)" if pd.isna(value) else value for value in features[name]]
        if name not in ("kind", "gender"):
            columns.append(distances[:, f] ** 2)
            continue
        values = [*sorted(set(texts) - {"(missing)"}), "(missing)"]
        sides = [(texts[a], texts[b]) for a, b in zip(i, j, strict=True)]
        apart = itertools.combinations(values, 2)
        columns += [[float({*one} == {*two}) for one in sides] for two in apart]
        columns += [[float(one.count(value)) for one in sides] for value in values]
    x, use = np.array(columns, dtype=float).T, explicit.training(folds, 1)
    found = moments(tables, training_blocks(tables, [(1,)]))
    centred, y = x[use] - x[use].mean(axis=0), explicit.scaled(explicit.squared(layer)[use])
    np.testing.assert_allclose(found.gram[0], centred.T @ centred, atol=1e-8)
    np.testing.assert_allclose(found.moment[0, 0], centred.T @ (y - y.mean()), atol=1e-8)
    np.testing.assert_allclose(found.x_mean[0], x[use].mean(axis=0), atol=1e-12)
    # Predictions that are all alike are at no correlation, whatever rounding makes of them.
    own = [name.startswith("kind") and "/" not in name for name in tables.columns.names]
    alike = np.where(own, 0.1, 0.0)
    assert held_out_correlations(tables, alike[None, None], 2)[0, 0] == 0.0


def test_the_tables_take_no_more_bytes_than_they_may(case, monkeypatch):
    features, folds, _, layer = case
    monkeypatch.setattr("mlem_core.pairs.patterns.TABLE_BYTES", 2**19)
    monkeypatch.setattr("mlem_core.pairs.patterns.TABLE_LAYERS", 2)
    index = index_of(features, folds, resolved=["kind"])
    tables = sums_of(index, [layer, layer[:, ::-1]], train_ranks=True)
    names = ("target_sums", "rank_sums", "within_sums", "training_ranks")
    n_bytes = sum(getattr(tables, name).nbytes for name in names)
    assert n_bytes == 2 * index.n_cells * bytes_of_cell(5) <= 2**19 and index.notes

"""The index of pairs: each has the distances of its stimuli; many patterns are put into bins."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, refused

from mlem_core.pairs.designs import PairDesign, places_of
from mlem_core.pairs.patterns import block_numbers

N = 200
BUDGET = 8_000


@pytest.mark.parametrize("missing", ["ignore", "level"])
@pytest.mark.parametrize("budget", [None, BUDGET])
def test_the_index_of_a_design_is_that_of_its_pairs(budget, missing):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    design = PairDesign.of(folds, budget)
    index = index_of(features, folds, missing=missing, design=design)
    i, j = design.ends(np.arange(design.n_pairs))
    expected = explicit.feature_distances(features, missing)[places_of(i, j, N)]
    np.testing.assert_allclose(index.patterns[index.pair_pattern], expected, atol=1e-12)
    blocks = block_numbers(folds)[1][folds[i], folds[j]]
    np.testing.assert_array_equal(index.cell_block[index.cell], blocks)
    np.testing.assert_array_equal(index.counts, np.bincount(index.cell))
    assert index.counts.min() > 0
    # Where it is not kept, as in what has travelled, the cell of a pair is looked up.
    np.testing.assert_array_equal(vars(index).pop("cell"), index.cell)


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_the_index_is_the_same_by_any_number_of_threads(budget, monkeypatch):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    design = PairDesign.of(folds, budget)
    monkeypatch.setattr("mlem_core.pairs.designs.cores", lambda: 3)
    one = index_of(features, folds, design=design)
    assert len(design.shares()) == 1
    monkeypatch.setattr("mlem_core.pairs.designs.SHARE", 100)
    many = index_of(features, folds, design=design)
    assert len(design.shares()) == 3
    for name in ("codes", "cell", "counts", "cell_block", "cell_pattern"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name))
    # More patterns than are allowed: in the threads' own counts, and only in all together.
    for limit in (one.n_patterns // 4, one.n_patterns - 1):
        binned = index_of(features, folds, most_cells=limit, design=design)
        assert binned.n_patterns <= limit and binned.notes


def test_many_patterns_are_binned_and_said():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(
        {"a": rng.random(300), "b": rng.random(300), "c": rng.choice(["x", "y"], 300)}
    )
    exact, binned = index_of(features), index_of(features, most_cells=2500)
    assert not exact.notes and exact.n_patterns > 40_000
    assert binned.n_patterns <= 2500
    assert len(binned.notes) == 2 and "'a'" in binned.notes[0]
    true, coarse = (
        np.stack([level[i.codes[:, f]] for f, level in enumerate(i.levels)], 1)[i.pair_pattern]
        for i in (exact, binned)
    )
    said = float(binned.notes[0].split("at most ")[1].split(" of")[0])
    assert 0 < np.abs(true - coarse)[:, 0].max() <= said * 1.01
    np.testing.assert_array_equal(true[:, 2], coarse[:, 2])


@pytest.mark.parametrize("n_features", [30, 70])
def test_many_nominal_features(n_features):
    rng = np.random.default_rng(0)
    features = pd.DataFrame({f"f{k}": rng.choice(["a", "b"], 40) for k in range(n_features)})
    index = index_of(features)
    patterns = np.stack([level[index.codes[:, f]] for f, level in enumerate(index.levels)], 1)
    np.testing.assert_array_equal(
        patterns[index.pair_pattern], explicit.feature_distances(features)
    )


def test_more_patterns_than_can_be_kept_and_an_unknown_policy(monkeypatch):
    with refused("drop", "ignore", "level"):
        index_of(explicit.random_features(10), missing="drop")
    monkeypatch.setattr("mlem_core.pairs.patterns.HARD_LIMIT", 100)
    features = pd.DataFrame(np.random.default_rng(0).choice(["a", "b"], (60, 12)))
    with refused("100"):
        index_of(features, most_cells=50)

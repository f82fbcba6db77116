from __future__ import annotations

import numpy as np
from sklearn.datasets import make_spd_matrix

from mlem_core.pairs.terms import Columns


def test_terms_weighed_by_w_are_the_quadratic_form():
    patterns = np.random.default_rng(0).random((20, 4))
    w = make_spd_matrix(4, random_state=0)
    columns = Columns(("a", "b", "c", "d"), interactions=True)
    assert columns.names[:5] == ("a", "b", "c", "d", "a × b") and len(columns) == 10
    expected = [delta @ w @ delta for delta in patterns]
    np.testing.assert_allclose(columns.values(patterns) @ columns.weights(w), expected)
    np.testing.assert_allclose(columns.matrix(columns.weights(w)), w)
    scaled = columns.unit(np.stack([columns.weights(w), np.zeros(10)]))
    np.testing.assert_allclose(columns.matrix(scaled[0]), w / np.linalg.norm(w))
    assert not scaled[1].any()


def test_without_interactions_w_is_diagonal():
    patterns = np.random.default_rng(0).random((20, 3))
    columns = Columns(("a", "b", "c"))
    assert columns.names == ("a", "b", "c")
    np.testing.assert_allclose(columns.values(patterns), patterns**2)
    np.testing.assert_allclose(columns.matrix(np.array([1.0, 2.0, 3.0])), np.diag([1.0, 2.0, 3.0]))

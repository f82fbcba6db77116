from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from mlem_core.base.nnls import nonnegative_quadratic


def test_equals_nnls_on_random_problems():
    rng = np.random.default_rng(0)
    rows, target = rng.standard_normal((200, 30, 8)), rng.standard_normal((200, 30))
    gram = np.einsum("irj,irk->ijk", rows, rows)
    moment = np.einsum("irj,ir->ij", rows, target)
    found = nonnegative_quadratic(gram, moment)
    expected = np.array([nnls(a, b)[0] for a, b in zip(rows, target, strict=True)])
    assert (expected == 0).any(axis=1).all()
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_copies_and_empty_columns_reach_the_minimum():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, 5))
    rows[:, 3] = rows[:, 1]
    rows[:, 4] = 0
    target = rows[:, 1] * 2 + rows[:, 0]
    found = nonnegative_quadratic(rows.T @ rows, rows.T @ target)
    assert found[4] == 0 and (found >= 0).all()
    np.testing.assert_allclose(rows @ found, target, atol=1e-6)


def test_scale_does_not_matter():
    rng = np.random.default_rng(2)
    rows, target = rng.random((30, 4)), rng.random(30)
    scale = np.array([1e-6, 1.0, 1e6, 1e3])
    found = nonnegative_quadratic((rows * scale).T @ (rows * scale), (rows * scale).T @ target)
    np.testing.assert_allclose(found * scale, nnls(rows, target)[0], atol=1e-9)

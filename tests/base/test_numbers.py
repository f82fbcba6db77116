"""Bounded least squares and Student's t against SciPy."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t

from mlem_core.base.nnls import nonnegative_quadratic
from mlem_core.base.student import quantile


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


def test_the_quantile_is_that_of_the_distribution() -> None:
    degrees = np.array([1.0, 1.7, 2.0, 9.0, 49.0, 1e6])
    np.testing.assert_allclose(quantile(degrees), t.ppf(0.975, degrees), rtol=1e-9)
    assert isinstance(quantile(14), float)
    # 95 % of what is drawn lies within the reach.
    drawn = np.random.default_rng(0).standard_t(4, 200_000)
    assert abs(np.mean(np.abs(drawn) <= quantile(4)) - 0.95) < 0.002

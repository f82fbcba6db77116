"""The quantile of Student's t against SciPy's distribution."""

from __future__ import annotations

import numpy as np
from scipy.stats import t

from mlem_core.base.student import quantile


def test_the_quantile_is_that_of_the_distribution() -> None:
    degrees = np.array([1.0, 1.7, 2.0, 9.0, 49.0, 1e6])
    np.testing.assert_allclose(quantile(degrees), t.ppf(0.975, degrees), rtol=1e-9)
    assert isinstance(quantile(14), float)
    # 95 % of what is drawn lies within the reach.
    drawn = np.random.default_rng(0).standard_t(4, 200_000)
    assert abs(np.mean(np.abs(drawn) <= quantile(4)) - 0.95) < 0.002

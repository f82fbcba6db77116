"""Numbers against SciPy, registries, and work of several threads."""

import threading

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.stats import t
from threadpoolctl import threadpool_info, threadpool_limits

from mlem_core.base.numbers import nonnegative_quadratic, student_quantile
from mlem_core.base.parallel import each, in_order
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.pairs.distances import DISTANCES
from mlem_core.pairs.similarities import SIMILARITIES


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


def test_the_quantile_is_that_of_the_distribution():
    degrees = np.array([1.0, 1.7, 2.0, 9.0, 49.0, 1e6])
    np.testing.assert_allclose(student_quantile(degrees), t.ppf(0.975, degrees), rtol=1e-9)
    assert isinstance(student_quantile(14), float)


@pytest.mark.parametrize("registry", [ESTIMATORS, DISTANCES, SIMILARITIES])
def test_an_entry_is_never_replaced_by_another(registry):
    for name, entry in list(registry.items()):
        assert registry.named(name) is entry
        with pytest.raises(ValueError, match=f"{registry.kind} '{name}' already"):
            registry.register(entry)
        assert registry[name] is entry


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads):
    later = threading.Event()

    def call(item):
        # With several threads the first item is done after the second.
        if item == 0 and threads > 1:
            assert later.wait(60)
        if item == 1:
            later.set()
        return 2 * item

    assert list(in_order(call, range(40), threads)) == list(range(0, 80, 2))


def threads():
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_shared_out_work_has_one_thread_each_and_an_error_leaves_it_as_it_was():
    with threadpool_limits(3):
        assert each(lambda _: threads(), range(4), 2) == [{1}] * 4
        assert list(in_order(lambda _: threads(), range(4), 2)) == [{1}] * 4
        # A single thread may have them all.
        assert each(lambda _: threads(), range(2), 1) == [{3}] * 2
        assert threads() == {3}
        with pytest.raises(ZeroDivisionError):
            each(lambda n: 1 / n, [0, 1], 2)
        assert threads() == {3}

"""Work of several threads: in the order given, and one thread each for matrix products."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mlem_core.base.parallel import each, in_order


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads):
    later = threading.Event()

    def call(item: int) -> int:
        # With several threads the first item is done after the second.
        if item == 0 and threads > 1:
            assert later.wait(60)
        if item == 1:
            later.set()
        return 2 * item

    assert list(in_order(call, range(40), threads)) == list(range(0, 80, 2))


def test_few_results_wait():
    begun = []
    results = in_order(lambda item: begun.append(item), range(100), 2)
    next(results)
    assert len(begun) <= 6
    results.close()
    assert len(begun) <= 6


def threads() -> set[int]:
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def three():
    with threadpool_limits(3):
        yield


def test_shared_out_work_has_one_thread_each(three):
    assert each(lambda _: threads(), range(4), 2) == [{1}] * 4
    assert list(in_order(lambda _: threads(), range(4), 2)) == [{1}] * 4
    # A single thread may have them all.
    assert each(lambda _: threads(), range(2), 1) == [{3}] * 2
    assert threads() == {3}


def test_an_error_leaves_it_as_it_was(three):
    with pytest.raises(ZeroDivisionError):
        each(lambda n: 1 / n, [0, 1], 2)
    assert threads() == {3}

"""Work that is shared out has matrix products use one thread, and gives the others back."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mlem_core.base.parallel import each, in_order


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

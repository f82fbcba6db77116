"""Work of several threads, taken in the order in which it was given."""

from __future__ import annotations

import threading

import pytest

from mlem_core.base.parallel import in_order


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

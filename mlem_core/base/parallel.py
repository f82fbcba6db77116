"""Work shared out among the cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def side_by_side(call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """`call` of each item, shared out among the cores (NumPy works outside Python's lock)."""
    return each(call, items, cores())


def each(call: Callable[[Any], T], items: Iterable[Any], threads: int) -> list[T]:
    """`call` of each item, by so many threads; by none if it is one."""
    if threads == 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, items))

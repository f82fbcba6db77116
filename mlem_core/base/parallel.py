"""Work shared out among the cores."""

from __future__ import annotations

import functools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
LARGE = 2**20
# Called before each piece of work that is shared out; it may raise to give up.
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def cancelled_by(check: Callable[[], None]) -> Iterator[None]:
    """Have `check` called again and again while work is shared out; what it raises stops it."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_cancelled() -> None:
    """Stop here if work is `cancelled_by` something that says so."""
    check = _check.get()
    if check is not None:
        check()


def _checked(call: Callable[[Any], T]) -> Callable[[Any], T]:
    """`call`, in any thread, where it is stopped as it would be in this one."""
    check = _check.get()
    if check is None:
        return call

    def after_a_check(item: Any) -> T:
        check()
        return call(item)

    return after_a_check


@functools.lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """BLAS and OpenMP; looking for them takes a millisecond, so it is done after an import only."""
    return ThreadpoolController()


def one_thread_each() -> AbstractContextManager[Any]:
    """Have matrix products use the thread that asks for them.

    Where work is shared out among the cores, threads of their own would only be in the way (with
    them the scores of 38 layers take 1.7 times as long).
    """
    limited: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=1)
    return limited


def cores() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_all_cores(call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """`call` of each item, shared out among the cores (NumPy works outside Python's lock)."""
    return each(call, items, cores())


def if_large(size: int) -> int:
    """Number of threads for work on so many numbers; short calls would only wait."""
    return cores() if size > LARGE else 1


def each(call: Callable[[Any], T], items: Iterable[Any], threads: int) -> list[T]:
    """`call` of each item, by so many threads; by none if it is one."""
    call = _checked(call)
    if threads == 1:
        return [call(item) for item in items]
    with one_thread_each(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, items))


def in_order(call: Callable[[Any], T], items: Iterable[Any], threads: int) -> Iterator[T]:
    """`call` of each item, by so many threads, in the order of the items; few wait at a time."""
    call = _checked(call)
    if threads == 1:
        yield from map(call, items)
        return
    waiting: deque[Future[T]] = deque()
    with one_thread_each(), ThreadPoolExecutor(threads) as pool:
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

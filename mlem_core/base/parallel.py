"""Work that is shared out among the cores, and stopped."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
# Called before each piece of work that is shared out; it may raise to give up.
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def cancellable(check: Callable[[], None]) -> Iterator[None]:
    """Have `check` called again and again while work is shared out; what it raises stops it."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_cancelled() -> None:
    """Stop here if work is `cancellable` something that says so."""
    check = _check.get()
    if check is not None:
        check()


def _checked(call: Callable[[Any], T]) -> Callable[[Any], T]:
    """`call`, in any thread, where it is stopped as it would be in this one."""
    check = _check.get()
    if check is None:
        return call

    def check_then_call(item: Any) -> T:
        check()
        return call(item)

    return check_then_call


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


def map_on_all_cores(call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """`call` of each item, shared out among the cores (NumPy works outside Python's lock)."""
    return each(call, items, cores())


def each(call: Callable[[Any], T], items: Iterable[Any], threads: int) -> list[T]:
    """`call` of each item, by so many threads; by none if it is one."""
    return list(map_in_order(call, items, threads))


def map_in_order(call: Callable[[Any], T], items: Iterable[Any], threads: int) -> Iterator[T]:
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


_stopped: list[int] = []


def heed_signals() -> None:
    """Have Ctrl-C and SIGTERM end the work with KeyboardInterrupt, which cleans up on its way.

    Python drops an exception that is raised while a finaliser or a callback of C code runs, and
    would print it; then the work stops at its next report (`heed_stop`). A signal that is ignored,
    as Ctrl-C by what a shell started in the background, stays so.
    """

    def stop(number: int, _: Any) -> None:
        _stopped.append(number)
        raise KeyboardInterrupt

    report = sys.unraisablehook
    sys.unraisablehook = lambda raised: (
        None if raised.exc_type is KeyboardInterrupt else report(raised)
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def heed_stop() -> None:
    """Raise KeyboardInterrupt if a signal came (`heed_signals`) and nothing has come of it."""
    if _stopped:
        raise KeyboardInterrupt


def signal_status() -> int:
    """The exit status of what a signal has ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_stopped[0] if _stopped else signal.SIGINT)

"""Work that is shared out among the cores, stopped, and shown by progress bars as it goes on."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Self, TypeVar

from threadpoolctl import ThreadpoolController

from mlem_core.base.text import visible
from mlem_core.base.typing import Counted, Progress, Report, counting

T = TypeVar("T")
LARGE = 2**20
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


def if_large(size: int) -> int:
    """Number of threads for work on so many numbers; short calls would only wait."""
    return cores() if size > LARGE else 1


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


# Where no bar can be drawn, a line says every so many seconds how far the work is.
A_LINE = 60.0
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


class Bars:
    """A progress bar a stage: on stderr if it is a terminal, or below the cell of a notebook.

    Elsewhere, as in a log, a line a minute.
    """

    _bar: Any = None
    _title = ""
    _began = _said = 0.0

    def __enter__(self) -> Self:
        self._began = self._said = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, progress: Progress) -> None:
        """Show how far a stage is; another stage than before begins a bar of its own.

        Raises KeyboardInterrupt: as `heed_stop`.
        """
        heed_stop()
        title = visible(f"{progress.stage} {progress.model or ''}".strip())
        if title != self._title:
            self.__exit__()
            self._bar = _new_bar(title, progress)
            self._title = title
        self._bar.update(progress.done - self._bar.n)
        now = time.monotonic()
        if self._bar.disable and now - self._said >= A_LINE:
            self._said, minutes = now, round((now - self._began) / 60)
            how_far = f"{progress.done:,} of {progress.total:,} {progress.unit}"
            print(f"After {minutes} min: {title}, {how_far}.", file=sys.stderr, flush=True)

    def counter(self, stage: str, unit: str) -> Counted:
        """Shows a stage that says only how many of how many units are done."""
        return counting(self.show, stage, unit)


def _new_bar(title: str, progress: Progress) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets has bars of text
        from tqdm.auto import tqdm

    # None: no bar where stderr is no terminal. A notebook's stderr is none, and shows bars.
    disable = False if _is_notebook() else None
    unit = f" {progress.unit}"
    return tqdm(total=progress.total, desc=title, unit=unit, disable=disable)


def _is_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


@contextmanager
def reporting(progress: Report | bool | None) -> Iterator[Report]:
    """Function to call as work goes on: the given one, nothing (False), or else bars."""
    if callable(progress):
        yield progress
    elif progress is False:
        yield lambda _: None
    else:
        with Bars() as bars:
            yield bars.show

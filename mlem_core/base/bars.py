"""Progress bars: a stage of a run each, on a terminal or in a notebook."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from mlem_core.base.text import visible
from mlem_core.base.typing import Counted, Progress, Report, counting

# Where no bar can be drawn, a line says every so many seconds how far the work is.
A_LINE = 60.0
_stopped: list[int] = []


def heed_signals() -> None:
    """Have Ctrl-C and SIGTERM end the work with KeyboardInterrupt, which cleans up on its way.

    Python drops an exception that is raised while a finaliser or a callback of C code runs; then
    the work stops at its next report (`heed_stop`). A signal that is ignored, as Ctrl-C by what a
    shell started in the background, stays so.
    """

    def stop(number: int, _: Any) -> None:
        _stopped.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def heed_stop() -> None:
    """Raise KeyboardInterrupt if a signal came (`heed_signals`) and nothing has come of it."""
    if _stopped:
        raise KeyboardInterrupt


def stopped_with() -> int:
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
    disable = False if _in_notebook() else None
    unit = f" {progress.unit}"
    return tqdm(total=progress.total, desc=title, unit=unit, disable=disable)


def _in_notebook() -> bool:
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

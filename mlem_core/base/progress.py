"""Progress of work in stages: its share done, the time left, and bars or lines that show them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from mlem_core.base.parallel import heed_stop
from mlem_core.base.text import duration, percent, visible
from mlem_core.base.typing import Progress, Report

LINE_SECONDS = 10.0  # between two lines, where no bar can be drawn


class PlannedStage(NamedTuple):
    """A stage of some work, and the seconds that it is expected to take.

    A stage of several models, which report one after another, is one of each.
    """

    stage: str
    model: str | None
    seconds: float


@dataclass(frozen=True)
class TimedStage(Progress):
    """The latest report of a stage and a model, and its times in seconds since 1970.

    Attributes
    ----------
    began, began_at : when it was first heard of, and how many units were done then
    seen : when it was last heard of
    """

    began: float
    began_at: int
    seen: float

    @property
    def share(self) -> float:
        """Share of its units that are done."""
        return min(1.0, self.done / max(self.total, 1))

    def seconds_left(self, now: float) -> float | None:
        """Time until its end at its rate so far; None where nothing tells."""
        done, took = self.done - self.began_at, self.seen - self.began
        if done <= 0 or took <= 0:
            return None
        return max(0.0, (self.total - self.done) * took / done - (now - self.seen))


@dataclass
class StageTimes:
    """Stages of some work, as they have been reported, beside those that are planned.

    Attributes
    ----------
    plan : the stages in their order; without one only the last stage is known
    stages : in the order in which they began
    started : when the work began, before its first stage
    """

    plan: Sequence[PlannedStage] = ()
    stages: list[TimedStage] = field(default_factory=list)
    started: float = 0.0

    def record(self, progress: Progress, now: float) -> bool:
        """Take down a report; whether its stage begins or ends with it."""
        names = [(stage.stage, stage.model) for stage in self.stages]
        name = progress.stage, progress.model
        place = names.index(name) if name in names else None
        # One that goes back is done once more, as a part of something else.
        if place is not None and progress.done >= self.stages[place].done:
            self.stages[place] = replace(
                self.stages[place], done=progress.done, total=progress.total, seen=now
            )
            return progress.done >= progress.total
        begun = TimedStage(**vars(progress), began=now, began_at=progress.done, seen=now)
        if place is None:
            self.stages.append(begun)
        else:
            self.stages[place] = begun
        return True

    def _planned(self) -> tuple[float, float, TimedStage | None, float]:
        """Planned seconds before and of the furthest reported stage, it, and the seconds after."""
        reported = {(stage.stage, stage.model): stage for stage in self.stages}
        stages = [reported.get((planned.stage, planned.model)) for planned in self.plan]
        seconds = [planned.seconds for planned in self.plan]
        for at in reversed(range(len(stages))):
            if stages[at] is not None:
                return sum(seconds[:at]), seconds[at], stages[at], sum(seconds[at + 1 :])
        return 0.0, 0.0, None, sum(seconds)

    @property
    def share(self) -> float:
        """Share of the whole that is done: of the planned seconds, or of the last stage."""
        if not self.plan:
            return self.stages[-1].share if self.stages else 0.0
        before, of, stage, after = self._planned()
        return (before + of * stage.share) / (before + of + after) if stage else 0.0

    def seconds_left(self, now: float) -> float | None:
        """Time until the end of the whole, or of the last stage; None where nothing tells."""
        if not self.plan:
            return self.stages[-1].seconds_left(now) if self.stages else None
        _, of, stage, after = self._planned()
        if stage is None:
            return after
        left, planned = stage.seconds_left(now), of * (1 - stage.share)
        # The first units may take far longer than others: by and by the rate counts for more.
        known = 0.0 if left is None else min(1.0, 5 * stage.share)
        return after + known * (left or 0.0) + (1 - known) * planned


class Bars:
    """A progress bar a stage: on stderr if it is a terminal, or below the cell of a notebook.

    Elsewhere, as in a log, a line with the stage, the share done and the time left, every ten
    seconds, whether or not the work reports anything meanwhile.
    """

    _bar: Any = None
    _title = ""

    def __init__(self) -> None:
        self._times = StageTimes()
        self._ended = threading.Event()
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if not _has_bars():
            threading.Thread(target=self._say_lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.clear()

    def clear(self) -> None:
        """End the bar, so that something else can be printed; the next report begins another."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._title = None, ""

    def show(self, progress: Progress) -> None:
        """Show how far a stage is; another stage than before begins a bar of its own.

        Raises KeyboardInterrupt: as `heed_stop`.
        """
        heed_stop()
        self._times.record(progress, time.monotonic())
        if not _has_bars():
            return
        title = visible(f"{progress.stage} {progress.model or ''}".strip())
        if title != self._title:
            self.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a notebook without ipywidgets has bars of text
                from tqdm.auto import tqdm
            self._bar = tqdm(total=progress.total, desc=title, unit=f" {progress.unit}")
            self._title = title
        self._bar.update(progress.done - self._bar.n)

    def _say_lines(self) -> None:
        while not self._ended.wait(LINE_SECONDS):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                print(self.line(time.monotonic()), file=sys.stderr, flush=True)

    def line(self, now: float) -> str:
        """Line of a log: the time since the beginning, the stage, its share and the time left."""
        after = f"After {duration(now - self._began)}"
        if not self._times.stages:
            return f"{after}: getting ready."
        # The stage that was heard of last: one may be reported again.
        stage = max(self._times.stages, key=lambda stage: stage.seen)
        left = stage.seconds_left(now)
        rest = "" if left is None else f", about {duration(left)} left"
        name = visible(f"{stage.stage} {stage.model or ''}".strip())
        units = f"{stage.done:,} of {stage.total:,} {stage.unit}"
        return f"{after}: {name}, {percent(stage.share)} ({units}){rest}."


def _has_bars() -> bool:
    """Whether bars can be drawn: on a terminal, or in a notebook, whose stderr is none."""
    return _is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


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

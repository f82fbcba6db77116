"""The processor time of each test: the ten slowest are printed, and what is not marked is quick.

A plugin of pytest. The time is that of the test itself (not of its fixtures, which others share),
with its child processes, less what Numba took to compile kernels: which test is the first to use
one is chance.
"""

import resource
import time
from collections.abc import Iterator

import pytest
from numba.core import event

ALLOWED = 10.0  # seconds of processor time, of a test without a mark


def processor_time() -> float:
    """Seconds of this process and of those of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Compilation(event.Listener):
    """The processor time that Numba took to compile, of all threads together."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            self._began = time.thread_time()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.thread_time() - self._began


COMPILATION = Compilation()
event.register("numba:compile", COMPILATION)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    began, compiled = processor_time(), COMPILATION.seconds
    try:
        return (yield)
    finally:
        seconds = processor_time() - began - (COMPILATION.seconds - compiled)
        item.user_properties.append(("processor_time", seconds))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    marked = any(item.get_closest_marker(mark) for mark in ("slow", "faults"))
    seconds = dict(item.user_properties).get("processor_time", 0.0)
    if report.when == "call" and report.passed and not marked and seconds > ALLOWED:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {seconds:.1f} s of processor time, more than {ALLOWED:g} s: "
            "make it smaller, or mark it `slow`."
        )
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call"
    ]
    seconds = [(dict(r.user_properties).get("processor_time", 0.0), r.nodeid) for r in reports]
    terminalreporter.section("ten slowest tests, in seconds of processor time")
    for taken, nodeid in sorted(seconds, reverse=True)[:10]:
        terminalreporter.write_line(f"{taken:6.1f} {nodeid}")

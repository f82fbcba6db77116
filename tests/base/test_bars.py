"""Progress bars show what is done, and only where someone can see them."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mlem_core.base.bars import Bars, reporting
from mlem_core.base.typing import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps() -> list[Progress]:
    return [Progress("representations", "minilm", done, 3, "sentences") for done in (0, 1, 3)]


def test_a_bar_a_stage_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Bars() as bars:
        for step in [*steps(), Progress("pair tables", None, 2, 2, "layers")]:
            bars.show(step)
    shown = screen.getvalue()
    assert "representations minilm: 100%" in shown and "3/3" in shown
    assert "pair tables: 100%" in shown and "2/2" in shown


def test_no_bar_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(None) as report:
        for step in steps():
            report(step)
    assert capsys.readouterr() == ("", "")


def test_a_function_is_called_and_false_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    seen: list[Progress] = []
    for asked in (seen.append, False):
        with reporting(asked) as report:
            for step in steps():
                report(step)
    assert seen == steps() and screen.getvalue() == ""


def test_a_notebook_has_bars_though_its_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with reporting(None) as report:
        for step in steps():
            report(step)
    assert "3/3" in capsys.readouterr().err


def test_ctrl_c_whose_exception_is_lost_stops_at_the_next_report():
    program = """
import os, signal
from mlem_core.base.bars import Bars, heed_signals
from mlem_core.base.typing import Progress

class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10**6))

signal.signal(signal.SIGINT, signal.default_int_handler)  # not as a shell's background jobs have it
heed_signals()
Lost()
print("went on", flush=True)
with Bars() as bars:
    try:
        bars.show(Progress("stage", None, 1, 2, "units"))
    except KeyboardInterrupt:
        print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["went on", "stopped"]

"""Progress of work in stages: share of the whole, time left, lines where there is no bar."""

import re
import sys

import pytest
from helpers.commands import SCRIPTED, inputs_in, output_of

from mlem_core.base.progress import Bars, PlannedStage, StageTimes
from mlem_core.base.typing import Progress

PLAN = (
    PlannedStage("representations", "one", 10),
    PlannedStage("representations", "two", 30),
    PlannedStage("pairs", None, 20),
    PlannedStage("intervals", None, 40),
)


def reported(*reports):
    times = StageTimes(PLAN)
    for now, stage, model, done, total in reports:
        times.record(Progress(stage, model, done, total, "layers"), now)
    return times


def test_share_and_time_left_are_of_the_whole():
    assert StageTimes(PLAN).share == 0 and StageTimes(PLAN).seconds_left(0) == 100
    first = reported((0, "representations", "one", 0, 4), (4, "representations", "one", 1, 4))
    assert first.share == pytest.approx(0.025)
    # A quarter took 4 s, so that three take 12; two models and two stages follow.
    assert first.seconds_left(4) == pytest.approx(12 + 90)
    assert first.seconds_left(6) == pytest.approx(10 + 90)
    slow = reported((0, "pairs", None, 0, 100), (90, "pairs", None, 1, 100))
    assert slow.seconds_left(90) == pytest.approx(40 + 0.05 * 8910 + 0.95 * 19.8)
    # The second model was in the store and has reported nothing.
    later = reported((0, "representations", "one", 0, 4), (9, "pairs", None, 0, 8))
    assert later.share == pytest.approx(0.4) and later.seconds_left(9) == pytest.approx(60)


def test_share_never_goes_back_and_unplanned_stages_leave_it():
    reports = [
        (0, "representations", "one", 4, 4),
        (1, "pairs", None, 0, 8),
        (2, "pairs", None, 8, 8),
        (3, "halves", None, 0, 2),
        (4, "representations", "two", 0, 4),  # late, as of a cluster
        (5, "intervals", None, 1, 4),
        (6, "intervals", None, 4, 4),
    ]
    shares = [reported(*reports[:n]).share for n in range(1, len(reports) + 1)]
    assert shares == sorted(shares) and shares[-1] == 1
    assert shares[3] == shares[2] == pytest.approx(0.6)


def test_a_stage_that_is_done_once_more_begins_anew():
    times = reported(
        (0, "pairs", None, 8, 8), (100, "pairs", None, 0, 4), (101, "pairs", None, 1, 4)
    )
    assert times.stages[0].began == 100 and times.stages[0].seconds_left(101) == pytest.approx(3)


def test_without_a_plan_it_is_the_last_stage():
    times = StageTimes()
    assert times.share == 0 and times.seconds_left(0) is None
    times.record(Progress("pairs", None, 0, 4, "layers"), 0)
    times.record(Progress("pairs", None, 1, 4, "layers"), 2)
    assert times.share == 0.25 and times.seconds_left(2) == pytest.approx(6)


def test_a_line_says_stage_share_and_time_left(monkeypatch):
    bars, clock = Bars(), iter([0.0, 10.0])
    assert bars.line(20.0) == "After 20 s: getting ready."
    monkeypatch.setattr("mlem_core.base.progress.time.monotonic", lambda: next(clock))
    for done in (0, 19):
        bars.show(Progress("pairs of stimuli", None, done, 38, "layers"))
    line = bars.line(10.0)
    assert line == "After 10 s: pairs of stimuli, 50 % (19 of 38 layers), about 10 s left."


def test_commands_write_lines_where_there_is_no_terminal_and_why_its_value_first(tmp_path):
    # The process of a user, whose lines come every 200 ms in place of every ten seconds.
    inputs = inputs_in(tmp_path)
    script = (
        "import sys; from mlem_core.base import progress; progress.LINE_SECONDS = 0.2\n"
        "from mlem_core.cli.commands import main; sys.stderr = sys.stdout; sys.exit(main())"
    )
    arguments = ["why", "m:0", "m:1", *inputs, "--bootstrap", "100"]
    environment = {"MLEM_CACHE": str(tmp_path / "store")}
    lines = output_of(sys.executable, "-c", script, *arguments, env={**SCRIPTED, **environment})
    lines = lines.splitlines()
    said = [line for line in lines if line.startswith("After")]
    assert said and all(re.match(r"After \d+ s: .+\.$", line) for line in said), lines
    assert any("permut" in line or "%" in line for line in said)
    (value,) = [n for n, line in enumerate(lines) if line.startswith("RSA of m layer 0")]
    shares = next(n for n, line in enumerate(lines) if line.startswith("m layer 0 and"))
    assert value < shares and re.search(r": −?\.\d\d$", lines[value])
    assert any(line in said for line in lines[value:shares])

"""Intervals as the last stage of a run, and work ahead: real processes, cancelled and killed."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from helpers.commands import SCRIPTED
from helpers.inputs import in_files, noise, words
from helpers.waiting import until, wait

from mlem_core import explain
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.planning import default_speed
from mlem_core.base.files import read_json
from mlem_core.base.progress import PlannedStage, StageTimes, TimedStage
from mlem_core.inference.explanation import best_known
from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
from mlem_core.tasks import analyses, followups, processes
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.run_plan import SPEEDS, interval_stages, learn_speeds, read_speeds, run_stages


@pytest.fixture
def few(tmp_path):
    """A few sentences and a file that stands for a model."""
    table = words()
    return in_files(tmp_path, table, {"mine": noise(len(table))})


def run_of(job):
    return followups.Run(job.id, job.folder)


def test_intervals_are_the_last_stage_of_a_run_and_leave_its_numbers(few, store):
    job = analyses.start(few, store, intervals=True)
    shares = []

    def both_done():
        status = run_of(job).status()
        shares.append(status.share)
        return status.state == "done"

    wait(job, "done")
    analysis = job.analysis()
    context = SelectionContext.from_analysis(analysis, store)
    a, b = analysis.layers
    first = best_known(explain(analysis, a, b), context)
    until(both_done, 240)
    assert all(later >= share - 1e-9 for share, later in pairwise(shares))
    assert followups.find_last_stage(job).status().state == "done"
    context = SelectionContext.from_analysis(analysis, store)
    intervals, chance = LAYER_INTERVALS.find(context), LAYER_CHANCE.find(context)
    later = best_known(explain(analysis, a, b), context, intervals, chance)
    # What was shown is what is shown; shares of features were not shown before chance was known.
    assert later.value == pytest.approx(first.value, abs=1e-12)
    assert first.sure is None and later.sure is not None and "lower" in later.whole
    # Its stages were planned, and the next run is estimated by the time that they took.
    plan = {stage.stage for stage in job.status().times.plan}
    assert {"pairs of stimuli", "permuting labels"} <= plan
    assert read_json(store.root / SPEEDS).keys() <= plan
    assert run_of(analyses.start(few, store, intervals=True)).status().state == "done"
    analyses.start(few, store)
    assert followups.find_last_stage(job) is None


def test_cancel_in_the_last_stage_keeps_the_result_and_the_same_run_goes_on(few, store):
    job = analyses.start(few, store, intervals=True)
    wait(job, "done")
    until(lambda: followups.find_last_stage(job).folder.exists())
    run_of(job).cancel()
    assert job.status().state == "done" and job.analysis().layers
    followup = followups.find_last_stage(job)
    assert followup.status().state in ("cancelled", "done")
    assert run_of(job).status().state == "done"
    followups.begin_last_stage(job)
    wait(followup, "done", seconds=240)


AHEAD = """
import sys, time
from mlem_core import Store
from mlem_core.tasks import analyses
job = analyses.find(sys.argv[1], Store(sys.argv[2]))
job.start(job.spec.to_dict(), "ahead")
print("begun", flush=True)
time.sleep(600)
"""


def begun_ahead(spec, store, monkeypatch):
    """A long run that another process, a server, has begun ahead; the run and the server."""
    with monkeypatch.context() as patch:
        patch.setattr(Job, "start", lambda *_: None)
        job = analyses.start(spec, store)
    (job.folder / "spec.json").write_text(json.dumps(spec.to_dict()))
    arguments = [job.id, str(store.root)]
    server = subprocess.Popen(
        [sys.executable, "-c", AHEAD, *arguments], env=SCRIPTED, stdout=subprocess.PIPE
    )
    assert server.stdout.readline() == b"begun\n"
    until(lambda: job.status().state == "running")
    return job, server


def test_a_killed_server_leaves_no_work_ahead_behind(store, long, monkeypatch):
    job, server = begun_ahead(long, store, monkeypatch)
    server.send_signal(signal.SIGKILL)
    server.wait()
    until(lambda: not processes.is_held(job.folder), 30)
    status = job.status()
    assert (status.state, status.message) == ("cancelled", "its server has ended")
    assert not list(job.folder.glob("unfinished-*"))


@pytest.mark.slow
def test_work_ahead_ends_when_someone_starts_other_work(store, long, few, monkeypatch):
    job, server = begun_ahead(long, store, monkeypatch)
    other = analyses.start(few, store)
    until(lambda: not processes.is_held(job.folder), 30)
    assert job.status().message == "other work came first"
    server.kill()
    server.wait()
    wait(other, "done")


def test_work_ahead_that_someone_then_wants_outlives_its_server(store, long, monkeypatch):
    job, server = begun_ahead(long, store, monkeypatch)
    job.start(long.to_dict())
    server.kill()
    server.wait()
    time.sleep(1)
    assert job.status().state == "running"


def test_work_that_nobody_waits_for_keeps_nobody_waiting(store, long, few, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Job, "start", lambda *_: None)
        job = analyses.start(long, store)
    job.start(long.to_dict(), "later")
    until(lambda: job.status().state == "running")
    other = analyses.start(few, store)
    assert other.status().before == 0
    wait(other, "done")
    assert job.status().state == "running"


def test_speeds_are_learned_from_whole_stages_and_a_damaged_file_counts_as_none(store):
    plan = [PlannedStage("representations", "m", 10), PlannedStage("pairs of stimuli", None, 5)]
    stages = [
        TimedStage("representations", "m", 8, 8, "sentences", began=104, began_at=0, seen=120),
        TimedStage("pairs of stimuli", None, 3, 4, "layers", began=121, began_at=0, seen=140),
    ]
    times = StageTimes(plan, stages, started=100)
    learn_speeds(times, {"representations": 2.0}, store)
    assert read_speeds(store) == {"representations": pytest.approx(2 * 20 / 10)}
    learn_speeds(StageTimes(plan, stages[:1], started=110), {"representations": 4.0}, store)
    assert read_speeds(store) == {"representations": pytest.approx((4 * 4 * 10 / 10) ** 0.5)}
    for content in ("{", "[]", '{"representations": "fast", "pairs of stimuli": -1}'):
        (store.root / SPEEDS).write_text(content)
        assert read_speeds(store) == {}


def test_the_plan_grows_with_models_and_features_and_is_empty_for_what_cannot_run(few):
    stimuli = few.load_stimuli()
    names = ("mini-gpt2", "mini-mamba")
    plans = [
        run_stages(replace(few, models=models), stimuli, {}, intervals=True)
        for models in ((), names[:1], names)
    ]
    totals = [sum(stage.seconds for stage in plan) for plan in plans]
    assert totals == sorted(totals) and [stage.model for stage in plans[2][:2]] == [*names]
    slow = run_stages(few, stimuli, {"pairs of stimuli": 100.0}, intervals=False)
    assert slow[0].seconds == pytest.approx(100 / default_speed() * plans[0][0].seconds)
    assert run_stages(replace(few, features=("none",)), stimuli, {}, intervals=True) == []
    one, more = (sum(s.seconds for s in interval_stages(2000, 4, n, {})) for n in (1, 8))
    assert more > 1.5 * one

"""Background jobs, with real processes that are really killed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import in_files, noise, refused, words
from waiting import wait

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, processes, runner
from mlem_core.tasks.analyses import Job


@pytest.fixture
def tiny(tmp_path):
    """A few sentences and a file that stands for a model: no model has to be loaded."""
    table = words()
    return in_files(tmp_path, table, {"mine": noise(len(table))})


def pid_of(job):
    return int(json.loads((job.folder / "pid.json").read_text())["pid"])


def is_there(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def made_up(store):
    """The folder of a job that was never started."""
    folder = store.root / "jobs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    return folder


def test_a_job_gives_what_a_run_gives(tiny, store, tmp_path):
    job = analyses.start(tiny, store)
    status = wait(job, "done")
    stages = [(p.stage, p.done, p.total, p.unit) for p in status.stages]
    assert stages == [("pair tables", 2, 2, "layers")]
    direct = run(tiny, Store(tmp_path / "another"))
    assert job.analysis().results().importance.equals(direct.results().importance)
    contents = job.contents()
    assert contents.models == ("mine",)
    assert (contents.n_layers, contents.n_features) == (2, len(direct.tables.features))
    assert runner.under_way(job.folder.parent) == []
    assert not list(job.folder.glob("unfinished-*"))
    # A result that cannot be read is run again.
    (job.folder / "result" / "tables.npz").write_bytes(b"half")
    with refused("again"):
        job.analysis()
    assert job.status().state == "failed"
    wait(analyses.start(tiny, store), "done")
    job.analysis()
    # What the user got wrong is the message.
    wrong = replace(tiny, features=("nosuch",))
    status = wait(analyses.start(wrong, store), "failed")
    with pytest.raises(InputError) as error:
        run(wrong, store)
    assert status.message == str(error.value)


@pytest.mark.parametrize(
    ("field", "value"), [("models", "{}"), ("models", "{}@random"), ("add", "surprisal:{}")]
)
def test_the_content_of_a_file_or_a_model_makes_another_job(tiny, field, value):
    folder = Path(tiny.stimuli).parent / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(b"{}")
    spec = replace(tiny, **{field: (value.format(folder),)})
    before = analyses.job_id(spec)
    assert analyses.job_id(AnalysisSpec.from_dict(spec.to_dict())) == before
    (folder / "model.safetensors").write_bytes(b"[]")  # as long as before
    again = analyses.job_id(spec)
    with Path(tiny.stimuli).open("a") as file:
        file.write("\n")
    assert len({before, again, analyses.job_id(spec)}) == 3


@pytest.mark.parametrize("when", ["while it waits", "while it runs"])
def test_a_job_whose_files_change_after_its_start_gives_no_result(tiny, store, monkeypatch, when):
    (_, path), = tiny.representations  # fmt: skip
    monkeypatch.setattr(Job, "start", lambda *_: None)
    job = analyses.start(tiny, store)

    def change():
        np.savez(path, **{name: rows[::-1] for name, rows in np.load(path).items()})

    if when == "while it waits":
        change()
        monkeypatch.setattr(analyses, "run", None)
    else:
        monkeypatch.setattr(analyses, "run", lambda *args: (run(*args), change())[0])
    unfinished = job.folder / "unfinished-0"
    unfinished.mkdir()
    with refused("has changed"):
        analyses.make_analysis(tiny.to_dict(), unfinished, lambda _: None)


@pytest.mark.parametrize("after", [0.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_cancel_ends_the_process_within_two_seconds(store, long, after):
    job = analyses.start(long, store)
    pid = pid_of(job)
    time.sleep(after)
    began = time.monotonic()
    job.cancel()
    assert time.monotonic() - began < 2
    assert not is_there(pid)
    job.cancel()  # again: nothing
    assert job.status().state == "cancelled"


def test_cancel_ends_a_process_that_ignores_the_polite_signal(store, long):
    folder = made_up(store)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(60)"
    )
    piped: Any = {"start_new_session": True, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", deaf], **piped) as child:
        assert child.stdout.readline() == b"deaf\n"
        processes.write_pid(folder, child.pid)
        began = time.monotonic()
        Job(folder.name, folder, long).cancel()
        assert time.monotonic() - began < 2 and not is_there(child.pid)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_process_is_a_failed_job_that_starts_again(tiny, store, long):
    first = analyses.start(long, store)  # has the turn, so that the tiny one waits to be killed
    wait(first, "running")
    job = analyses.start(tiny, store)
    wait(job, "queued")
    os.kill(pid_of(job), signal.SIGKILL)
    assert str(job.folder / "log") in wait(job, "failed", seconds=5).message
    first.cancel()
    assert analyses.start(tiny, store) == job
    wait(job, "done")


@pytest.mark.slow
def test_one_job_runs_at_a_time_in_the_order_they_were_asked_for(tiny, store, long):
    first = analyses.start(long, store)
    wait(first, "running")
    pid = pid_of(first)
    # The same analysis is one job.
    assert analyses.start(long, store) == first and pid_of(first) == pid
    waiting = [analyses.start(replace(tiny, seed=seed), store) for seed in range(3)]
    time.sleep(4)  # long enough for the tiny ones to have finished, had they begun
    assert [job.status().state for job in (first, *waiting)] == ["running", *["queued"] * 3]
    assert analyses.recent(store)[:4] == [*waiting[::-1], first]
    cancelled, *others = waiting
    cancelled.cancel()
    assert runner.under_way(store.root / "jobs") == [job.id for job in (first, *others)]
    first.cancel()
    for job in others:
        wait(job, "done")
    finished = [(job.folder / "result").stat().st_ctime_ns for job in others]
    assert finished == sorted(finished)
    assert cancelled.status().state == "cancelled"


@pytest.mark.slow
def test_a_job_outlives_the_server_that_started_it(tiny, store):
    starts = (
        "import json, sys; from mlem_core.tasks import analyses;"
        "from mlem_core.storage.store import Store;"
        "from mlem_core.analysis.spec import AnalysisSpec;"
        "spec = AnalysisSpec.from_dict(json.loads(sys.argv[1]));"
        "print(analyses.start(spec, Store(sys.argv[2])).id)"
    )
    command = [sys.executable, "-c", starts, json.dumps(tiny.to_dict()), str(store.root)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    job = analyses.find(told, store)
    assert job.spec == tiny
    wait(job, "done")
    assert len(job.analysis().results().scores)


def test_an_unexpected_error_names_the_log(store, long):
    folder = made_up(store)
    (folder / "spec.json").write_text("[]")
    command = [sys.executable, "-m", "mlem_core.tasks.analyses", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError" in done.stderr  # in a real job this goes to the log
    status = Job(folder.name, folder, long).status()
    assert status.state == "failed" and str(folder / "log") in status.message


def test_another_process_with_the_same_number_is_not_the_job(store, long):
    folder = made_up(store)
    (folder / "pid.json").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    job = Job(folder.name, folder, long)
    assert job.status().state == "failed"
    job.cancel()  # and this test goes on living


def test_an_upload_is_kept_under_its_content(store):
    path = analyses.keep_upload(b"a,b\n", "../my stimuli.csv", store)
    assert path.read_bytes() == b"a,b\n" and path.name == "my_stimuli.csv"
    assert path.is_relative_to(store.root / "uploads")
    assert analyses.keep_upload(b"a,b\n", "my stimuli.csv", store) == path
    assert analyses.keep_upload(b"a,c\n", "my stimuli.csv", store) != path
    assert len(analyses.keep_upload(b"", "x" * 400 + ".csv", store).name) <= 100
    for name in ("", "../../etc", "0123456789abcdeg", "0123456789abcdef"):
        assert analyses.find(name, store) is None

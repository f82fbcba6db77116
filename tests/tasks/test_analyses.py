"""Background jobs, with real processes that are really killed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inputs import in_files, noise, refused, words

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, processes, runner
from mlem_core.tasks.analyses import Job


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    yield store
    for job in analyses.recent(store):
        job.cancel()


@pytest.fixture
def tiny(tmp_path):
    """A few sentences and a file that stands for a model: no model has to be loaded."""
    table = words()
    return in_files(tmp_path, table, {"mine": noise(len(table))})


# Loads SmolLM2, which takes far longer than any of these tests waits.
LONG = AnalysisSpec(models=("smollm2",), device="cpu")


def wait(job, *states, seconds=60):
    end = time.monotonic() + seconds
    while (status := job.status()).state not in states:
        assert time.monotonic() < end, f"still {status} after {seconds} s"
        assert status.state in ("queued", "running"), status
        time.sleep(0.05)
    return status


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


@pytest.mark.parametrize("role", ["models", "surprisal", "control"])
def test_the_content_of_a_file_or_a_model_makes_another_job(tiny, role):
    folder = Path(tiny.stimuli).parent / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(b"{}")
    named = {
        "models": {"models": (str(folder),)},
        "control": {"models": (f"{folder}@random",)},
        "surprisal": {"add": (f"surprisal:{folder}",)},
    }[role]
    spec = replace(tiny, **named)
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
        with np.load(path) as layers:
            other = {name: rows[::-1] for name, rows in layers.items()}
        np.savez(path, **other)

    if when == "while it waits":
        change()
        monkeypatch.setattr(analyses, "run", None)
    else:
        monkeypatch.setattr(analyses, "run", lambda *args: (run(*args), change())[0])
    unfinished = job.folder / "unfinished-0"
    unfinished.mkdir()
    with refused("has changed"):
        analyses.make(tiny.to_dict(), unfinished, lambda _: None)


@pytest.mark.parametrize("after", [0.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_cancel_ends_the_process_within_two_seconds(store, after):
    job = analyses.start(LONG, store)
    pid = pid_of(job)
    time.sleep(after)
    began = time.monotonic()
    job.cancel()
    assert time.monotonic() - began < 2
    assert not is_there(pid)
    job.cancel()  # again: nothing
    assert job.status().state == "cancelled"


def test_cancel_ends_a_process_that_ignores_the_polite_signal(store):
    folder = made_up(store)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"deaf\n"
    processes.write_pid(folder, child.pid)
    began = time.monotonic()
    Job(folder.name, folder, LONG).cancel()
    assert time.monotonic() - began < 2
    assert not is_there(child.pid)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()


@pytest.mark.slow
def test_a_killed_process_is_a_failed_job_that_starts_again(tiny, store):
    long = analyses.start(LONG, store)  # has the turn, so that the tiny one waits to be killed
    wait(long, "running")
    job = analyses.start(tiny, store)
    wait(job, "queued")
    os.kill(pid_of(job), signal.SIGKILL)
    end = time.monotonic() + 5
    while job.status().state == "queued" and time.monotonic() < end:
        time.sleep(0.02)
    status = job.status()
    assert status.state == "failed" and str(job.folder / "log") in status.message
    long.cancel()
    assert analyses.start(tiny, store) == job
    wait(job, "done")


@pytest.mark.slow
def test_one_job_runs_at_a_time_in_the_order_they_were_asked_for(tiny, store):
    first = analyses.start(LONG, store)
    wait(first, "running")
    pid = pid_of(first)
    # The same analysis is one job.
    assert analyses.start(LONG, store) == first and pid_of(first) == pid
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


def test_an_unexpected_error_names_the_log(store):
    folder = made_up(store)
    (folder / "spec.json").write_text("[]")
    command = [sys.executable, "-m", "mlem_core.tasks.analyses", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError" in done.stderr  # in a real job this goes to the log
    status = Job(folder.name, folder, LONG).status()
    assert status.state == "failed" and str(folder / "log") in status.message


def test_another_process_with_the_same_number_is_not_the_job(store):
    folder = made_up(store)
    (folder / "pid.json").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    job = Job(folder.name, folder, LONG)
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

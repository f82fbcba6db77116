"""Background jobs, with real processes that are really killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    yield store
    for job in analyses.recent(store):
        job.cancel()


@pytest.fixture
def tiny(tmp_path: Path) -> AnalysisSpec:
    """A few sentences and a file that stands for a model: no model has to be loaded."""
    table = words()
    return in_files(tmp_path, table, {"mine": noise(len(table))})


# Loads SmolLM2, which takes far longer than any of these tests waits.
LONG = AnalysisSpec(models=("smollm2",), device="cpu")


def wait(job: Job, *states: str, seconds: float = 60) -> runner.Status:
    end = time.monotonic() + seconds
    while (status := job.status()).state not in states:
        assert time.monotonic() < end, f"still {status} after {seconds} s"
        assert status.state in ("queued", "running"), status
        time.sleep(0.05)
    return status


def pid_of(job: Job) -> int:
    return int(json.loads((job.folder / "pid.json").read_text())["pid"])


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def made_up(store: Store) -> Path:
    """The folder of a job that was never started."""
    folder = store.root / "jobs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    return folder


def test_a_job_gives_what_a_run_gives(tiny: AnalysisSpec, store: Store, tmp_path: Path) -> None:
    job = analyses.start(tiny, store)
    status = wait(job, "done")
    assert [(p.stage, p.done, p.total, p.unit) for p in status.stages] == [
        ("pair tables", 2, 2, "layers")
    ]
    direct = run(tiny, Store(tmp_path / "another"))
    assert job.analysis().results().importance.equals(direct.results().importance)
    contents = job.contents()
    assert contents is not None and contents.models == ("mine",)
    assert (contents.n_layers, contents.n_features) == (2, len(direct.tables.features))
    assert job.asked_at is not None and runner.under_way(job.folder.parent) == []
    assert not list(job.folder.glob("unfinished-*"))


@pytest.mark.slow
def test_the_same_analysis_is_one_job(tiny: AnalysisSpec, store: Store) -> None:
    first = analyses.start(LONG, store)
    pid = pid_of(first)
    assert analyses.start(LONG, store) == first
    assert pid_of(first) == pid
    assert analyses.job_id(tiny) != first.id


def test_the_content_of_a_file_makes_another_job(tiny: AnalysisSpec) -> None:
    before = analyses.job_id(tiny)
    assert before == analyses.job_id(AnalysisSpec.from_dict(tiny.to_dict()))
    with Path(tiny.stimuli).open("a") as file:
        file.write("\n")
    assert analyses.job_id(tiny) != before


@pytest.mark.parametrize("role", ["models", "surprisal", "control"])
def test_the_content_of_a_model_makes_another_job(tiny: AnalysisSpec, role: str) -> None:
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
    assert analyses.job_id(spec) != before
    shutil.rmtree(folder)
    assert analyses.job_id(spec) not in (before, analyses.job_id(tiny))


@pytest.mark.parametrize("when", ["while it waits", "while it runs"])
def test_a_job_whose_files_change_after_its_start_gives_no_result(
    tiny: AnalysisSpec, store: Store, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    (_, path), = tiny.representations  # fmt: skip
    monkeypatch.setattr(Job, "start", lambda *_: None)
    job = analyses.start(tiny, store)

    def change() -> None:
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


@pytest.mark.parametrize(
    "after", [0.0, *(pytest.param(one, marks=pytest.mark.slow) for one in (1.5, 4.0))]
)
def test_cancel_ends_the_process_within_two_seconds(store: Store, after: float) -> None:
    job = analyses.start(LONG, store)
    pid = pid_of(job)
    time.sleep(after)
    began = time.monotonic()
    job.cancel()
    assert time.monotonic() - began < 2
    assert not is_there(pid)
    assert job.status().state == "cancelled"
    job.cancel()  # again: nothing
    assert job.status().state == "cancelled"


def test_cancel_ends_a_process_that_ignores_the_polite_signal(store: Store) -> None:
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
def test_a_killed_process_is_a_failed_job_that_starts_again(
    tiny: AnalysisSpec, store: Store
) -> None:
    long = analyses.start(LONG, store)  # has the turn, so that the tiny one waits to be killed
    wait(long, "running")
    job = analyses.start(tiny, store)
    wait(job, "queued")
    os.kill(pid_of(job), signal.SIGKILL)
    end = time.monotonic() + 5
    while job.status().state == "queued" and time.monotonic() < end:
        time.sleep(0.02)
    status = job.status()
    assert status.state == "failed"
    assert str(job.folder / "log") in status.message
    long.cancel()
    again = analyses.start(tiny, store)
    assert again == job
    wait(again, "done")


@pytest.mark.slow
def test_one_job_runs_at_a_time_in_the_order_they_were_asked_for(
    tiny: AnalysisSpec, store: Store
) -> None:
    first = analyses.start(LONG, store)
    wait(first, "running")
    waiting = [analyses.start(replace(tiny, seed=seed), store) for seed in range(3)]
    time.sleep(4)  # long enough for the tiny ones to have finished, had they begun
    assert [job.status().state for job in (first, *waiting)] == ["running", *["queued"] * 3]
    assert analyses.recent(store)[:4] == [*waiting[::-1], first]
    assert runner.under_way(store.root / "jobs") == [job.id for job in (first, *waiting)]
    cancelled, *others = waiting
    assert cancelled.contents() is None
    cancelled.cancel()
    assert runner.under_way(store.root / "jobs") == [job.id for job in (first, *others)]
    first.cancel()
    for job in others:
        wait(job, "done")
    finished = [(job.folder / "result").stat().st_ctime_ns for job in others]
    assert finished == sorted(finished)
    assert cancelled.status().state == "cancelled"
    wait(analyses.start(cancelled.spec, store), "done")


@pytest.mark.slow
def test_a_fresh_process_finds_what_is_running_and_what_is_done(
    tiny: AnalysisSpec, store: Store
) -> None:
    """A job outlives the server that started it."""
    spec = json.dumps(tiny.to_dict())
    starts = (
        "import json, sys; from mlem_core.tasks import analyses;"
        "from mlem_core.storage.store import Store;"
        "from mlem_core.analysis.spec import AnalysisSpec;"
        "spec = AnalysisSpec.from_dict(json.loads(sys.argv[1]));"
        "print(analyses.start(spec, Store(sys.argv[2])).id)"
    )
    command = [sys.executable, "-c", starts, spec, str(store.root)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    job = analyses.find(told, store)
    assert job is not None
    assert job.spec == tiny
    wait(job, "done")
    looks = (
        "import sys; from mlem_core.tasks import analyses, runner;"
        "from mlem_core.storage.store import Store;"
        "job = analyses.find(sys.argv[1], Store(sys.argv[2]));"
        "print(job.status().state, len(job.analysis().results().scores), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", looks, told, str(store.root)]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert seen == f"done {len(job.analysis().results().scores)} False"


def test_what_the_user_got_wrong_is_the_message(tiny: AnalysisSpec, store: Store) -> None:
    wrong = AnalysisSpec.from_dict({**tiny.to_dict(), "features": ["nosuch"]})
    status = wait(analyses.start(wrong, store), "failed")
    with pytest.raises(InputError) as error:
        run(wrong, store)
    assert status.message == str(error.value)


def test_an_unexpected_error_names_the_log(store: Store) -> None:
    folder = made_up(store)
    (folder / "spec.json").write_text("[]")
    command = [sys.executable, "-m", "mlem_core.tasks.analyses", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError" in done.stderr  # in a real job this goes to the log
    status = Job(folder.name, folder, LONG).status()
    assert status.state == "failed" and str(folder / "log") in status.message


def test_another_process_with_the_same_number_is_not_the_job(store: Store) -> None:
    folder = made_up(store)
    (folder / "pid.json").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    job = Job(folder.name, folder, LONG)
    assert job.status().state == "failed"
    job.cancel()  # and this test goes on living


@pytest.mark.slow
def test_a_result_that_cannot_be_read_is_run_again(tiny: AnalysisSpec, store: Store) -> None:
    job = analyses.start(tiny, store)
    with refused("not done"):
        job.analysis()
    wait(job, "done")
    (job.folder / "result" / "tables.npz").write_bytes(b"half")
    with refused("again"):
        job.analysis()
    assert job.status().state == "failed"
    analyses.start(tiny, store)
    wait(job, "done")
    job.analysis()


def test_time_left_follows_the_rate_of_the_current_stage(tmp_path: Path) -> None:
    now = time.time()
    row = {"stage": "representations", "model": "m", "unit": "sentences"}
    ended = {**row, "done": 700, "total": 700, "began": now - 99, "began_at": 0, "seen": now - 9}
    current = {**row, "stage": "pair tables", "model": None, "unit": "layers"}
    current |= {"done": 3, "total": 11, "began": now - 8, "began_at": 1, "seen": now}
    stages, left = runner._stages({"stages": [ended, current]})
    assert [p.stage for p in stages] == ["representations", "pair tables"]
    assert left == pytest.approx(8 * 8 / 2, abs=0.5)  # 2 layers took 8 s, 8 are left
    assert runner._stages({"stages": [{**current, "done": 1}]})[1] is None
    assert runner._stages({"stages": [{"stage": "x"}]}) == ([], None)


def test_progress_is_written_a_few_times_a_second(tmp_path: Path) -> None:
    report = runner._Reporter(tmp_path)
    seen = set()
    began = time.monotonic()
    done = 0
    while time.monotonic() - began < 1:
        done += 1
        report(runner.Progress("representations", "m", done, 10**9, "sentences"))
        seen.add((tmp_path / "progress.json").read_text())
    assert 3 <= len(seen) <= 7
    report(runner.Progress("representations", "m", 10**9, 10**9, "sentences"))
    assert json.loads((tmp_path / "progress.json").read_text())["stages"][0]["done"] == 10**9


@pytest.mark.parametrize("name", ["", "../../etc", "0123456789abcdeg", "0123456789abcdef"])
def test_a_job_that_is_not_there_is_none(store: Store, name: str) -> None:
    assert analyses.find(name, store) is None


def test_an_upload_is_kept_under_its_content(store: Store) -> None:
    path = analyses.keep_upload(b"a,b\n", "../my stimuli.csv", store)
    assert path.read_bytes() == b"a,b\n"
    assert path.name == "my_stimuli.csv"
    assert path.is_relative_to(store.root / "uploads")
    assert analyses.keep_upload(b"a,b\n", "my stimuli.csv", store) == path
    assert analyses.keep_upload(b"a,c\n", "my stimuli.csv", store) != path
    assert analyses.keep_upload(b"", "..", store).is_file()
    assert len(analyses.keep_upload(b"", "x" * 400 + ".csv", store).name) <= 100

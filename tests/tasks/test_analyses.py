"""Background jobs and work on finished ones: real processes, really killed, on a real store."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from helpers import tiny
from helpers.inputs import for_each, in_files, noise, probing, refused, words
from helpers.waiting import wait

from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.analysis.run import run
from mlem_core.analysis.source import StimulusSource
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.files import write_json
from mlem_core.base.typing import Progress
from mlem_core.extensions.decoding.computation import decoding
from mlem_core.extensions.decoding.stage import DECODING
from mlem_core.inference.explanation import best_known, explain
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.stimuli.datasets import SETS
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, followups, processes, runner
from mlem_core.tasks.analyses import Job


@pytest.fixture
def few(tmp_path):
    """A few sentences and a file that stands for a model: no model has to be loaded."""
    table = words()
    return in_files(tmp_path, table, {"mine": noise(len(table))})


def pid_of(job):
    return int(json.loads((job.folder / "pid.json").read_text())["pid"])


def is_there(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def made_up(store):
    """The folder of a job that was never started."""
    folder = store.root / "jobs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.slow
def test_a_job_gives_what_a_run_gives(few, store, tmp_path):
    job = analyses.start(few, store)
    status = wait(job, "done")
    stages = [(p.stage, p.done, p.total, p.unit) for p in status.times.stages]
    assert stages == [("pairs of stimuli", 2, 2, "layers")]
    direct = run(few, Store(tmp_path / "another"))
    assert job.analysis().results().importance.equals(direct.results().importance)
    contents = job.contents()
    assert contents.models == ("mine",)
    assert (len(contents.rsa), len(contents.features)) == (2, len(direct.pairs.features))
    assert runner.unfinished_tasks(job.folder.parent) == []
    assert not list(job.folder.glob("unfinished-*"))
    # A result that cannot be read is run again.
    (job.folder / "result" / "pairs.npz").write_bytes(b"half")
    with refused("again"):
        job.analysis()
    assert job.status().state == "failed"
    wait(analyses.start(few, store), "done")
    job.analysis()
    # What the user got wrong is the message.
    wrong = replace(few, features=("nosuch",))
    status = wait(analyses.start(wrong, store), "failed")
    with pytest.raises(InputError) as error:
        run(wrong, store)
    assert status.message == str(error.value)


@for_each("field, value", ("models", "{}"), ("models", "{}@random"), ("add", "surprisal:{}"))
def test_the_content_of_a_file_or_a_model_makes_another_job(few, field, value):
    folder = Path(few.stimuli).parent / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(b"{}")
    spec = replace(few, **{field: (value.format(folder),)})
    before = analyses.job_id(spec)
    assert analyses.job_id(AnalysisSpec.from_dict(spec.to_dict())) == before
    (folder / "model.safetensors").write_bytes(b"[]")  # as long as before
    again = analyses.job_id(spec)
    with Path(few.stimuli).open("a") as file:
        file.write("\n")
    assert len({before, again, analyses.job_id(spec)}) == 3


@pytest.mark.parametrize("when", ["while it waits", "while it runs"])
def test_a_job_whose_files_change_after_its_start_gives_no_result(few, store, monkeypatch, when):
    (_, path), = few.representations  # fmt: skip
    monkeypatch.setattr(Job, "start", lambda *_: None)
    job = analyses.start(few, store)

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
        followups.make(few.to_dict(), unfinished, runner.Reporter(job.folder))


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
    held = processes.hold(folder)
    piped = {"start_new_session": True, "stdout": subprocess.PIPE, "pass_fds": (held,)}
    with subprocess.Popen([sys.executable, "-c", deaf], **piped) as child:
        os.close(held)
        assert child.stdout.readline() == b"deaf\n"
        processes.write_pid(folder, child.pid)
        began = time.monotonic()
        Job(folder.name, folder, long).cancel()
        assert time.monotonic() - began < 2 and not is_there(child.pid)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_process_is_a_failed_job_that_starts_again(few, store, long):
    first = analyses.start(long, store)  # has the turn, so that the tiny one waits to be killed
    wait(first, "running")
    job = analyses.start(few, store)
    wait(job, "queued")
    os.kill(pid_of(job), signal.SIGKILL)
    assert str(job.folder / "log") in wait(job, "failed", seconds=5).message
    first.cancel()
    assert analyses.start(few, store) == job
    wait(job, "done")


@pytest.mark.slow
def test_one_job_runs_at_a_time_in_the_order_they_were_asked_for(few, store, long):
    first = analyses.start(long, store)
    wait(first, "running")
    pid = pid_of(first)
    # The same analysis is one job.
    assert analyses.start(long, store) == first and pid_of(first) == pid
    waiting = [analyses.start(replace(few, seed=seed), store) for seed in range(3)]
    time.sleep(4)  # long enough for the tiny ones to have finished, had they begun
    assert [job.status().state for job in (first, *waiting)] == ["running", *["queued"] * 3]
    assert analyses.recent(store)[:4] == [*waiting[::-1], first]
    cancelled, *others = waiting
    cancelled.cancel()
    assert runner.unfinished_tasks(store.root / "jobs") == [job.id for job in (first, *others)]
    first.cancel()
    for job in others:
        wait(job, "done")
    finished = [(job.folder / "result").stat().st_ctime_ns for job in others]
    assert finished == sorted(finished)
    assert cancelled.status().state == "cancelled"


@pytest.mark.slow
def test_a_job_outlives_the_server_that_started_it(few, store):
    starts = (
        "import json, sys; from mlem_core.tasks import analyses;"
        "from mlem_core.storage.store import Store;"
        "from mlem_core.analysis.spec import AnalysisSpec;"
        "spec = AnalysisSpec.from_dict(json.loads(sys.argv[1]));"
        "print(analyses.start(spec, Store(sys.argv[2])).id)"
    )
    command = [sys.executable, "-c", starts, json.dumps(few.to_dict()), str(store.root)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    job = analyses.find(told, store)
    assert job.spec == few
    wait(job, "done")
    assert len(job.analysis().results().scores)


def test_an_unexpected_error_names_the_log(store, long):
    folder = made_up(store)
    (folder / "spec.json").write_text("[]")
    command = [sys.executable, "-m", "mlem_core.tasks", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError" in done.stderr  # in a real job this goes to the log
    status = Job(folder.name, folder, long).status()
    assert status.state == "failed" and str(folder / "log") in status.message


def test_a_process_without_the_folder_is_not_the_job(store, long):
    folder = made_up(store)
    processes.write_pid(folder, os.getpid())
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


FITTED = {"features": ["tense", "number"], "estimator": "ridge", "interactions": False}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def job(kept, tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("input"), probing(60)
    layers = {"brain": noise(len(table), units=4)}
    job = analyses.start(in_files(folder, table, layers, features=("tense", "number")), kept)
    wait(job, "done")
    return job


@pytest.mark.slow
def test_a_follow_up_keeps_what_its_function_makes(job, kept):
    options = {"layers": [["brain", 1]]}
    task = followups.get_followup("baseline", job.id, options, kept).begin()
    wait(task, "done")
    analysis = job.analysis()
    rows = {("brain", 1): np.asarray(get_representations(analysis, "brain", kept)[1])}
    expected = decoding(analysis.stimuli, rows, analysis.folds).table
    decoded = DECODING.find(SelectionContext(analysis, analysis.select(layers="brain:1"), kept))
    pd.testing.assert_frame_equal(decoded.table, expected)
    again = followups.get_followup("baseline", job.id, options, kept)
    assert again == task and again.status().state == "done"
    other = followups.get_followup("baseline", job.id, {**options, "layers": []}, kept)
    assert other.status().state != "done"
    # It is no analysis.
    own = [one.id for one in analyses.recent(kept) if one.id != examples.ID]
    assert own == [job.id] and analyses.find(task.id, kept) is None
    # Once it is damaged, it is made again.
    (task.result / "entry.json").write_bytes(b"\xff\xfe\x00")
    with refused("again"):
        task.file("table.csv")
    wait(followups.get_followup("baseline", job.id, options, kept).begin(), "done")


def test_what_cannot_be_done_is_one_sentence(job, kept):
    task, gone = (
        followups.get_followup("baseline", of, {"layers": []}, kept).begin()
        for of in (job.id, "0" * 16)
    )
    for one, said in ((task, "no layer is left"), (gone, "no longer in the store")):
        message = wait(one, "failed").message
        assert said in message and "Traceback" not in message and "\n" not in message
    with refused("baseline"):
        followups.get_followup("bass", job.id, {}, kept)


@pytest.mark.slow
def test_representations_that_have_gone_are_made_again(tmp_path):
    """As on a machine that has only the example, whose store has no representations."""
    folder = tiny.save("gpt2", tmp_path / "model")
    tiny.word_stimuli(tiny.SENTENCES).table.to_csv(tmp_path / "words.csv", index=False)
    spec = AnalysisSpec(stimuli=str(tmp_path / "words.csv"), models=(str(folder),), folds=3)
    analysis = run(spec, Store(tmp_path / "first"))
    empty, name = Store(tmp_path / "other"), str(folder)
    with refused("no longer in the store"):
        get_representations(analysis, name, empty)
    seen: list[Progress] = []
    followups.work("representations", analysis, {"models": [name]}, empty, tmp_path, seen.append)
    assert {step.stage for step in seen} == {"representations"}
    before = get_representations(analysis, name, Store(tmp_path / "first"))
    np.testing.assert_array_equal(get_representations(analysis, name, empty)[2], before[2])
    tiny.save("gpt2", folder, n_layer=2)
    with refused("no longer the one"):
        followups.restore_representations(analysis, [name], empty, lambda progress: None)


@pytest.mark.slow
def test_intervals_of_two_layers_are_found_with_any_estimator(job, kept, tmp_path):
    analysis = job.analysis()
    a, b = analysis.layers[:2]
    options = {"a": list(a), "b": list(b), "features": ["tense", "number"]}
    followups.work("error-bars", analysis, options, kept, tmp_path, lambda _: None)
    for fitted in ({}, {"estimator": "ridge-rank", "interactions": True}):
        why, chosen = explain(analysis, a, b, ["tense", "number"]), analysis.select(**fitted)
        made = best_known(why, SelectionContext(analysis, chosen, kept))
        assert {"lower", "upper"} <= {*made.terms}
    # Those of all layers are found where they are looked for.
    asked = FITTED | {"features": ["tense"]}
    options = {**asked, "layers": [list(layer) for layer in analysis.layers]}
    followups.work("intervals", analysis, options, kept, tmp_path, lambda _: None)
    assert LAYER_INTERVALS.find(
        SelectionContext(analysis, analysis.select(**asked), kept)
    ).columns == ("tense",)


def test_several_files_are_a_folder_that_is_read_as_one_treebank(store):
    sentences = SETS["treebank"].file.read_text("utf-8").split("\n\n")[:20]
    parts = [("\n\n".join(sentences[k::2]) + "\n\n").encode() for k in (0, 1)]
    files = [("a.conllu", parts[0]), ("b.conllu", parts[1])]
    folder = analyses.keep_uploads(files, store)
    assert sorted(path.name for path in folder.iterdir()) == ["a.conllu", "b.conllu"]
    assert analyses.keep_uploads(files[::-1], store) == folder
    both = StimulusSource(str(folder)).load_stimuli()
    alone = [
        StimulusSource(str(analyses.keep_uploads([one], store))).load_stimuli() for one in files
    ]
    assert len(both) == sum(map(len, alone))
    # Files of one name are both kept.
    folder = analyses.keep_uploads([("a.conllu", b"1"), ("a.conllu", b"2")], store)
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"1", b"2"]


def test_uploads_go_with_the_last_analysis_of_them(store):
    mine = analyses.keep_upload(b"sentence,f\na b,1\n", "mine.csv", store)
    arrays = analyses.keep_upload(b"1", "v1.npy", store)
    spec = AnalysisSpec(stimuli=str(mine), representations=(("brain", str(arrays)),), models=())
    folder = store.root / "jobs" / analyses.job_id(spec)
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", spec.to_dict())
    unused = analyses.keep_upload(b"unused", "b.csv", store)
    young = analyses.keep_upload(b"young", "c.csv", store)
    then = time.time() - 2 * 86_400
    for path in (mine, arrays, unused):
        os.utime(path.parent, (then, then))
    analyses.purge_uploads(store, days=1)
    assert mine.exists() and arrays.exists() and young.exists() and not unused.exists()
    (folder / "spec.json").unlink()
    analyses.purge_uploads(store, days=1)
    assert [path.name for path in (store.root / "uploads").rglob("*.*")] == ["c.csv"]


def test_tasks_have_their_turns_in_the_order_of_arrival(store):
    folders = [store.root / "jobs" / name for name in ("c", "a", "b")]
    for at, folder in enumerate(folders):
        folder.mkdir(parents=True)
        write_json(folder / "spec.json", {})
        os.utime(folder / "spec.json", (at, at))
        processes.write_pid(folder, os.getpid())
        assert processes.hold(folder) is not None
        write_json(folder / "progress.json", {"state": "queued"})
    assert [runner.Task(folder.name, folder).status().before for folder in folders] == [0, 1, 2]
    (folders[1] / "cancelled").touch()
    assert runner.unfinished_tasks(store.root / "jobs") == ["c", "b"]

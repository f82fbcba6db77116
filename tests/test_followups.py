"""Work on finished analyses in the background: real processes on a real store."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlem_core import datasets, followups, jobs, shipped
from mlem_core.baselines import decoding
from mlem_core.errors import InputError
from mlem_core.spec import AnalysisSpec
from mlem_core.stimuli import write_csv
from mlem_core.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def wait(task: jobs.Job | followups.Followup, seconds: float = 60) -> str:
    end = time.monotonic() + seconds
    while task.status().state in ("queued", "running") and time.monotonic() < end:
        time.sleep(0.05)
    return task.status().state


@pytest.fixture(scope="module")
def job(store: Store, tmp_path_factory: pytest.TempPathFactory) -> jobs.Job:
    folder = tmp_path_factory.mktemp("input")
    table = datasets.load("probing").table
    table = table[table["sentence"].isin(table["sentence"].unique()[:60])]
    write_csv(table, folder / "words.csv")
    rng = np.random.default_rng(0)
    layers = {f"layer_{k:02d}": rng.standard_normal((len(table), 4)) for k in range(2)}
    np.savez(folder / "brain.npz", **layers)
    job = jobs.start(
        AnalysisSpec(
            stimuli=str(folder / "words.csv"),
            features=("tense", "number"),
            representations=(("brain", str(folder / "brain.npz")),),
        ),
        store,
    )
    assert wait(job) == "done"
    return job


def test_a_follow_up_makes_the_tables_that_its_function_makes(job: jobs.Job, store: Store) -> None:
    options = {"name": "decoding", "layers": [["brain", 1]]}
    task = followups.start("baseline", job.id, options, store)
    assert wait(task) == "done", task.status()
    analysis = job.analysis()
    rows = {("brain", 1): np.asarray(analysis.representations("brain", store)[1])}
    expected = decoding(analysis.stimuli, rows, analysis.folds).table
    pd.testing.assert_frame_equal(task.tables()["table"], expected)
    again = followups.find("baseline", job.id, options, store)
    assert again == task and again.status().state == "done"
    other = followups.find("baseline", job.id, {**options, "name": "univariate"}, store)
    assert other.status().state != "done"


def test_follow_ups_are_no_analyses(job: jobs.Job, store: Store) -> None:
    options = {"name": "decoding", "layers": [["brain", 0]]}
    task = followups.start("baseline", job.id, options, store)
    assert wait(task) == "done"
    own = [one.id for one in jobs.recent(store) if one.id != shipped.ID]
    assert own == [job.id]
    assert jobs.find(task.id, store) is None


def test_what_cannot_be_done_is_one_sentence(job: jobs.Job, store: Store) -> None:
    task = followups.start("baseline", job.id, {"name": "x", "layers": []}, store)
    assert wait(task) == "failed"
    assert "unknown baseline" in task.status().message or "baseline" in task.status().message
    assert "Traceback" not in task.status().message
    gone = followups.start("baseline", "0" * 16, {"name": "decoding", "layers": []}, store)
    assert wait(gone) == "failed"
    assert "no longer in the store" in gone.status().message
    with pytest.raises(InputError, match="baseline"):
        followups.find("bass", job.id, {}, store)


def test_a_damaged_result_is_made_again(job: jobs.Job, store: Store) -> None:
    options = {"name": "decoding", "layers": [["brain", 0], ["brain", 1]]}
    task = followups.start("baseline", job.id, options, store)
    assert wait(task) == "done"
    damaged: Path = task.result / "table.csv"
    damaged.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="start it again"):
        task.tables()
    assert task.status().state == "failed"
    assert wait(followups.start("baseline", job.id, options, store)) == "done"
    assert len(task.tables()["table"])

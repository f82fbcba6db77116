from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from damaging import damaged
from inputs import in_files, noise, words

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.storage.files import write_json
from mlem_core.storage.sealed import RESULT, seal
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, followups, processes, runner


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder, table = tmp_path_factory.mktemp("inputs"), words(20)
    spec = in_files(folder, table, {"brain": noise(len(table))}, folds=3)
    return run(spec, Store(folder / "first"))


@pytest.fixture
def job(analysis: Analysis, tmp_path: Path) -> analyses.Job:
    """A job that is done."""
    name = analyses.job_id(analysis.spec)
    job = analyses.Job(name, Store(tmp_path / "store").root / "jobs" / name, analysis.spec)
    job.folder.mkdir(parents=True)
    write_json(job.folder / "spec.json", analysis.spec.to_dict())
    assert runner.carry_out(job.folder, analyses.make) == 0
    return job


def same(one: Analysis, other: Analysis) -> bool:
    """Whether two analyses say the same, bit for bit."""
    tables, others = one.results().tables(), other.results().tables()
    return (
        one.spec == other.spec
        and one.stimuli.table.equals(other.stimuli.table)
        and np.array_equal(one.rsa, other.rsa)
        and np.array_equal(one.folds, other.folds)
        and one.notices == other.notices
        and all(tables[name].equals(others[name]) for name in tables)
    )


def problems(job: analyses.Job, expected: Analysis, seed: int, each: int) -> Iterator[str]:
    """What is wrong with what becomes of damaged files; every so many of them is made again."""
    store = Store(job.folder.parent.parent)
    for number, (what, _) in enumerate(damaged(job.folder, seed)):
        found = analyses.find(job.id, store)
        try:
            if found is None:
                if "spec.json" not in what and "result/" in what:
                    yield f"{what}: not found"
                found = job
            if found.spec != expected.spec:
                yield f"{what}: other choices"
            found.status()
            found.contents()
            if not same(found.analysis(), expected):
                yield f"{what}: other numbers"
        except InputError as error:
            if str(error).count("\n") or found.status().state != "failed":
                yield f"{what}: {error}"
            if number % each == 0:
                yield from not_repaired(found, expected, what)
        except Exception as error:
            yield f"{what}: {type(error).__name__}: {error}"


def not_repaired(job: analyses.Job, expected: Analysis, what: str) -> Iterator[str]:
    write_json(job.folder / "spec.json", expected.spec.to_dict())
    if runner.carry_out(job.folder, analyses.make) or not same(job.analysis(), expected):
        yield f"{what}: not made again"


LONG = [pytest.param(seed, 1, marks=pytest.mark.faults) for seed in range(1, 6)]


@pytest.mark.parametrize(("seed", "each"), [(0, 20), *LONG])
def test_a_damaged_result_is_never_shown_and_made_again(
    job: analyses.Job, analysis: Analysis, seed: int, each: int
) -> None:
    assert same(job.analysis(), analysis)
    assert not list(problems(job, analysis, seed, each))


def test_a_start_clears_what_stands_in_its_way(
    job: analyses.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(job.result)
    job.result.write_bytes(b"no folder")
    (job.folder / "pid.json").unlink()
    for name in ("spec.json", "failed.json", "progress.json", "log"):
        (job.folder / name).unlink(missing_ok=True)
        (job.folder / name).mkdir()

    class Started(Exception):
        pass

    def started(*asked: object, **how: object) -> None:
        raise Started

    monkeypatch.setattr(processes.subprocess, "Popen", started)
    with pytest.raises(Started):
        job.start(job.spec.to_dict(), "mlem_core.tasks.analyses")
    left = {path.name for path in job.folder.iterdir()}
    assert left == {"spec.json", "log"}


def test_work_on_an_analysis_is_never_shown_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    task = followups.find("chance", "0" * 16, {"x": 1}, store)
    table = pd.DataFrame({"model": ["a", "b"], "p": [0.25, 0.5]})

    def done() -> None:
        task.result.mkdir(parents=True)
        table.to_csv(task.result / "table.csv", index=False)
        (task.result / followups.CAPSULE).write_bytes(b"zip")
        seal(task.result, RESULT)

    done()
    assert task.tables()["table"].equals(table)
    assert task.file(followups.CAPSULE).read_bytes() == b"zip"
    for what, _ in damaged(task.result, seed=0):
        for look in (task.tables, lambda: task.file(followups.CAPSULE)):
            with pytest.raises(InputError, match=r"start it again|is not done"):
                look()
        assert task.status().state == "failed", what
        if not task.result.is_dir():
            done()


def example_problems(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[str]:
    """What is wrong with what becomes of damaged files of a copy of the example."""
    expected = examples.example()
    shutil.copytree(examples.FOLDER, folder)
    monkeypatch.setattr(examples, "FOLDER", folder)
    entries = {}
    for info in folder.glob("store/*/*/entry.json"):
        about = json.loads(info.read_text())
        entries[info.parent.name] = (about["stage"], about["version"], about["depends_on"])
    store = Store(folder.parent / "store", overlays=(folder / "store",))
    for what, path in damaged(folder, seed):
        try:
            kept = [name for name in entries if name in what]
            for name in kept:
                stage, version, depends_on = entries[name]
                if store.find(stage, version, **depends_on) is not None:
                    yield f"{what}: trusted"
            if not kept:
                examples.example.cache_clear()
                job = analyses.find(examples.ID, store)
                followups.find("audit", examples.ID, {}, store)
                if job is not None:
                    job.contents()
                    if not same(job.analysis(), expected):
                        yield f"{what}: other numbers"
        except InputError as error:
            if str(error) != examples.DAMAGED:
                yield f"{what}: {error}"
        except Exception as error:
            yield f"{what}: {type(error).__name__}: {error} of {path.name}"
    examples.example.cache_clear()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.faults) for n in (1, 2, 3))]
)
def test_a_damaged_example_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert not list(example_problems(tmp_path / "example", monkeypatch, seed))


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_store_gives_the_same_numbers(
    analysis: Analysis, tmp_path: Path, seed: int
) -> None:
    store = Store(tmp_path / "store")
    run(analysis.spec, store)
    bad = []
    for what, _ in damaged(store.root, seed):
        try:
            if not same(run(analysis.spec, Store(store.root)), analysis):
                bad.append(f"{what}: other numbers")
        except Exception as error:
            bad.append(f"{what}: {type(error).__name__}: {error}")
    assert not bad

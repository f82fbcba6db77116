import numpy as np
import pandas as pd
import pytest
from damaging import damaged
from inputs import in_files, noise, words

from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.base.files import write_json
from mlem_core.storage.digests import RESULT, seal
from mlem_core.storage.stage import save_result
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, followups, runner


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("inputs"), words(20)
    spec = in_files(folder, table, {"brain": noise(len(table))}, folds=3)
    return run(spec, Store(folder / "first"))


@pytest.fixture
def job(analysis, tmp_path):
    """A job that is done."""
    name = analyses.job_id(analysis.spec)
    job = analyses.Job(name, Store(tmp_path / "store").root / "jobs" / name, analysis.spec)
    job.folder.mkdir(parents=True)
    write_json(job.folder / "spec.json", analysis.spec.to_dict())
    assert runner.carry_out(job.folder, analyses.make_analysis) == 0
    return job


def same(one, other):
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


def problems(job, expected, seed, each):
    """What is wrong with what becomes of damaged files; every so many of them is made again."""
    store = Store(job.folder.parent.parent)
    for number, what in enumerate(damaged(job.folder, seed)):
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
                write_json(found.folder / "spec.json", expected.spec.to_dict())
                status = runner.carry_out(found.folder, analyses.make_analysis)
                if status or not same(found.analysis(), expected):
                    yield f"{what}: not made again"
        except Exception as error:
            yield f"{what}: {type(error).__name__}: {error}"


LONG = [pytest.param(seed, 1, marks=pytest.mark.faults) for seed in range(1, 6)]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "each"), [(0, 20), *LONG])
def test_a_damaged_result_is_never_shown_and_made_again(job, analysis, seed, each):
    assert same(job.analysis(), analysis)
    assert not list(problems(job, analysis, seed, each))


def test_work_on_an_analysis_is_never_shown_damaged(tmp_path):
    store = Store(tmp_path / "store")
    task = followups.followup_of("chance", "0" * 16, {"x": 1}, store)
    table = pd.DataFrame({"model": ["a", "b"], "p": [0.25, 0.5]})

    def done():
        task.result.mkdir(parents=True)
        save_result({"table": table}, task.result)
        (task.result / followups.CAPSULE).write_bytes(b"zip")
        seal(task.result, RESULT)

    done()
    assert task.tables()["table"].equals(table)
    assert task.file(followups.CAPSULE).read_bytes() == b"zip"
    for what in damaged(task.result, seed=0):
        for look in (task.tables, lambda: task.file(followups.CAPSULE)):
            with pytest.raises(InputError, match=r"start it again|is not done"):
                look()
        assert task.status().state == "failed", what
        if not task.result.is_dir():
            done()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_store_gives_the_same_numbers(analysis, tmp_path, seed):
    store = Store(tmp_path / "store")
    run(analysis.spec, store)
    bad = []
    for what in damaged(store.root, seed):
        try:
            if not same(run(analysis.spec, Store(store.root)), analysis):
                bad.append(f"{what}: other numbers")
        except Exception as error:
            bad.append(f"{what}: {type(error).__name__}: {error}")
    assert not bad

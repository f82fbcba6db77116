"""Killed at any call, without room, several at once, or damaged: done anew it gives the same."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from helpers.commands import SCRIPTED, analyze, command, contents, inputs_in
from helpers.damaging import damaged
from helpers.inputs import for_each, in_files, noise, words
from helpers.permissions import limited

from mlem_core import InputError, Store, run
from mlem_core.base.files import write_json
from mlem_core.storage.digests import RESULT, seal
from mlem_core.tasks import analyses, followups, runner

SOME = ("upload", "analyze-warm", "worker", "deletion")


@for_each(
    "scenario, most",
    *(pytest.param(name, 6, marks=pytest.mark.slow) for name in SOME),
    *(pytest.param(name, 0, marks=pytest.mark.faults) for name in ("bootstrap-warm", *SOME)),
)
def test_work_killed_at_some_or_all_calls(scenario, most, tmp_path):
    arguments = [
        sys.executable,
        "-m",
        "helpers.crash",
        scenario,
        str(tmp_path / "crash"),
        str(most),
    ]
    done = subprocess.run(arguments, env=SCRIPTED, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])[scenario]
    print(f"{scenario}: killed {outcome['kills']} times at {outcome['calls']} calls")
    assert outcome["amiss"] == {} and most in (0, outcome["kills"])


def left_over(disk):
    unfinished = disk / "store" / "unfinished"
    return [*(disk / "tmp").glob("*"), *(disk / "work").rglob(".*"), *unfinished.glob("*")]


SIZES = (0, 300, 1000, 4000, 16000, 64000)
OPTIONS = ((), ("--bootstrap", "20"))


@for_each(
    "size, warm, more",
    pytest.param(100, False, (), marks=pytest.mark.slow),
    *(
        pytest.param(*case, marks=pytest.mark.faults)
        for case in itertools.product(SIZES, (False, True), OPTIONS)
    ),
)
def test_a_disk_that_is_full(tmp_path, size, warm, more):
    around = {"BROWSER_PATH": "none"}
    if warm:
        first = analyze(tmp_path, **around)
        assert first.returncode == 0, first.stderr.decode()
    (tmp_path / "work").mkdir(exist_ok=True)
    before = contents(tmp_path / "work")
    done = analyze(tmp_path, *more, before=limited("RLIMIT_FSIZE", size), **around)
    said = done.stderr.decode()
    assert done.returncode in ((2,) if size == 100 else (0, 2)), said
    if done.returncode == 2:
        # What the stimuli are warned of may stand before it.
        *warned, last = said.splitlines()
        assert "free" in last and "Traceback" not in said, said
        assert all(line.startswith("The stimuli have") for line in warned), said
        assert contents(tmp_path / "work") == before
    assert not left_over(tmp_path)
    again = analyze(tmp_path, *more, **around)
    assert again.returncode == 0, again.stderr.decode()


def analyzed(options, out, store, **how):
    arguments = ["analyze", *options, "--out", str(out)]
    return command(arguments, out.parent, MLEM_CACHE=str(store), **how)


@pytest.mark.faults
def test_five_processes_with_equal_and_different_work(tmp_path):
    options = inputs_in(tmp_path / "in")
    alone = {}
    for seed in ("0", "1"):
        out = tmp_path / f"alone{seed}"
        assert analyzed([*options, "--seed", seed], out, tmp_path / "other").returncode == 0
        alone[seed] = contents(out)
    seeds = ["0", "1", "0", "0", "1"]
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "mine.txt").write_text("mine")
    for shared in (False, True):
        outs = [tmp_path / ("shared" if shared else f"own{n}") for n in range(5)]
        running = [
            analyzed([*options, "--seed", seed], out, tmp_path / "store", by=subprocess.Popen)
            for seed, out in zip(seeds, outs, strict=True)
        ]
        said = [each.communicate(timeout=250)[1] for each in running]
        assert [each.returncode for each in running] == [0] * 5, said
        if shared:
            assert contents(outs[0]) in [{**files, "mine.txt": b"mine"} for files in alone.values()]
        else:
            assert [contents(out) for out in outs] == [alone[seed] for seed in seeds]
    assert not any((tmp_path / "store" / "unfinished").iterdir())


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
    assert runner.execute(job.folder, followups.make) == 0
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
                status = runner.execute(found.folder, followups.make)
                if status or not same(found.analysis(), expected):
                    yield f"{what}: not made again"
        except Exception as error:
            yield f"{what}: {type(error).__name__}: {error}"


SEEDS = [pytest.param(seed, 1, marks=pytest.mark.faults) for seed in range(1, 6)]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "each"), [(0, 20), *SEEDS])
def test_a_damaged_result_is_never_shown_and_made_again(job, analysis, seed, each):
    assert same(job.analysis(), analysis)
    assert not list(problems(job, analysis, seed, each))


@for_each("damage", (b"),", b"(("), (b"{'d", b"''d"))
def test_a_header_that_numpy_cannot_break_into_tokens(job, damage):
    file = job.folder / "result" / "rsa.npy"
    file.write_bytes(file.read_bytes().replace(*damage, 1))
    assert job.contents() is None


def test_work_on_an_analysis_is_never_shown_damaged(tmp_path):
    task = followups.get_followup("chance", "0" * 16, {"x": 1}, Store(tmp_path / "store"))

    def done():
        task.result.mkdir(parents=True)
        (task.result / followups.ARCHIVE).write_bytes(b"zip")
        seal(task.result, RESULT)

    done()
    assert task.file(followups.ARCHIVE).read_bytes() == b"zip"
    for what in damaged(task.result, seed=0):
        with pytest.raises(InputError, match=r"start it again|is not done"):
            task.file(followups.ARCHIVE)
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

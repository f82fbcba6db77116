"""A cluster: bit for bit the numbers of no workers, whatever goes wrong with these."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import Client
from inputs import arguments_of, finished, refused
from waiting import until

from mlem_core import InputError, Progress, Store, computing_on, explain, run, with_intervals
from mlem_core.base.work import in_order
from mlem_core.cli.commands import main
from mlem_core.inference import bootstrap
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.models.arrays import open_arrays
from mlem_core.robustness.audit import audit
from mlem_core.scale import cluster as clusters
from mlem_core.scale.executor import HERE, executor

slow = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


def after_layers(number, act):
    """Acts once so many layers are done."""
    acted: list[int] = []

    def report(progress):
        if progress.stage == "pair tables" and progress.done >= number and not acted:
            acted.append(progress.done)
            act()

    return report


def busy(there):
    """Whether a worker does or waits to do anything."""
    own = there.client.run(lambda dask_worker: dask_worker.state.executing_count)
    return any(own.values()) or any(there.client.processing().values())


@contextmanager
def started(*arguments, path=ROOT):
    """A process of Dask's own command line, as on another machine."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        cwd=path,
        env={**os.environ, "PYTHONPATH": str(path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def scheduler(folder):
    """`dask scheduler`, and its address."""
    about = folder / "scheduler.json"
    with started(
        "scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(about)
    ) as process:
        until(about.exists)
        with Client(scheduler_file=str(about), set_as_default=False) as client:
            address = client.scheduler.address
        yield process, address


def worker(address, *arguments, **more):
    """`dask worker` without a nanny: it stays dead."""
    alone = "--nthreads", "1", "--no-nanny", "--no-dashboard"
    return started("worker", address, *alone, *arguments, **more)


def test_without_dask_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with refused("pip install dask distributed"), computing_on("local:2"):
        raise AssertionError


def test_a_header_that_threads_mix_up_is_read_again(tmp_path, monkeypatch):
    """CPython 3.11 raises SystemError where two threads read Python at once, as NumPy does."""
    np.save(tmp_path / "layer.npy", np.eye(3))
    read, mixed_up = ast.literal_eval, []

    def mixing(text):
        mixed_up.append(text)
        if len(mixed_up) == 1:
            raise SystemError("AST constructor recursion depth mismatch")
        return read(text)

    monkeypatch.setattr(ast, "literal_eval", mixing)
    assert open_arrays(tmp_path / "layer.npy", 3).names == {0: "layer_00"}


LOCALLY = """
import sys, time
from pathlib import Path
from mlem_core.scale.cluster import computing_on
if __name__ == "__main__":
    with computing_on("local:1") as there:
        there.marker(Path(sys.argv[1]))
        (Path(sys.argv[1]) / "ready").touch()
        time.sleep(100)
"""


@slow
def test_processes_of_this_machine_listen_to_it_alone_and_leave_nothing(tmp_path, monkeypatch):
    store, temporary = tmp_path / "store", tmp_path / "tmp"
    store.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (tmp_path / "locally.py").write_text(LOCALLY)
    command = [sys.executable, str(tmp_path / "locally.py"), str(store)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as killed:
        until((store / "ready").exists)
        family = [psutil.Process(killed.pid), *psutil.Process(killed.pid).children(recursive=True)]
        sockets = [one for each in family for one in each.net_connections("inet")]
        listening = [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]
        assert len(listening) >= 4 and set(listening) == {"127.0.0.1"}
        killed.kill()
    assert len({*store.glob(".cluster*"), *temporary.iterdir()}) == 2
    with computing_on("local:1") as there:
        assert there.marker(store).exists()
    assert [one.name for one in store.iterdir()] == ["ready"] and not any(temporary.iterdir())


@slow
def test_a_worker_that_is_killed_costs_only_time(files_only, embedded, cluster, tmp_path):
    with computing_on(cluster) as there:
        pids = there.client.run(os.getpid)

        def kill():
            os.kill(next(iter(pids.values())), signal.SIGKILL)

        ours = run(files_only, Store(tmp_path), after_layers(1, kill))
    np.testing.assert_array_equal(ours.rsa, embedded.rsa)
    np.testing.assert_array_equal(ours.tables.rank_sums, embedded.tables.rank_sums)


@slow
def test_a_lost_scheduler_leaves_what_is_done(files_only, embedded, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "ANSWER", 3.0)
    store = Store(tmp_path / "store")
    with (
        scheduler(tmp_path) as (process, address),
        worker(address),
        refused(address, "went away", "kept in the store"),
        computing_on(address),
    ):
        run(files_only, store, after_layers(2, process.kill))
    kept = len(list((store.root / "layer-pairs").glob("*")))
    assert kept >= 2
    seen: list[Progress] = []
    with computing_on(cluster):
        ours = run(files_only, store, seen.append)
    first = next(one for one in seen[1:] if one.stage == "pair tables")
    assert first.done == kept
    np.testing.assert_array_equal(ours.rsa, embedded.rsa)


@slow
def test_a_worker_with_another_version_is_named(tmp_path):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "mlem_core", other / "mlem_core", ignore=shutil.ignore_patterns("trio"))
    (other / "mlem_core" / "base" / "brief.py").write_text("# another version\n")
    with (
        scheduler(tmp_path) as (_, address),
        worker(address, path=other),
        refused(address.partition("://")[0], "has mlem_core", "install the same"),
        computing_on(address),
    ):
        raise AssertionError


def test_a_worker_that_does_not_see_the_store_says_so(files_only, cluster, tmp_path):
    with computing_on(cluster) as there, refused("does not see the store", "MLEM_CACHE"):
        there.marker(tmp_path).unlink()
        run(files_only, Store(tmp_path), progress=False)


@slow
def test_work_that_kills_its_workers_is_given_up_in_a_sentence(cluster):
    def dies(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    with computing_on(cluster) as there, refused("workers died"):
        there.results(dies, [1])


@slow
def test_what_nobody_waits_for_any_more_is_stopped(cluster, tmp_path):
    def long(item):
        (tmp_path / f"began {item}").touch()
        for _ in in_order(lambda _: time.sleep(0.1), range(600 if item else 0), 1):
            pass

    with computing_on(cluster) as there:
        units = there.each_of(long, range(50))
        assert next(units) == (0, None)
        until(lambda: len(list(tmp_path.glob("began*"))) > 1)
        # As a report that stops the run: the iterator is left.
        units.close()
        until(lambda: not busy(there), 5)


@slow
def test_an_error_of_the_input_is_given_and_others_go_on(cluster):
    def halves(item):
        if item % 2:
            raise InputError(f"{item} is odd.")
        return item // 2

    with computing_on(cluster) as there:
        assert executor() is there
        found = dict(there.each_of(halves, range(4)))
        assert there.results(halves, [4, 2, 6]) == [2, 1, 3]
    assert executor().is_here
    assert (found[0], found[2], str(found[3])) == (0, 1, "3 is odd.")
    assert str(dict(HERE.each_of(halves, range(4)))[1]) == "1 is odd."


@slow
def test_models_run_where_there_are_gpus(tmp_path):
    def where(item):
        from distributed import get_worker

        return get_worker().name

    with (
        scheduler(tmp_path) as (_, address),
        worker(address, "--resources", "GPU=1"),
        worker(address),
        computing_on(address) as there,
    ):
        there.client.wait_for_workers(2)
        workers = there.client.scheduler_info(n_workers=-1)["workers"]
        (own,) = (one["id"] for one in workers.values() if one["resources"])
        assert {name for _, name in there.each_of(where, range(8), gpu=True)} == {own}


def same(ours, theirs):
    assert ours.layers == theirs.layers
    assert ours.notices == theirs.notices
    np.testing.assert_array_equal(ours.rsa, theirs.rsa)
    for name in ("scores", "importance", "similarity_rsa"):
        mine, other = getattr(ours.results(), name), getattr(theirs.results(), name)
        pd.testing.assert_frame_equal(mine, other, check_exact=True)
    pd.testing.assert_frame_equal(ours.pair_errors, theirs.pair_errors, check_exact=True)


def same_fields(ours, theirs):
    """Two studies have the same tables, arrays and everything else."""
    for field in fields(ours):  # type: ignore[arg-type]
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(mine, pd.DataFrame):
            pd.testing.assert_frame_equal(mine, other, check_exact=True)
        elif isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, other)
        else:
            assert mine == other


def test_the_command_line_takes_a_cluster(files_only, embedded, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    asked = ["analyze", *arguments_of(files_only), "--out", str(tmp_path / "out")]
    address = cluster.scheduler_address
    assert main([*asked, "--cluster", address]) == 0
    embedded.results().write(tmp_path / "here", embedded.manifest)
    for file in ("scores.csv", "importance.csv", "similarity_rsa.csv"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["machine"]["cluster"].startswith(f"{address} (")


CASES = {
    "all pairs": {},
    "some pairs": {"pairs": 5000, "folds": 3},
    "without position 0": {"positions": "without-first", "units": "standardised"},
}


@pytest.fixture(scope="module")
def of_both(spec, tmp_path_factory):
    """What this process alone finds of the model and the file."""
    return finished(tmp_path_factory.mktemp("of_both"), spec, {})


@slow
@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_what_none_do(spec, of_both, cluster, tmp_path, case):
    asked, store = replace(spec, **CASES[case]), Store(tmp_path / "there")
    with computing_on(cluster):
        ours = run(asked, store, progress=False)
    same(ours, run(asked, Store(tmp_path), progress=False) if CASES[case] else of_both.analysis)
    # What was kept for a run that breaks off is not needed any more.
    for folder in ("layer-pairs", "layer-ranks"):
        assert not list((store.root / folder).glob("*"))


@pytest.fixture(scope="module")
def audited(of_both):
    """The audit, as this process alone finds it."""
    return audit(of_both.analysis, of_both.store)


@slow
def test_two_workers_audit_as_none_do(spec, audited, cluster, tmp_path):
    store = Store(tmp_path)
    with computing_on(cluster):
        found = audit(run(spec, store, progress=False), store)
    same_fields(found, audited)


@slow
def test_two_workers_draw_the_replicates_of_none(spec, of_both, cluster, tmp_path, monkeypatch):
    here, there, analysis = of_both.store, Store(tmp_path), of_both.analysis
    a, b = analysis.layers[1], analysis.layers[-1]
    ours = with_intervals(explain(analysis, a, b), analysis, here)
    of_all = layer_intervals(analysis, here, n_replicates=30)

    def only_by_workers(*given):
        raise AssertionError("this process drew replicates")

    with computing_on(cluster):
        analysis = run(spec, there, progress=False)
        for function in (
            bootstrap.decompositions,
            bootstrap.score_replicates,
            bootstrap.without_each,
        ):
            # They go to workers by name, so that it is the worker's own that is called.
            monkeypatch.setattr(function, "__code__", only_by_workers.__code__)
        theirs = with_intervals(explain(analysis, a, b), analysis, there)
        again = layer_intervals(analysis, there, n_replicates=30)
    pd.testing.assert_frame_equal(theirs.terms, ours.terms, check_exact=True)
    pd.testing.assert_frame_equal(theirs.whole, ours.whole, check_exact=True)
    same_fields(again, of_all)

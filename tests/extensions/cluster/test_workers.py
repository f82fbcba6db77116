"""Other processes: bit for bit the numbers of threads, whatever goes wrong with a worker."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from helpers.inputs import arguments_of, refused
from helpers.repository import ROOT
from helpers.waiting import until
from joblib import parallel_config

from mlem_core import InputError, Store, run
from mlem_core.cli.commands import main
from mlem_core.extensions.cluster import workers
from mlem_core.extensions.cluster.workers import connect, run_units, uses_processes

slow = pytest.mark.slow


def after_layers(number, act):
    """A report that acts once so many layers are done."""
    acted: list[int] = []

    def report(progress):
        if progress.stage == "pairs of stimuli" and progress.done >= number and not acted:
            acted.append(progress.done)
            act()

    return report


def assert_same(ours, theirs):
    assert ours.layers == theirs.layers
    assert ours.notices == theirs.notices
    np.testing.assert_array_equal(ours.rsa, theirs.rsa)
    np.testing.assert_array_equal(ours.pairs.moments.products, theirs.pairs.moments.products)
    for name in ("scores", "importance", "similarity_rsa"):
        mine, other = getattr(ours.results(), name), getattr(theirs.results(), name)
        pd.testing.assert_frame_equal(mine, other, check_exact=True)
    pd.testing.assert_frame_equal(ours.pair_errors, theirs.pair_errors, check_exact=True)


@contextmanager
def dask_command(*arguments):
    """A process of Dask's own command line, as on another machine."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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
    """`dask scheduler` and its address."""
    about = folder / "scheduler.json"
    quiet = "--port", "0", "--dashboard-address", ":0"
    with dask_command("scheduler", *quiet, "--scheduler-file", str(about)) as process:
        until(about.exists)
        with Client(scheduler_file=str(about), set_as_default=False) as client:
            address = client.scheduler.address
        yield process, address


def test_threads_are_what_nobody_configured_or_asked_for():
    assert not uses_processes()
    for backend, n_jobs in (("threading", 2), ("loky", 1), ("loky", None)):
        with parallel_config(backend, n_jobs=n_jobs):
            assert not uses_processes()
    with parallel_config("loky", n_jobs=2):
        assert uses_processes()


def test_without_dask_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with refused("pip install dask distributed"), connect("tcp://127.0.0.1:1"):
        raise AssertionError


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "local:4", "no address"])
def test_where_nobody_answers_a_sentence_says_what_to_start(address, monkeypatch):
    monkeypatch.setattr(workers, "ANSWER", 1.0)
    with refused(address, "dask scheduler"), connect(address):
        raise AssertionError


def test_the_command_line_takes_a_cluster(files_only, by_threads, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    requested = ["analyze", *arguments_of(files_only), "--out", str(tmp_path / "out")]
    assert main([*requested, "--cluster", cluster.scheduler_address]) == 0
    by_threads.results().write(tmp_path / "threads", by_threads.manifest)
    for file in ("scores.csv", "importance.csv", "similarity_rsa.csv"):
        ours, theirs = (tmp_path / folder / file for folder in ("out", "threads"))
        assert ours.read_bytes() == theirs.read_bytes()


CASES = {
    "all pairs": {},
    "some pairs": {"pairs": 5000, "folds": 3},
    "without position 0": {"positions": "without-first", "units": "standardised"},
}


@slow
@pytest.mark.parametrize(
    ("backend", "case"), [*(("dask", case) for case in CASES), ("loky", "some pairs")]
)
def test_processes_give_the_bytes_of_threads(with_model, cluster, tmp_path, backend, case):
    spec, store = replace(with_model, **CASES[case]), Store(tmp_path / "processes")
    with Client(cluster, set_as_default=False) as client:
        how = {"client": client} if backend == "dask" else {"n_jobs": 2}
        with parallel_config(backend, **how):
            ours = run(spec, store, progress=False)
    assert_same(ours, run(spec, Store(tmp_path / "threads"), progress=False))
    # What was kept for a run that breaks off is not needed any more.
    assert not list((store.root / "layer-pass").glob("*"))


@slow
def test_a_worker_that_is_killed_costs_its_unit(files_only, by_threads, cluster, tmp_path):
    with Client(cluster, set_as_default=False) as client:
        pids = client.run(os.getpid)

        def kill():
            os.kill(next(iter(pids.values())), signal.SIGKILL)

        with parallel_config("dask", client=client):
            ours = run(files_only, Store(tmp_path), after_layers(1, kill))
    assert_same(ours, by_threads)


def kills_its_process(folder, item):
    """Unit that kills the first process that has it, or each where the item says so."""
    if item == "always" or not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / f"unit {item}").touch()


@slow
def test_a_process_of_loky_that_is_killed_costs_its_unit(tmp_path):
    ended: list[int] = []
    with parallel_config("loky", n_jobs=2):
        assert run_units(partial(kills_its_process, tmp_path), int, 5, ended.append) == {}
        assert ended == [1, 2, 3, 4, 5] and len(list(tmp_path.glob("unit *"))) == 5
        with refused("processes died 3 times", "n_jobs"):
            run_units(partial(kills_its_process, tmp_path), lambda _: "always", 1, ended.append)


@slow
def test_a_unit_that_kills_its_workers_is_given_up_in_a_sentence(cluster, tmp_path):
    with connect(cluster.scheduler_address), refused("KilledWorker", "more memory"):
        run_units(partial(kills_its_process, tmp_path), lambda _: "always", 1, print)


@slow
def test_a_lost_scheduler_leaves_the_units_that_are_done(files_only, by_threads, tmp_path):
    store = Store(tmp_path / "store")
    with (
        scheduler(tmp_path) as (process, address),
        dask_command("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"),
        refused("scheduler went away", "in the store"),
        connect(address),
    ):
        run(files_only, store, after_layers(2, process.kill))
    kept, seen = len(list((store.root / "layer-pass").glob("*"))), []
    assert kept >= 2
    with parallel_config("loky", n_jobs=2):
        ours = run(files_only, store, seen.append)
    assert next(one.done for one in seen if one.stage == "pairs of stimuli" and one.done) == kept
    assert_same(ours, by_threads)


def halve(item):
    if item % 2:
        raise InputError(f"{item} is odd.")


@slow
def test_an_error_of_the_input_is_given_and_others_go_on(cluster, monkeypatch):
    with connect(cluster.scheduler_address):
        errors = run_units(halve, int, 4, print)
        assert {number: str(error) for number, error in errors.items()} == {
            1: "1 is odd.",
            3: "3 is odd.",
        }
        monkeypatch.setattr(workers, "versions", lambda: (("mlem_core", "0.0"),))
        with refused("has mlem_core", "this process has 0.0", "install the same"):
            run_units(halve, int, 1, print)


def wait_long(folder, item):
    (folder / f"began {item}").touch()
    time.sleep(0.2 if item else 0)


@slow
@pytest.mark.parametrize("backend", ["dask", "loky"])
def test_a_cancelled_run_drops_what_waits(cluster, tmp_path, backend):
    cancelled: list[float] = []

    def cancel(_):
        cancelled.append(time.monotonic())
        raise KeyboardInterrupt

    with Client(cluster, set_as_default=False) as client:
        how = {"client": client} if backend == "dask" else {"n_jobs": 2}
        with parallel_config(backend, **how), pytest.raises(KeyboardInterrupt):
            run_units(partial(wait_long, tmp_path), int, 100, cancel)
        assert time.monotonic() - cancelled[0] < 5
        time.sleep(1)
        assert len(list(tmp_path.glob("began *"))) < 20

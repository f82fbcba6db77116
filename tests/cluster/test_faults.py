"""What goes wrong on a cluster: workers that die, a scheduler that goes away, other versions."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest
from distributed import Client
from inputs import in_files, words
from tiny import told

import mlem_core
from mlem_core.analysis.run import run
from mlem_core.base import cluster as clusters
from mlem_core.base.cluster import Cluster
from mlem_core.base.errors import InputError
from mlem_core.base.executor import Here, computing_on, executor, from_environment, results
from mlem_core.base.held import scratch
from mlem_core.base.typing import Progress
from mlem_core.cli.commands import main
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses

ROOT = Path(__file__).resolve().parents[2]


def after_layers(number: int, act: Callable[[], None]) -> Callable[[Progress], None]:
    """Acts once so many layers are done."""
    acted: list[int] = []

    def report(progress: Progress) -> None:
        if progress.stage == "pair tables" and progress.done >= number and not acted:
            acted.append(progress.done)
            act()

    return report


@contextmanager
def started(*arguments: str, path: Path = ROOT) -> Iterator[subprocess.Popen]:
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
def scheduler(folder: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """`dask scheduler`, and its address."""
    about = folder / "scheduler.json"
    with started(
        "scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(about)
    ) as process:
        end = time.monotonic() + 60
        while not about.exists() and time.monotonic() < end:
            time.sleep(0.05)
        with Client(scheduler_file=str(about), set_as_default=False) as client:
            address = client.scheduler.address
        yield process, address


def worker(address: str, *arguments: str, **more: Path) -> contextmanager:
    """`dask worker` without a nanny: it stays dead."""
    alone = "--nthreads", "1", "--no-nanny", "--no-dashboard"
    return started("worker", address, *alone, *arguments, **more)


@pytest.fixture(scope="module")
def embedded(files_only, tmp_path_factory):
    return run(files_only, Store(tmp_path_factory.mktemp("embedded")), progress=False)


@pytest.mark.parametrize("shared", [True, False])
def test_a_worker_that_is_killed_costs_only_time(
    files_only, embedded, cluster, tmp_path, monkeypatch, shared
):
    if not shared:
        monkeypatch.setattr(clusters, "sees", lambda token: False)
    with computing_on(cluster) as there:
        pids = there._client.run(os.getpid)

        def kill() -> None:
            os.kill(next(iter(pids.values())), signal.SIGKILL)

        ours = run(files_only, Store(tmp_path), after_layers(1, kill))
    np.testing.assert_array_equal(ours.rsa, embedded.rsa)
    np.testing.assert_array_equal(ours.tables.rank_sums, embedded.tables.rank_sums)


def test_a_scheduler_that_goes_away_leaves_what_was_done(
    files_only, embedded, cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(clusters, "ANSWER", 3.0)
    store = Store(tmp_path / "store")
    with scheduler(tmp_path) as (process, address), worker(address):  # noqa: SIM117
        with computing_on(address), pytest.raises(InputError, match="went away") as error:
            run(files_only, store, after_layers(2, process.kill))
    assert "goes on from what is kept" in told(error)
    kept = len(list((store.root / "layer-pairs").glob("*")))
    assert kept >= 2
    seen: list[Progress] = []
    with computing_on(cluster):
        ours = run(files_only, store, seen.append)
    first = next(one for one in seen[1:] if one.stage == "pair tables")
    assert first.done == kept
    np.testing.assert_array_equal(ours.rsa, embedded.rsa)


def test_a_worker_with_another_version_is_named(tmp_path):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "mlem_core", other / "mlem_core", ignore=shutil.ignore_patterns("trio"))
    (other / "mlem_core" / "base" / "brief.py").write_text("# another version\n")
    with (
        scheduler(tmp_path) as (_, address),
        worker(address, path=other),
        pytest.raises(InputError, match="has mlem_core") as error,
        computing_on(address),
    ):
        raise AssertionError
    assert address.partition("://")[0] in told(error) and "install the same" in told(error)


def test_nobody_answers(monkeypatch):
    monkeypatch.setattr(clusters, "ANSWER", 0.5)
    with (
        pytest.raises(InputError, match="no Dask scheduler answers") as error,
        computing_on("tcp://127.0.0.1:9"),
    ):
        raise AssertionError
    told(error)


LOCALLY = """
import sys, time
from pathlib import Path
from mlem_core.base.executor import computing_on
if __name__ == "__main__":
    with computing_on("local:1") as there:
        assert there.shares(Path(sys.argv[1]))
        (Path(sys.argv[1]) / "ready").touch()
        time.sleep(100)
"""


def test_processes_of_this_machine_listen_to_it_alone_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    store, temporary = tmp_path / "store", tmp_path / "tmp"
    store.mkdir()
    temporary.mkdir()
    (tmp_path / "locally.py").write_text(LOCALLY)
    command = [sys.executable, str(tmp_path / "locally.py"), str(store)]
    killed = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        end = time.monotonic() + 60
        while not (store / "ready").exists() and time.monotonic() < end:
            time.sleep(0.05)
        family = [psutil.Process(killed.pid), *psutil.Process(killed.pid).children(recursive=True)]
        sockets = [one for each in family for one in each.net_connections("inet")]
        listening = [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]
        assert len(listening) >= 4 and set(listening) == {"127.0.0.1"}
    finally:
        killed.kill()
        killed.wait()
    left = {*store.glob(".cluster*"), *temporary.iterdir()}
    assert len(left) == 2
    with computing_on("local:1") as there:
        assert there.shares(store)
        own = {*store.glob(".cluster*"), *temporary.iterdir()}
        assert len(own) == 2 and not own & left
        # A second one takes nothing from a first that is at work.
        other = Cluster(there._client, "another")
        with other, scratch("dask"):
            assert other.shares(store)
            assert own < {*store.glob(".cluster*"), *temporary.iterdir()}
    assert [one.name for one in store.iterdir()] == ["ready"] and not any(temporary.iterdir())


def test_a_worker_that_is_killed_at_its_start_is_one_sentence(monkeypatch):
    dies = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    monkeypatch.setitem(clusters.LOCAL, "distributed.worker.preload", [dies])
    with (
        pytest.raises(InputError, match="worker of local:1 was killed as it started") as error,
        computing_on("local:1"),
    ):
        raise AssertionError
    told(error)


def test_a_worker_that_dies_while_it_is_looked_at_is_no_other_version(cluster, monkeypatch):
    def dies() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with computing_on(cluster) as there:
        monkeypatch.setattr(clusters, "about_here", dies)
        there.check()


@pytest.mark.parametrize("there", [False, True])
def test_an_encrypted_scheduler_wants_a_certificate(tmp_path, there):
    keys = ("ca-file", "client.cert", "client.key")
    settings = {f"distributed.comm.tls.{key}": None for key in keys}
    if there:
        settings = dict.fromkeys(settings, str(tmp_path / "none.pem"))
    with (
        dask.config.set(settings),
        pytest.raises(InputError, match="wants a certificate") as error,
        computing_on("tls://127.0.0.1:9"),
    ):
        raise AssertionError
    assert "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT" in told(error)
    assert ("cannot be read" in told(error)) == there


def test_work_that_kills_its_workers_is_given_up_in_a_sentence(cluster):
    def dies(item: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with computing_on(cluster) as there, pytest.raises(InputError, match="workers died") as error:
        results(there, dies, [1])
    told(error)


def test_what_nobody_waits_for_any_more_is_stopped(cluster, tmp_path):
    def slow(item: int) -> None:
        from mlem_core.base.parallel import in_order

        (tmp_path / f"began {item}").touch()
        for _ in in_order(lambda _: time.sleep(0.1), range(600), 1):
            pass

    with computing_on(cluster) as there:

        def stop() -> None:
            while not list(tmp_path.glob("began*")):
                time.sleep(0.05)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            # As a report that stops the run: the iterator is left.
            stop_after(there.each_of(slow, range(50)), stop)
        end = time.monotonic() + 5
        while busy(there) and time.monotonic() < end:
            time.sleep(0.1)
        assert not busy(there)


def busy(there: Cluster) -> bool:
    """Whether a worker does or waits to do anything."""
    own = there._client.run(lambda dask_worker: dask_worker.state.executing_count)
    return any(own.values()) or any(there._client.processing().values())


def stop_after(work: Iterator[tuple[int, object]], stop: Callable[[], None]) -> None:
    from mlem_core.base import cluster as own

    seen = own._Work.finished

    def finished(self: object) -> list[int]:
        stop()
        return seen(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own._Work, "finished", finished)
        next(work)


def test_an_error_of_the_input_is_given_and_others_go_on(cluster):
    def halves(item: int) -> int:
        from mlem_core.base.errors import InputError

        if item % 2:
            raise InputError(f"{item} is odd.")
        return item // 2

    with computing_on(cluster) as there:
        assert executor() is there
        found = dict(there.each_of(halves, range(4)))
        with pytest.raises(InputError, match="1 is odd"):
            results(there, halves, range(2))
        assert results(there, halves, [4, 2, 6]) == [2, 1, 3]
    assert executor().is_here
    assert (found[0], found[2], str(found[3])) == (0, 1, "3 is odd.")
    assert str(dict(Here().each_of(halves, range(4)))[1]) == "1 is odd."


def test_without_dask_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(InputError, match=r"pip install 'mlem-core\[cluster\]'") as error,
        computing_on("local:2"),
    ):
        raise AssertionError
    told(error)


@pytest.mark.parametrize(
    "text", ["local", "local:0", "4", "http://host:1", "tcp://", "tcp://h", "tcp://h:-1"]
)
def test_what_names_no_cluster_is_told_the_forms(text, monkeypatch):
    with (
        pytest.raises(InputError, match=r"local:4 .* and tcp://host:8786") as error,
        computing_on(text),
    ):
        raise AssertionError
    told(error)
    monkeypatch.setenv("MLEM_CLUSTER", text)
    with pytest.raises(InputError, match="MLEM_CLUSTER"):
        from_environment()


def test_a_client_is_taken_and_left_open(cluster):
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)  # tests before this one kill some
        with mlem_core.computing_on(client) as there:
            assert there.n_workers == 2
        assert client.status == "running"


def test_cancelling_a_task_leaves_nothing_at_work_on_the_cluster(tmp_path, monkeypatch):
    """As the app does it: the task's process is killed, and the cluster is of other machines."""
    monkeypatch.setenv("MLEM_CLUSTER", "")
    table = words(400)
    rng = np.random.default_rng(0)
    layers = {k: rng.standard_normal((len(table), 64)) for k in range(40)}
    many = in_files(tmp_path, table, {"file": layers})
    with scheduler(tmp_path) as (_, address), worker(address):
        monkeypatch.setenv("MLEM_CLUSTER", address)
        job = analyses.start(many, Store(tmp_path / "store"))
        end = time.monotonic() + 100
        while time.monotonic() < end:
            status = job.status()
            assert status.state in ("queued", "running"), status
            if any(one.stage == "pair tables" and one.done for one in status.stages):
                break
            time.sleep(0.05)
        assert status.where == f"{address} (1 worker)"
        job.cancel()
        with computing_on(address) as there:
            end = time.monotonic() + 5
            while busy(there) and time.monotonic() < end:
                time.sleep(0.1)
            assert not busy(there)
    assert job.status().state == "cancelled"


def test_the_command_line_takes_a_cluster(files_only, embedded, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    ((name, path),) = files_only.representations
    asked = ["analyze", "--stimuli", files_only.stimuli, "--representations", f"{name}={path}"]
    address = cluster.scheduler_address
    assert main([*asked, "--cluster", address, "--out", str(tmp_path / "out")]) == 0
    embedded.results().write(tmp_path / "here", embedded.manifest)
    for file in ("scores.csv", "importance.csv", "similarity_rsa.csv"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["machine"]["cluster"] == f"{address} (2 workers)"
    monkeypatch.setenv("MLEM_CLUSTER", "tcp:host")
    assert main([*asked, "--out", str(tmp_path / "out")]) == 2


def test_a_model_that_a_worker_does_not_have_is_one_sentence(spec, cluster, tmp_path):
    def without() -> None:
        from mlem_core.base.errors import InputError
        from mlem_core.models import representations

        def none(name: str, *_: object) -> None:
            raise InputError(f"the model {name} is not on this machine.")

        representations.kept, representations.open_model = representations.open_model, none

    def mended() -> None:
        from mlem_core.models import representations

        representations.open_model = representations.kept

    with computing_on(cluster) as there:
        there._client.run(without)
        try:
            alone = replace(spec, representations=())
            with pytest.raises(InputError, match="the model mini-gpt2 is not on this") as error:
                run(alone, Store(tmp_path), progress=False)
        finally:
            there._client.run(mended)
    assert f"on {platform.node()}" in told(error)


def test_models_run_where_there_are_gpus(tmp_path):
    with (
        scheduler(tmp_path) as (_, address),
        worker(address, "--resources", "GPU=1"),
        worker(address),
        computing_on(address) as there,
    ):
        while there.n_workers < 2:
            time.sleep(0.1)
        workers = there._client.scheduler_info(n_workers=-1)["workers"]
        (own,) = (one["id"] for one in workers.values() if one["resources"])

        def where(item: int) -> str:
            from distributed import get_worker

            return get_worker().name

        assert {name for _, name in there.each_of(where, range(8), gpu=True)} == {own}

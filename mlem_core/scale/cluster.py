"""A Dask cluster that does units of work: who may work, what travels, and what faults become.

`computing_on("local:4")` names it for all that runs inside of it; without it, work is done here.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import platform
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import Empty
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.files import held, scratch, sweep
from mlem_core.base.text import many
from mlem_core.base.work import cores
from mlem_core.scale.executor import (
    HERE,
    Big,
    Executor,
    Sent,
    about_here,
    current,
    unfit,
    unit,
)

# Names a cluster for the command line and the app.
VARIABLE = "MLEM_CLUSTER"
FORMS = "local:4 (four processes on this machine) and tcp://host:8786 (a Dask scheduler)"
_LOCAL = re.compile(r"local:([1-9][0-9]{0,3})")
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://(\[[^\s/\[\]]+\]|[^\s/:\[\]]+):[0-9]{1,5}(/\S*)?")
INSTALL = "the package distributed is missing; install it with pip install dask distributed."
# Seconds until a scheduler that does not answer, or one without workers, is given up.
ANSWER, WORKERS = 10.0, 60.0
# How often what a unit needs is sent again where the worker that had it died.
TRIES = 5
# How often Dask has a unit done again that failed on a worker, whose disk may be full.
RETRIES = 1
# Units that wait at each thread of a worker, so that it never waits for this process.
AHEAD = 3
# Workers started here keep memory that they will want again, which Dask has them give back at once,
# and are not watched for a dashboard. Nobody else is told what they do.
LOCAL = {
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
    "distributed.worker.profile.enabled": False,
    "distributed.worker.preload": ["mlem_core.scale.executor"],
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_LOOK = 0.5  # seconds between two looks at the workers


class Cluster(Executor):
    """The workers of a Dask scheduler; `owned` ends what is made for them."""

    is_here = False

    def __init__(self, client: Any, name: str, owned: contextlib.ExitStack) -> None:
        self.client, self.name, self._owned = client, name, owned
        self._markers: dict[Path, Path] = {}
        self._threads: dict[str, int] = {}
        self._looked = self._last_there = 0.0

    @property
    def where(self) -> str:
        return f"{self.name} ({many(len(self._threads), 'worker')})"

    def marker(self, folder: Path) -> Path:
        """File of a folder by which each worker knows that it sees the same one."""
        if folder not in self._markers:
            # By machine: not every file system knows of the locks of others.
            name = f"cluster-{platform.node()}"
            sweep(folder, name)
            self._markers[folder] = self._owned.enter_context(held(folder, name, 0o666, folder))
        return self._markers[folder]

    def each_of(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        folder: Path | None = None,
        gpu: bool = False,
        threads: int = 1,
    ) -> Iterator[tuple[int, Any]]:
        """See `Executor`; `threads` are those of this process alone.

        Dask does again what a dead worker was doing or had done. What had been sent to that worker
        from here Dask cannot make again: it cancels the units that need it, which are sent anew.
        """
        from distributed import as_completed

        checks = Sent((_expected(), None if folder is None else self.marker(folder)))
        needs = {"GPU": 1} if gpu and self._has_gpus() else None
        there = self._sent(shared, everywhere=True)
        waiting: dict[Any, tuple[int, Any]] = {}
        ended: Any = as_completed(loop=self.client.loop, with_results=True, raise_errors=False)
        sent_again, numbered = Counter[int](), enumerate(items)

        def submit(position: int, item: Any) -> None:
            own = self._sent(item.load()) if isinstance(item, Big) else Sent(item)
            key = f"mlem-{function.__name__}-{uuid.uuid4().hex}"
            work = unit, function, there, own, checks
            future = self.client.submit(*work, key=key, resources=needs, retries=RETRIES)
            waiting[future] = position, item
            ended.add(future)

        try:
            while True:
                self.look()
                room = AHEAD * sum(self._threads.values()) - len(waiting)
                for position, item in itertools.islice(numbered, max(room, 0)):
                    submit(position, item)
                if not waiting:
                    return
                try:
                    future, value = ended.queue.get(timeout=_LOOK)
                except Empty:
                    continue
                position, item = waiting.pop(future)
                if not isinstance(value, CancelledError):
                    yield position, _killed(value[1]) if future.status == "error" else value
                    continue
                sent_again[position] += 1
                if sent_again[position] > TRIES or self.client.status != "running":
                    raise self._gone()
                if there.status != "finished":
                    there = self._sent(shared, everywhere=True)
                submit(position, item)
        finally:
            # Workers stop at their next look.
            if waiting and self.client.status == "running":
                with contextlib.suppress(Exception):
                    self.client.cancel(list(waiting), force=True)

    def _sent(self, value: Any, everywhere: bool = False) -> Any:
        """Dask's future of a value that went to a worker, or to each, but not to the scheduler."""
        for _ in range(TRIES):
            try:
                return self.client.scatter(
                    Sent(value), broadcast=everywhere, direct=True, hash=False
                )
            except (OSError, TimeoutError, KeyError):
                # The worker may just have died (a KeyError: the scheduler still counted on it).
                time.sleep(_LOOK)
                self.look()
        raise self._gone()

    def _has_gpus(self) -> bool:
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return any(worker["resources"].get("GPU") for worker in workers.values())

    def look(self) -> None:
        """See who is there, a few times a second at most.

        Raises InputError: the scheduler went away, or no worker was there for `WORKERS` seconds.
        """
        if self.client.status != "running":
            raise self._gone()
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        try:
            threads = self.client.nthreads()
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._gone() from error
        if threads:
            self._threads, self._last_there = threads, now
        elif now - self._last_there > WORKERS:
            raise InputError(
                f"no worker is left at {self.name}; start some and run it again: what was done is "
                "kept in the store."
            )

    def _gone(self) -> InputError:
        return InputError(
            f"the Dask scheduler at {self.name} went away; start it again and run the same: it "
            "goes on from what is kept in the store."
        )


def _expected() -> tuple[tuple[str, str], ...]:
    return tuple(about_here().items())


def _killed(error: BaseException) -> InputError:
    """The sentence where a unit killed its workers; another error is raised."""
    from distributed.scheduler import KilledWorker

    if not isinstance(error, KilledWorker):
        raise error
    last = getattr(error.last_worker, "address", "unknown")
    return InputError(
        f"several workers died while they did the same piece of work (last: {last}); give each "
        "more memory, or let fewer share a machine."
    )


@contextlib.contextmanager
def computing_on(cluster: Any = None) -> Iterator[Executor]:
    """Do what follows on a cluster, which is left at the end, and stopped if it was started here.

    Parameters
    ----------
    cluster : "local:4", "tcp://host:8786", a Dask client or cluster object of any kind
        (dask-jobqueue's, say); empty or None is this machine without any

    Raises
    ------
    InputError
        A text of another form, Dask is not installed, nobody answers, or a worker has another
        version of the package.

    Examples
    --------
    >>> with computing_on("") as here:
    ...     here.is_here
    True
    """
    if cluster is None or cluster == "":
        yield HERE
        return
    if isinstance(cluster, str):
        check_named(cluster)
    with contextlib.ExitStack() as owned:
        there = _connected(cluster, owned)
        token = current.set(there)
        try:
            yield there
        finally:
            current.reset(token)


def check_named(text: str) -> str:
    """Name of a cluster, unchanged; raises InputError where it names none."""
    if text and not _LOCAL.fullmatch(text) and not _ADDRESS.fullmatch(text):
        raise InputError(f"{text!r} names no cluster; the forms are {FORMS}.")
    return text


def from_environment() -> str:
    """The cluster that the environment names, or an empty text; raises as `check_named`."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        return check_named(text)
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}") from None


def _connected(where: Any, owned: contextlib.ExitStack) -> Cluster:
    """The cluster of a name, or of a Dask client or cluster object; `owned` ends what it starts."""
    try:
        import distributed
    except ImportError:
        raise InputError(INSTALL) from None
    # What goes wrong is said in one sentence, by whoever asked for the work.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    name = where if isinstance(where, str) else ""
    try:
        if name.startswith("local:"):
            where = _local(name, owned)
        client: Any = where
        if not isinstance(client, distributed.Client):
            client = distributed.Client(
                where, timeout=ANSWER, set_as_default=False, direct_to_workers=True
            )
            owned.callback(_close, client)
        cluster = Cluster(client, name or client.scheduler.address, owned)
        _check_workers(client, cluster.name)
        cluster.look()
    except InputError:
        raise
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {name or where}; start one with dask scheduler, and "
            "workers with dask worker; one of tls:// wants a certificate (docs/cluster.md)."
        ) from error
    return cluster


def _check_workers(client: Any, name: str) -> None:
    """Wait for a first worker, and raise where one cannot do what this process does."""
    try:
        client.wait_for_workers(1, WORKERS)
    except TimeoutError:
        raise InputError(
            f"no worker has come to {name} within {WORKERS:.0f} seconds; start some with dask "
            "worker."
        ) from None
    # By name: what a worker without the package cannot read is its error.
    for worker, reason in client.run(unfit, _expected(), on_error="return").items():
        if isinstance(reason, OSError):
            continue  # It has died: who takes its place says what it is with its first work.
        if isinstance(reason, Exception):
            raise InputError(
                f"the worker {worker} does not have mlem_core as it is here "
                f"({type(reason).__name__}: {reason}); install the same version there."
            )
        if reason:
            raise InputError(f"the worker {worker} {reason}")


def _local(name: str, owned: contextlib.ExitStack) -> Any:
    """Processes on this machine, which share its cores and listen to nobody outside of it."""
    import dask
    import distributed

    n_workers = int(name.partition(":")[2])
    folder = owned.enter_context(scratch("dask"))
    with dask.config.set({**LOCAL, "temporary-directory": str(folder)}):
        try:
            started = distributed.LocalCluster(
                n_workers=n_workers,
                threads_per_worker=max(1, cores() // n_workers),
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            raise InputError(
                f"a worker of {name} was killed as it started; give it more memory, or start fewer."
            ) from error
    owned.callback(_close, started)
    return started


def _close(one: Any) -> None:
    with contextlib.suppress(Exception):
        one.close()

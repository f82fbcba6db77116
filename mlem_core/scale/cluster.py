"""A Dask cluster that does pieces of work: what travels, who may work, and what faults become."""

from __future__ import annotations

import contextlib
import logging
import platform
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from mlem_core.base.errors import InputError
from mlem_core.base.held import held, scratch, sweep
from mlem_core.base.parallel import cores
from mlem_core.base.text import many
from mlem_core.scale.worker import Big, Sent, Token, about_here, difference, sees, unit

INSTALL = "the package distributed is missing; install it with pip install 'mlem-core[cluster]'."
# Seconds until a scheduler that does not answer, or one without workers, is given up.
ANSWER, WORKERS = 10.0, 60.0
# How often what a dead worker took with it is made again.
TRIES = 5
# Units that wait at each thread of a worker, so that it never waits for this process.
AHEAD = 3
# Workers started here keep memory that they will want again, which Dask has them give back at once,
# and are not watched for a dashboard. Nobody else is told what they do.
LOCAL = {
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
    "distributed.worker.profile.enabled": False,
    "distributed.worker.preload": ["mlem_core.scale.worker"],
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
TLS = ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
_LOOK = 0.5  # seconds between two looks at the workers
_ENDED = ("cancelled", "lost")


class Cluster:
    """See `mlem_core.scale.executor.Executor`; `connected` makes one."""

    is_here = False

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name, self.owned = client, name, contextlib.ExitStack()
        self._tokens: dict[Path, Token | None] = {}
        self._threads, self._looked, self._without = {"": 1}, 0.0, 0.0
        self.expected = about_here()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.owned.close()

    @property
    def n_workers(self) -> int:
        return len(self._workers())

    @property
    def where(self) -> str:
        return f"{self._name} ({many(len(self._threads), 'worker')})"

    def shares(self, folder: Path) -> bool:
        """Whether all workers see a folder of this process under the same name."""
        if folder not in self._tokens:
            # By machine: not every file system knows of the locks of others.
            name = f"cluster-{platform.node()}"
            sweep(folder, name)
            with contextlib.ExitStack() as stack:
                path = stack.enter_context(held(folder, name, 0o666, folder))
                token = Token(path, uuid.uuid4().hex)
                path.write_text(token.text)
                seen = self._client.run(sees, token, on_error="return")
                alike = bool(seen) and all(one is True for one in seen.values())
                if alike:
                    self.owned.enter_context(stack.pop_all())
            self._tokens[folder] = token if alike else None
        return self._tokens[folder] is not None

    def each_of(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        folder: Path | None = None,
        gpu: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """See `Executor`."""
        token = self._tokens[folder] if folder is not None else None
        work = _Work(self._client, function, shared, (self.expected, token), self._gone)
        if gpu and any(one["resources"].get("GPU") for one in self._workers().values()):
            work.needs = {"GPU": 1}
        try:
            waiting = enumerate(items)
            while True:
                self._look(work)
                room = AHEAD * sum(self._threads.values()) - len(work.running)
                for _, (position, item) in zip(range(room), waiting, strict=False):
                    work.submit(position, item)
                if not work.running:
                    return
                yield from work.values(work.finished())
        finally:
            work.drop()

    def _workers(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._gone() from error
        return found

    def _seen(self, workers: dict[str, Any], now: float) -> None:
        self._threads = {name: int(one["nthreads"]) for name, one in workers.items()}
        self._without = now

    def _look(self, work: _Work) -> None:
        """See who is there, a few times a second at most."""
        if self._client.status != "running":
            raise self._gone()
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        if there := self._workers():
            self._seen(there, now)
        elif now - self._without > WORKERS:
            raise InputError(
                f"no worker is left at {self._name}; start some and run it again: what was done is "
                "kept in the store."
            )
        work.look()

    def _gone(self) -> InputError:
        return InputError(
            f"the Dask scheduler at {self._name} went away; start it again and run the same: it "
            "goes on from what is kept in the store."
        )

    def check(self) -> None:
        """Wait for a first worker, and raise where one differs from this process."""
        end = time.monotonic() + WORKERS
        while not (there := self._workers()):
            if time.monotonic() > end:
                raise InputError(
                    f"no worker has come to {self._name} within {WORKERS:.0f} seconds; start some "
                    "with dask worker."
                )
            time.sleep(0.1)
        self._seen(there, time.monotonic())
        # By name: what a worker without the package cannot read is its error.
        for name, found in self._client.run(about_here, on_error="return").items():
            if isinstance(found, OSError):
                continue  # It has died: who takes its place says what it is with its first work.
            if isinstance(found, Exception):
                raise InputError(
                    f"the worker {name} does not have mlem_core as it is here "
                    f"({type(found).__name__}: {found}); install the same version there."
                )
            if differs := difference(name, found, self.expected):
                raise InputError(differs)


def connected(given: Any) -> Cluster:
    """The cluster of "local:4", "tcp://host:8786", or a Dask client or cluster object.

    Raises
    ------
    InputError
        Dask is not installed, nobody answers, or a worker has another version.
    """
    try:
        import distributed
    except ImportError:
        raise InputError(INSTALL) from None
    # What goes wrong is said in one sentence, by whoever asked for the work.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    name = given if isinstance(given, str) else ""
    with contextlib.ExitStack() as started:
        try:
            if name.startswith("local:"):
                given = _local(name, started)
            client = given
            if not isinstance(given, distributed.Client):
                if name.startswith(("tls:", "wss:")):
                    _check_certificate(name)
                client = distributed.Client(given, timeout=ANSWER, set_as_default=False)
                started.callback(_close, client)
            cluster = Cluster(client, name or client.scheduler.address)
            cluster.check()
        except InputError:
            raise
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise InputError(
                f"no Dask scheduler answers at {name or given}; start one with dask scheduler, and "
                "workers with dask worker."
            ) from error
        cluster.owned.enter_context(started.pop_all())
    return cluster


def _check_certificate(name: str) -> None:
    """Raise where Dask is not told by which certificate this process shows who it is."""
    from distributed.security import Security

    found = ""
    try:
        if Security().get_connection_args("client")["ssl_context"] is not None:
            return
    except (OSError, ValueError) as error:
        found = f", and what they name cannot be read ({error})"
    raise InputError(
        f"{name} wants a certificate{found}; name the files of one in "
        f"{', '.join(f'DASK_DISTRIBUTED__COMM__TLS__{one}' for one in TLS)}."
    )


def _local(name: str, started: contextlib.ExitStack) -> Any:
    """Processes on this machine, which share its cores and listen to nobody outside of it."""
    import dask
    import distributed

    n_workers = int(name.partition(":")[2])
    folder = started.enter_context(scratch("dask"))
    with dask.config.set({**LOCAL, "temporary-directory": str(folder)}):
        try:
            made = distributed.LocalCluster(
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
    started.callback(_close, made)
    return made


class _Work:
    """The pieces of work of one call that are not done."""

    def __init__(
        self,
        client: Any,
        function: Callable[..., Any],
        shared: tuple[Any, ...],
        checks: tuple[dict[str, str], Token | None],
        gone: Callable[[], InputError],
    ) -> None:
        self._client, self._function, self._checks, self._gone = client, function, checks, gone
        self._shared, self._there = shared, self._sent(shared, True)
        self.needs: dict[str, int] | None = None
        self._tries: dict[int, int] = {}
        self._ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.running: dict[int, tuple[Any, Any]] = {}

    def _sent(self, value: Any, everywhere: bool = False) -> Any:
        # From this process to a worker, or to each, not by way of the scheduler.
        for _ in range(TRIES):
            try:
                sent = Sent(value)
                return self._client.scatter(sent, broadcast=everywhere, direct=True, hash=False)
            except (OSError, TimeoutError, KeyError):
                # The worker may just have died (a KeyError: the scheduler still counted on it).
                time.sleep(_LOOK)
                if self._client.status != "running":
                    break
        raise self._gone()

    def submit(self, position: int, item: Any) -> None:
        # What is wrapped is not searched for futures.
        given = self._sent(item.load()) if isinstance(item, Big) else Sent(item)
        future = self._client.submit(
            unit,
            self._function,
            self._there,
            given,
            Sent(self._checks),
            key=f"mlem-{self._function.__name__}-{position}-{uuid.uuid4().hex}",
            pure=False,
            resources=self.needs,
        )
        self.running[position] = future, item
        future.add_done_callback(lambda done: self._ended.put((position, done)))

    def finished(self) -> list[int]:
        """The positions of what has ended since the last call; waits a little for some."""
        found = []
        with contextlib.suppress(Empty):
            ended = deque([self._ended.get(timeout=_LOOK)])
            while True:
                position, future = ended.popleft()
                own = self.running.get(position)
                if own is not None and own[0] is future and future.status not in _ENDED:
                    found.append(position)
                ended.append(self._ended.get_nowait())
        return found

    def values(self, positions: list[int]) -> Iterator[tuple[int, Any]]:
        """What has come of pieces that have ended; those a worker took along are done again."""
        futures = {at: self.running[at][0] for at in positions}
        done = [at for at, future in futures.items() if future.status == "finished"]
        found: dict[int, Any] = {}
        try:
            values = self._client.gather([futures[at] for at in done], direct=True)
            found = dict(zip(done, values, strict=True))
        except (OSError, TimeoutError, CancelledError):
            for at in done:
                self._again(at)
        for at, future in futures.items():
            if future.status == "error":
                found[at] = _of_the_input(future.exception())
        for at, value in found.items():
            del self.running[at]
            yield at, value

    def look(self) -> None:
        """Do again what was lost with a worker that held its input."""
        lost = [at for at, (future, _) in self.running.items() if future.status in _ENDED]
        if lost and self._there.status in _ENDED:
            self._there = self._sent(self._shared, True)
        for position in lost:
            self._again(position)

    def _again(self, position: int) -> None:
        self._tries[position] = self._tries.get(position, 0) + 1
        if self._client.status != "running" or self._tries[position] > TRIES:
            raise self._gone()
        _, item = self.running.pop(position)
        self.submit(position, item)

    def drop(self) -> None:
        """Give up what is not done; workers stop at their next look."""
        if self.running and self._client.status == "running":
            with contextlib.suppress(Exception):
                self._client.cancel([future for future, _ in self.running.values()], force=True)
        self.running.clear()


def _of_the_input(error: BaseException) -> InputError:
    """The error of a piece of work, if it is one for the user; another is raised."""
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        last = getattr(error.last_worker, "address", "unknown")
        return InputError(
            f"several workers died while they did the same piece of work (last: {last}); give each "
            "more memory, or let fewer share a machine."
        )
    if isinstance(error, InputError):
        return error
    raise error


def _close(one: Any) -> None:
    with contextlib.suppress(Exception):
        one.close()

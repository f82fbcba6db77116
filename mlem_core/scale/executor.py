"""Executors of units of work: this process, or a cluster's workers, which run the same program."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlem_core.base import VERSION
from mlem_core.base.errors import InputError
from mlem_core.base.text import many
from mlem_core.base.work import cancelled_by, cores, in_order


class Executor:
    """Executor of units of work, which need nothing of one another, in this process.

    Attributes
    ----------
    is_here : whether work is done in this process
    """

    is_here = True

    @property
    def where(self) -> str:
        """The place in words, with its cores, or the workers that were seen last."""
        return f"this machine ({many(cores(), 'core')})"

    def each_of(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        folder: Path | None = None,
        gpu: bool = False,
        threads: int = 1,
    ) -> Iterator[tuple[int, Any]]:
        """The position and `function(*shared, item)` of each item, as they are done.

        Where an item cannot be used, its `InputError` is given in place of a value; whatever else
        is raised is raised here. Leaving the iterator drops what is not done.

        Parameters
        ----------
        function : of a module of the package
        shared : goes to each worker once
        folder : that workers use and have to see, as the store is
        gpu : where workers have the Dask resource GPU, one item takes one of it
        threads : how many items this process does at a time; each of one alone may use all cores
        """
        return enumerate(in_order(partial(value_or_error, function, shared), items, threads))

    def results(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        done: Callable[[int], None] | None = None,
        folder: Path | None = None,
        threads: int = 1,
    ) -> list[Any]:
        """`function(*shared, item)` of each item, in their order; the first `InputError` is raised.

        `done` is called with how many are done; the other parameters are those of `each_of`.
        """
        values: dict[int, Any] = {}
        for position, value in self.each_of(function, items, shared, folder, threads=threads):
            if isinstance(value, InputError):
                raise value
            values[position] = value
            if done is not None:
                done(len(values))
        return [values[position] for position in sorted(values)]


def value_or_error(function: Callable[..., Any], shared: tuple[Any, ...], item: Any) -> Any:
    """`function(*shared, item)`, or the `InputError` that it raises."""
    try:
        return function(*shared, item)
    except InputError as error:
        return error


HERE = Executor()
current: ContextVar[Executor] = ContextVar("executor", default=HERE)


def executor() -> Executor:
    """Executor of units of work now (`mlem_core.scale.cluster.computing_on`)."""
    return current.get()


PACKAGES = ("numpy", "scipy", "numba", "pandas", "torch", "transformers")


@dataclass(frozen=True)
class Big:
    """An item that goes from this process to a worker directly; `load` gives it, when its turn is.

    What a lost worker had of it is loaded again.
    """

    load: Callable[[], Any]


@dataclass(frozen=True)
class Sent:
    """Value that goes to a worker in one piece: Dask looks for no futures in it."""

    value: Any


def dask_setup(worker: Any) -> None:
    """Have a worker of this machine leave Ctrl-C to the process that started it, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Stopped(Exception):
    """Nobody waits any more for the unit that is being done."""


@functools.cache
def about_here() -> dict[str, str]:
    """The versions of what results depend on; of this package also a digest of its sources."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    sources = f"{VERSION}, sources {digest.hexdigest()[:12]}"
    return {"mlem_core": sources, **{name: version_of(name) or "none" for name in PACKAGES}}


def version_of(package: str) -> str | None:
    """The version of an installed package; None of one that is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def unfit(expected: tuple[tuple[str, str], ...], marker: Path | None = None) -> str:
    """Reason why this worker cannot do what others do, to follow its name; else an empty text.

    Parameters
    ----------
    expected : what `about_here` says in the process that asks
    marker : a file of the folder that is used
    """
    if marker is not None and not os.path.exists(marker):
        return (
            f"does not see the store {str(marker.parent)!r}; name one in MLEM_CACHE that all "
            "machines see under the same path."
        )
    versions = about_here()
    for name, version in expected:
        if versions.get(name) != version:
            return (
                f"has {name} {versions.get(name, 'none')}, and this process has {version}; "
                "install the same on both."
            )
    return ""


@functools.cache
def _alone() -> Any:
    """Have a unit use one thread, from now on: sums then are in the same order."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def unit(function: Callable[..., Any], shared: Sent, item: Sent, checks: Sent) -> Any:
    """`function(*shared, item)` by a worker of a cluster, or the `InputError` that it raises.

    Raises InputError: this worker is `unfit`, whose arguments `checks` has.
    """
    from distributed import get_worker

    worker = get_worker()
    if reason := unfit(*checks.value):
        raise InputError(f"the worker {worker.address} {reason}")
    _alone()
    key = worker.get_current_task()

    def look() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state in ("cancelled", "released", "forgotten"):
            raise Stopped

    with cancelled_by(look):
        return value_or_error(function, shared.value, item.value)

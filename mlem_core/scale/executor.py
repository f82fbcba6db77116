"""Where long work is done: on this machine, or on a Dask cluster.

`computing_on("local:4")` says it for all that runs inside of it; without it, work is done here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.text import many

# Names a cluster for the command line and the app.
VARIABLE = "MLEM_CLUSTER"
FORMS = "local:4 (four processes on this machine) and tcp://host:8786 (a Dask scheduler)"
_LOCAL = re.compile(r"local:([1-9][0-9]{0,3})")
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://(\[[^\s/\[\]]+\]|[^\s/:\[\]]+):[0-9]{1,5}(/\S*)?")


class Executor(Protocol):
    """Who does pieces of work that need nothing of one another.

    Attributes
    ----------
    where : in words, with the workers that were seen last
    n_workers : how many there are now
    is_here : whether work is done in this process
    """

    is_here: bool

    @property
    def where(self) -> str: ...

    @property
    def n_workers(self) -> int: ...

    def each_of(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        folder: Path | None = None,
        gpu: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """The position and `function(*shared, item)` of each item, as they are done.

        Where an item cannot be used, its `InputError` is given in place of a value; whatever else
        is raised is raised here. Leaving the iterator drops what is not done.

        Parameters
        ----------
        function : of a module of the package
        shared : goes to each worker once
        folder : that workers use, and that they share with this process (`shares`)
        gpu : where workers have the Dask resource GPU, one item takes one of it
        """
        ...

    def shares(self, folder: Path) -> bool:
        """Whether all workers see a folder of this process under the same name."""
        ...


class Here:
    """This process: one item after the other; each shares its own work out among the cores."""

    is_here = True
    n_workers = 1

    @property
    def where(self) -> str:
        return f"this machine ({many(cores(), 'core')})"

    def each_of(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        shared: tuple[Any, ...] = (),
        folder: Path | None = None,
        gpu: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """See `Executor`."""
        for position, item in enumerate(items):
            try:
                found = function(*shared, item)
            except InputError as error:
                found = error
            yield position, found

    def shares(self, folder: Path) -> bool:
        """It does."""
        return True


def results(
    executor: Executor,
    function: Callable[..., Any],
    items: Iterable[Any],
    shared: tuple[Any, ...] = (),
    done: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> list[Any]:
    """`function(*shared, item)` of each item, in their order; the first `InputError` is raised.

    `done` is called with how many are done; `folder` as in `Executor.each_of`.
    """
    found: dict[int, Any] = {}
    for position, value in executor.each_of(function, items, shared, folder):
        if isinstance(value, InputError):
            raise value
        found[position] = value
        if done is not None:
            done(len(found))
    return [found[position] for position in sorted(found)]


_HERE = Here()
_current: ContextVar[Executor] = ContextVar("executor", default=_HERE)


def executor() -> Executor:
    """Where work is done now."""
    return _current.get()


def workers_sharing(folder: Path) -> Executor | None:
    """The workers of a cluster, if all of them see a folder of this process; else None."""
    where = _current.get()
    return None if where.is_here or not where.shares(folder) else where


@contextmanager
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
    """
    if cluster is None or cluster == "":
        yield _HERE
        return
    if isinstance(cluster, str):
        check_named(cluster)
    from mlem_core.scale.cluster import connected

    with connected(cluster) as there:
        token = _current.set(there)
        try:
            yield there
        finally:
            _current.reset(token)


def check_named(text: str) -> str:
    """The same text; raises InputError where it names no cluster."""
    if text and not _LOCAL.fullmatch(text) and not _ADDRESS.fullmatch(text):
        raise InputError(f"{text!r} names no cluster; the forms are {FORMS}.")
    return text


def named(text: str) -> str:
    """What a cluster of that name is called before it is there."""
    return text or _HERE.where


def from_environment() -> str:
    """The cluster that the environment names, or an empty text; raises as `check_named`."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        return check_named(text)
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}") from None

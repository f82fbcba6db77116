"""Executors of units of work: this process, or a cluster's workers (`mlem_core.scale.cluster`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, in_order
from mlem_core.base.text import many


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

    def shares(self, folder: Path) -> bool:
        """Whether all workers see a folder of this process under the same name."""
        return True

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
        folder : that workers use, and that they share with this process (`shares`)
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


def workers_sharing(folder: Path) -> Executor:
    """The workers of a cluster, if all of them see a folder of this process; else this process."""
    return executor() if executor().shares(folder) else HERE

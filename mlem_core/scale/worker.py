"""Worker of a cluster: it does one unit of work after another, if it is the same program."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cancelled_by
from mlem_core.scale.executor import value_or_error

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
    sources = f"{_version('mlem-core')}, sources {digest.hexdigest()[:12]}"
    return {"mlem_core": sources, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def sees(marker: Path) -> bool:
    """Whether this process sees a file by which a folder is known to be the one that is meant."""
    return os.path.exists(marker)  # False too where this process may not look


@functools.cache
def unfit(expected: tuple[tuple[str, str], ...], marker: Path | None = None) -> str:
    """Reason why this worker cannot do what others do, to follow its name; else an empty text.

    Parameters
    ----------
    expected : what `about_here` says in the process that asks
    marker : a file of the folder that is used
    """
    if marker is not None and not sees(marker):
        return (
            f"does not see the folder {str(marker.parent)!r} as the other workers do; give all of "
            "them the same one, or stop this one."
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

    Raises
    ------
    InputError
        This worker is `unfit`, whose arguments `checks` has.
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

"""What a worker of a cluster does: one piece of work after another, if it is the same program."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cancelled_by

PACKAGES = ("numpy", "scipy", "numba", "pandas", "torch", "transformers")


@dataclass(frozen=True)
class Big:
    """An item that goes from this process to a worker directly; `load` gives it, when its turn is.

    What a lost worker had of it is loaded again.
    """

    load: Callable[[], Any]


@dataclass(frozen=True)
class Sent:
    """What went to a worker directly, as one piece."""

    value: Any


class Token(NamedTuple):
    """A file by which a worker sees that a folder is the one that is meant."""

    path: Path
    text: str


def dask_setup(worker: Any) -> None:
    """Have a worker of this machine leave Ctrl-C to the process that started it, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Stopped(Exception):
    """Nobody waits any more for the piece of work that is being done."""


@functools.cache
def about_here() -> dict[str, str]:
    """The versions of what results depend on; of this package also a digest of its sources."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    found = {"mlem_core": f"{_version('mlem-core')}, sources {digest.hexdigest()[:12]}"}
    return {**found, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def difference(worker: str, found: dict[str, str], expected: dict[str, str]) -> str:
    """A sentence where a worker has another version of something, else an empty text."""
    for name, version in expected.items():
        if found.get(name) != version:
            return (
                f"the worker {worker} has {name} {found.get(name, 'none')}, and this process has "
                f"{version}; install the same on both."
            )
    return ""


def sees(token: Token) -> bool:
    """Whether this process sees the folder of a token."""
    try:
        return token.path.read_text() == token.text
    except OSError:
        return False


@functools.cache
def _checked(worker: str, expected: tuple[tuple[str, str], ...], token: Token | None) -> str:
    if token is not None and not sees(token):
        return (
            f"the worker {worker} does not see the folder {str(token.path.parent)!r} as the other "
            "workers do; give all of them the same one, or stop this one."
        )
    return difference(worker, about_here(), dict(expected))


@functools.cache
def _alone() -> Any:
    """Have a piece of work use one thread, from now on: sums then are in the same order."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def unit(
    function: Callable[..., Any],
    shared: Sent,
    item: Sent,
    checks: Sent,
) -> Any:
    """`function(*shared, item)`, by a worker of a cluster.

    Raises
    ------
    InputError
        This worker is not the same program, or does not see the folder of the token.
    """
    from distributed import get_worker

    worker = get_worker()
    expected, token = checks.value
    if wrong := _checked(worker.address, tuple(sorted(expected.items())), token):
        raise InputError(wrong)
    _alone()
    key = worker.get_current_task()

    def look() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state in ("cancelled", "released", "forgotten"):
            raise Stopped

    with cancelled_by(look):
        return function(*shared.value, item.value)

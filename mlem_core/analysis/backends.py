"""Backends: other processes that compute parts of an analysis. Without one, threads here do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from mlem_core.base.parameters import Registry
from mlem_core.extending import entry_modules


@dataclass(frozen=True)
class Backend:
    """Other processes that run the models, and pass over the pairs of each layer.

    Attributes
    ----------
    name : of the option of the command line that takes their address, such as "cluster"
    metavar, help : of this option
    default_address : gives the address that the environment names, or an empty text
    connect : a context of an address, in which they are in use; an empty one changes nothing
    in_use : whether they compute what is computed now
    extract_models : a function (spec, stimuli, store, report) that puts the hidden states of the
        models of an analysis into the store, and gives what is wrong with some, by their names
    pass_over_layers : a function (passes, sources, store, progress) that gives the place of each
        layer and its `LayerPass`, or what is wrong with it; its arguments are those of
        `mlem_core.analysis.layer_statistics`
    discard_passes : a function (passes, sources, store), called when all of them have been used
    """

    name: str
    metavar: str
    help: str
    default_address: Callable[[], str]
    connect: Callable[[str], AbstractContextManager[None]]
    in_use: Callable[[], bool]
    extract_models: Callable[..., Mapping[str, Any]]
    pass_over_layers: Callable[..., Iterator[tuple[int, Any]]]
    discard_passes: Callable[..., None]


BACKENDS = Registry[Backend]("backend", entry_modules)


def backend_in_use() -> Backend | None:
    """The backend that computes now; None where threads of this process do."""
    return next((backend for backend in BACKENDS.values() if backend.in_use()), None)


def default_address() -> str:
    """Address of other processes that the environment names, or an empty text."""
    addresses = (backend.default_address() for backend in BACKENDS.values())
    return next(filter(None, addresses), "")


@contextmanager
def connected(addresses: Mapping[str, str | None] | None = None) -> Iterator[None]:
    """Context in which backends compute, at these addresses or those that the environment names.

    Raises InputError: nobody answers at an address.
    """
    with ExitStack() as connections:
        for name, backend in BACKENDS.items():
            address = (addresses or {}).get(name)
            if address is None:
                address = backend.default_address()
            connections.enter_context(backend.connect(address))
        yield

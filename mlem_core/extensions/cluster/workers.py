"""Units of work that other processes compute, by joblib's backend: loky's, or Dask's workers.

The workers of a Dask scheduler are those of a connection; loky's are configured in joblib.

A unit puts its result into a store that all processes share. So little travels, a worker that dies
costs the unit that it was at, and a run that was ended goes on from the units that are there.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import platform
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from mlem_core.base import VERSION
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import check_cancelled
from mlem_core.base.resources import installed_version

# Names a Dask scheduler for the command line and the app.
VARIABLE = "MLEM_CLUSTER"
INSTALL = "the package distributed is missing; install it with pip install dask distributed."
# Seconds until a scheduler that does not answer, or one without workers, is given up.
ANSWER, WORKERS = 10.0, 60.0
# How often units are computed again after a process of loky died.
TRIES = 3
# Units that wait at each thread of a Dask worker.
AHEAD = 2
# Packages on which results depend.
PACKAGES = ("numpy", "scipy", "numba", "pandas", "torch", "transformers")

Versions = tuple[tuple[str, str], ...]
# Number of a unit, and what is wrong with its input.
Result = tuple[int, InputError | None]


def default_address() -> str:
    """Address of the Dask scheduler that the environment names, or an empty text."""
    return os.environ.get(VARIABLE, "").strip()


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Context in which the workers of a Dask scheduler compute; without an address, threads do.

    Raises InputError: Dask is not installed, nobody answers, or no worker comes.
    """
    if not address:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise InputError(INSTALL) from None
    from joblib import parallel_config

    # Each of its errors is told in one sentence here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address}; start one with dask scheduler, and workers "
            "with dask worker; one of tls:// wants a certificate (docs/cluster.md)."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, WORKERS)
        except TimeoutError:
            raise InputError(
                f"no worker has come to {address} within {WORKERS:.0f} seconds; start some with "
                "dask worker."
            ) from None
        with parallel_config("dask", client=client):
            yield


def uses_processes() -> bool:
    """Whether the backend of joblib in use computes in other processes.

    >>> uses_processes()
    False
    >>> import joblib
    >>> with joblib.parallel_config("loky", n_jobs=2):
    ...     uses_processes()
    True
    """
    # Importing joblib takes 40 ms, and whoever has not imported it has not configured it.
    if "joblib" not in sys.modules:
        return False
    from joblib.parallel import get_active_backend

    backend, n_jobs = get_active_backend(prefer="threads")
    n_jobs = backend.default_n_jobs if n_jobs is None else n_jobs
    return not getattr(backend, "supports_sharedmem", False) and n_jobs != 1


def run_units(
    unit: Callable[[Any], None], item: Callable[[int], Any], n: int, progress: Callable[[int], None]
) -> dict[int, InputError]:
    """Errors of the input by the number of the unit, after `unit(item(number))` of each below n.

    Parameters
    ----------
    unit : a function of a module of the package, or `partial` of one; puts its result into a store
    item : what travels with a unit; is called in any thread, and must not raise
    progress : called with how many units have ended, after each

    Raises
    ------
    InputError
        A worker has other versions, or workers die again and again.
    """
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    compute = functools.partial(_compute_unit, unit, versions())
    remaining, errors = dict.fromkeys(range(n)), dict[int, InputError]()
    for _ in range(TRIES):
        try:
            with closing(_results(compute, item, list(remaining))) as results:
                for number, error in results:
                    check_cancelled()
                    del remaining[number]
                    if error is not None:
                        errors[number] = error
                    progress(n - len(remaining))
            return errors
        except TerminatedWorkerError:
            continue
        except ImportError as error:
            raise InputError(
                f"a worker does not have mlem_core as it is here ({error}); install the same "
                "version there."
            ) from error
        except Exception as error:
            by_dask = ("distributed", "concurrent.futures", "asyncio")
            if not type(error).__module__.startswith(by_dask):
                raise
            raise InputError(
                f"the Dask cluster gave up ({type(error).__name__}): a unit killed several "
                "workers, or the scheduler went away; run the same again, with more memory for "
                "each worker: it goes on from what is in the store."
            ) from error
    raise InputError(
        f"processes died {TRIES} times over the same work; choose a smaller n_jobs, so that each "
        "has more memory."
    )


def _results(
    compute: Callable[[int, Any], Result], item: Callable[[int], Any], numbers: Sequence[int]
) -> Generator[Result, None, None]:
    """`compute(number, item(number))` of each number, as they end."""
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend(prefer="threads")
    if hasattr(backend, "client"):
        yield from _dask_results(backend.client, compute, item, numbers)
        return
    parallel = Parallel(return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(compute)(number, item(number)) for number in numbers)


def _dask_results(
    client: Any,
    compute: Callable[[int, Any], Result],
    item: Callable[[int], Any],
    numbers: Sequence[int],
) -> Generator[Result, None, None]:
    """As `_results`: joblib waits for ever where Dask gives up a unit that kills its workers."""
    from distributed import as_completed

    remaining, futures = iter(numbers), as_completed(loop=client.loop)

    def submit(most: int) -> None:
        for number in itertools.islice(remaining, most):
            futures.add(client.submit(compute, number, item(number), pure=False))

    try:
        submit(AHEAD * sum(client.nthreads().values()))
        for future in futures:
            yield future.result()
            submit(1)
    finally:
        if client.status == "running":
            client.cancel(list(futures.futures))


def _compute_unit(
    unit: Callable[[Any], None], expected: Versions, number: int, item: Any
) -> Result:
    """Number of a unit that a worker has computed, and what is wrong with its input."""
    for (name, version), (_, installed) in zip(expected, versions(), strict=True):
        if installed != version:
            raise InputError(
                f"the worker on {platform.node()} has {name} {installed}, and this process has "
                f"{version}; install the same on both."
            )
    _limit_threads()
    try:
        unit(item)
    except InputError as error:
        return number, error
    return number, None


@functools.cache
def _limit_threads() -> Any:
    """Have matrix products use one thread from now on, so that sums are in the same order."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


@functools.cache
def versions() -> Versions:
    """The versions of this package and of those on which results depend."""
    packages = ((name, installed_version(name) or "none") for name in PACKAGES)
    return ("mlem_core", VERSION), *packages

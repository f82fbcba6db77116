"""The connection to a Dask scheduler, whose workers then compute the units of work."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mlem_core.base.errors import InputError

# Names a Dask scheduler for the command line and the app.
VARIABLE = "MLEM_CLUSTER"
INSTALL = "the package distributed is missing; install it with pip install dask distributed."
# Seconds until a scheduler that does not answer, or one without workers, is given up.
ANSWER, WORKERS = 10.0, 60.0


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

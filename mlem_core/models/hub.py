"""Models on the Hugging Face hub, fetched into the cache of its client; a silent hub is given up.

Where the network is missing, the hub's client tries for half a minute a model; here one question
with a time limit comes first, and the answer "nobody there" holds for a while.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mlem_core.models.files import READ, first_line

T = TypeVar("T")

_PATIENCE = 8.0  # seconds for the hub to answer before it counts as out of reach
_REST = 30.0  # seconds before it is asked again
_silent_since = float("-inf")  # when nobody answered, on the monotonic clock

# The files that are fetched: on the top level of a repository, one copy of the weights.
_FILES: dict[str, Any] = {
    "allow_patterns": [
        *(f"*{suffix}" for suffix in READ if suffix != ".safetensors"),
        "model.safetensors",
        "model-[0-9]*-of-[0-9]*.safetensors",
    ],
    "ignore_patterns": ["*/*"],
}


class NoSuchModel(LookupError):
    """The hub knows no such model, or the name cannot be one."""


class NotAllowed(PermissionError):
    """The hub wants the user to accept terms, or to log in."""


class OutOfReach(ConnectionError):
    """No answer, or one that breaks off; the message says how in a few words."""


def snapshot(name: str) -> Path:
    """The folder of a hub model, named by its commit, fetched where it is not in the hub's cache.

    Without network, the commit that was fetched last. Raises `NoSuchModel`, `NotAllowed` or
    `OutOfReach`.
    """
    from huggingface_hub import errors

    if not re.fullmatch(r"[\w.-]{1,96}(/[\w.-]{1,96})?", name, re.ASCII):
        raise NoSuchModel(name)
    try:
        if not _fetched(name, endpoint()).exists():  # removed while the program runs
            _fetched.cache_clear()
        return _fetched(name, endpoint())
    except errors.GatedRepoError as error:  # a kind of RepositoryNotFoundError
        raise NotAllowed(name) from error
    except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
        raise NoSuchModel(name) from error
    except Exception as error:  # of whatever library is in between
        cached_folder = cached(name)
        if cached_folder is None:
            raise OutOfReach(first_line(error)) from error
        return cached_folder


def cached(name: str) -> Path | None:
    """The folder of a hub model fetched before, at the commit last seen on `main`, or None."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True, **_FILES))
    except (errors.LocalEntryNotFoundError, errors.IncompleteSnapshotError, OSError):
        return None
    return folder if (folder / "config.json").exists() else None


def answers() -> bool:
    """Whether the hub can be reached; asked for at most 1.5 s, twice a minute."""
    return _answers(int(time.monotonic() // _REST), endpoint())


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


@functools.lru_cache(maxsize=1)
def _answers(half_minute: int, address: str) -> bool:
    def ask() -> None:
        request = urllib.request.Request(address, method="HEAD")
        urllib.request.urlopen(request, timeout=1.5).close()

    try:
        _within(1.5, ask)
    except urllib.error.HTTPError:
        return True  # an answer, if not a kind one
    except Exception:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _fetched(name: str, address: str) -> Path:
    """The files of `main` as it is now; asked for once, so that one run sees one commit."""
    from huggingface_hub import HfApi, errors, get_cached_repo_tree, snapshot_download

    hub = HfApi(endpoint=address)
    commit = _within(_PATIENCE, lambda: hub.model_info(name, timeout=_PATIENCE).sha)
    folder = cached(name)
    if folder is not None and folder.name == commit:
        # Without a list of the commit's files nobody knows whether all of them are there.
        with contextlib.suppress(errors.CachedRepoTreeNotFoundError):
            get_cached_repo_tree(name)
            return folder
    return Path(snapshot_download(name, endpoint=address, **_FILES))


def _within(seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`, or TimeoutError: a name look-up takes no time limit itself."""
    global _silent_since
    if time.monotonic() - _silent_since < _REST:
        raise TimeoutError("no answer")
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        _silent_since = time.monotonic()
        raise TimeoutError("no answer")
    return results[0]

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
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from mlem_core.base.errors import InputError
from mlem_core.models.model_paths import READ, check_kind

T = TypeVar("T")

_PATIENCE = 8.0  # seconds for the hub to answer before it counts as out of reach
_REST = 30.0  # seconds before it is asked again
_kept_only = False
_silent_since = float("-inf")  # when nobody answered, on the monotonic clock

_NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)
_REVISION = re.compile(r"[\w./-]{1,96}", re.ASCII)

_WEIGHTS = ("model.safetensors", "model-[0-9]*-of-[0-9]*.safetensors")
# The files that are fetched: on the top level of a repository, one copy of the weights.
_FILES: dict[str, Any] = {
    "allow_patterns": [*(f"*{suffix}" for suffix in READ if suffix != ".safetensors"), *_WEIGHTS],
    "ignore_patterns": ["*/*"],
}


def is_name(text: str) -> bool:
    """Whether a model on the hub could have this name."""
    return _NAME.fullmatch(text) is not None


def is_revision(text: str) -> bool:
    """Whether a branch, tag or commit on the hub could have this name."""
    return _REVISION.fullmatch(text) is not None


def snapshot(name: str, revision: str | None = None) -> Path:
    """The folder of a hub model, named by its commit, fetched where it is not in the hub's cache.

    Without network, the commit that was fetched last. Raises what the hub's client does where it
    knows no such model or revision, or wants the user to accept terms; any other error says that
    the hub gives no answer, or one that breaks off (the registry has the sentences).

    Parameters
    ----------
    revision : a branch, tag or commit; None is `main`
    """

    def fetch() -> Path:
        if not _fetched(name, endpoint(), revision).exists():  # removed while the program runs
            _fetched.cache_clear()
        return _fetched(name, endpoint(), revision)

    return _or_cached(name, revision, fetch)


def commit(name: str, revision: str | None = None) -> str:
    """The commit that `snapshot` would give now, for which nothing is fetched; raises as it does.

    The hub is queried twice a minute at most.
    """

    half_minute, address = int(time.monotonic() // _REST), endpoint()
    return _or_cached(
        name, revision, lambda: Path(_commit(half_minute, name, address, revision))
    ).name


@functools.lru_cache(maxsize=64)
def _commit(half_minute: int, name: str, address: str, revision: str | None) -> str:
    _knock(address)
    return str(_asked(name, address, revision).sha)


def _or_cached(name: str, revision: str | None, get: Callable[[], Path]) -> Path:
    """The folder that the hub gives, or the one fetched last where it is out of reach."""
    from huggingface_hub import errors

    try:
        if _kept_only:
            raise ConnectionError("nothing is to be fetched")
        return get()
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise
    except Exception:  # of whatever library is in between
        folder = cached(name, revision)
        if folder is None:
            raise
        return folder


@contextlib.contextmanager
def kept_only() -> Iterator[None]:
    """Block in which nothing is fetched: there are the models that were fetched before."""
    global _kept_only
    before, _kept_only = _kept_only, True
    try:
        yield
    finally:
        _kept_only = before


def size(name: str, revision: str | None = None) -> int:
    """The bytes that `snapshot` would fetch; raises as it does, and `without_safetensors`."""
    _knock(endpoint())
    info = _asked(name, endpoint(), revision, files_metadata=True)
    files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if not any(fnmatch(file, each) for file in files for each in _WEIGHTS):
        raise without_safetensors(name + (f"@{revision}" if revision else ""))
    return sum(
        size
        for file, size in files.items()
        if "/" not in file and any(fnmatch(file, each) for each in _FILES["allow_patterns"])
    )


def without_safetensors(name: str) -> InputError:
    """Refusal of a hub model whose revision has no safetensors."""
    return InputError(
        f"the model {name!r} of the Hugging Face hub has no safetensors in this revision, only "
        "formats that can run code when they are read: look on its page for a pull request that "
        f"adds them and name it {name.partition('@')[0]}@refs/pr/N."
    )


def _asked(name: str, address: str, revision: str | None, **more: Any) -> Any:
    """The hub's information about a model."""
    from huggingface_hub import HfApi

    hub = HfApi(endpoint=address)
    return _within(
        _PATIENCE, lambda: hub.model_info(name, revision=revision, timeout=_PATIENCE, **more)
    )


def cached(name: str, revision: str | None = None) -> Path | None:
    """The folder of a hub model fetched before, at the commit last seen there, or None."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True, **_FILES))
    except (errors.LocalEntryNotFoundError, errors.IncompleteSnapshotError, OSError):
        return None
    return folder if (folder / "config.json").exists() else None


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _knock(address: str) -> None:
    """Raise TimeoutError where the hub does not answer in 1.5 s, for whoever cannot wait long."""

    def ask() -> None:
        request = urllib.request.Request(address, method="HEAD")
        urllib.request.urlopen(request, timeout=1.5).close()

    try:
        _within(1.5, ask)
    except urllib.error.HTTPError:
        pass  # an answer, if not a kind one
    except Exception as error:
        raise TimeoutError("no answer") from error


@functools.lru_cache(maxsize=64)
def _fetched(name: str, address: str, revision: str | None) -> Path:
    """The files of a revision as it is now; queried once, so that one run sees one commit."""
    from huggingface_hub import errors, get_cached_repo_tree, snapshot_download

    info = _asked(name, address, revision)
    if kind := (info.config or {}).get("model_type"):
        check_kind(name, kind)  # before gigabytes are fetched in vain
    commit = info.sha
    folder = cached(name, revision)
    if folder is not None and folder.name == commit:
        # Without a list of the commit's files nobody knows whether all of them are there.
        with contextlib.suppress(errors.CachedRepoTreeNotFoundError):
            get_cached_repo_tree(name, revision=revision)
            return folder
    return Path(snapshot_download(name, revision=revision, endpoint=address, **_FILES))


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

"""Models from the Hugging Face hub: which commit, fetched into the hub's own cache, quickly no.

Where the network is missing, the hub's own client tries for half a minute a model; here a
single question with a limit comes first, and the answer "nobody there" is kept for a while.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mlem_core.models.files import READ, first_line

T = TypeVar("T")

_PATIENCE = 8.0  # seconds for the hub to answer before it counts as out of reach
_REST = 30.0  # seconds before it is asked again
_silent_since = float("-inf")  # when nobody answered, on the monotonic clock


class NoSuchModel(LookupError):
    """The hub knows no such model, or the name cannot be one."""


class NotAllowed(PermissionError):
    """The hub wants the user to accept terms, or to log in."""


class OutOfReach(ConnectionError):
    """No answer, or one that breaks off; the message says how in a few words."""


def snapshot(name: str) -> tuple[Path, str]:
    """(folder, commit) of a hub model, fetched where it is not in the hub's cache.

    Without network, the commit that was fetched last. Raises `NoSuchModel`, `NotAllowed` or
    `OutOfReach`.
    """
    from huggingface_hub import errors, snapshot_download

    if not re.fullmatch(r"[\w.-]{1,96}(/[\w.-]{1,96})?", name, re.ASCII):
        raise NoSuchModel(name)
    try:
        commit, files = _commit_and_files(name, endpoint())
    except errors.HFValidationError as error:
        raise NoSuchModel(name) from error
    except errors.GatedRepoError as error:  # a kind of RepositoryNotFoundError
        raise NotAllowed(name) from error
    except errors.RepositoryNotFoundError as error:
        raise NoSuchModel(name) from error
    except Exception as error:  # of whatever library is in between
        folder = cached(name)
        if folder is None:
            raise OutOfReach(first_line(error)) from error
        return folder, folder.name
    wanted = _wanted(files)
    folder = cached(name)
    if folder is not None and folder.name == commit:
        missing = [file for file in wanted if not (folder / file).exists()]
        if not missing:
            return folder, commit
    try:
        fetched = snapshot_download(
            name, revision=commit, allow_patterns=wanted, endpoint=endpoint()
        )
    except Exception as error:
        raise OutOfReach(first_line(error)) from error
    _remember(Path(fetched), commit)
    return Path(fetched), commit


def cached(name: str) -> Path | None:
    """The folder of a hub model fetched before, at the commit last seen on `main`, or None."""
    from huggingface_hub import constants

    repository = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    folder = repository / "snapshots" / commit
    return folder if commit and (folder / "config.json").exists() else None


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
def _commit_and_files(name: str, address: str) -> tuple[str, list[str]]:
    """What `main` is now; kept, so that one run sees one commit."""
    from huggingface_hub import HfApi

    def ask() -> tuple[str, list[str]]:
        info = HfApi(endpoint=address).model_info(name, timeout=_PATIENCE)
        return str(info.sha), [file.rfilename for file in info.siblings or []]

    return _within(_PATIENCE, ask)


def _wanted(files: list[str]) -> list[str]:
    """The files of a repository that are read: on its top level, one copy of the weights."""
    weights = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
    return [
        file
        for file in files
        if "/" not in file
        and file.endswith(READ)
        and (not file.endswith(".safetensors") or weights.fullmatch(file))
    ]


def _remember(folder: Path, commit: str) -> None:
    """Note the commit as `main`'s, which the hub's client does not do for a named commit."""
    refs = folder.parent.parent / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "main").write_text(commit)


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

"""Folder or file that the name of a model stands for, on this machine or on the hub, and checks.

A model of the Hugging Face hub is fetched into the cache of its client, whose settings hold:
with `HF_HUB_OFFLINE` no request is made, `HF_HUB_ETAG_TIMEOUT` and `HF_HUB_DOWNLOAD_TIMEOUT`
are the seconds that it may take to answer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError, first_line

# The files of a folder that are read, by how their names end.
READ = (".json", ".jinja", ".txt", ".model", ".safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_NAMES_OF_WEIGHTS = re.compile(r"(model|pytorch_model|seed-|step-).*\.safetensors")
_TOKENIZER = re.compile(r"(tokenizer|vocab|spiece|sentencepiece|merges)[^/]*", re.IGNORECASE)

_FRESH = 30.0  # seconds that a commit counts as the newest one

# What a model on the hub, and a branch, tag or commit of it, can be called.
ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)
REVISION = re.compile(r"[\w./-]{1,96}", re.ASCII)

_MOST_REQUESTS = 30  # pull requests that are looked at for safetensors
_WEIGHTS = ("model.safetensors", "model-[0-9]*-of-[0-9]*.safetensors", "adapter_model.safetensors")
# The files that are fetched: on the top level of a repository, one copy of the weights.
_FILES: dict[str, Any] = {
    "allow_patterns": [*(f"*{suffix}" for suffix in READ if suffix != ".safetensors"), *_WEIGHTS],
    "ignore_patterns": ["*/*"],
}


def find_local_model(name: str) -> Path | None:
    """The folder or file of a model that is on this machine under that name; None for neither."""
    path = Path(os.path.expanduser(name))  # leaves an unknown user's home as it is
    return path if name.strip() and "\0" not in name and path.exists() else None


def check_kind(name: str, kind: object) -> None:
    """Raise `InputError` for a type of model that transformers does not know."""
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        raise InputError(
            f"the model {name!r} is of the type {kind!r} in its config.json, which transformers "
            "does not know without running code that comes with the model; that is never done: run "
            "it with its own code and give the states as a file (--representations NAME=FILE)."
        )


def read_config(name: str, folder: Path) -> dict[str, Any]:
    """The `config.json` of a model folder; raises `InputError` where it has none."""
    check_no_adapter(name, folder)
    if not (folder / "config.json").is_file():
        inside = sorted({str(file.parent) for file in folder.glob("*/*.safetensors")})
        advice = f": name a folder in it that has one, such as {inside[0]!r}" if inside else ""
        raise InputError(f"the model folder {name!r} has no config.json{advice}.")
    return read_json(name, folder / "config.json")


def unread_weights(name: str) -> list[str]:
    """A sentence where a model folder has pickled weights newer than those that are read."""
    folder = find_local_model(name)
    safe = [] if folder is None else [file.stat().st_mtime for file in folder.glob("*.safetensors")]
    if folder is None or not safe:
        return []
    newer = (file for file in folder.glob("pytorch_model*.bin") if file.stat().st_mtime > max(safe))
    return [
        f"{name} has {file.name}, newer than its .safetensors and not read: where it holds other "
        "weights, save these with safetensors."
        for file in sorted(newer)[:1]
    ]


def check_no_adapter(name: str, folder: Path) -> None:
    """Raise `InputError` for a folder with an adapter (LoRA), which nothing here applies."""
    files = sorted(
        file.name
        for file in folder.iterdir()
        if file.name.startswith("adapter_")
        or ("lora" in file.name.lower() and file.suffix in (".safetensors", *_PICKLED))
    )
    if files:
        raise InputError(
            f"the model {name!r} has an adapter ({files[0]}), which is not applied to the weights "
            "beside it: name the model BASE+ADAPTER, with the adapter_ files in a folder of their "
            "own or on the hub, or merge the two with peft (merge_and_unload, save_pretrained)."
        )


def check_files(name: str, folder: Path) -> None:
    """Raise `InputError` for a folder without weights in safetensors, or without a tokenizer."""
    check_no_adapter(name, folder)
    files = sorted(file.name for file in folder.iterdir())
    weights = [file for file in files if _NAMES_OF_WEIGHTS.fullmatch(file)]
    unread = [file for file in files if file.endswith(".safetensors") and file not in weights]
    if not weights and not unread:
        pickled = [file for file in files if file.endswith(_PICKLED)]
        if pickled:
            raise InputError(
                f"the model {name!r} has its weights only as {pickled[0]}, a format that can run "
                "code when it is read: save it with safetensors (model.safetensors)."
            )
        raise InputError(f"the model folder {name!r} has no weights (model.safetensors).")
    # What a company publishes beside the weights for its own program is a copy of them.
    if weights:
        unread = [file for file in unread if not file.startswith("consolidated")]
    if unread:
        raise InputError(
            f"the model folder {name!r} has weights in {unread[0]}, which nothing reads; expected "
            "them all in model.safetensors, so merge these into it, or move them away."
        )
    if not any(_TOKENIZER.fullmatch(file) for file in files):
        raise InputError(
            f"the model folder {name!r} has no tokenizer (tokenizer.json or a vocabulary file): "
            "save the tokenizer into the same folder."
        )


def read_json(name: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"the model folder {name!r}: {path.name} is not valid JSON ({first_line(error)})."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"the model folder {name!r}: {path.name} is not a JSON object.")
    return content


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


def commit_folder(name: str, revision: str | None = None) -> Path:
    """The folder that `snapshot` would give now, by its name alone; raises as it does.

    Nothing is fetched. The hub is queried twice a minute at most.
    """
    half_minute, address = int(time.monotonic() // _FRESH), endpoint()
    return _or_cached(name, revision, lambda: _commit(half_minute, name, address, revision))


@functools.lru_cache(maxsize=64)
def _commit(half_minute: int, name: str, address: str, revision: str | None) -> Path:
    return Path(_model_info(name, address, revision).sha)


def _or_cached(name: str, revision: str | None, get: Callable[[], Path]) -> Path:
    """The folder that the hub gives, or the one fetched last where it is out of reach."""
    from huggingface_hub import errors

    try:
        return get()
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise
    except Exception:  # of whatever library is in between
        folder = cached(name, revision)
        if folder is None:
            raise
        return folder


def size(name: str, revision: str | None = None) -> int:
    """The bytes that `snapshot` would fetch; raises as it does, and `no_safetensors_error`."""
    info = _model_info(name, endpoint(), revision, files_metadata=True)
    files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if not _has_weights(files):
        raise no_safetensors_error(name + (f"@{revision}" if revision else ""))
    return sum(
        size
        for file, size in files.items()
        if "/" not in file and any(fnmatch(file, each) for each in _FILES["allow_patterns"])
    )


def no_safetensors_error(name: str) -> InputError:
    """Refusal of a hub model whose revision has no safetensors; it names one that has."""
    id, revision = name.partition("@")[0], None
    with contextlib.suppress(Exception):  # of whatever library is in between
        revision = _with_safetensors(id, endpoint())
    advice = f"name it {id}@{revision}, which has them."
    if revision is None:
        advice = f"look on its page for a pull request that adds them and name it {id}@refs/pr/N."
    return InputError(
        f"the model {name!r} of the Hugging Face hub has no safetensors in this revision, only "
        f"formats that can run code when they are read: {advice}"
    )


@functools.lru_cache(maxsize=64)
def _with_safetensors(id: str, address: str) -> str | None:
    """The newest pull request of a hub model that has safetensors; None where none has."""
    from huggingface_hub import HfApi

    hub = HfApi(endpoint=address)
    refs = hub.list_repo_refs(id, include_pull_requests=True)
    requests = sorted(
        refs.pull_requests or (), key=lambda request: -int(request.ref.rpartition("/")[2])
    )
    for revision in [request.ref for request in requests[:_MOST_REQUESTS]]:
        if _has_weights(hub.list_repo_files(id, revision=revision)):
            return revision
    return None


def _has_weights(files: Iterable[str]) -> bool:
    return any(fnmatch(file, each) for file in files for each in _WEIGHTS)


def _model_info(name: str, address: str, revision: str | None, **more: Any) -> Any:
    """The hub's information about a model."""
    from huggingface_hub import HfApi, constants

    hub = HfApi(endpoint=address)
    return hub.model_info(name, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT, **more)


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


@functools.lru_cache(maxsize=64)
def _fetched(name: str, address: str, revision: str | None) -> Path:
    """The files of a revision as it is now; queried once, so that one run sees one commit."""
    from huggingface_hub import snapshot_download

    info = _model_info(name, address, revision)
    if kind := (info.config or {}).get("model_type"):
        check_kind(name, kind)  # before gigabytes are fetched in vain
    return Path(snapshot_download(name, revision=revision, endpoint=address, **_FILES))

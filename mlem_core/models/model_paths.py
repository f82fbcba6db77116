"""Folder or file that the name of a model stands for, and checks of its files."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.room import shared

# The files of a folder that are read, by how their names end.
READ = (".json", ".jinja", ".txt", ".model", ".safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_TOKENIZER = re.compile(r"(tokenizer|vocab|spiece|sentencepiece|merges)[^/]*", re.IGNORECASE)
_INDEX = "model.safetensors.index.json"
_NAME = re.compile(r"\w[\w.-]*")


def place_of(name: str) -> Path | None:
    """The folder or file of a model that is on this machine under that name; None for neither.

    One's own machine is looked at wherever a name leads. On a shared server a model is named by
    its name in one of the folders of the settings, and no path is looked at.

    Raises
    ------
    InputError
        A path on a shared server; whether there is something at it makes no difference.
    """
    settings = shared()
    if settings is None:
        path = Path(os.path.expanduser(name))  # leaves an unknown user's home as it is
        return path if name.strip() and "\0" not in name and path.exists() else None
    id = name.partition("@")[0]  # a revision may be refs/pr/1
    if name.startswith((".", "/", "~")) or id.count("/") > 1 or re.search(r"[\\\0:]", name):
        raise InputError(
            f"found {name!r} as a model, which is a path; on this server a model has a name: "
            "expected one of the list, or an id of the Hugging Face hub."
        )
    if not _NAME.fullmatch(name):
        return None
    paths = (folder / name for folder in settings.models)
    return next((path for path in paths if path.exists()), None)


def offered() -> list[str]:
    """The names of the models in the folders that a shared server's settings name."""
    settings = shared()
    if settings is None:
        return []
    names = {
        path.name
        for folder in settings.models
        for path in folder.iterdir()
        if _NAME.fullmatch(path.name)
        and (path.suffix == ".gguf" or (path / "config.json").is_file() or [*path.glob("*.gguf")])
    }
    return sorted(names)


def check_gguf(name: str, path: Path) -> None:
    """Raise `InputError` where the file is no GGUF file."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"the model {name!r}: {path.name} is no GGUF file.")


def check_type(name: str, folder: Path) -> None:
    """Raise `InputError` for a folder whose model is of a type that transformers does not know."""
    check_kind(name, read_config(name, folder).get("model_type"))


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
    if not (folder / "config.json").is_file():
        raise InputError(f"the model folder {name!r} has no config.json.")
    return _read_json(name, folder / "config.json")


def check_files(name: str, folder: Path, packed: str | None = None) -> None:
    """Raise `InputError` for a folder that lacks a file or has one that cannot be read.

    `packed` is the file with its weights, where they are in a format of our own.
    """
    files = {file.name for file in folder.iterdir()}
    if packed is not None:
        weights = [packed]
    elif "model.safetensors" in files:
        weights = ["model.safetensors"]
    elif _INDEX in files:
        parts = _read_json(name, folder / _INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise InputError(f"the model folder {name!r}: {_INDEX} lists no weights.")
        weights = sorted({str(part) for part in parts.values()})
    else:
        pickled = sorted(file for file in files if file.endswith(_PICKLED))
        if pickled:
            raise InputError(
                f"the model {name!r} has its weights only as {pickled[0]}, a format that can run "
                "code when it is read: save it with safetensors (model.safetensors)."
            )
        raise InputError(f"the model folder {name!r} has no weights (model.safetensors).")
    for weight in weights:
        if weight not in files:
            raise InputError(f"the model folder {name!r} lacks {weight}.")
        _check_safetensors(name, folder / weight)
    if not any(_TOKENIZER.fullmatch(file) for file in files):
        raise InputError(
            f"the model folder {name!r} has no tokenizer (tokenizer.json or a vocabulary file): "
            "save the tokenizer into the same folder."
        )


def _read_json(name: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"the model folder {name!r}: {path.name} is not valid JSON ({first_line(error)})."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"the model folder {name!r}: {path.name} is not a JSON object.")
    return content


def _check_safetensors(name: str, path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    what = f"the model folder {name!r}: {path.name}"
    broken = (SafetensorError, OSError)
    with readable(what, "safetensors file", *broken), safe_open(path, framework="numpy"):
        pass


@contextlib.contextmanager
def readable(what: str, kind: str, *broken: type[Exception]) -> Iterator[None]:
    """Say in a sentence that a file is damaged or none of its kind, where that leads to an error.

    Parameters
    ----------
    what, kind : how the sentence calls the file, and what it should be
    broken : the errors that a damaged one leads to
    """
    try:
        yield
    except InputError:
        raise
    except broken as error:
        raise InputError(f"{what} is damaged or no {kind} ({first_line(error)}).") from error


def first_line(error: BaseException) -> str:
    """The first line of an error, short enough for a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")[:200]

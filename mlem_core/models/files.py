"""Whether the files of a model folder can be used, and in which words they cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError

# The files of a folder that are read, by how their names end.
READ = (".json", ".jinja", ".txt", ".model", ".safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_TOKENIZER = re.compile(r"(tokenizer|vocab|spiece|sentencepiece|merges)[^/]*", re.IGNORECASE)
_INDEX = "model.safetensors.index.json"


def check_gguf(name: str, path: Path) -> None:
    """Raise `InputError` where the file is no GGUF file."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"the model {name!r}: {path.name} is no GGUF file.")


def check_folder(name: str, folder: Path, packed: str | None = None) -> None:
    """Raise `InputError` for a folder that lacks a file or has one that cannot be read.

    `packed` is the file with its weights, where they are in a format of our own.
    """
    kind = read_config(name, folder).get("model_type")
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        raise InputError(
            f"the model {name!r} is of the type {kind!r} in its config.json, which transformers "
            "does not know without running code that comes with the model; that is never done."
        )
    check_files(name, folder, packed)


def read_config(name: str, folder: Path) -> dict[str, Any]:
    """The `config.json` of a model folder; raises `InputError` where it has none."""
    if not (folder / "config.json").is_file():
        raise InputError(f"the model folder {name!r} has no config.json.")
    return _read_json(name, folder / "config.json")


def check_files(name: str, folder: Path, packed: str | None = None) -> None:
    """`check_folder` without a look at the type of the model, which takes transformers."""
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

    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"the model folder {name!r}: {path.name} is damaged or no safetensors file "
            f"({first_line(error)})."
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error, short enough for a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")[:200]


def damaged(path: Path, kind: str, error: BaseException) -> InputError:
    """The error for a file that is not what its name says."""
    return InputError(f"{path.name} is damaged or no {kind} file ({first_line(error)}).")

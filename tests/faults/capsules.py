"""A small capsule of made-up layers, and copies of it with other content."""

from __future__ import annotations

import copy
import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from inputs import in_files, noise, words

from mlem_core.analysis.run import run
from mlem_core.base.schema import parsed
from mlem_core.report import capsule
from mlem_core.report.contents import About, as_json
from mlem_core.report.figures import Drawing
from mlem_core.storage.store import Store


def small(folder: Path) -> Path:
    """A capsule of 20 sentences in two layers of a file, its figures as HTML."""
    table = words(20)
    spec = in_files(folder, table, {"brain": noise(len(table))}, folds=3)
    analysis = run(spec, Store(folder / "store"))
    return capsule.write(analysis, folder / "small.zip", drawing=Drawing(images=False))


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Mapping[str, bytes], target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target


def sealed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with fresh digests, freshly sealed."""
    kept = dict(files)
    about: dict[str, Any] = json.loads(kept.pop("capsule.json"))
    about["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()}
    return {
        **kept,
        "capsule.json": as_json(parsed(About, json.dumps(about).encode(), "it").sealed()),
    }


def forged(files: Mapping[str, bytes], target: Path, **changed: bytes | None) -> Path:
    """A copy with other files (`tables__why` is tables/why; None removes it), freshly sealed."""
    files = {**files, **{name.replace("__", "/"): data for name, data in changed.items()}}
    return zipped(sealed({name: data for name, data in files.items() if data is not None}), target)


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the fields of a document are: its values, and its objects and lists without any."""
    inside = list(value.items() if isinstance(value, dict) else enumerate(value)) if isinstance(
        value, dict | list
    ) else []  # fmt: skip
    for name, one in inside:
        yield from leaves(one, (*place, name))
    if not inside:
        yield place


def edited(document: Any, place: tuple[Any, ...]) -> dict[str, Any]:
    """A copy of a document in which one field has another value of its kind."""
    made = copy.deepcopy(document)
    inside = made
    for part in place[:-1]:
        inside = inside[part]
    old = inside[place[-1]]
    other: dict[type, Callable[[], Any]] = {
        bool: lambda: not old, str: lambda: f"{old}x", list: lambda: ["x"], dict: lambda: {"x": "x"}
    }  # fmt: skip
    inside[place[-1]] = other.get(type(old), lambda: 1 if old is None else 2 * old + 1)()
    return dict(made)

"""A small capsule of made-up layers, and copies of it with other content."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inputs import in_files, noise, words

from mlem_core.analysis.run import run
from mlem_core.report import capsule
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


def forged(files: Mapping[str, bytes], target: Path, **changed: bytes | None) -> Path:
    """A copy with other files (`tables__why` is tables/why; None removes it) and fresh digests."""
    files = {**files, **{name.replace("__", "/"): data for name, data in changed.items()}}
    kept = {name: data for name, data in files.items() if data is not None}
    about: dict[str, Any] = json.loads(kept.pop("capsule.json"))
    about["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()}
    return zipped({**kept, "capsule.json": json.dumps(about).encode()}, target)

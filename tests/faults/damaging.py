"""What happens to files: cut, emptied, a bit of them flipped, removed, a folder in their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np


def _cut(path: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(max(1, len(data))))])


def _emptied(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"")


def _flipped(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))


def _removed(path: Path, rng: np.random.Generator) -> None:
    path.unlink()


def _folder(path: Path, rng: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def _link_to_nothing(path: Path, rng: np.random.Generator) -> None:
    # A file that nobody can read, also where the tests run as root.
    path.unlink()
    path.symlink_to("/proc/self/mem")


DAMAGES: tuple[Callable[[Path, np.random.Generator], None], ...] = (
    _cut,
    _emptied,
    _flipped,
    _flipped,
    _removed,
    _folder,
    _link_to_nothing,
)


def damaged(folder: Path, seed: int) -> Iterator[tuple[str, Path]]:
    """Damage each file of a folder in each way, one at a time; the folder is whole again after."""
    whole = folder.with_name(f"{folder.name}-whole")
    shutil.copytree(folder, whole)
    rng = np.random.default_rng(seed)
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        for damage in DAMAGES:
            target = folder / path.relative_to(whole)
            damage(target, rng)
            yield f"{path.relative_to(whole)} {damage.__name__}", target
            _restore(target, path)
            if _names(folder) != _names(whole):
                shutil.rmtree(folder)
                shutil.copytree(whole, folder)


def _restore(target: Path, whole: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if target.parent.is_dir():
        shutil.copy2(whole, target)


def _names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}

"""Archives, and what happens to files: bytes changed, cut, emptied, removed, a folder instead."""

import io
import shutil
import zipfile
from collections.abc import Mapping

import numpy as np


def packed(members, how=zipfile.ZIP_STORED, note=b""):
    """An archive of members by name, or by names of which one may come twice."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.comment = note
        for name, data in members.items() if isinstance(members, Mapping) else members:
            archive.writestr(name, data)
    return file.getvalue()


def contents(path):
    """What is in each member of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def damaged_bytes(good, seed, n, pieces=(), most=3):
    """Good files of each suffix in turn with up to `most` changes; names, suffixes and bytes.

    Bytes are flipped, cut away, doubled, zeroed, put in (some of `pieces`, or any) or swapped, half
    of the time near the beginning, where headers are.
    """
    rng = np.random.default_rng(seed)
    for number in range(n):
        suffix = list(good)[number % len(good)]
        data = bytearray(good[suffix][int(rng.integers(len(good[suffix])))])
        for _ in range(int(rng.integers(1, most + 1))):
            near = 200 if rng.integers(2) else len(data)
            at, length = int(rng.integers(max(1, min(near, len(data))))), int(rng.integers(1, 40))
            how = int(rng.integers(6))
            if how == 0 and data:
                data[at] ^= 1 << int(rng.integers(8))
            elif how == 1:
                del data[at : at + (length if rng.integers(3) else len(data))]
            elif how == 2:
                data[at:at] = data[at : at + length] * int(rng.integers(1, 30))
            elif how == 3:
                data[at : at + length] = bytes(len(data[at : at + length]))
            elif how == 4:
                some = pieces or [rng.bytes(length)]
                data[at:at] = some[int(rng.integers(len(some)))]
            else:
                data[at : at + 2] = data[at : at + 2][::-1]
        yield f"damage {number}", suffix, bytes(data)


def _cut(path, rng):
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(max(1, len(data))))])


def _flipped(path, rng):
    data = bytearray(path.read_bytes())
    if data:
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))


def _folder(path, rng):
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def _link_to_nothing(path, rng):
    # A file that nobody can read, also where the tests run as root.
    path.unlink()
    path.symlink_to("/proc/self/mem")


DAMAGES = {
    "cut": _cut, "emptied": lambda path, rng: path.write_bytes(b""), "flipped": _flipped,
    "flipped elsewhere": _flipped, "removed": lambda path, rng: path.unlink(), "folder": _folder,
    "link to nothing": _link_to_nothing,
}  # fmt: skip


def damaged(folder, seed):
    """Damage each file of a folder in each way, one at a time; the folder is whole again after."""
    whole = folder.with_name(f"{folder.name}-whole")
    shutil.copytree(folder, whole)
    rng = np.random.default_rng(seed)
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        for what, damage in DAMAGES.items():
            target = folder / path.relative_to(whole)
            damage(target, rng)
            yield f"{path.relative_to(whole)} {what}"
            _restore(target, path)
            if _names(folder) != _names(whole):
                shutil.rmtree(folder)
                shutil.copytree(whole, folder)


def _restore(target, whole):
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if target.parent.is_dir():
        shutil.copy2(whole, target)


def _names(folder):
    return {path.relative_to(folder) for path in folder.rglob("*")}

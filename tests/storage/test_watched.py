"""Files that change between their digest and the numbers that are read of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlem_core.base.errors import InputError
from mlem_core.storage import watched
from mlem_core.storage.store import Store
from mlem_core.storage.watched import Digested, Watched


def rewritten(path: Path) -> None:
    """In place, of the same size, with its former time."""
    before = path.stat()
    path.write_text("B")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def exchanged(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("B")
    other.replace(path)


@pytest.mark.parametrize("change", [rewritten, exchanged, Path.unlink])
def test_nothing_is_kept_of_a_file_that_changes(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_text("A")
    file = Digested.of(path)

    def make(folder: Path) -> None:
        Watched(file.digest, (file,)).is_read()
        change(path)
        (folder / "numbers").write_text("of whatever was there")

    with pytest.raises(InputError, match="file was changed"):
        store.entry("stage", 1, make, of=f"{file.digest} as a view")
    assert store.find("stage", 1, of=f"{file.digest} as a view") is None
    assert not watched._read


def test_other_rights_and_another_name_of_a_file_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("A")
    file = Digested.of(path)
    path.chmod(0o600)
    os.link(path, tmp_path / "second")
    Watched(file.digest, (file,)).check()


def test_a_copy_of_a_file_that_has_changed_can_be_used(tmp_path: Path) -> None:
    path, copy = tmp_path / "file", tmp_path / "copy"
    path.write_text("A")
    old = Watched(Digested.of(path).digest, (Digested.of(path),))
    shutil.copy(path, copy)
    rewritten(path)
    file = Digested.of(copy)
    assert file.digest == old.digest

    def make(folder: Path) -> None:
        Watched(file.digest, (file,)).is_read()

    assert Store(tmp_path / "store").entry("stage", 1, make, of=file.digest).is_dir()

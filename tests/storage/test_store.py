"""What is kept: made once, sealed, within the memory and the disk, of files that do not change."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, noise, refused, words
from helpers.waiting import until

from mlem_core import InputError, Store, run
from mlem_core.base import resources as room
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.pairs import ranks
from mlem_core.storage import digests
from mlem_core.storage.digests import Digested, Watched
from mlem_core.storage.store import EntryKind, Packed


def write(text):
    def make(folder):
        (folder / "part").mkdir()
        (folder / "part" / "value.txt").write_text(text)

    return make


def never(folder):
    raise AssertionError("made again although it is there")


def value(folder):
    return (folder / "part" / "value.txt").read_text()


# A process of its own: says that it makes the entry, waits to be told, and finishes.
WORKER = """
import sys, time
from pathlib import Path
from mlem_core.storage.store import Store
root, marks, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
def make(folder):
    (folder / "half.txt").write_text("half")
    (marks / f"{name}.making").touch()
    while not (marks / "go").exists():
        time.sleep(0.01)
    (folder / "value.txt").write_text(name)
def waiting():
    (marks / f"{name}.waiting").touch()
print((Store(root).entry("stage", 1, make, waiting, a=1) / "value.txt").read_text())
"""


def start(tmp_path, name):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "store"), str(tmp_path), name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_an_entry_is_made_once_and_found_again(tmp_path):
    store = Store(tmp_path)
    assert store.find("stage", 1, a=1) is None
    folder = store.entry("stage", 1, write("x"), a=1)
    assert value(folder) == "x"
    assert store.entry("stage", 1, never, a=1) == folder
    assert Store(tmp_path).find("stage", 1, a=1) == folder
    info = json.loads((folder / "entry.json").read_text())
    assert info["depends_on"] == {"a": 1}
    assert info["files"]["part/value.txt"]["size"] == 1


def test_the_key_depends_on_everything_named_and_on_no_order(tmp_path):
    store = Store(tmp_path)
    key = store.key("stage", 1, a=1, b=["x", 0.5])
    assert key == store.key("stage", 1, b=("x", 0.5), a=1)
    others = [
        store.key("other", 1, a=1, b=["x", 0.5]),
        store.key("stage", 2, a=1, b=["x", 0.5]),
        store.key("stage", 1, a=2, b=["x", 0.5]),
        store.key("stage", 1, a=1, b=[0.5, "x"]),
        store.key("stage", 1, a=1, b=["x", 0.5], c=None),
    ]
    assert len({key, *others}) == 6
    with pytest.raises(ValueError):
        store.key("stage", 1, a=float("nan"))


class Part(NamedTuple):
    square: Annotated[FloatArray, Packed(np.float32, symmetric=True)]
    n: int


@dataclass(frozen=True)
class Result:
    table: pd.DataFrame
    layers: tuple[Layer, ...]
    part: Part | None = None
    gone: Part | None = None


def test_a_result_is_kept_by_the_types_of_its_fields(tmp_path):
    columns = {"text": ["NA", "", "1"], "x": [0.1, np.nan, 3], "n": [1, 2, 3], "own": [1 > 2] * 3}
    part = Part(np.array([[1, 0.5], [0.5, 1]]), 3)
    result = Result(pd.DataFrame(columns), (("a", 0),), part)
    found = EntryKind("stage", 1, Result).get(Store(tmp_path), {"a": 1}, lambda: result)
    pd.testing.assert_frame_equal(found.table, result.table)
    np.testing.assert_array_equal(found.part.square, part.square)
    assert (found.layers, found.part.n, found.gone) == (result.layers, 3, None)


def test_an_older_version_is_not_used(tmp_path):
    store = Store(tmp_path)
    old = store.entry("stage", 1, write("old"), a=1)
    new = store.entry("stage", 2, write("new"), a=1)
    assert (value(old), value(new)) == ("old", "new")
    # Nor when it lies where the new one belongs.
    digests._sound.clear()
    (new / "entry.json").write_bytes((old / "entry.json").read_bytes())
    assert store.find("stage", 2, a=1) is None
    assert value(store.entry("stage", 2, write("newer"), a=1)) == "newer"


def garble(folder):  # the same size
    path = folder / "part" / "value.txt"
    path.write_text("gAod")
    os.utime(path, (0, 0))  # two writes within one tick of the file system's clock look alike


def become_file(folder):
    folder.rename(folder.with_name("away"))
    folder.write_text("a file")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda folder: os.truncate(folder / "part" / "value.txt", 2),
    "garbled": garble,
    "lost": lambda folder: (folder / "part" / "value.txt").unlink(),
    "information lost": lambda folder: (folder / "entry.json").unlink(),
    "information cut": lambda folder: os.truncate(folder / "entry.json", 30),
    "other information": lambda folder: (folder / "entry.json").write_text("[1, 2]"),
    "nested": lambda folder: (folder / "entry.json").write_text("[" * 100_000),
    "a file": become_file,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("same_process", [True, False])
def test_a_damaged_entry_is_made_again(tmp_path, damage, same_process):
    store = Store(tmp_path)
    DAMAGES[damage](store.entry("stage", 1, write("good"), a=1))
    if not same_process:
        digests._sound.clear()
    assert store.find("stage", 1, a=1) is None
    assert value(store.entry("stage", 1, write("again"), a=1)) == "again"
    assert value(Store(tmp_path).entry("stage", 1, never, a=1)) == "again"
    assert not any((tmp_path / "unfinished").iterdir())


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_a_failing_make_leaves_nothing(tmp_path, error):
    store = Store(tmp_path)

    def fail(folder):
        write("half")(folder)
        raise error

    with pytest.raises(type(error)):
        store.entry("stage", 1, fail, a=1)
    assert store.find("stage", 1, a=1) is None
    assert not any((tmp_path / "unfinished").iterdir())
    assert value(store.entry("stage", 1, write("x"), a=1)) == "x"


def test_two_processes_make_an_entry_once(tmp_path):
    first = start(tmp_path, "first")
    until((tmp_path / "first.making").exists)
    second = start(tmp_path, "second")
    until((tmp_path / "second.waiting").exists)
    (tmp_path / "go").touch()
    assert [one.communicate(timeout=20)[0].strip() for one in (first, second)] == ["first"] * 2
    assert not (tmp_path / "second.making").exists()


def test_a_killed_process_leaves_no_entry_and_a_later_one_succeeds(tmp_path):
    killed = start(tmp_path, "killed")
    until((tmp_path / "killed.making").exists)
    waiting = start(tmp_path, "heir")
    until((tmp_path / "heir.waiting").exists)
    store, unfinished = Store(tmp_path / "store"), tmp_path / "store" / "unfinished"
    # The leavings of another entry are cleaned, but not what that process is at.
    store.entry("stage", 1, write("x"), a=2)
    assert len(list(unfinished.iterdir())) == 1
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=20)
    assert store.find("stage", 1, a=1) is None
    (tmp_path / "go").touch()
    assert waiting.communicate(timeout=20)[0].strip() == "heir"  # it did not wait for ever
    assert store.find("stage", 1, a=1) is not None
    assert not any(unfinished.iterdir())


def test_a_full_disk_and_a_root_that_cannot_be_written_are_said(tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with refused("is full"):
        Store(tmp_path).entry("stage", 1, full, a=1)
    (tmp_path / "file").write_text("x")
    store = Store(tmp_path / "file" / "cache")
    assert store.find("stage", 1, a=1) is None
    with refused("cannot be written"):
        store.entry("stage", 1, never, a=1)


def rewritten(path):
    """In place, of the same size, with its former time."""
    before = path.stat()
    path.write_text("B")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def exchanged(path):
    other = path.with_name("other")
    other.write_text("B")
    other.replace(path)


@pytest.mark.parametrize("change", [rewritten, exchanged, Path.unlink])
def test_nothing_is_kept_of_a_file_that_changes(change, tmp_path):
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_text("A")
    file = Digested.from_file(path)

    def make(folder):
        Watched(file.digest, (file,)).is_read()
        change(path)
        (folder / "numbers").write_text("of whatever was there")

    with pytest.raises(InputError, match="file was changed"):
        store.entry("stage", 1, make, of=f"{file.digest} as a view")
    assert store.find("stage", 1, of=f"{file.digest} as a view") is None
    assert not digests._read


@pytest.fixture
def spec(tmp_path):
    table = words(40)
    return in_files(tmp_path, table, {"m": noise(len(table))}, folds=3)


def test_memory_and_disk_that_will_not_do_are_said_first(spec, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(room, "free_memory", lambda: 1_000)
        with refused("pairs of stimuli in 2 layers", "0.0 GB", "memory", "--pairs"):
            run(spec, Store(tmp_path / "store"), progress=False)
    with monkeypatch.context() as patch, refused("pairs of stimuli", "1,000", "--pairs"):
        patch.setattr("mlem_core.analysis.layer_statistics.MOST_PAIRS", 1_000)
        run(spec, Store(tmp_path / "store"), progress=False)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000))
    monkeypatch.setattr("mlem_core.analysis.layer_statistics.IN_MEMORY_BYTES", 10)
    with refused("disk", "fewer pairs", "MLEM_CACHE"):
        run(spec, Store(tmp_path / "store"), progress=False)


def test_ranks_in_a_file_are_the_same(spec, tmp_path, monkeypatch):
    exact = run(spec, Store(tmp_path / "one"), progress=False)
    monkeypatch.setattr(ranks, "IN_MEMORY_BYTES", 10)
    assert (run(spec, Store(tmp_path / "two"), progress=False).rsa == exact.rsa).all()

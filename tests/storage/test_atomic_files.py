from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from mlem_core.analysis.results import write_tables
from mlem_core.storage.files import replacing


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=["022", "077", "002"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_takes_the_place_when_the_block_ends_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path and temporary.exists()
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and names(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_there_is_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), replacing(tmp_path / "a.csv") as temporary:
        temporary.write_text("half")
        raise error
    assert names(tmp_path) == []


def test_after_an_error_the_old_content_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with pytest.raises(ValueError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ValueError
    assert path.read_text() == "old" and names(tmp_path) == ["a.csv"]


def test_a_rename_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for path in (tmp_path / "a", tmp_path / "a" / ".."):
        with pytest.raises(OSError) as raised, replacing(path) as temporary:
            temporary.write_text("new")
        assert raised.value.filename == str(path) and raised.value.filename2 is None
    assert names(tmp_path) == ["a"] and names(tmp_path / "a") == ["b"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path, umask: int) -> None:
    with replacing(str(tmp_path / "a.csv")) as temporary:
        temporary.write_text("new")
    assert permissions(tmp_path / "a.csv") == 0o666 & ~umask
    (tmp_path / "b").touch()
    assert permissions(tmp_path / "b") == permissions(tmp_path / "a.csv")


def test_private_files_are_the_owner_s(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "a.json"
    path.touch(0o644)
    with replacing(path, private=True) as temporary:
        assert permissions(temporary) == 0o600
        temporary.write_text("new")
    assert permissions(path) == 0o600


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with replacing(path) as first:
        first.write_text("first")
        with replacing(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(tmp_path) == ["a.csv"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no" / "a.csv"
    with pytest.raises(FileNotFoundError) as raised, replacing(path):
        raise AssertionError
    assert raised.value.filename == str(path)


def test_another_file_s_error_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, replacing(tmp_path / "a.csv"):
        (tmp_path / "other").read_text()
    assert str(raised.value.filename) == str(tmp_path / "other")


def test_tables_take_their_places_when_all_of_them_are_written(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1, 2]})
    (tmp_path / "a.csv").write_text("old")
    with pytest.raises(FileNotFoundError):
        write_tables(tmp_path, {"a.csv": table, "b.csv": table, "no/c.csv": table}, {})
    assert names(tmp_path) == ["a.csv"] and (tmp_path / "a.csv").read_text() == "old"
    write_tables(tmp_path, {"a.csv": table, "b.csv": table}, {"seed": 0})
    assert names(tmp_path) == ["a.csv", "b.csv", "manifest.json"]
    assert (tmp_path / "a.csv").read_text() == "a\n1\n2\n"

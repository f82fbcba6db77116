import os
import stat
from pathlib import Path

import pandas as pd
import pytest
from helpers.inputs import refused

from mlem_core.analysis.results import write_tables
from mlem_core.base.files import check_target, replacing, replacing_files


@pytest.fixture(params=[0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_takes_the_place_when_the_block_ends_and_not_before(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path and temporary.exists()
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and names(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [None, "old"])
def test_after_an_error_there_is_what_was_there(tmp_path, error, before):
    path = tmp_path / "a.csv"
    if before:
        path.write_text(before)
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("half")
        raise error
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == (
        {"a.csv": before} if before else {}
    )


def test_permissions_are_those_of_any_new_file_or_the_owner_s(tmp_path, umask):
    with replacing(str(tmp_path / "a.csv")) as temporary:
        temporary.write_text("new")
    assert permissions(tmp_path / "a.csv") == 0o666 & ~umask
    path = tmp_path / "a.json"
    path.touch(0o644)
    with replacing(path, private=True) as temporary:
        assert permissions(temporary) == 0o600
        temporary.write_text("new")
    assert permissions(path) == 0o600


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "a.csv"
    with replacing(path) as first:
        first.write_text("first")
        with replacing(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(tmp_path) == ["a.csv"]


def test_a_device_a_pipe_or_a_folder_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(os.devnull)
    for path in (Path(os.devnull), tmp_path / "pipe", tmp_path / "folder", tmp_path / "link"):
        before = path.stat()
        with pytest.raises(OSError) as raised, replacing(path):
            raise AssertionError
        assert raised.value.filename == str(path) and path.stat().st_mode == before.st_mode
        with refused("a file"):
            check_target(str(path), "file")
    assert names(tmp_path) == ["folder", "link", "pipe"] and (tmp_path / "link").is_symlink()
    for path in (Path(os.devnull), tmp_path / "pipe"):
        with pytest.raises(OSError), replacing_files(path, "last"):
            raise AssertionError
        with refused("a folder"):
            check_target(str(path), "folder")
    with refused("empty"):
        check_target("", "folder")


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("there/a.csv")
    with replacing(tmp_path / "link.csv") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.csv").is_symlink() and names(tmp_path / "there") == ["a.csv"]
    assert (tmp_path / "there" / "a.csv").read_text() == "new"


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(tmp_path):
    (tmp_path / ".a.csv.0123abcd").write_text("half")
    (tmp_path / ".b.csv.0123abcd").write_text("of another file")
    (tmp_path / ".a.csv.backup").write_text("not ours")
    with replacing(tmp_path / "a.csv") as first:
        with replacing(tmp_path / "a.csv") as second:
            assert first.exists() and second.exists()
        first.write_text("first")
    assert names(tmp_path) == [".a.csv.backup", ".b.csv.0123abcd", "a.csv"]
    (tmp_path / ".out.0123abcd" / "sub").mkdir(parents=True)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".unfinished.0123abcd").mkdir()
    for name in ("out", "in"):
        with replacing_files(tmp_path / name, "last") as unfinished:
            (unfinished / "last").write_text("x")
        assert names(tmp_path / name) == ["last"]
    assert ".out.0123abcd" not in names(tmp_path)


def test_a_folder_appears_at_once_and_one_that_is_there_keeps_what_is_not_replaced(tmp_path):
    table = pd.DataFrame({"a": [1]})
    out = tmp_path / "some" / "out"
    with pytest.raises(ValueError), replacing_files(out, "last") as unfinished:
        (unfinished / "a").write_text("half")
        raise ValueError
    assert names(tmp_path / "some") == []
    write_tables(out, {"a.csv": table, "b.csv": table}, {"seed": 0})
    (out / "mine.txt").write_text("mine")
    (out / "sub").mkdir()
    # Of the same analysis: beside it.
    write_tables(out, {"c.csv": table}, {"seed": 0})
    assert names(out) == ["a.csv", "b.csv", "c.csv", "manifest.json", "mine.txt", "sub"]
    # Of another: in its place.
    write_tables(out, {"b.csv": table}, {"seed": 1})
    assert names(out) == ["b.csv", "manifest.json", "mine.txt", "sub"]
    (out / "manifest.json").write_text('{"tables": ["../some.csv", "mine.txt", 3], "seed": 2}')
    (tmp_path / "some.csv").write_text("elsewhere")
    write_tables(out, {"b.csv": table}, {"seed": 1})
    assert (tmp_path / "some.csv").exists() and (out / "mine.txt").exists()


def test_ctrl_c_while_files_take_their_places_leaves_no_mixture(tmp_path, monkeypatch):
    table = pd.DataFrame({"a": [1]})
    write_tables(tmp_path, {"a.csv": table, "b.csv": table}, {"seed": 0})
    replace, calls = os.replace, []

    def interrupted(source, target):
        calls.append(target)
        if len(calls) == 5:  # those before are of the unfinished tables themselves
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_tables(tmp_path, {"a.csv": table * 2, "b.csv": table * 2}, {"seed": 1})
    assert {(tmp_path / name).read_text() for name in ("a.csv", "b.csv")} == {"a\n2\n"}
    assert names(tmp_path) == ["a.csv", "b.csv", "manifest.json"]

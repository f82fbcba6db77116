"""Uploads read by a process of its own: the same as read here, within limits, ended on request."""

import time
import zipfile
from dataclasses import asdict

import numpy as np
import pandas as pd
import psutil
import pytest
from inputs import refused

from mlem_core import InputError, ReadAs, Store
from mlem_core.analysis.source import StimulusSource
from mlem_core.base.work import cancelled_by
from mlem_core.data.datasets import SETS
from mlem_core.data.reading.table import read_table
from mlem_core.tasks import analyses, reading

FRAME = pd.DataFrame(
    {
        "sentence": ["a b", "c d", "é f", 'g "h"', "NA x"],
        "f": [0.1, None, 3, 1e-7, -2],
        "g": ["x", "+y", None, "x", " z"],
        "01": ["01", "1", "x", None, "1"],
        None: ["p", "q", "r", "s", "t"],
    }
)


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "my.xlsx"
    FRAME.to_excel(path, index=False)
    return path


@pytest.fixture
def large(tmp_path, book):
    """A workbook of few bytes that takes many seconds to read."""
    path = tmp_path / "large.xlsx"
    head = (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    )
    with zipfile.ZipFile(book) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            rows = name == "xl/worksheets/sheet1.xml"
            new.writestr(name, head + "<row/>" * 1_000_000 if rows else old.read(name))
    return path


def table(path, root, **read_as):
    return reading.read_upload("table", {"path": str(path), **asdict(ReadAs(**read_as))}, root)


def stimuli(path, root, **more):
    return reading.read_upload("stimuli", asdict(StimulusSource(str(path), **more)), root)


def test_what_another_process_reads_is_what_is_read_here(tmp_path, root, book):
    found, here = table(book, root), read_table(book)
    pd.testing.assert_frame_equal(found.table.frame, here.frame)
    assert (found.table.read_as, found.table.name) == (here.read_as, "my.xlsx")
    assert found.roles["f"] == "ordered" and list(found.roles) == list(here.frame)
    np.save(tmp_path / "rdm.npy", 1 - np.eye(5))
    more = {"roles": (("01", "nominal"),), "rdms": (("d", str(tmp_path / "rdm.npy")),)}
    (tmp_path / "b.conllu").write_text(
        "".join(f"1\tw{n}\tw\t{'NV'[n % 2]}\t_\t_\t0\troot\t_\t_\n\n" for n in range(200))
    )
    for path, choices in ((book, more), (tmp_path / "b.conllu", {"sample": 20})):
        there = stimuli(path, root, **choices)
        own = StimulusSource(str(path), **choices).load_stimuli()
        pd.testing.assert_frame_equal(there.table, own.table)
        assert (there.digest, there.notes, there.name) == (own.digest, own.notes, own.name)
        assert there.rdms.keys() == own.rdms.keys()
    np.savez(tmp_path / "r.npz", V1=np.eye(5), IT=np.array([[np.nan]] * 5))
    asked = {"path": str(tmp_path / "r.npz"), "of_distances": False, "repeated": False}
    arrays = reading.read_upload("arrays", {**asked, "n_stimuli": 5}, root)
    assert set(arrays.names.values()) == {"V1"} and "IT" in arrays.notes[0]
    with refused("5 rows", "6 stimuli"):
        reading.read_upload("arrays", {**asked, "n_stimuli": 6}, root)
    # One process has read them all, and nothing is left of what it brought over.
    assert len(children()) == 1 and not list((root / "unfinished").iterdir())


def test_small_text_needs_no_process_and_other_files_do(tmp_path, root, book, monkeypatch):
    def asked(*_):
        raise InputError("another process")

    monkeypatch.setattr(reading, "_asked", asked)
    text = FRAME.to_csv(index=False).encode()
    (tmp_path / "s.csv").write_bytes(text)
    assert len(stimuli(tmp_path / "s.csv", root)) == 5
    (tmp_path / "large.csv").write_bytes(text + b"\n" * 1_000_000)
    (tmp_path / "named.csv").write_bytes(book.read_bytes())
    (tmp_path / "bank.conllu").write_bytes(b"")
    for name in ("large.csv", "named.csv", "bank.conllu", "my.xlsx"):
        with refused("another process"):
            stimuli(tmp_path / name, root)


@pytest.mark.parametrize(
    ("line", "says"),
    [("memory_gb = 0.01", "more than 0.01 GB of memory"), ("minutes = 0.0001", "0.0001 minutes")],
)
def test_a_file_that_takes_too_much_ends_with_its_process(root, large, monkeypatch, line, says):
    (large.parent / "shared.toml").write_text(line)
    monkeypatch.setenv("MLEM_SHARED", str(large.parent / "shared.toml"))
    visitor = Store(root / "visitors" / "one")
    with refused(says):
        stimuli(large, visitor.root)
    assert not children()
    # One's own server has other limits.
    assert len(stimuli(large.parent / "my.xlsx", root)) == 5


def test_reading_ends_with_whoever_waits_for_it(root, large):
    class Closed(BaseException):
        pass

    began = time.monotonic()

    def look():
        if time.monotonic() - began > 0.2:
            raise Closed

    with cancelled_by(look), pytest.raises(Closed):
        stimuli(large, root)
    assert time.monotonic() - began < 5
    assert not children() and not list((root / "unfinished").iterdir())


def test_a_process_that_is_killed_is_a_sentence_and_the_next_one_reads(root, book):
    def look():
        for child in children():
            child.kill()
            child.wait(10)

    look()  # one that waits might answer before it is killed; a new one starts for seconds
    with cancelled_by(look), refused(by=reading.Broken):
        stimuli(book, root)
    assert len(stimuli(book, root)) == 5
    look()  # one that waits for the next file
    assert len(stimuli(book, root)) == 5


def children():
    """The processes that read files for this one."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "mlem_core.tasks.reading" in child.cmdline()
    ]


def test_several_files_are_a_folder_that_is_read_as_one_treebank(tmp_path):
    store = Store(tmp_path)
    sentences = SETS["treebank"].file.read_text("utf-8").split("\n\n")[:20]
    parts = [("\n\n".join(sentences[k::2]) + "\n\n").encode() for k in (0, 1)]
    files = [("a.conllu", parts[0]), ("b.conllu", parts[1])]
    folder = analyses.keep_uploads(files, store)
    assert sorted(path.name for path in folder.iterdir()) == ["a.conllu", "b.conllu"]
    assert analyses.keep_uploads(files[::-1], store) == folder
    both = StimulusSource(str(folder)).load_stimuli()
    alone = [
        StimulusSource(str(analyses.keep_uploads([one], store))).load_stimuli() for one in files
    ]
    assert len(both) == sum(map(len, alone))
    # Files of one name are both kept.
    folder = analyses.keep_uploads([("a.conllu", b"1"), ("a.conllu", b"2")], store)
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"1", b"2"]

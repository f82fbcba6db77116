"""What users write on analyses: kept whole, whoever writes at the same time."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from mlem_core.base.errors import InputError
from mlem_core.storage.store import Store
from mlem_core.tasks import examples, notes
from mlem_core.tasks.notes import Notes

ID = "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_what_is_written_is_read_by_another_process_s_store(store: Store) -> None:
    entry = {"figure": "profiles", "options": {"layers": [1, 2]}, "caption": "Importance."}
    notes.change(ID, store, lambda old: old.named("  Words,\n five  models "))
    notes.change(ID, store, lambda old: old.noted("first line\nsecond: ρ, 中文, مرحبا\n"))
    notes.change(ID, store, lambda old: old.showing("part_of_speech", "part of speech"))
    notes.change(ID, store, lambda old: old.reporting([entry]))
    assert notes.read(ID, Store(store.root)) == Notes(
        "Words, five models",
        "first line\nsecond: ρ, 中文, مرحبا",
        {"part_of_speech": "part of speech"},
        (entry,),
    )
    assert notes.read("fedcba9876543210", store) == Notes()


def test_a_field_that_is_emptied_is_as_if_it_had_never_been_written(store: Store) -> None:
    notes.change(ID, store, lambda old: old.named("a").showing("tense", "Tense"))
    notes.change(ID, store, lambda old: old.named(" ").showing("tense", "tense"))
    assert notes.read(ID, store) == Notes()
    assert not list((store.root / "notes").glob("*.json"))


def test_names_and_notes_have_a_longest_length() -> None:
    written = Notes().named("n" * 1000).noted("n" * 9000).showing("tense", "n" * 1000)
    assert len(written.name) == len(written.shown["tense"]) == notes.LONGEST_NAME
    assert len(written.note) == notes.LONGEST_NOTE


def test_the_example_has_notes_in_the_store_and_its_folder_stays_as_it_is(store: Store) -> None:
    before = sorted(examples.FOLDER.rglob("*"))
    notes.change(examples.ID, store, lambda old: old.named("To begin with"))
    assert notes.read(examples.ID, store).name == "To begin with"
    assert (store.root / "notes" / "example.json").is_file()
    assert sorted(examples.FOLDER.rglob("*")) == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"version": 99, "name": "a", "note": "", "shown": {}, "report": []}',
        b'{"version": 1, "name": 3, "note": "", "shown": {}, "report": []}',
        b'{"version": 1, "name": "a", "note": "", "shown": [1], "report": []}',
        b'{"version": 1, "name": "a", "note": "", "shown": {}, "report": {}}',
        b'{"version": 1, "name": "a", "note": "", "shown": {}, "report": [1]}',
        b'{"version": 1, "name": "a"}',
    ],
)
def test_a_damaged_file_is_empty_notes_and_a_sentence_in_the_log(
    content: bytes, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.root / "notes" / f"{ID}.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert notes.read(ID, store) == Notes()
    assert [one for one in caplog.messages if "count as empty" in one and ID in one]
    notes.change(ID, store, lambda old: old.named("again"))
    assert notes.read(ID, store).name == "again"


def test_an_id_is_no_path(store: Store) -> None:
    for name in ("../../etc", "a/b", "", "a.b", "x" * 200):
        with pytest.raises(InputError, match="is not the id of an analysis"):
            notes.read(name, store)


def test_a_store_that_cannot_be_written_is_said_in_a_sentence(store: Store) -> None:
    (store.root / "notes").write_text("a file where the folder would be")
    with pytest.raises(InputError, match="the notes cannot be written into"):
        notes.change(ID, store, lambda old: old.named("a"))
    assert notes.read(ID, store) == Notes()


WRITER = """
import sys
from mlem_core.storage.store import Store
from mlem_core.tasks import notes

root, own = sys.argv[1:]
for n in range(40):
    how = lambda old: old.showing(f"{own}{n}", f"{own} {n}")
    notes.change("0123456789abcdef", Store(root), how)
    notes.read("0123456789abcdef", Store(root))
"""


def test_processes_that_write_at_once_lose_nothing(store: Store) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.root), own], stderr=subprocess.PIPE
        )
        for own in ("a", "b", "c")
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0 and b"cannot be read" not in errors, errors
    shown = notes.read(ID, store).shown
    assert len(shown) == 120 and shown["b39"] == "b 39"
    # Nothing half-written is left.
    left = {path.suffix for path in (store.root / "notes").iterdir()}
    assert left == {".json", ".lock"}

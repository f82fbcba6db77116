"""What users write on analyses, kept whole, and the names by which analyses are told apart."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from inputs import refused

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.storage.files import write_json
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, notes
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.naming import chosen, derived, names
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
        with refused("not the id"):
            notes.read(name, store)


def test_a_store_that_cannot_be_written_is_said_in_a_sentence(store: Store) -> None:
    (store.root / "notes").write_text("a file where the folder would be")
    with refused("notes cannot be written"):
        notes.change(ID, store, lambda old: old.named("a"))
    assert notes.read(ID, store) == Notes()


WRITER = """
import sys
from dataclasses import replace
from mlem_core.storage.store import Store
from mlem_core.tasks import notes

root, own = sys.argv[1:]
for n in range(20):
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
    assert len(shown) == 60 and shown["b19"] == "b 19"
    # Nothing half-written is left.
    left = {path.suffix for path in (store.root / "notes").iterdir()}
    assert left == {".json", ".lock"}


TWO = AnalysisSpec(stimuli="probing", models=("minilm", "mini-bert"))
FIVE = replace(TWO, models=("minilm", "mini-bert", "mini-gpt2", "mini-mamba", "smollm2"))


def asked(spec: AnalysisSpec, store: Store, at: float = 1_700_000_000) -> Job:
    """An analysis that was asked for and never ran."""
    folder = store.root / "jobs" / analyses.job_id(spec)
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", spec.to_dict())
    os.utime(folder / "spec.json", (at, at))
    job = analyses.find(folder.name, store)
    assert job is not None
    return job


def test_a_derived_name_says_what_was_chosen(store: Store) -> None:
    spec = replace(FIVE, estimator="spearman", features=("tense",), interactions=True)
    assert derived(asked(TWO, store)) == "probing · minilm, mini-bert"
    assert derived(asked(spec, store)) == (
        "probing · 5 models · 1 feature · spearman · with interactions"
    )
    example = analyses.find(examples.ID, store)
    assert example is not None
    assert derived(example) == "Example: probing, 11 models"


def test_how_stimuli_were_read_is_said_where_nothing_else_differs(store: Store) -> None:
    jobs = [asked(TWO, store), asked(replace(TWO, roles=(("tense", "ignore"),)), store)]
    assert derived(jobs[1]) == "probing · minilm, mini-bert"
    assert sorted(names(jobs, store).values()) == [
        "probing · minilm, mini-bert",
        "probing · minilm, mini-bert · roles tense=ignore",
    ]


def test_groups_are_named_without_their_members(store: Store) -> None:
    kinds = (("bert", ("mini-bert", "mini-bert@step64")), ("large", ("smollm2",)))
    spec = replace(
        FIVE,
        models=("mini-bert", "mini-bert@step64", "smollm2"),
        groups=kinds,
        labels=tuple((name, (f"objective:{name}", f"size:{name}")) for name, _ in kinds),
        trajectories=(("training", kinds[0][1]),),
    )
    assert list(chosen(spec).values()) == [
        "groups bert, large",
        "labels objective, size",
        "trajectories training",
    ]
    many = tuple((f"kind {k}", ("minilm",)) for k in range(5))
    assert chosen(replace(spec, groups=many))["groups"] == "5 groups"


def test_no_two_are_called_the_same(store: Store, tmp_path: Path) -> None:
    # Other models of the same number; the same file name with other content; the same name given.
    specs = [FIVE, replace(FIVE, models=("gpt2", *FIVE.models[1:]))]
    for n in range(2):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        (folder / "mine.csv").write_text(f"sentence,a\nx y,{n}\n")
        specs.append(replace(TWO, stimuli=str(folder / "mine.csv")))
    jobs = [asked(spec, store) for spec in specs]
    jobs += [asked(replace(TWO, seed=seed), store, 1_700_000_000 + seed) for seed in (1, 2)]
    for job in jobs[-2:]:
        notes.change(job.id, store, lambda old: old.named("words"))
    found = names(jobs, store)
    assert len(set(found.values())) == len(jobs)
    assert found[jobs[0].id] == "probing · minilm, mini-bert, mini-gpt2, mini-mamba, smollm2"
    assert found[jobs[2].id].startswith("mine · minilm, mini-bert · 14 Nov")
    assert found[jobs[2].id].endswith(jobs[2].id[:6])  # started in the same minute
    assert found[jobs[4].id].startswith("words · ")
    assert names(jobs[4:5], store) == {jobs[4].id: "words"}

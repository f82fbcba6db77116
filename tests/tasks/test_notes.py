"""What users write on analyses, kept whole, and the names by which analyses are told apart."""

import logging
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from inputs import refused

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.files import write_json
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, notes
from mlem_core.tasks.notes import Notes, derived, job_names

ID = "0123456789abcdef"


def test_what_is_written_is_read_by_another_process_s_store(store):
    entry = {"figure": "profiles", "options": {"layers": [1, 2]}, "caption": "Importance."}
    notes.change_notes(ID, store, lambda old: old.named("  Words,\n five  models "))
    notes.change_notes(ID, store, lambda old: old.noted("first line\nsecond: ρ, 中文, مرحبا\n"))
    notes.change_notes(ID, store, lambda old: old.showing("part_of_speech", "part of speech"))
    notes.change_notes(ID, store, lambda old: old.reporting([entry]))
    assert notes.read_notes(ID, Store(store.root)) == Notes(
        "Words, five models",
        "first line\nsecond: ρ, 中文, مرحبا",
        {"part_of_speech": "part of speech"},
        (entry,),
    )
    assert notes.read_notes("fedcba9876543210", store) == Notes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b'{"version": 99, "name": "a", "note": "", "shown": {}, "report": []}',
        b'{"version": 1, "name": "a", "note": "", "shown": [1], "report": []}',
        b'{"version": 1, "name": "a"}',
    ],
)
def test_a_damaged_file_is_empty_notes_and_a_sentence_in_the_log(content, store, caplog):
    path = store.root / "notes" / f"{ID}.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert notes.read_notes(ID, store) == Notes()
    assert [one for one in caplog.messages if "count as empty" in one and ID in one]
    notes.change_notes(ID, store, lambda old: old.named("again"))
    assert notes.read_notes(ID, store).name == "again"


def test_an_id_is_no_path(store):
    for name in ("../../etc", "a/b", "", "a.b", "x" * 200):
        with refused("not the id"):
            notes.read_notes(name, store)


def test_a_store_that_cannot_be_written_is_said_in_a_sentence(store):
    (store.root / "notes").write_text("a file where the folder would be")
    with refused("notes cannot be written"):
        notes.change_notes(ID, store, lambda old: old.named("a"))
    assert notes.read_notes(ID, store) == Notes()


WRITER = """
import sys
from mlem_core.storage.store import Store
from mlem_core.tasks import notes

root, own = sys.argv[1:]
for n in range(20):
    how = lambda old: old.showing(f"{own}{n}", f"{own} {n}")
    notes.change_notes("0123456789abcdef", Store(root), how)
    notes.read_notes("0123456789abcdef", Store(root))
"""


def test_processes_that_write_at_once_lose_nothing(store):
    command = [sys.executable, "-c", WRITER, str(store.root)]
    writers = [subprocess.Popen([*command, own], stderr=subprocess.PIPE) for own in "abc"]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0 and b"cannot be read" not in errors, errors
    shown = notes.read_notes(ID, store).shown
    assert len(shown) == 60 and shown["b19"] == "b 19"
    # Nothing half-written is left.
    left = {path.suffix for path in (store.root / "notes").iterdir()}
    assert left == {".json", ".lock"}


TWO = AnalysisSpec(stimuli="probing", models=("minilm", "mini-bert"))
FIVE = replace(TWO, models=("minilm", "mini-bert", "mini-gpt2", "mini-mamba", "smollm2"))


def asked(spec, store, at=1_700_000_000):
    """An analysis that was asked for and never ran."""
    folder = store.root / "jobs" / analyses.job_id(spec)
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", spec.to_dict())
    os.utime(folder / "spec.json", (at, at))
    job = analyses.find(folder.name, store)
    assert job is not None
    return job


def test_no_two_are_called_the_same(store, tmp_path):
    # Other models of the same number; the same file name with other content; the same name given.
    specs = [FIVE, replace(FIVE, models=("gpt2", *FIVE.models[1:]))]
    for n in range(2):
        path = tmp_path / f"{n}" / "mine.csv"
        path.parent.mkdir()
        path.write_text(f"sentence,a\nx y,{n}\n")
        specs.append(replace(TWO, stimuli=str(path)))
    jobs = [asked(spec, store) for spec in specs]
    chosen = replace(FIVE, estimator="spearman", features=("tense",), interactions=True)
    assert derived(asked(chosen, store)) == (
        "probing · 5 models · 1 feature · spearman · with interactions"
    )
    jobs += [asked(replace(TWO, seed=seed), store, 1_700_000_000 + seed) for seed in (1, 2)]
    for job in jobs[-2:]:
        notes.change_notes(job.id, store, lambda old: old.named("words"))
    found = job_names(jobs, store)
    assert len(set(found.values())) == len(jobs)
    assert found[jobs[0].id] == "probing · minilm, mini-bert, mini-gpt2, mini-mamba, smollm2"
    assert found[jobs[2].id].startswith("mine · minilm, mini-bert · 14 Nov")
    assert found[jobs[2].id].endswith(jobs[2].id[:6])  # started in the same minute
    assert found[jobs[4].id].startswith("words · ")
    assert job_names(jobs[4:5], store) == {jobs[4].id: "words"}

"""Deleting analyses and bringing them back, with real processes that are cancelled."""

import os
import shutil

import pytest
from inputs import in_files, noise, refused, words
from waiting import wait

from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, followups, notes, trash


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished analysis, with work on it and notes; every test has a copy."""
    folder, table = tmp_path_factory.mktemp("made"), words()
    store = Store(folder / "store")
    job = analyses.start(in_files(folder, table, {"brain": noise(len(table))}), store)
    wait(job, "done")
    work = followups.start_followup("fits", job.id, job.analysis().select().to_dict(), store)
    wait(work, "done")
    notes.change_notes(job.id, store, lambda old: old.named("Mine").noted("to be looked at"))
    return store, job.id


@pytest.fixture
def job(made, store):
    whole, its = made
    shutil.copytree(whole.root, store.root, dirs_exist_ok=True)
    job = analyses.find(its, store)
    assert job is not None and job.status().state == "done"
    return job


def listed(store):
    return [one.id for one in analyses.recent(store) if one.id != examples.ID]


def test_deleted_is_out_of_the_list_and_comes_back_with_all_that_belongs_to_it(job, store):
    before = job.analysis().results().importance
    (work,) = trash.followups_of(job.id, store)
    deleted = trash.delete(job.id, "Mine", store)
    assert listed(store) == [] and not job.folder.exists() and not work.exists()
    assert notes.read_notes(job.id, store) == notes.Notes()
    assert trash.in_trash(Store(store.root)) == [deleted] and not deleted.dismissed
    with refused("deleted already"):
        trash.delete(job.id, "Mine", store)
    deleted.dismiss()
    (found,) = trash.in_trash(store)
    assert found.dismissed
    trash.restore(found, store)
    assert listed(store) == [job.id] and work.is_dir() and trash.in_trash(store) == []
    assert notes.read_notes(job.id, store).note == "to be looked at"
    assert analyses.find(job.id, store).analysis().results().importance.equals(before)
    with refused("no longer in the trash"):
        trash.restore(found, store)
    found.dismiss()  # of what is not there: nothing


@pytest.mark.slow
def test_what_runs_is_cancelled_first(job, store, long):
    runs = analyses.start(long, store)
    work = followups.start_followup("representations", job.id, {"models": ["brain"]}, store)
    trash.delete(job.id, "Mine", store)  # its work waits for its turn
    deleted = trash.delete(runs.id, "long", store)
    assert listed(store) == [] and not work.folder.exists()
    trash.restore(deleted, store)
    assert runs.status().state == "cancelled"


@pytest.mark.slow
def test_what_was_made_anew_meanwhile_stays(job, store):
    deleted = trash.delete(job.id, "Mine", store)
    again = analyses.start(job.spec, store)
    assert again.id == job.id and wait(again, "done")
    notes.change_notes(job.id, store, lambda old: old.named("Second"))
    made = os.stat(again.result).st_ino
    trash.restore(deleted, store)
    assert os.stat(again.result).st_ino == made and notes.read_notes(job.id, store).name == "Second"
    assert len(list(trash.followups_of(job.id, store))) == 1 and trash.in_trash(store) == []


def test_old_and_many_are_removed_for_good_and_a_damaged_one_is_left_out(store):
    jobs = store.root / "jobs"
    for n in range(5):
        (jobs / f"{n:016x}").mkdir(parents=True)
        (jobs / f"{n:016x}" / "spec.json").write_text("{}")
        trash.delete(f"{n:016x}", str(n), store)
    trash.purge(store)
    assert [one.name for one in trash.in_trash(store)] == ["4", "3", "2", "1", "0"]
    trash.purge(store, most=2)
    (last, _) = trash.in_trash(store)
    (last.folder / "deleted.json").write_text('{"analysis": 1}')
    assert [one.name for one in trash.in_trash(store)] == ["3"]
    trash.purge(store, days=0.0)
    assert not [one for one in (store.root / "trash").iterdir() if one != last.folder]

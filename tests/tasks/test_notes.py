"""What users write on analyses and delete, and the example that comes with the program."""

import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, in_files, noise, refused, words
from helpers.repository import ROOT
from helpers.waiting import wait

from mlem_core import AnalysisSpec, Store, explain, run, stimulus_map
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.planning import CHOSEN, Choice, fold_choices
from mlem_core.base.text import fraction
from mlem_core.extensions.audit import stage as audit
from mlem_core.extensions.audit.flags import SAYS
from mlem_core.inference.explanation import best_known
from mlem_core.inference.intervals import terms_and_whole
from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
from mlem_core.inference.pair_contributions import PAIR_CONTRIBUTIONS
from mlem_core.inference.resample import HARDLY
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.columns import AUTO
from mlem_core.tasks import analyses, deletion, examples, followups, notes
from mlem_core.tasks.notes import Notes

ID = "0123456789abcdef"
README = ROOT / "README.md"


def test_what_is_written_is_read_by_another_process_s_store(store):
    entry = {"figure": "profiles", "options": {"layers": [1, 2]}, "caption": "Importance."}
    notes.change_notes(ID, store, lambda old: old.named("  Words,\n five  models "))
    notes.change_notes(ID, store, lambda old: old.noted("first line\nsecond: ρ, 中文, مرحبا\n"))
    notes.change_notes(ID, store, lambda old: old.showing("part_of_speech", "part of speech"))
    notes.change_notes(ID, store, lambda old: replace(old, report=(entry,)))
    assert notes.read_notes(ID, Store(store.root)) == Notes(
        "Words, five models",
        "first line\nsecond: ρ, 中文, مرحبا",
        {"part_of_speech": "part of speech"},
        (entry,),
    )
    assert notes.read_notes("fedcba9876543210", store) == Notes()


@for_each(
    "content",
    b"",
    b"\xff\xfe",
    b'{"version": 99, "name": "a", "note": "", "shown": {}, "report": []}',
    b'{"version": 1, "name": "a", "note": "", "shown": [1], "report": []}',
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


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(store):
    command = [sys.executable, "-c", WRITER, str(store.root)]
    for writer in [subprocess.Popen([*command, own], stderr=subprocess.PIPE) for own in "abc"]:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0 and b"cannot be read" not in errors, errors
    shown = notes.read_notes(ID, store).shown
    assert len(shown) == 60 and shown["b19"] == "b 19"
    # Nothing half-written is left.
    left = {path.suffix for path in (store.root / "notes").iterdir()}
    assert left == {".json", ".lock"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished analysis, with work on it and notes; every test has a copy."""
    folder, table = tmp_path_factory.mktemp("made"), words()
    store = Store(folder / "store")
    job = analyses.start(in_files(folder, table, {"brain": noise(len(table))}), store)
    wait(job, "done")
    fits = followups.get_followup("fits", job.id, job.analysis().select().to_dict(), store)
    wait(fits.begin(), "done")
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
    (work,) = deletion.list_followups(job.id, store)
    deletion.delete(job.id, "Mine", store)
    assert listed(store) == [] and not job.folder.exists()
    assert deletion.last_deleted(Store(store.root)).spec == job.spec
    with refused("deleted already"):
        deletion.delete(job.id, "Mine", store)
    deletion.restore(job.id, store)
    assert listed(store) == [job.id] and work.is_dir()
    assert deletion.last_deleted(store) is None
    assert notes.read_notes(job.id, store).note == "to be looked at"
    assert analyses.find(job.id, store).analysis().results().importance.equals(before)
    with refused("cannot be brought back"):
        deletion.restore(job.id, store)


@pytest.mark.slow
def test_what_runs_is_cancelled_first(job, store, long):
    runs = analyses.start(long, store)
    work = followups.get_followup("representations", job.id, {"models": ["brain"]}, store).begin()
    deletion.delete(job.id, "Mine", store)  # its work waits for its turn
    assert listed(store) == [runs.id] and work.status().state == "cancelled"
    deletion.delete(runs.id, "long", store)
    assert listed(store) == [] and not work.folder.exists()
    deletion.restore(runs.id, store)
    assert runs.status().state == "cancelled"


@pytest.mark.slow
def test_what_was_made_anew_meanwhile_stays(job, store):
    (work,) = deletion.list_followups(job.id, store)
    deletion.delete(job.id, "Mine", store)
    again = analyses.start(job.spec, store)
    assert again.id == job.id and wait(again, "done")
    notes.change_notes(job.id, store, lambda old: old.named("Second"))
    made = os.stat(again.result).st_ino
    deletion.restore(job.id, store)
    assert os.stat(again.result).st_ino == made
    deletion.remove_deleted(store)
    assert os.stat(again.result).st_ino == made and work.is_dir()
    assert notes.read_notes(job.id, store).name == "Second"


def test_the_next_deletion_removes_for_good_and_nothing_of_others(job, store):
    (work,) = deletion.list_followups(job.id, store)
    other = store.root / "jobs" / ID
    other.mkdir()
    (other / "spec.json").write_text("{}")
    notes.change_notes(ID, store, lambda old: old.named("Other"))
    deletion.delete(job.id, "Mine", store)
    assert work.is_dir()
    deletion.delete(ID, "Other", store)
    assert not work.exists() and notes.read_notes(job.id, store) == Notes()
    assert notes.read_notes(ID, store).name == "Other"
    with refused("cannot be brought back"):
        deletion.restore(job.id, store)
    deletion.restore(ID, store)
    deletion.remove_deleted(store)
    assert other.is_dir()


LAYER = ("minilm", 3)


def alone(example, **changes):
    """The specification of one layer, with the choices that were made for all."""
    of_layer = {"models": LAYER[:1], "layers": LAYER[1:], "groups": (), "labels": ()}
    return replace(example.spec, **of_layer, **changes)


def test_it_is_a_job_of_every_store_and_what_its_constants_say(example, tmp_path):
    chosen = {"estimator": example.spec.estimator, "values": example.spec.values}
    assert example.spec == replace(examples.SPEC, **chosen)
    assert (examples.SPEC.estimator, examples.SPEC.values) == ("auto", AUTO)
    assert {model for model, _ in example.layers} == set(examples.SPEC.models)
    assert examples.example_size() < 20e6
    # The last layers of two architectures that have learned from the same text.
    assert example.most_alike() == (("mini-gpt2@seed1", 6), ("mini-mamba@seed1", 11))
    store = Store(tmp_path)
    job = analyses.find(examples.ID, store)
    assert job.status().state == "done" and analyses.recent(store) == [job]
    assert job.spec == examples.SPEC and job.analysis() is examples.example()
    contents = job.contents()
    assert len(contents.rsa) == len(example.layers) and "4 cautions" in contents.notices[0]
    # Neither cancelling nor notes change the folder of the program.
    before = sorted(examples.FOLDER.rglob("*"))
    job.cancel()
    notes.change_notes(examples.ID, store, lambda old: old.named("To begin with"))
    assert notes.read_notes(examples.ID, store).name == "To begin with"
    with refused("comes with the program"):
        deletion.delete(examples.ID, "Example", store)
    assert sorted(examples.FOLDER.rglob("*")) == before and job.status().state == "done"


def test_its_intervals_and_audit_are_there_on_a_machine_that_ran_nothing(example, tmp_path):
    store = Store(tmp_path)
    intervals, found = (
        LAYER_INTERVALS.find(SelectionContext.from_analysis(example, store)),
        audit.AUDIT.find(SelectionContext.from_analysis(example, store)),
    )
    assert intervals.layers == tuple(example.layers) and not found.notices
    assert list(zip(found.layers["model"], found.layers["layer"], strict=True)) == example.layers
    assert set(found.changes["variant"]) == set(SAYS)
    np.testing.assert_allclose(intervals.values, example.rsa, atol=1e-4)
    pair = example.most_alike()
    why = explain(example, *pair)
    terms, whole = terms_and_whole(intervals, *pair)
    np.testing.assert_allclose(terms["value"], why.terms["value"], atol=1e-4)
    np.testing.assert_allclose(whole["value"], why.whole["value"], atol=1e-4)
    assert whole["lower"].iloc[0] > HARDLY
    np.testing.assert_allclose(intervals.tau, example.results().similarity_profiles, atol=1e-3)
    both = SelectionContext.from_analysis(example, store).reselect(layers=pair)
    by_term = {
        term: PAIR_CONTRIBUTIONS.find(both, term=term, most=True)
        for term in (*both.selection.features, UNEXPLAINED)
    }
    assert all(table is not None for table in by_term.values())
    (first,) = by_term[UNEXPLAINED].head(1).to_dict("records")
    assert 0 < first["contribution"] < 1e-4
    assert first["first_text"] == example.stimuli.words[first["first"]]
    for model, layer in example.layers:
        points = stimulus_map(example, model, layer, store)
        assert len(points) == 1000 and np.isfinite(points).all(axis=None)
    # Other features are another analysis: nothing is said of them.
    others = example.select(["tense", "number"])
    assert LAYER_INTERVALS.find(SelectionContext(example, others, store)) is None


@pytest.mark.slow
def test_a_layer_computed_again_gives_the_same_tables(example, tmp_path):
    store = Store(tmp_path)
    again = run(alone(example), store)
    assert again.stimuli.digest == example.stimuli.digest
    np.testing.assert_array_equal(again.folds, example.folds)
    shipped = example.pairs.select_layers([example.layers.index(LAYER)])
    assert again.pairs.columns.names == shipped.columns.names
    for fold, test in enumerate(again.pairs.tests.folds):
        np.testing.assert_array_equal(test.counts, shipped.tests.folds[fold].counts)
    # Processors differ in the last bits of float32, ranks of near ties with them.
    every_pair = np.ones(shipped.moments.n_blocks, dtype=bool)
    ours, theirs = (pairs.moments.within(every_pair) for pairs in (again.pairs, shipped))
    np.testing.assert_array_equal(ours.gram, theirs.gram)
    np.testing.assert_allclose(ours.with_ranks, theirs.with_ranks, rtol=1e-4)
    np.testing.assert_allclose(ours.with_distances, theirs.with_distances, rtol=1e-4)
    # The folds that choose otherwise, of all layers, are not those of this layer alone.
    most = Choice(example.spec.estimator, example.spec.values)
    alike = [fold for fold, own in enumerate(fold_choices(example.manifest)) if own == most]
    before, after = example.results(layers=[LAYER]), again.results()
    for name in ("scores", "importance", "weights", "feature_correlations"):
        ours, theirs = (
            table[table["fold"].isin(alike)] if "fold" in table else table
            for table in (getattr(after, name), getattr(before, name))
        )
        pd.testing.assert_frame_equal(ours, theirs, rtol=0, atol=1e-4)
    points = stimulus_map(again, *LAYER, Store(tmp_path, overlays=()))
    there = stimulus_map(example, *LAYER, store)
    np.testing.assert_array_equal(points["stimulus"], there["stimulus"])
    np.testing.assert_allclose(points, there, atol=1e-2 * points["x"].abs().max())


@pytest.mark.skipif(
    CHOSEN not in examples.example().manifest,
    reason="the example is of an older version, whose choices are not the defaults: make example",
)
def test_the_readme_has_the_numbers_of_the_example(example, tmp_path):
    (part,) = re.findall(
        r"^- \*\*Why two layers are similar.*?(?=^- )", README.read_text("utf-8"), re.M | re.S
    )
    text, pair = " ".join(part.split()), (("mini-gpt2", 6), ("mini-mamba", 11))
    context = SelectionContext.from_analysis(example, Store(tmp_path))
    intervals, chance = LAYER_INTERVALS.find(context), LAYER_CHANCE.find(context)
    why = best_known(explain(example, *pair), context, intervals, chance)
    low, high = why.whole.loc[0, ["lower", "upper"]]
    assert f"RSA of {fraction(why.value)} (95 % CI {fraction(low)} to {fraction(high)}," in text
    # The shares of the sentence, with their intervals, in its order; they add up to 100 %.
    percents = re.compile(r"\d+(?= to \d+ %| %(?! CI))")
    assert percents.findall(text) == percents.findall(why.headline)
    assert ("by value" in text) == ("by value" in why.coding)


def test_an_analysis_is_called_by_its_file_and_number_of_models_and_what_sets_it_apart(store):
    first = AnalysisSpec("probing", models=("mini-bert", "minilm"))
    other = replace(first, models=("mini-bert", "smollm2"), folds=4)
    last = AnalysisSpec("/uploads/ewt400.csv", models=("org/gpt2",), values=("a_b",))
    specs = (first, replace(first, folds=4), other, last)
    jobs = [analyses.Job(str(n), store.root, spec) for n, spec in enumerate(specs)]
    assert list(notes.job_names(jobs, store).values()) == [
        "probing, 2 models · minilm",
        "probing, 2 models · minilm and folds 4",
        "probing, 2 models · smollm2 and folds 4",
        "ewt400, gpt2",
    ]
    assert notes.described_choices(last) == ["coded by value: a b"]

"""Work on finished analyses in the background: real processes on a real store."""

import numpy as np
import pandas as pd
import pytest
import tiny
from inputs import in_files, noise, probing, refused
from waiting import wait

from mlem_core.analysis.baselines import decoding
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import Progress
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.figures.plots import Drawing
from mlem_core.inference import layer_intervals
from mlem_core.inference.explanation import best_known, explain, with_chance, with_transfer
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation import CHANCE, score_above_chance
from mlem_core.report import capsule
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, followups

FITTED = {"features": ["tense", "number"], "estimator": "ridge", "interactions": False}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def job(store, tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("input"), probing(60)
    layers = {"brain": noise(len(table), units=4)}
    job = analyses.start(in_files(folder, table, layers, features=("tense", "number")), store)
    wait(job, "done")
    return job


def test_a_follow_up_makes_the_tables_that_its_function_makes(job, store):
    options = {"name": "decoding", "layers": [["brain", 1]]}
    task = followups.start_followup("baseline", job.id, options, store)
    wait(task, "done")
    analysis = job.analysis()
    rows = {("brain", 1): np.asarray(representations_of(analysis, "brain", store)[1])}
    expected = decoding(analysis.stimuli, rows, analysis.folds).table
    pd.testing.assert_frame_equal(task.tables()["table"], expected)
    again = followups.followup_of("baseline", job.id, options, store)
    assert again == task and again.status().state == "done"
    other = followups.followup_of("baseline", job.id, {**options, "name": "univariate"}, store)
    assert other.status().state != "done"
    # It is no analysis.
    own = [one.id for one in analyses.recent(store) if one.id != examples.ID]
    assert own == [job.id] and analyses.find(task.id, store) is None
    # Once it is damaged, it is made again.
    (task.result / "table.csv").write_bytes(b"\xff\xfe\x00")
    with refused("again"):
        task.tables()
    wait(followups.start_followup("baseline", job.id, options, store), "done")
    assert len(task.tables()["table"])


def test_what_cannot_be_done_is_one_sentence(job, store):
    task = followups.start_followup("baseline", job.id, {"name": "x", "layers": []}, store)
    gone = followups.start_followup("baseline", "0" * 16, {"name": "decoding", "layers": []}, store)
    for one, said in ((task, "baseline"), (gone, "no longer in the store")):
        message = wait(one, "failed").message
        assert said in message and "Traceback" not in message and "\n" not in message
    with refused("baseline"):
        followups.followup_of("bass", job.id, {}, store)


@pytest.mark.slow
def test_a_capsule_is_the_one_that_the_command_line_writes(job, store, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chrome")  # figures as HTML, at once
    layers = [("brain", 0), ("brain", 1)]
    options = {**FITTED, "features": ["tense"], "layers": layers, "pair": layers}
    task = followups.start_followup("capsule", job.id, options, store)
    selection, drawing = job.analysis().select(["tense"], layers), Drawing(tuple(layers), store)
    expected = capsule.write(job.analysis(), tmp_path / "x.zip", selection, drawing=drawing)
    wait(task, "done")
    assert (task.result / followups.CAPSULE).read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_representations_that_have_gone_are_made_again(tmp_path):
    """As on a machine that has only the example, whose store has no representations."""
    folder = tiny.save("gpt2", tmp_path / "model")
    frame = tiny.word_stimuli(tiny.SENTENCES).table
    frame.to_csv(tmp_path / "words.csv", index=False)
    spec = AnalysisSpec(stimuli=str(tmp_path / "words.csv"), models=(str(folder),), folds=3)
    analysis = run(spec, Store(tmp_path / "first"))
    empty, name = Store(tmp_path / "other"), str(folder)
    with refused("no longer in the store"):
        representations_of(analysis, name, empty)
    seen: list[Progress] = []
    made = followups.work("representations", analysis, {"models": [name]}, empty, seen.append)
    assert made == {} and {step.stage for step in seen} == {"representations"}
    before = representations_of(analysis, name, Store(tmp_path / "first"))
    np.testing.assert_array_equal(representations_of(analysis, name, empty)[2], before[2])
    tiny.save("gpt2", folder, n_layer=2)
    with refused("no longer the one"):
        followups.restore_representations(analysis, [name], empty, lambda progress: None)


def test_scores_are_tested_against_permuted_labels(job, store):
    analysis, layer = job.analysis(), ("brain", 0)
    options = {"layers": [list(layer)], "permutations": 39, **FITTED}
    followups.work("chance", analysis, options, store, lambda progress: None)
    chosen = analysis.select(layers=[layer], **FITTED)
    made = analysis.kept(CHANCE, store, chosen, permutations=39)
    pairs = LayerPairs.of(analysis, [layer], store, ["tense", "number"])
    expected = score_above_chance(pairs, RidgeMLEM().cross_validate, n_permutations=39)
    pd.testing.assert_frame_equal(made, expected)
    with refused("ridge"):
        followups.work("chance", analysis, options | {"estimator": "rigde"}, store, lambda _: None)


@pytest.mark.slow
def test_intervals_of_two_layers_come_with_what_is_beside_their_terms(job, store):
    analysis = job.analysis()
    a, b = analysis.layers[:2]
    options = {"a": list(a), "b": list(b), "features": ["tense", "number"]}
    for fitted in ({}, {"estimator": "ridge-rank", "interactions": True}):
        followups.work("error-bars", analysis, options | fitted, store, lambda _: None)
        why, chosen = explain(analysis, a, b, ["tense", "number"]), analysis.select(**fitted)
        expected = with_chance(with_transfer(why, analysis, chosen), analysis, store).partial
        made = best_known(why, analysis, chosen, store)
        pd.testing.assert_frame_equal(made.partial[["quantity", "value"]], expected)
        assert list(made.partial.columns) == ["quantity", "value", "lower", "upper"]
    # Those of all layers are found where they are looked for.
    asked = FITTED | {"features": ["tense"]}
    options = {**asked, "layers": [list(layer) for layer in analysis.layers]}
    followups.work("all-error-bars", analysis, options, store, lambda _: None)
    assert layer_intervals.known_intervals(analysis, store, analysis.select(**asked)).columns == (
        "tense",
    )

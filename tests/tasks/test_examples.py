"""The packaged example: what it has on a machine that ran nothing, and how it is made."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import refused

from mlem_core.analysis import files
from mlem_core.analysis.maps import stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.inference import all_layers
from mlem_core.inference.behind import behind, is_kept
from mlem_core.inference.caveats import HARDLY
from mlem_core.inference.explanation import explain
from mlem_core.inference.tables import terms_and_whole
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.models.registry import defaults
from mlem_core.robustness import audit, multiverse
from mlem_core.robustness.variants import SAYS
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples

LAYER = ("minilm", 3)
ALONE = replace(examples.SPEC, models=LAYER[:1], groups=(), labels=())


def test_it_is_what_its_constants_say(example, tmp_path):
    assert example.spec == examples.SPEC
    assert {model for model, _ in example.layers} == set(examples.SPEC.models)
    assert set(example.maps) == set(example.layers)
    assert examples.size() < 20e6
    # The last layers of two architectures that have learned from the same text.
    assert example.most_alike() == (("mini-gpt2@seed1", 6), ("mini-mamba@seed1", 11))
    assert example.most_alike([("minilm", 0), ("minilm", 1), ("minilm", 3)])[0][0] == "minilm"
    job = analyses.find(examples.ID, Store(tmp_path))
    contents = job.contents()
    assert contents.n_layers == len(example.layers) and contents.notices == ()
    assert job.asked_at is None


def test_its_digest_is_that_of_the_file_as_it_is_now(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    assert examples.digest() == ""
    path = tmp_path / "result" / "analysis.json"
    path.parent.mkdir()
    for content in (b"one", b"two", b"one", b"three"):
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
        assert examples.digest() == hashlib.sha256(content).hexdigest()
    path.unlink()
    assert examples.digest() == ""


def test_its_intervals_and_audit_are_there_on_a_machine_that_ran_nothing(example, tmp_path):
    store = Store(tmp_path)
    intervals, found = all_layers.find(example, store), audit.find(example, store)
    assert intervals is not None and intervals.layers == tuple(example.layers)
    assert found is not None and not found.notices
    assert list(zip(found.layers["model"], found.layers["layer"], strict=True)) == example.layers
    assert set(found.changes["variant"]) == set(SAYS)
    np.testing.assert_allclose(intervals.rsa, example.rsa, atol=1e-4)
    why = explain(example, *example.most_alike())
    terms, whole = terms_and_whole(intervals, *example.most_alike())
    np.testing.assert_allclose(terms["value"], why.terms["value"], atol=1e-4)
    np.testing.assert_allclose(whole["value"], why.whole["value"], atol=1e-4)
    assert whole["lower"].iloc[0] > HARDLY
    results = example.results()
    np.testing.assert_allclose(intervals.tau, results.similarity_profiles, atol=1e-3)
    universes = multiverse.find(example, example.most_alike(), store)
    assert universes is not None and len(universes.universes) == 64
    pair, features = example.most_alike(), example.select().features
    for term in (*features, UNEXPLAINED):
        assert is_kept(example, store, pair, features, term)
    (first,) = behind(example, store, pair, features, UNEXPLAINED).head(1).to_dict("records")
    assert 0 < first["contribution"] < 1e-4
    assert first["first_text"] == example.stimuli.words[first["first"]]
    # Other features are another analysis: nothing is said of them.
    assert all_layers.find(example, store, example.select(["tense", "number"])) is None


@pytest.mark.slow
def test_a_layer_computed_again_gives_the_same_tables(example, tmp_path):
    store = Store(tmp_path)
    again = run(replace(ALONE, layers=LAYER[1:]), store)
    assert again.stimuli.digest == example.stimuli.digest
    np.testing.assert_array_equal(again.folds, example.folds)
    kept = example.tables.of_layers([example.layers.index(LAYER)])
    now = again.tables
    for name in ("codes", "counts", "cell_block", "cell_pattern"):
        np.testing.assert_array_equal(getattr(now, name), getattr(kept, name))
    # Processors differ in the last bits of float32, ranks of near ties with them.
    np.testing.assert_allclose(now.target_sums, kept.target_sums, rtol=1e-5)
    mean = kept.counts * kept.n_pairs
    np.testing.assert_allclose(now.rank_sums / mean, kept.rank_sums / mean, atol=1e-4)
    train = kept.training_ranks / mean
    np.testing.assert_allclose(now.training_ranks / mean, train, atol=1e-4)
    before, after = example.results(layers=[LAYER]), again.results()
    for name in ("scores", "importance", "weights", "feature_correlations"):
        pd.testing.assert_frame_equal(
            getattr(after, name), getattr(before, name), rtol=0, atol=1e-4
        )
    points = stimulus_map(again, *LAYER, store)
    there = stimulus_map(example, *LAYER, store)
    np.testing.assert_array_equal(points["stimulus"], there["stimulus"])
    np.testing.assert_allclose(points, there, atol=1e-2 * points["x"].abs().max())


def test_every_map_is_there_on_a_machine_that_ran_nothing(example, tmp_path):
    store = Store(tmp_path)
    for model, layer in example.layers:
        points = stimulus_map(example, model, layer, store)
        assert len(points) == 1000 and np.isfinite(points).all(axis=None)
    with refused("unknown layer"):
        stimulus_map(example, "minilm", 33, store)


def test_estimators_on_ranks_work_on_it(example):
    rank = example.results(layers=[LAYER], estimator="ridge-rank")
    ridge = example.results(layers=[LAYER])
    assert rank.scores["rho"].mean() > ridge.scores["rho"].mean() - 0.01
    assert not np.allclose(rank.weights["weight"], ridge.weights["weight"])


def test_it_is_a_job_of_every_store(tmp_path):
    store = Store(tmp_path)
    job = analyses.find(examples.ID, store)
    assert job is not None and job.status().state == "done"
    assert analyses.recent(store) == [job] and job.spec == examples.SPEC
    assert job.analysis() is examples.example()
    before = sorted(examples.FOLDER.rglob("*"))
    job.cancel()
    assert sorted(examples.FOLDER.rglob("*")) == before and job.status().state == "done"


@pytest.mark.slow
def test_making_it_replaces_what_was_there(tmp_path):
    spec = replace(ALONE, layers=(0, 1), folds=3)
    path = tmp_path / "words.csv"
    table = spec.load_stimuli().table.iloc[:120]
    table.to_csv(path, index=False)
    spec = replace(spec, stimuli=str(path), features=("part_of_speech", "tense", "number"))
    store, folder = Store(tmp_path / "cache"), tmp_path / "example_data"
    (folder / "result").mkdir(parents=True)
    (folder / "store" / "audit" / "old").mkdir(parents=True)
    (folder / "result" / "old").touch()
    made = examples.make(store, spec, folder)
    loaded = files.load(folder / "result")
    assert sorted(path.name for path in folder.iterdir()) == ["result", "store"]
    stages = sorted((path.parent.name, path.name == "old") for path in folder.glob("store/*/*"))
    behind_it = [("pairs-behind", False)] * 2 * (len(made.stimuli.features) + 1)
    whole = [("audit", False), ("error-bars", False), ("multiverse", False)]
    assert stages == [*whole, *behind_it]
    assert not (folder / "result" / "old").exists()
    assert loaded.layers == made.layers and set(loaded.maps) == {("minilm", 0), ("minilm", 1)}
    np.testing.assert_allclose(loaded.maps["minilm", 1], made.maps["minilm", 1], rtol=1e-6)


SEEDS = ("mini-bert", "mini-bert-s1", "mini-bert-s2")


def with_seeds(**more: examples.Kind) -> dict[str, examples.Kind]:
    kinds = {**examples.KINDS, **more}
    return kinds | {"mini-bert": kinds["mini-bert"]._replace(models=SEEDS)}


def test_every_model_that_an_analysis_begins_with_is_in_one_kind() -> None:
    named = [model for kind in examples.KINDS.values() for model in kind.models]
    assert set(defaults()) <= set(named) and len(set(named)) == len(named)
    factors = {
        tuple(label.partition(":")[0] for label in kind.labels) for kind in examples.KINDS.values()
    }
    assert len(factors) == 1


def test_one_model_of_each_kind_is_no_group() -> None:
    ones = {name: kind._replace(models=kind.models[:1]) for name, kind in examples.KINDS.items()}
    models = tuple(sorted(kind.models[0] for kind in ones.values()))
    plain = AnalysisSpec(stimuli="probing", models=models, layers=examples.LAYERS)
    assert examples.of_kinds(ones) == plain


def test_seeds_make_groups_with_the_labels_of_their_kind() -> None:
    causal = examples.Kind(("a", "a-s1"), ("objective:causal", "family:transformer"))
    spec = examples.of_kinds(with_seeds(causal=causal))
    spec.check()
    groups = dict(spec.groups)
    assert spec.has_seeds and (groups["mini-bert"], groups["causal"]) == (SEEDS, ("a", "a-s1"))
    assert dict(spec.labels)["causal"] == causal.labels
    assert {*SEEDS, "a", "a-s1", *defaults()} <= {*spec.models} and "causal" not in spec.models


def test_checkpoints_are_models_with_the_labels_of_their_run() -> None:
    steps = {"mini-bert": ("mini-bert@step500", "mini-bert@step1000")}
    for kinds in (examples.KINDS, with_seeds()):
        spec = examples.of_kinds(kinds, steps)
        spec.check()
        assert dict(spec.trajectories) == steps and {*steps["mini-bert"]} <= {*spec.models}
    assert dict(spec.labels)["mini-bert@step500"] == examples.KINDS["mini-bert"].labels

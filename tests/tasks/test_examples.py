"""The packaged example: what it has on a machine that ran nothing, and how it is made."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import refused

from mlem_core import Store, explain, run, stimulus_map
from mlem_core.analysis.run import coded_otherwise, values_to_resolve
from mlem_core.inference import layer_intervals
from mlem_core.inference.caveats import HARDLY
from mlem_core.inference.pair_contributions import kept_at, pair_contributions
from mlem_core.inference.tables import terms_and_whole
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.tables import BY_LAYER
from mlem_core.robustness import audit, multiverse
from mlem_core.robustness.variants import SAYS
from mlem_core.tasks import analyses, examples, notes, trash

LAYER = ("minilm", 3)
ALONE = replace(examples.SPEC, models=LAYER[:1], layers=LAYER[1:], groups=(), labels=())


def test_it_is_a_job_of_every_store_and_what_its_constants_say(example, tmp_path):
    assert example.spec == examples.SPEC
    assert {model for model, _ in example.layers} == set(examples.SPEC.models)
    assert set(example.maps) == set(example.layers) and examples.example_size() < 20e6
    # The last layers of two architectures that have learned from the same text.
    assert example.most_alike() == (("mini-gpt2@seed1", 6), ("mini-mamba@seed1", 11))
    store = Store(tmp_path)
    job = analyses.find(examples.ID, store)
    assert job.status().state == "done" and analyses.recent(store) == [job]
    assert job.spec == examples.SPEC and job.analysis() is examples.example()
    contents = job.contents()
    assert contents.n_layers == len(example.layers) and contents.notices == ()
    # Neither cancelling nor notes change the folder of the program.
    before = sorted(examples.FOLDER.rglob("*"))
    job.cancel()
    notes.change_notes(examples.ID, store, lambda old: old.named("To begin with"))
    assert notes.read_notes(examples.ID, store).name == "To begin with"
    with refused("comes with the program"):
        trash.delete(examples.ID, "Example", store)
    assert sorted(examples.FOLDER.rglob("*")) == before and job.status().state == "done"


def test_its_intervals_and_audit_are_there_on_a_machine_that_ran_nothing(example, tmp_path):
    store = Store(tmp_path)
    intervals, found = (
        layer_intervals.known_intervals(example, store),
        example.kept(audit.STAGE, store),
    )
    assert intervals.layers == tuple(example.layers) and not found.notices
    assert list(zip(found.layers["model"], found.layers["layer"], strict=True)) == example.layers
    assert set(found.changes["variant"]) == set(SAYS)
    np.testing.assert_allclose(intervals.values, example.rsa, atol=1e-4)
    pair, features = example.most_alike(), example.select().features
    why = explain(example, *pair)
    terms, whole = terms_and_whole(intervals, *pair)
    np.testing.assert_allclose(terms["value"], why.terms["value"], atol=1e-4)
    np.testing.assert_allclose(whole["value"], why.whole["value"], atol=1e-4)
    assert whole["lower"].iloc[0] > HARDLY
    np.testing.assert_allclose(intervals.tau, example.results().similarity_profiles, atol=1e-3)
    assert len(multiverse.find_multiverse(example, pair, store).universes) == 64
    for term in (*features, UNEXPLAINED):
        assert kept_at(example, store, pair, features, term) is not None
    (first,) = (
        pair_contributions(example, store, pair, features, UNEXPLAINED).head(1).to_dict("records")
    )
    assert 0 < first["contribution"] < 1e-4
    assert first["first_text"] == example.stimuli.words[first["first"]]
    for model, layer in example.layers:
        points = stimulus_map(example, model, layer, store)
        assert len(points) == 1000 and np.isfinite(points).all(axis=None)
    # Other features are another analysis: nothing is said of them.
    assert (
        layer_intervals.known_intervals(example, store, example.select(["tense", "number"])) is None
    )


@pytest.mark.slow
def test_a_layer_computed_again_gives_the_same_tables(example, tmp_path):
    store = Store(tmp_path)
    again = run(ALONE, store)
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
        ours, theirs = getattr(after, name), getattr(before, name)
        pd.testing.assert_frame_equal(ours, theirs, rtol=0, atol=1e-4)
    points, there = (stimulus_map(one, *LAYER, store) for one in (again, example))
    np.testing.assert_array_equal(points["stimulus"], there["stimulus"])
    np.testing.assert_allclose(points, there, atol=1e-2 * points["x"].abs().max())


@pytest.mark.slow
def test_values_told_apart_later_are_those_asked_for_from_the_start(example, tmp_path):
    values, place = values_to_resolve(example), [example.layers.index(LAYER)]
    alone = replace(
        example, spec=ALONE, layers=[LAYER], tables=example.tables.of_layers(place), rsa=np.eye(1)
    )
    later = coded_otherwise(alone, Store(tmp_path / "later"), values=values)
    first = run(replace(ALONE, values=values), Store(tmp_path / "first"))
    assert later.tables.resolved == values == first.tables.resolved != ()
    for name in (*BY_LAYER, "codes", "counts", "cell_block", "cell_pattern", "training_ranks"):
        np.testing.assert_array_equal(getattr(later.tables, name), getattr(first.tables, name))
    again = coded_otherwise(later, Store(tmp_path / "later"), values=())
    for name in ("codes", "counts", "cell_block", "cell_pattern"):
        np.testing.assert_array_equal(getattr(again.tables, name), getattr(alone.tables, name))

"""Models of whose sentences each worker takes some: the numbers of one process, bit for bit."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import refused, words

from mlem_core.analysis.model_units import extracted_there
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import Progress
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.models import representations, shards
from mlem_core.models.shards import ShardedModel, take_part
from mlem_core.scale.cluster import computing_on
from mlem_core.storage.store import Store

NAME = "mini-gpt2"
SPEC = AnalysisSpec(stimuli="", models=(NAME,), device="cpu")
OPTIONS = SPEC.extraction


def sharded(stimuli, n_shards):
    return ShardedModel(NAME, n_shards, representations.depends_on(stimuli, NAME, OPTIONS))


def in_shards(monkeypatch, stimuli, n_shards):
    """Workers divide the sentences into so many shards."""
    text = sum(map(len, set(stimuli.sentences)))
    monkeypatch.setattr(shards, "CHARACTERS", -(-text // n_shards))


@pytest.fixture(scope="module")
def stimuli():
    """Sentences of several lengths, some of which begin alike."""
    table = words(60)
    longer = table.assign(sentence=table["sentence"] + " and so on")
    return from_frame(pd.concat([table, longer], ignore_index=True), "words")


@pytest.fixture(scope="module")
def as_one(stimuli, tmp_path_factory):
    """Asserts that a store has, and has only, what one process finds of the model."""
    whole = Store(tmp_path_factory.mktemp("whole"))
    theirs = representations.from_model(stimuli, NAME, whole, OPTIONS)

    def check(store):
        ours = representations.find(stimuli, NAME, store, OPTIONS)
        assert ours is not None
        assert ours.facts == theirs.facts and ours.identity == theirs.identity
        for layer in theirs.layers:
            np.testing.assert_array_equal(ours[layer], theirs[layer])
        kept = {path.name for path in Path(store.root).iterdir() if any(path.iterdir())}
        assert kept - {"locks"} == {"representations"}

    return check


@pytest.mark.slow
def test_workers_that_share_a_model_give_what_one_process_does(
    stimuli, as_one, cluster, tmp_path, monkeypatch
):
    in_shards(monkeypatch, stimuli, 5)
    seen: list[Progress] = []
    with computing_on(cluster):
        assert not extracted_there(SPEC, stimuli, Store(tmp_path), seen.append)
    as_one(Store(tmp_path))
    assert seen[0].done == 0 and seen[-1].done == seen[-1].total == 5


@pytest.mark.slow
def test_work_goes_on_from_the_shards_that_are_there(
    stimuli, as_one, cluster, tmp_path, monkeypatch
):
    store, model = Store(tmp_path), sharded(stimuli, 5)
    written = shards.write_rows

    def broken(*given):
        if len(model.there(store)) == 2:
            raise KeyboardInterrupt
        return written(*given)

    monkeypatch.setattr(shards, "write_rows", broken)
    with pytest.raises(KeyboardInterrupt):
        take_part(stimuli, OPTIONS, store, model)
    assert model.there(store) == (0, 1)
    in_shards(monkeypatch, stimuli, 5)
    seen: list[Progress] = []
    with computing_on(cluster):
        assert not extracted_there(SPEC, stimuli, store, seen.append)
    assert seen[0].done == 2
    as_one(store)


def test_what_another_worker_makes_is_left_to_it(stimuli, as_one, tmp_path):
    store, model = Store(tmp_path), sharded(stimuli, 4)
    with store._locked(store.key(shards.SHARDS, shards.VERSION, **model.shard_key(2)), None):
        assert take_part(stimuli, OPTIONS, store, model).done == (0, 1, 3)
    opened = shards._kept.loaded
    # A damaged shard is made again when all are put together.
    (model.folder(store, 1) / "layer_01.npy").write_bytes(b"")
    assert take_part(stimuli, OPTIONS, store, model).done == (0, 1, 2, 3)
    assert opened is not None and shards._kept.loaded is opened
    as_one(store)
    # Who comes later finds all done.
    assert take_part(stimuli, OPTIONS, store, model).done == (0, 1, 2, 3)


def test_a_worker_with_other_files_of_a_model_says_so(stimuli, tmp_path):
    model = sharded(stimuli, 2)
    other = dataclasses.replace(model, depends_on={**model.depends_on, "model": "0" * 64})
    part = take_part(stimuli, OPTIONS, Store(tmp_path), other)
    assert part.failed is not None
    with refused("the model mini-gpt2 is another one"):
        raise part.failed[1]

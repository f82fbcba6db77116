"""A run that does not fit memory or disk says so before it starts, and what to change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inputs import in_files, noise, refused, words

from mlem_core.analysis.run import run
from mlem_core.pairs import rank_store
from mlem_core.storage import room
from mlem_core.storage.store import Store


@pytest.fixture
def spec(tmp_path):
    table = words(40)
    return in_files(tmp_path, table, {"m": noise(len(table))}, folds=3)


def test_free_memory_and_disk_are_those_of_this_machine(tmp_path):
    assert 1e6 < room.free_memory() < 1e15
    assert room.free_disk(tmp_path / "not" / "there") == pytest.approx(
        room.free_disk(tmp_path), rel=0.1
    )


def test_memory_and_disk_that_will_not_do_are_said_first(spec, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(room, "free_memory", lambda: 1_000)
        with refused("pairs of stimuli in 2 layers", "0.0 GB", "memory", "--pairs"):
            run(spec, Store(tmp_path / "store"), progress=False)
    monkeypatch.setattr(room, "free_disk", lambda folder: 1_000)
    monkeypatch.setattr("mlem_core.analysis.layer_tables.IN_MEMORY_BYTES", 10)
    with refused("disk", "fewer pairs", "MLEM_CACHE"):
        run(spec, Store(tmp_path / "store"), progress=False)


def test_ranks_in_a_file_are_the_same_and_those_in_classes_nearly(spec, tmp_path, monkeypatch):
    store = Store(tmp_path / "one")
    exact = run(spec, store, progress=False)
    within = run(replace(spec, memory=0.0001), store, progress=False)
    assert any("ranks are exact to within" in note for note in within.notices)
    assert within.rsa == pytest.approx(exact.rsa, abs=1e-3)
    for name in ("rho", "ceiling"):
        found, truth = (a.results().scores[name] for a in (within, exact))
        assert found.to_numpy() == pytest.approx(truth.to_numpy(), abs=5e-3)
    monkeypatch.setattr(rank_store, "IN_MEMORY_BYTES", 10)
    assert (run(spec, Store(tmp_path / "two"), progress=False).rsa == exact.rsa).all()

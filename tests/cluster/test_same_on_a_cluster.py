"""The same numbers, bit for bit, with any number of workers and with none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base import cluster as clusters
from mlem_core.base.executor import computing_on
from mlem_core.base.typing import Progress
from mlem_core.pairs import rank_files, rank_store
from mlem_core.storage.store import Store


def same(ours: Analysis, theirs: Analysis) -> None:
    assert ours.layers == theirs.layers
    assert ours.notices == theirs.notices
    np.testing.assert_array_equal(ours.rsa, theirs.rsa)
    for name in ("scores", "importance", "similarity_rsa"):
        mine, other = getattr(ours.results(), name), getattr(theirs.results(), name)
        pd.testing.assert_frame_equal(mine, other, check_exact=True)
    pd.testing.assert_frame_equal(ours.pair_errors, theirs.pair_errors, check_exact=True)


CASES = {
    "all pairs": {},
    "some pairs": {"pairs": 5000, "folds": 3},
    "in classes": {"memory": 0.0001},
    "without position 0": {"positions": "without-first", "units": "standardised"},
}


def choices(spec: AnalysisSpec, case: str) -> AnalysisSpec:
    return replace(spec, **CASES[case])


@pytest.fixture(scope="module")
def embedded(spec, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("embedded"))
    return {case: run(choices(spec, case), store, progress=False) for case in CASES}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_what_none_do(
    spec, embedded, cluster, tmp_path, monkeypatch, case, shared
):
    if not shared:
        monkeypatch.setattr(clusters, "sees", lambda token: False)
    with computing_on(cluster) as there:
        ours = run(choices(spec, case), Store(tmp_path), progress=False)
        assert there.n_workers == 2
        assert there.shares(tmp_path) == shared
    same(ours, embedded[case])
    # What was kept for a run that breaks off is not needed any more.
    for folder in ("layer-pairs", "layer-ranks", "layer-tiles"):
        assert not list((tmp_path / folder).glob("*"))


def test_one_worker_gives_the_same(spec, embedded, tmp_path):
    with computing_on("local:1") as there:
        assert there.where == "local:1 (1 worker)"
        ours = run(spec, Store(tmp_path), progress=False)
    same(ours, embedded["all pairs"])


def test_four_workers_two_of_which_come_late_give_the_same(spec, embedded, cluster, tmp_path):
    came = []

    def more(_: Progress) -> None:
        if not came:
            cluster.scale(4)
            came.append(4)

    try:
        with computing_on(cluster) as there:
            ours = run(spec, Store(tmp_path), more)
            cluster.wait_for_workers(4, timeout=60)
            assert there.n_workers == 4
            again = run(spec, Store(tmp_path / "again"), progress=False)
    finally:
        cluster.scale(2)
    same(ours, embedded["all pairs"])
    same(again, embedded["all pairs"])


def test_many_parts_of_the_products_add_up_in_one_order(spec, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(rank_store, "BLOCK", 3)
    monkeypatch.setattr(rank_store, "SEGMENT", 1000)
    monkeypatch.setattr(rank_files, "LITTLE", 0)
    here = run(spec, Store(tmp_path / "here"), progress=False)
    with computing_on(cluster):
        there = run(spec, Store(tmp_path / "there"), progress=False)
    same(there, here)

"""Audit, multiverse and intervals: the same with workers and with none, and workers do them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, words

from mlem_core.analysis import layer_tables
from mlem_core.analysis.run import run
from mlem_core.base import cluster as clusters
from mlem_core.base.executor import computing_on
from mlem_core.inference import all_layers, bootstrap, refits
from mlem_core.inference.all_layers import layer_intervals
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.robustness.audit import audit
from mlem_core.robustness.multiverse import multiverse
from mlem_core.storage.store import Store

CHOICES = {"distance": ("euclidean", "cosine"), "estimator": ("ridge", "spearman")}


def same(ours: object, theirs: object) -> None:
    for field in fields(ours):  # type: ignore[arg-type]
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(mine, pd.DataFrame):
            pd.testing.assert_frame_equal(mine, other, check_exact=True)
        else:
            assert mine == other


@pytest.fixture(scope="module")
def embedded(spec, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("embedded-studies"))
    analysis = run(spec, store, progress=False)
    layers = analysis.layers[:2]
    return layers, multiverse(analysis, layers, store, CHOICES), audit(analysis, store)


@pytest.mark.parametrize("shared", [True, False])
def test_two_workers_give_what_none_do(spec, embedded, cluster, tmp_path, monkeypatch, shared):
    if not shared:
        monkeypatch.setattr(clusters, "sees", lambda token: False)
    layers, of_choices, audited = embedded
    with computing_on(cluster):
        store, told = Store(tmp_path), []
        analysis = run(spec, store, progress=False)
        if shared:
            # Every pair table is in the store when this process asks for it.
            monkeypatch.setattr(layer_tables, "_made", None)
        found = multiverse(analysis, layers, store, CHOICES, told.append)
        monkeypatch.undo()
        if not shared:
            monkeypatch.setattr(clusters, "sees", lambda token: False)
        done = [progress.done for progress in told]
        assert done == sorted(done) and told[-1].done == told[-1].total == 2
        same(found, of_choices)
        same(audit(analysis, store), audited)


def test_two_workers_draw_the_replicates_that_none_do(spec, cluster, tmp_path, monkeypatch):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    analysis = run(spec, here, progress=False)
    a, b = analysis.layers[1], analysis.layers[-1]
    ours = with_intervals(explain(analysis, a, b), analysis, here, 100)
    of_all = layer_intervals(analysis, here, n_replicates=50)
    told: list[int] = []
    with computing_on(cluster):
        analysis = run(spec, there, progress=False)
        for module, name in (
            (bootstrap, "_terms"),
            (bootstrap, "_of_models"),
            (refits, "_refitted"),
            (all_layers, "_of_draws"),
        ):
            # By name, so that it is the worker's own that is called.
            monkeypatch.setattr(getattr(module, name), "__code__", _only_by_workers.__code__)
        theirs = with_intervals(
            explain(analysis, a, b),
            analysis,
            there,
            100,
            progress=lambda done, _: told.append(done),
        )
        again = layer_intervals(analysis, there, n_replicates=50)
    pd.testing.assert_frame_equal(theirs.terms, ours.terms, check_exact=True)
    pd.testing.assert_frame_equal(theirs.whole, ours.whole, check_exact=True)
    assert told == sorted(told) and len(told) > 4
    for field in fields(of_all):
        mine, other = getattr(again, field.name), getattr(of_all, field.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, other)


def _only_by_workers(*given: object) -> None:
    raise AssertionError("this process drew replicates")


def test_a_universe_that_cannot_be_is_said_as_it_is_here(cluster, tmp_path):
    made = np.random.default_rng(0).standard_normal((len(words(40)), 6))
    made[4] = 0.0  # has no cosine
    spec, layer = in_files(tmp_path, words(40), {"brain": {0: made}}), [("brain", 0)]
    choices = {"distance": ("cosine", "manhattan")}
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    analysis = run(spec, here, progress=False)
    ours = multiverse(analysis, layer, here, choices)
    assert "no universe with distance cosine" in ours.notices[0]
    with computing_on(cluster):
        same(multiverse(analysis, layer, there, choices), ours)

"""The same numbers, bit for bit, with any number of workers and with none."""

import json
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, finished

from mlem_core.analysis import layer_tables
from mlem_core.analysis.run import run
from mlem_core.cli.commands import main
from mlem_core.inference import bootstrap
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.robustness.audit import audit
from mlem_core.robustness.multiverse import multiverse
from mlem_core.scale.cluster import computing_on
from mlem_core.storage.store import Store

slow = pytest.mark.slow


def same(ours, theirs):
    assert ours.layers == theirs.layers
    assert ours.notices == theirs.notices
    np.testing.assert_array_equal(ours.rsa, theirs.rsa)
    for name in ("scores", "importance", "similarity_rsa"):
        mine, other = getattr(ours.results(), name), getattr(theirs.results(), name)
        pd.testing.assert_frame_equal(mine, other, check_exact=True)
    pd.testing.assert_frame_equal(ours.pair_errors, theirs.pair_errors, check_exact=True)


def same_fields(ours, theirs):
    """Two studies have the same tables, arrays and everything else."""
    for field in fields(ours):  # type: ignore[arg-type]
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(mine, pd.DataFrame):
            pd.testing.assert_frame_equal(mine, other, check_exact=True)
        elif isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, other)
        else:
            assert mine == other


def test_the_command_line_takes_a_cluster(files_only, embedded, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    asked = ["analyze", *arguments_of(files_only), "--out", str(tmp_path / "out")]
    address = cluster.scheduler_address
    assert main([*asked, "--cluster", address]) == 0
    embedded.results().write(tmp_path / "here", embedded.manifest)
    for file in ("scores.csv", "importance.csv", "similarity_rsa.csv"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["machine"]["cluster"].startswith(f"{address} (")


CASES = {
    "all pairs": {},
    "some pairs": {"pairs": 5000, "folds": 3},
    "without position 0": {"positions": "without-first", "units": "standardised"},
}


@pytest.fixture(scope="module")
def of_both(spec, tmp_path_factory):
    """What this process alone finds of the model and the file."""
    return finished(tmp_path_factory.mktemp("of_both"), spec, {})


@slow
@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_what_none_do(spec, of_both, cluster, tmp_path, case, shared):
    asked, store = replace(spec, **CASES[case]), Store(tmp_path / "there")
    with computing_on(cluster) as there:
        ours = run(asked, store, progress=False)
        assert there.shares(tmp_path) == shared
    same(ours, run(asked, Store(tmp_path), progress=False) if CASES[case] else of_both.analysis)
    # What was kept for a run that breaks off is not needed any more.
    for folder in ("layer-pairs", "layer-ranks"):
        assert not list((store.root / folder).glob("*"))


CHOICES = {"distance": ("euclidean", "cosine"), "estimator": ("ridge", "spearman")}


@pytest.fixture(scope="module")
def studied(of_both):
    """The multiverse of two layers and the audit, as this process alone finds them."""
    analysis, store = of_both.analysis, of_both.store
    return multiverse(analysis, analysis.layers[:2], store, CHOICES), audit(analysis, store)


@slow
def test_two_workers_do_the_universes_and_the_audit(
    spec, studied, cluster, tmp_path, monkeypatch, shared
):
    store, told = Store(tmp_path), []
    with computing_on(cluster):
        analysis = run(spec, store, progress=False)
        with monkeypatch.context() as patched:
            if shared:
                # Every pair table is in the store when this process asks for it.
                patched.setattr(layer_tables, "_made", None)
            found = multiverse(analysis, analysis.layers[:2], store, CHOICES, told.append)
        audited = audit(analysis, store)
    done = [progress.done for progress in told]
    assert done == sorted(done) and told[-1].done == told[-1].total == 2
    same_fields(found, studied[0])
    same_fields(audited, studied[1])


@slow
def test_two_workers_draw_the_replicates_that_none_do(
    spec, of_both, cluster, tmp_path, monkeypatch
):
    here, there, analysis = of_both.store, Store(tmp_path), of_both.analysis
    a, b = analysis.layers[1], analysis.layers[-1]
    ours = with_intervals(explain(analysis, a, b), analysis, here)
    of_all = layer_intervals(analysis, here, n_replicates=30)

    def only_by_workers(*given):
        raise AssertionError("this process drew replicates")

    with computing_on(cluster):
        analysis = run(spec, there, progress=False)
        for function in (bootstrap.decompositions, bootstrap.score_replicates, bootstrap.refitted):
            # They go to workers by name, so that it is the worker's own that is called.
            monkeypatch.setattr(function, "__code__", only_by_workers.__code__)
        theirs = with_intervals(explain(analysis, a, b), analysis, there)
        again = layer_intervals(analysis, there, n_replicates=30)
    pd.testing.assert_frame_equal(theirs.terms, ours.terms, check_exact=True)
    pd.testing.assert_frame_equal(theirs.whole, ours.whole, check_exact=True)
    same_fields(again, of_all)

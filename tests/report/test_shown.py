"""How an analysis shows itself in Python: repr, HTML, plots, and the three lines of `analyze`."""

from functools import partial

import numpy as np
import pytest
from inputs import arguments_of, in_files, noise, refused, words

from mlem_core import Store, explain, run, with_intervals
from mlem_core.cli.commands import main
from mlem_core.cli.found import found
from mlem_core.figures import profiles, similarity_matrices, waterfall
from mlem_core.inference.layer_intervals import layer_intervals


def layers_of(table, feature, seed):
    """Layer 0 is noise; layer 1 shows the feature and little else."""
    rng = np.random.default_rng(seed)
    values = table[feature].to_numpy(dtype=float)
    values = (values - values.min()) / (values.max() - values.min())
    noise = rng.standard_normal((2, len(table), 4))
    return {0: noise[0], 1: 0.3 * noise[1] + 6 * np.outer(values, rng.standard_normal(4))}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two models whose layers 1 both show which words are nouns."""
    folder, table = tmp_path_factory.mktemp("shown"), words(60)
    made_up = {"left": layers_of(table, "noun", 1), "right": layers_of(table, "noun", 2)}
    store = Store(folder / "store")
    return run(in_files(folder, table, made_up, folds=3), store), store


def test_html_is_a_table_and_what_a_user_wrote_is_text(tmp_path):
    table = words().rename(columns={"noun": "<i>noun</i>"})
    spec = in_files(tmp_path, table, {"a": noise(len(table))}, folds=3)
    analysis = run(spec, Store(tmp_path / "store"))
    for shown in (analysis, analysis.results(), explain(analysis, "a:0", "a:1")):
        page = shown._repr_html_()
        assert "<table" in page and "<i>" not in page and "&lt;i&gt;noun" in page


def test_repr_headline_and_plots_are_those_of_the_tables(planted):
    analysis, store = planted
    results, names = analysis.results(), analysis.tables.features
    best = results.scores.groupby(["model", "layer"])["rho"].mean().idxmax()
    assert f"{len(analysis.stimuli)} words" in repr(analysis) and "ridge" in repr(analysis)
    assert all(fact in repr(results) for fact in ("4 layers", "2 models", f"{best[0]}:1", "noun"))
    why = explain(analysis, "left:1", "right:1")
    assert repr(why) == why.headline
    assert "RSA" in why.headline and "<td>noun</td>" in why._repr_html_()
    sure = with_intervals(why, analysis, store)
    assert repr(sure) == f"{sure.headline} {sure.how_sure}" and "most of all in noun" in repr(sure)
    same = profiles(results.importance, results.scores, names)
    assert analysis.plot.profiles() == same == results.plot.profiles()
    squares = similarity_matrices(results.similarity_profiles, results.similarity_rsa)
    assert analysis.plot.similarity() == squares == results.plot.similarity()
    assert analysis.plot.why("left:1", ("right", 1)) == waterfall(why.terms, names)
    with refused("unknown layer"):
        analysis.plot.similarity(layers="left:7")


@pytest.mark.slow
def test_three_lines_name_the_planted_truth(planted):
    analysis, store = planted
    results = analysis.results()
    rsa = results.similarity_rsa.loc["left:1", "right:1"]
    mean = results.importance.query("feature == 'noun' and layer == 1")["importance"].mean()
    alike, shared, matters = found(analysis, results)
    assert "--bootstrap" in shared and "noun" not in shared
    sure = partial(with_intervals, analysis=analysis, store=store)
    for bounds in (None, layer_intervals(analysis, store, n_replicates=100)):
        alike, shared, matters = found(analysis, results, bounds, sure=bounds and sure)
        assert all(fact in alike for fact in ("4 pairs", "left:1", "right:1", f"{rsa:.2f}"))
        assert all(fact in matters for fact in ("noun", f"{mean:.2f}", "2 layers"))
        assert ("95 %" in alike) == ("95 %" in matters) == (bounds is not None)
    assert "noun" in shared


@pytest.mark.slow
def test_noise_gets_no_headline(tmp_path):
    table = words(60)
    rng = np.random.default_rng(3)
    layers = {a: {n: rng.standard_normal((len(table), 6)) for n in range(2)} for a in "ab"}
    store = Store(tmp_path / "store")
    analysis = run(in_files(tmp_path, table, layers, folds=3), store)
    for bounds in (None, layer_intervals(analysis, store, n_replicates=100)):
        alike, shared, matters = found(analysis, analysis.results(), bounds)
        assert "ardly" in alike and "4 pairs" in alike
        assert not any(name in shared + matters for name in ("noun", "length"))


def test_analyze_ends_with_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    table = words(20)
    layers = {name: layers_of(table, "noun", seed) for seed, name in enumerate(("left", "right"))}
    given = arguments_of(in_files(tmp_path, table, layers))
    assert main(["analyze", *given, "--folds=3", f"--out={tmp_path / 'out'}"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3

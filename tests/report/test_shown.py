"""How an analysis shows itself in Python: repr, HTML, plots, and the three lines of `analyze`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from inputs import arguments_of, in_files, noise, words

from mlem_core import Analysis, InputError, Store, explain, run, with_intervals
from mlem_core.cli.commands import main
from mlem_core.cli.found import found
from mlem_core.figures import profiles, similarity_matrices, waterfall
from mlem_core.inference.all_layers import layer_intervals
from mlem_core.report.figures import FIGURES, Drawing, Shown


def layers_of(table: pd.DataFrame, feature: str, seed: int) -> dict[int, np.ndarray]:
    """Layer 0 is noise; layer 1 shows the feature and little else."""
    rng = np.random.default_rng(seed)
    values = table[feature].to_numpy(dtype=float)
    values = (values - values.min()) / (values.max() - values.min())
    shown = 6 * values[:, None] * rng.standard_normal(4)
    return {0: rng.standard_normal((len(table), 4)), 1: shown + 0.3 * rng.standard_normal((1, 4))
            + 0.3 * rng.standard_normal((len(table), 4))}  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Store]:
    """Two models whose layers 1 both show which words are nouns."""
    folder, table = tmp_path_factory.mktemp("shown"), words(60)
    made_up = {"<b>left</b>": layers_of(table, "noun", 1), "right": layers_of(table, "noun", 2)}
    made_up = {name.strip("<b>/"): layers for name, layers in made_up.items()}
    store = Store(folder / "store")
    return run(in_files(folder, table, made_up, folds=3), store), store


def test_repr_is_short_and_says_what_there_is(planted: tuple[Analysis, Store]) -> None:
    analysis, _ = planted
    text = repr(analysis)
    assert len(text.splitlines()) < 8 and max(map(len, text.splitlines())) < 120
    for part in (f"{len(analysis.stimuli)} words of words", "right", "layers 0 and 1", "ridge"):
        assert part in text
    results = analysis.results()
    text = repr(results)
    assert len(text.splitlines()) < 8 and "4 layers of 2 models" in text
    best = results.scores.groupby(["model", "layer"])["rho"].mean()
    assert f"highest in {best.idxmax()[0]}:1" in text and "noun" in text


def test_html_is_a_table_and_what_a_user_wrote_is_text(tmp_path: Path) -> None:
    table = words().rename(columns={"noun": "<i>noun</i>"})
    spec = in_files(tmp_path, table, {"a": noise(len(table))}, folds=3)
    analysis = run(spec, Store(tmp_path / "store"))
    for shown in (analysis, analysis.results(), explain(analysis, "a:0", "a:1")):
        page = shown._repr_html_()
        assert "<table" in page and "<i>" not in page and "&lt;i&gt;noun" in page


def test_an_explanation_shows_its_headline(planted: tuple[Analysis, Store]) -> None:
    why = explain(planted[0], "left:1", "right:1")
    assert repr(why) == why.headline
    assert "RSA" in why.headline and "<td>noun</td>" in why._repr_html_()
    sure = with_intervals(why, *planted, n_replicates=100)
    assert repr(sure) == f"{sure.headline} {sure.how_sure}" and "most of all in noun" in repr(sure)


def test_plots_are_the_figures_of_the_tables(planted: tuple[Analysis, Store]) -> None:
    analysis, _ = planted
    results, names = analysis.results(), analysis.tables.features
    same = profiles(results.importance, results.scores, names)
    assert analysis.plot.profiles() == same == results.plot.profiles()
    squares = similarity_matrices(results.similarity_profiles, results.similarity_rsa)
    assert analysis.plot.similarity() == squares == results.plot.similarity()
    why = waterfall(explain(analysis, "left:1", "right:1").terms, names)
    assert analysis.plot.why("left:1", ("right", 1)) == why
    assert isinstance(why, go.Figure)


def test_a_feature_keeps_its_colour_where_others_are_dropped(
    planted: tuple[Analysis, Store],
) -> None:
    analysis, _ = planted

    def color(figure: go.Figure) -> str:
        return next(t.line.color for t in figure.data if t.name == "position" and t.line.color)

    last = analysis.plot.profiles(features="position", layers="left:0,left:1")
    assert color(last) == color(analysis.plot.profiles())
    assert {trace.name for trace in last.data}.isdisjoint({"noun", "length"})
    with pytest.raises(InputError, match="unknown layer"):
        analysis.plot.similarity(layers="left:7")


@pytest.mark.slow
def test_three_lines_name_the_planted_truth(planted: tuple[Analysis, Store]) -> None:
    analysis, store = planted
    results = analysis.results()
    alike, shared, matters = found(analysis, results)
    rsa = results.similarity_rsa.loc["left:1", "right:1"]
    assert f"4 pairs of layers of two models: left:1 and right:1, RSA {rsa:.2f} (no" in alike
    assert "most of all in" not in shared and "--bootstrap" in shared
    mean = results.importance.query("feature == 'noun' and layer == 1")["importance"].mean()
    assert matters.startswith(f"Matters most: noun, importance {mean:.2f} on average over 2 layers")
    assert "(highest in 2, above 0 in every fold in 2)" in matters
    bounds = layer_intervals(analysis, store, n_replicates=100)
    alike, shared, matters = found(analysis, results, bounds)
    assert "95 % interval" in alike and "most of all in noun" in shared
    assert "above 0 by its 95 % interval" in matters
    for line in (alike, shared, matters):
        assert line.endswith(
            "(features coded by whether and by how much they differ; one file each)"
        )


@pytest.mark.slow
def test_noise_gets_no_headline(tmp_path: Path) -> None:
    table = words(60)
    rng = np.random.default_rng(3)
    made_up = {
        name: {n: rng.standard_normal((len(table), 6)) for n in range(2)} for name in ("a", "b")
    }
    store = Store(tmp_path / "store")
    analysis = run(in_files(tmp_path, table, made_up, folds=3), store)
    results = analysis.results()
    for bounds in (None, layer_intervals(analysis, store, n_replicates=100)):
        alike, shared, matters = found(analysis, results, bounds)
        assert alike.startswith("Hardly alike: the highest RSA of 4 pairs")
        assert "hardly alike" in shared and "no feature" in matters
        assert not any(name in shared + matters for name in ("noun", "length"))


def test_one_layer_has_one_line_and_one_model_its_own_pairs(
    planted: tuple[Analysis, Store], tmp_path: Path
) -> None:
    table = words(60)
    one = layers_of(table, "length", 4)
    spec = in_files(tmp_path, table, {"a": {0: one[1]}}, folds=3, values=("noun",))
    lines = _lines(run(spec, Store(tmp_path / "store")))
    assert len(lines) == 1 and "length" in lines[0]
    assert "which values of noun differ (others: whether and by how much" in lines[0]
    spec = in_files(tmp_path, table, {"a": {0: one[1], 1: one[1] + 0.01 * one[0]}}, folds=3)
    lines = _lines(run(spec, Store(tmp_path / "store")))
    assert lines[0].startswith("Most alike of 1 pair of layers of one model: a:0 and a:1")


def _lines(analysis: Analysis) -> list[str]:
    return found(analysis, analysis.results())


def test_analyze_ends_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    table = words(20)
    layers = {name: layers_of(table, "noun", seed) for seed, name in enumerate(("left", "right"))}
    given = arguments_of(in_files(tmp_path, table, layers))
    assert main(["analyze", *given, "--folds=3", f"--out={tmp_path / 'out'}"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_second_feature_divides_the_map_of_the_stimuli(planted: tuple[Analysis, Store]) -> None:
    analysis, store = planted
    first, second = (feature.name for feature in analysis.stimuli.features[:2])
    options = {"color": first, "within": second}
    for chosen, names in ((options, {"centres", "outline"}), ({"color": first}, set())):
        drawing = Drawing(store=store, options=chosen)
        shown = Shown(analysis, analysis.select(), analysis.results(), drawing)
        made = FIGURES["stimulus_map_a"](shown)
        drawn = {trace.name for trace in made.figure.data}
        assert names <= drawn and ("centres" in drawn) == bool(names)
        # Figure 4 has the two maps in one colour.
        assert "centres" not in {t.name for t in FIGURES["two_layers"](shown).figure.data}

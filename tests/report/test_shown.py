"""How an analysis shows itself in Python: repr, HTML, plots, and the three lines of `analyze`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from inputs import arguments_of, in_files, noise, refused, words

from mlem_core import Analysis, Store, explain, run, with_intervals
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
    made_up = {"left": layers_of(table, "noun", 1), "right": layers_of(table, "noun", 2)}
    store = Store(folder / "store")
    return run(in_files(folder, table, made_up, folds=3), store), store


def test_repr_is_short_and_says_what_there_is(planted: tuple[Analysis, Store]) -> None:
    analysis, _ = planted
    results = analysis.results()
    best = results.scores.groupby(["model", "layer"])["rho"].mean().idxmax()
    facts = [
        (analysis, (f"{len(analysis.stimuli)} words", "right", "0 and 1", "ridge")),
        (results, ("4 layers", "2 models", f"{best[0]}:1", "noun")),
    ]
    for one, expected in facts:
        text = repr(one)
        assert len(text.splitlines()) < 8 and max(map(len, text.splitlines())) < 120
        assert all(fact in text for fact in expected), text


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
    with refused("unknown layer"):
        analysis.plot.similarity(layers="left:7")


@pytest.mark.slow
def test_three_lines_name_the_planted_truth(planted: tuple[Analysis, Store]) -> None:
    analysis, store = planted
    results = analysis.results()
    rsa = results.similarity_rsa.loc["left:1", "right:1"]
    mean = results.importance.query("feature == 'noun' and layer == 1")["importance"].mean()
    alike, shared, matters = found(analysis, results)
    assert "--bootstrap" in shared and "noun" not in shared
    for bounds in (None, layer_intervals(analysis, store, n_replicates=100)):
        alike, shared, matters = found(analysis, results, bounds)
        assert all(fact in alike for fact in ("4 pairs", "left:1", "right:1", f"{rsa:.2f}"))
        assert all(fact in matters for fact in ("noun", f"{mean:.2f}", "2 layers"))
        assert ("95 %" in alike) == ("95 %" in matters) == (bounds is not None)
    assert "noun" in shared


@pytest.mark.slow
def test_noise_gets_no_headline(tmp_path: Path) -> None:
    table = words(60)
    rng = np.random.default_rng(3)
    layers = {
        name: {n: rng.standard_normal((len(table), 6)) for n in range(2)} for name in ("a", "b")
    }
    store = Store(tmp_path / "store")
    analysis = run(in_files(tmp_path, table, layers, folds=3), store)
    for bounds in (None, layer_intervals(analysis, store, n_replicates=100)):
        alike, shared, matters = found(analysis, analysis.results(), bounds)
        assert "ardly" in alike and "4 pairs" in alike
        assert not any(name in shared + matters for name in ("noun", "length"))


def test_one_layer_has_one_line_and_one_model_its_own_pairs(tmp_path: Path) -> None:
    table = words(60)
    one = layers_of(table, "length", 4)

    def lines(layers: dict[int, np.ndarray], **more: object) -> list[str]:
        spec = in_files(tmp_path, table, {"a": layers}, folds=3, **more)
        analysis = run(spec, Store(tmp_path / "store"))
        return found(analysis, analysis.results())

    (line,) = lines({0: one[1]}, values=("noun",))
    assert "length" in line and "values of noun" in line
    line = lines({0: one[1], 1: one[1] + 0.01 * one[0]})[0]
    assert all(fact in line for fact in ("1 pair ", "one model", "a:0 and a:1"))


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

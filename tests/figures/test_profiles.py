"""Lines over layers, depth, methods and training: means, spreads and bands are the tables'."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from figure_tables import FEATURES, importance_of, named, of_type, scores_of

from mlem_core import figures
from mlem_core.figures.trajectories import step_places

ACCURACY, CEILING = "prediction accuracy<br>(held-out ρ)", "best possible<br>(ceiling)"
LAYERS = {"a": (0, 1, 4), "b": (0, 1)}


def drawn(importance: pd.DataFrame, features=FEATURES, **annotations: object):
    """The profiles with what `annotations` says beside them."""
    marks = figures.Annotations(**annotations) if annotations else None
    more = {"annotations": marks} if marks else {}
    return figures.profiles(importance, scores_of(importance), features, **more)


def by_layer_and_fold(**columns: float) -> pd.DataFrame:
    """A row a layer and fold, with columns of random numbers up to some."""
    rng = np.random.default_rng(0)
    rows = [(m, n, f) for m, layers in LAYERS.items() for n, f in product(layers, range(3))]
    table = pd.DataFrame(rows, columns=["model", "layer", "fold"])
    return table.assign(**{name: most * rng.random(len(table)) for name, most in columns.items()})


def means(table: pd.DataFrame, column: str) -> pd.Series:
    return table.groupby(["model", "layer"])[column].mean()


def with_markers(figure):
    return [trace for trace in figure.data if trace.mode == "lines+markers"]


def test_profiles_draw_the_means_and_spreads_over_folds() -> None:
    importance = importance_of()
    scores, figure = scores_of(importance), drawn(importance)
    for number, model in enumerate("ab"):
        own = importance[(importance["model"] == model) & (importance["feature"] == "tense")]
        by_layer = own.groupby("layer")["importance"]
        line = named(figure, "tense")[number]
        assert list(line.x) == sorted(own["layer"].unique())
        np.testing.assert_allclose(line.y, by_layer.mean())
        band = [t for t in figure.data if t.name == "band" and t.legendgroup == "tense"][number]
        n = len(line.x)
        np.testing.assert_allclose(band.y[:n], by_layer.mean() + by_layer.std())
        np.testing.assert_allclose(band.y[n:], (by_layer.mean() - by_layer.std())[::-1])
        fits = scores[scores["model"] == model].groupby("layer")
        np.testing.assert_allclose(named(figure, ACCURACY)[number].y, fits["rho"].mean())
        np.testing.assert_allclose(named(figure, CEILING)[number].y, fits["ceiling"].mean())


def test_a_feature_keeps_its_colour_when_another_is_dropped() -> None:
    importance = importance_of()
    rest = importance[importance["feature"] != "pos"]
    before, after = drawn(importance), drawn(rest)
    assert not named(after, "pos")
    for name in ("tense", "number"):
        assert named(after, name)[0].line.color == named(before, name)[0].line.color
    scatter = figures.importance_scatter(rest, (("a", 0), ("b", 1)), FEATURES, 0.5, 0.5)
    assert named(scatter, "tense")[0].marker.color == named(before, "tense")[0].line.color
    table = pd.DataFrame({"a": ["x", "y"], "b": ["x", "y"]})
    (bars,) = figures.feature_counts(table, [("b", "nominal")], ["a", "b"]).data
    assert set(bars.marker.color) == {figures.feature_colors(["a", "b"])["b"]}


def test_more_than_eight_features_are_told_apart_by_their_dashes() -> None:
    many = tuple(f"f{i}" for i in range(20))
    figure = drawn(importance_of(many), many)
    looks = {(named(figure, f)[0].line.color, named(figure, f)[0].line.dash) for f in many}
    assert len(looks) == 20
    scatter = figures.importance_scatter(
        importance_of(many), (("a", 0), ("b", 0)), many, 0.1, float("nan")
    )
    assert sum(len(t.x) for t in scatter.data) == 20 + 2
    assert "not defined" in scatter.layout.title.text


@pytest.mark.parametrize("layers", [{"a": 1}, {"a": 2}, dict.fromkeys("abcde", 2)])
def test_few_layers_and_many_models_have_a_line_each(layers: dict[str, int]) -> None:
    figure = drawn(importance_of(layers=layers))
    assert [len(line.x) for line in named(figure, "pos")] == list(layers.values())


def test_layers_that_are_looked_at_are_marked_and_flagged_ones_say_why() -> None:
    figure = drawn(importance_of(), marked=[("b", 1), ("a", 0)])
    lines = {(line.xref, line.x0, line.x1) for line in figure.layout.shapes}
    assert lines == {("x2", 1, 1), ("x", 0, 0)}
    letters = {
        (one.xref, one.x): one.text for one in figure.layout.annotations if one.xref[-1] != "n"
    }
    assert letters == {("x2", 1): "<b>A</b>", ("x", 0): "<b>B</b>"}
    figure = drawn(importance_of(), marked=[("b", 1), ("b", 1)])
    assert len(figure.layout.shapes) == 1 and figure.layout.annotations[-1].text == "<b>A, B</b>"
    flags = {("a", 2): "without position 0 <x> matters most", ("c", 0): "of no model here"}
    (triangles,) = named(drawn(importance_of(), flags=flags), "audit")
    assert list(triangles.x) == [2] and triangles.xaxis == "x"
    assert "position 0" in triangles.hovertext[0] and "<x>" not in triangles.hovertext[0]


def intervals_of(importance: pd.DataFrame) -> pd.DataFrame:
    """0.1 below and 0.3 above each mean; `pos` in layer 1 is not above 0 for sure."""
    each = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    table = each.rename("value").reset_index().assign(quantity="importance")
    rho = table.drop_duplicates(["model", "layer"]).assign(quantity="rho", feature="", value=0.5)
    table = pd.concat([table, rho])
    table = table.assign(lower=table["value"] - 0.1, upper=table["value"] + 0.3, p_corrected=0.0001)
    table.loc[table["feature"] == "", "p_corrected"] = np.nan
    table.loc[(table["feature"] == "pos") & (table["layer"] == 1), "p_corrected"] = 0.2
    return table


def test_intervals_take_the_place_of_spreads_over_folds() -> None:
    importance = importance_of()
    table = intervals_of(importance)
    shuffled = table.sample(frac=1, random_state=0)
    figure = drawn(importance, intervals=shuffled)
    line = named(figure, "pos")[0]
    assert list(line.marker.symbol) == ["circle", "circle-open", "circle"] and line.showlegend
    bands = {t.legendgroup: t for t in reversed(figure.data) if t.name == "band"}
    np.testing.assert_allclose(bands["pos"].y[:3], np.array(line.y) + 0.3)
    np.testing.assert_allclose(bands["pos"].y[3:], (np.array(line.y) - 0.1)[::-1])
    grey = bands["prediction accuracy (held-out ρ)"]
    np.testing.assert_allclose(grey.y, [0.8] * 3 + [0.4] * 3)
    assert "p = 0.200" in line.hovertext[1] and "p < 0.001" in line.hovertext[0]
    assert "0.400 to 0.800" in named(figure, ACCURACY)[0].hovertext[0]
    # Where no layer is sure, the legend has a full circle of its own.
    unsure = table.assign(p_corrected=table["p_corrected"].where(table["feature"] != "pos", 0.2))
    open_line, entry = named(drawn(importance, intervals=unsure), "pos")[:2]
    assert set(open_line.marker.symbol) == {"circle-open"} and not open_line.showlegend
    assert entry.showlegend and entry.marker.symbol == "circle" and entry.x == (None,)
    scatter = figures.importance_scatter(
        importance, (("a", 0), ("b", 1)), FEATURES, 0.5, 0.4, figures.Annotations(shuffled)
    )
    point = named(scatter, "tense")[0]
    np.testing.assert_allclose(point.error_x.array, [0.3])
    np.testing.assert_allclose(point.error_y.arrayminus, [0.1])
    assert "[" in point.hovertext[0] and "sd" not in point.hovertext[0]


def test_importance_scatter_puts_each_feature_at_its_two_means() -> None:
    importance = importance_of()
    figure = figures.importance_scatter(importance, (("a", 2), ("b", 1)), FEATURES, -0.24, 0.5)
    for name in FEATURES:
        own = importance[importance["feature"] == name]
        x = own[(own["model"] == "a") & (own["layer"] == 2)]["importance"]
        y = own[(own["model"] == "b") & (own["layer"] == 1)]["importance"]
        (point,) = named(figure, name)
        assert (point.x[0], point.y[0]) == pytest.approx((x.mean(), y.mean()))
        assert point.error_x.array[0] == pytest.approx(x.std())
    assert "−0.24" in figure.layout.title.text and "0.50" in figure.layout.title.text
    assert not named(figure, "audit")


def test_flags_of_the_audit_stand_at_the_ends_of_axes_and_diagonal() -> None:
    why = {"a": "tense leads by less", "both": "RSA falls to 0.1 <here>"}
    figure = figures.importance_scatter(
        importance_of(), (("a", 2), ("b", 1)), FEATURES, 0.3, 0.5, figures.Annotations(flags=why)
    )
    (audit,) = named(figure, "audit")
    low, high = figure.layout.xaxis.range
    assert list(zip(audit.x, audit.y, strict=True)) == [(high, low), (high, high)]
    assert "tense leads by less" in audit.hovertext[0] and "a layer 2" in audit.hovertext[0]
    assert "b layer 1" in audit.hovertext[1] and "&lt;here&gt;" in audit.hovertext[1]


def test_the_strongest_interactions_follow_the_features() -> None:
    strength = {"a": 0.5, "a × b": 0.1, "a × c": 0.3, "b × c": 0.2}
    rows = [("m", 0, fold, name, size) for name, size in strength.items() for fold in (0, 1)]
    importance = pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])
    assert figures.with_interactions(importance, ["a"], most=2) == ["a", "a × c", "b × c"]
    assert figures.with_interactions(importance[:2], ["a"]) == ["a"]


def test_profiles_of_groups_have_a_band_where_there_is_a_spread() -> None:
    rows = [
        (group, n, layer, layer / 2, feature, 0.1 * layer, 0.1 * layer - low, 0.1 * layer + low)
        for group, n, low in (("g", 3, 0.05), ("h", 1, np.nan))
        for layer, feature in product(range(3), ("x", "y"))
    ]
    names = ["group", "members", "layer", "depth", "feature", "importance", "lower", "upper"]
    figure = figures.group_profiles(pd.DataFrame(rows, columns=names), ["x", "y"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(bands) == 2 and len(lines) == 4
    np.testing.assert_allclose(bands[0].y, [0.05, 0.15, 0.25, 0.15, 0.05, -0.05])
    np.testing.assert_allclose(lines[0].x, [0, 0.5, 1])
    assert [one.text for one in figure.layout.annotations] == ["g (n = 3)", "h (n = 1)"]
    assert [trace.showlegend for trace in lines] == [True, True, False, False]


def test_each_method_is_a_line_of_its_means_under_the_ceiling() -> None:
    ceilings, scores = by_layer_and_fold(ceiling=1), by_layer_and_fold(rho=0.5)
    both = pd.concat([scores.assign(method=name) for name in ("frrsa", "ridge", "x")])
    called = {"ridge": "MLEM, ridge", "spearman": "MLEM, Spearman", "frrsa": "FR-RSA"}
    figure = figures.method_scores(both, ceilings, called)
    lines = {t.name: t for t in with_markers(figure) if t.showlegend}
    assert list(lines) == ["MLEM, ridge", "FR-RSA", "x"]
    np.testing.assert_allclose(lines["FR-RSA"].y, means(scores, "rho")["a"])
    (dotted,) = [t for t in figure.data if t.line.dash == "dot" and t.showlegend]
    np.testing.assert_allclose(dotted.y, means(ceilings, "ceiling")["a"])


@pytest.mark.parametrize("across", [1, 2])
def test_agreement_of_methods_has_a_line_a_model_in_both_panels(across: int) -> None:
    table = by_layer_and_fold(frobenius=2, tau=1)
    figure = figures.method_agreement(table, across)
    lines = with_markers(figure)
    assert [(one.name, one.xaxis, bool(one.showlegend)) for one in lines] == [
        ("a", "x", True), ("b", "x", True), ("a", "x2", False), ("b", "x2", False)
    ]  # fmt: skip
    np.testing.assert_allclose(lines[0].y, means(table, "frobenius")["a"])
    np.testing.assert_allclose(lines[3].y, means(table, "tau")["b"])
    assert (figure.layout.xaxis.domain == figure.layout.xaxis2.domain) == (across == 1)


@pytest.mark.parametrize("across", [1, 2])
def test_agreement_by_noise_is_a_line_with_its_band_in_both_panels(across: int) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(list(product((0, 0.5, 2), range(5))), columns=["noise", "fold"])
    table = table.assign(frobenius=rng.random(15), tau=rng.random(15))
    figure = figures.noise_agreement(table, across)
    stats = table.groupby("noise")[["frobenius", "tau"]].agg(["mean", "std"])
    for line, measure in zip(with_markers(figure), ("frobenius", "tau"), strict=True):
        assert list(line.x) == [0, 0.5, 2] and not line.showlegend
        np.testing.assert_allclose(line.y, stats[measure, "mean"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    np.testing.assert_allclose(bands[1].y[:3], stats["tau", "mean"] + stats["tau", "std"])
    assert (figure.layout.xaxis.domain == figure.layout.xaxis2.domain) == (across == 1)
    alone = figures.noise_agreement(table[table["fold"] == 0])
    assert np.isfinite(alone.data[0].y).all()


def test_units_have_a_shape_a_layer_their_best_and_the_whole() -> None:
    whole, one = by_layer_and_fold(rho=1), by_layer_and_fold(rho=0.3)
    units = pd.concat([one.assign(unit=u, rho=one["rho"] + u) for u in range(5)])
    figure = figures.unit_scores(units, whole)
    shapes = of_type(figure, "violin")
    assert [trace.x0 for trace in shapes] == [0, 1, 4, 0, 1]
    base = means(one, "rho")
    np.testing.assert_allclose(sorted(shapes[1].y), base["a", 1] + np.arange(5))
    best = named(figure, "best unit")
    np.testing.assert_allclose(best[1].y, base["b"] + 4)
    assert "unit 4" in best[0].hovertext[0]
    np.testing.assert_allclose(named(figure, "whole layer")[0].y, means(whole, "rho")["a"])
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert legend == ["single units", "best unit", "whole layer"]


def over_training(steps: dict[str, list[tuple[int, int]]]) -> pd.DataFrame:
    """Two features and ρ at some (step, seeds) of each trajectory; none of one seed has bounds."""
    rows = []
    for name, own in steps.items():
        for at, (step, seeds) in enumerate(own):
            value = 0.1 * at
            bounds = (value - 0.05, value + 0.07) if seeds > 1 else (np.nan, np.nan)
            for which in (("rho", ""), ("importance", "x"), ("importance", "y")):
                rows.append((name, step, seeds, *which, value, *bounds))
    names = ["trajectory", "step", "seeds", "quantity", "feature", "value", "lower", "upper"]
    return pd.DataFrame(rows, columns=names)


def test_steps_are_logarithmic_and_zero_is_left_of_them() -> None:
    places, broken = step_places([0, 10, 100, 10_000])
    np.testing.assert_allclose(places[1:], [1, 2, 4])
    assert broken is not None and places[0] < broken < places[1]
    assert 0.1 < (places[1] - places[0]) / (places[-1] - places[0]) < 0.2
    assert step_places([10, 100])[1] is None
    near, _ = step_places([0, 7])
    assert near[0] < near[1] and np.isfinite(near).all()


def test_trajectories_have_a_line_each_with_bands_over_seeds() -> None:
    given = over_training({"many": [(0, 3), (10, 3), (100, 3)], "one": [(10, 1), (100, 1)]})
    figure = figures.trajectories(given, ["x", "y"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(bands) == 3 and len(lines) == 6
    np.testing.assert_allclose(bands[1].y[:3], [0.07, 0.17, 0.27])
    np.testing.assert_allclose(lines[1].x[1:], [1, 2])
    np.testing.assert_allclose(lines[1].y, [0, 0.1, 0.2])
    assert [trace.showlegend for trace in lines] == [True] * 3 + [False] * 3
    assert [one.text for one in figure.layout.annotations] == ["many (3 seeds)", "one (one run)"]
    assert "step 10" in lines[1].hovertext[1] and " to " in lines[1].hovertext[1]
    # The score has the colour of no feature.
    assert lines[0].line.dash == "dash" and lines[0].line.color == figures.GREY
    # A band crosses no step without an interval.
    broken = over_training({"t": [(1, 3), (10, 3), (100, 1), (1000, 3)]})
    bands = [trace for trace in figures.trajectories(broken, ["x", "y"]).data if trace.fill]
    assert len(bands) == 3 and {len(trace.x) for trace in bands} == {4}


@pytest.mark.parametrize(
    ("steps", "ticks"),
    [
        ([0, 10, 100], ["0", "10", "100"]),
        (
            [0, *(2**k for k in range(10)), *range(1000, 143_001, 1000)],
            ["0", "1", "10", "100", "1k", "10k", "100k"],
        ),
        (range(2000, 2900, 100), ["2k", "2.8k"]),
    ],
)
def test_ticks_of_many_steps_are_powers_of_ten(steps: list[int], ticks: list[str]) -> None:
    figure = figures.trajectories(over_training({"t": [(step, 1) for step in steps]}), ["x", "y"])
    assert list(figure.layout.xaxis.ticktext) == ticks

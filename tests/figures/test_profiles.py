"""Lines over layers, depth, methods and training: means, spreads and bands are the tables'."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from figure_tables import FEATURES, importance_of, named, of_type, scores_of

from mlem_core import figures

ACCURACY, CEILING = "prediction accuracy<br>(held-out ρ)", "best possible<br>(ceiling)"
LAYERS = {"a": (0, 1, 4), "b": (0, 1)}


def drawn(importance, features=FEATURES, **annotations):
    """The profiles with what `annotations` says beside them."""
    marks = figures.Annotations(**annotations)
    return figures.profiles(importance, scores_of(importance), features, annotations=marks)


def by_layer_and_fold(**columns):
    """A row a layer and fold, with columns of random numbers up to some."""
    rng = np.random.default_rng(0)
    rows = [(m, n, f) for m, layers in LAYERS.items() for n, f in product(layers, range(3))]
    table = pd.DataFrame(rows, columns=["model", "layer", "fold"])
    return table.assign(**{name: most * rng.random(len(table)) for name, most in columns.items()})


def means(table, column):
    return table.groupby(["model", "layer"])[column].mean()


def with_markers(figure):
    return [trace for trace in figure.data if trace.mode == "lines+markers"]


def test_profiles_draw_the_means_and_spreads_over_folds():
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


def test_a_feature_keeps_its_colour_when_another_is_dropped_and_twenty_are_told_apart():
    importance = importance_of()
    before, after = drawn(importance), drawn(importance[importance["feature"] != "pos"])
    assert not named(after, "pos")
    for name in ("tense", "number"):
        assert named(after, name)[0].line.color == named(before, name)[0].line.color
    many = tuple(f"f{i}" for i in range(20))
    lines = [named(drawn(importance_of(many), many), f)[0].line for f in many]
    assert len({(line.color, line.dash) for line in lines}) == 20


def intervals_of(importance):
    """0.1 below and 0.3 above each mean; `pos` in layer 1 is not above 0 for sure."""
    each = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    table = each.rename("value").reset_index().assign(quantity="importance")
    rho = table.drop_duplicates(["model", "layer"]).assign(quantity="rho", feature="", value=0.5)
    table = pd.concat([table, rho])
    table = table.assign(lower=table["value"] - 0.1, upper=table["value"] + 0.3, p_corrected=0.0001)
    table.loc[table["feature"] == "", "p_corrected"] = np.nan
    table.loc[(table["feature"] == "pos") & (table["layer"] == 1), "p_corrected"] = 0.2
    return table


def test_intervals_take_the_place_of_spreads_over_folds():
    importance = importance_of()
    shuffled = intervals_of(importance).sample(frac=1, random_state=0)
    figure = drawn(importance, intervals=shuffled)
    line = named(figure, "pos")[0]
    assert list(line.marker.symbol) == ["circle", "circle-open", "circle"] and line.showlegend
    bands = {t.legendgroup: t for t in reversed(figure.data) if t.name == "band"}
    np.testing.assert_allclose(bands["pos"].y[:3], np.array(line.y) + 0.3)
    np.testing.assert_allclose(bands["pos"].y[3:], (np.array(line.y) - 0.1)[::-1])
    assert "p = 0.200" in line.hovertext[1] and "p < 0.001" in line.hovertext[0]
    assert "0.400 to 0.800" in named(figure, ACCURACY)[0].hovertext[0]
    scatter = figures.importance_scatter(
        importance, (("a", 0), ("b", 1)), FEATURES, 0.5, 0.4, figures.Annotations(shuffled)
    )
    point = named(scatter, "tense")[0]
    np.testing.assert_allclose(point.error_x.array, [0.3])
    np.testing.assert_allclose(point.error_y.arrayminus, [0.1])


def test_importance_scatter_puts_each_feature_at_its_two_means():
    importance, why = importance_of(), {"both": "RSA falls to 0.1 <here>"}
    flags = figures.Annotations(flags=why)
    layers = (("a", 2), ("b", 1))
    figure = figures.importance_scatter(importance, layers, FEATURES, -0.24, np.nan, flags)
    for name in FEATURES:
        own = importance[importance["feature"] == name]
        x = own[(own["model"] == "a") & (own["layer"] == 2)]["importance"]
        y = own[(own["model"] == "b") & (own["layer"] == 1)]["importance"]
        (point,) = named(figure, name)
        assert (point.x[0], point.y[0]) == pytest.approx((x.mean(), y.mean()))
        assert point.error_x.array[0] == pytest.approx(x.std())
    assert "−0.24" in figure.layout.title.text and "not defined" in figure.layout.title.text
    assert "&lt;here&gt;" in named(figure, "audit")[0].hovertext[0]


def test_the_strongest_interactions_follow_the_features():
    strength = {"a": 0.5, "a × b": 0.1, "a × c": 0.3, "b × c": 0.2}
    rows = [("m", 0, fold, name, size) for name, size in strength.items() for fold in (0, 1)]
    importance = pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])
    assert figures.with_interactions(importance, ["a"], most=2) == ["a", "a × c", "b × c"]
    assert figures.with_interactions(importance[:2], ["a"]) == ["a"]


def test_profiles_of_groups_have_a_band_where_there_is_a_spread():
    rows = [(*one, *pair) for one, pair in product([("g", 3), ("h", 1)], product(range(3), "xy"))]
    table = pd.DataFrame(rows, columns=["group", "members", "layer", "feature"])
    table = table.assign(depth=table["layer"] / 2, importance=0.1 * table["layer"])
    half = np.where(table["group"] == "g", 0.05, np.nan)
    table = table.assign(lower=table["importance"] - half, upper=table["importance"] + half)
    figure = figures.group_profiles(table, ["x", "y"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(bands) == 2 and len(lines) == 4
    np.testing.assert_allclose(bands[0].y, [0.05, 0.15, 0.25, 0.15, 0.05, -0.05])
    np.testing.assert_allclose(lines[0].x, [0, 0.5, 1])
    assert [one.text for one in figure.layout.annotations] == ["g (n = 3)", "h (n = 1)"]


def test_each_method_is_a_line_of_its_means_and_agreement_a_line_a_model():
    ceilings, scores = by_layer_and_fold(ceiling=1), by_layer_and_fold(rho=0.5)
    both = pd.concat([scores.assign(method=name) for name in ("frrsa", "ridge", "x")])
    called = {"ridge": "MLEM, ridge", "spearman": "MLEM, Spearman", "frrsa": "FR-RSA"}
    figure = figures.method_scores(both, ceilings, called)
    lines = {t.name: t for t in with_markers(figure) if t.showlegend}
    assert list(lines) == ["MLEM, ridge", "FR-RSA", "x"]
    np.testing.assert_allclose(lines["FR-RSA"].y, means(scores, "rho")["a"])
    table = by_layer_and_fold(frobenius=2, tau=1)
    lines = with_markers(figures.method_agreement(table, 1))
    np.testing.assert_allclose(lines[0].y, means(table, "frobenius")["a"])
    np.testing.assert_allclose(lines[3].y, means(table, "tau")["b"])


def test_units_have_a_shape_a_layer_their_best_and_the_whole():
    whole, one = by_layer_and_fold(rho=1), by_layer_and_fold(rho=0.3)
    units = pd.concat([one.assign(unit=u, rho=one["rho"] + u) for u in range(5)])
    figure = figures.unit_scores(units, whole)
    shapes, base = of_type(figure, "violin"), means(one, "rho")
    assert [trace.x0 for trace in shapes] == [0, 1, 4, 0, 1]
    np.testing.assert_allclose(sorted(shapes[1].y), base["a", 1] + np.arange(5))
    best = named(figure, "best unit")
    np.testing.assert_allclose(best[1].y, base["b"] + 4)
    assert "unit 4" in best[0].hovertext[0]
    np.testing.assert_allclose(named(figure, "whole layer")[0].y, means(whole, "rho")["a"])


def over_training(steps):
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


def test_trajectories_have_a_line_each_with_bands_over_seeds():
    given = over_training({"many": [(0, 3), (10, 3), (100, 3)], "one": [(10, 1), (100, 1)]})
    figure = figures.trajectories(given, ["x", "y"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(bands) == 3 and len(lines) == 6
    np.testing.assert_allclose(bands[1].y[:3], [0.07, 0.17, 0.27])
    np.testing.assert_allclose(lines[1].x[1:], [1, 2])
    np.testing.assert_allclose(lines[1].y, [0, 0.1, 0.2])
    assert "step 10" in lines[1].hovertext[1] and " to " in lines[1].hovertext[1]
    # A band crosses no step without an interval.
    broken = over_training({"t": [(1, 3), (10, 3), (100, 1), (1000, 3)]})
    bands = [trace for trace in figures.trajectories(broken, ["x", "y"]).data if trace.fill]
    assert len(bands) == 3 and {len(trace.x) for trace in bands} == {4}

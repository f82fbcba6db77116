"""Lines, terms and counts: what is drawn is what the tables say."""

import numpy as np
import pandas as pd
import pytest
from helpers.figure_tables import FEATURES, mean_importance, named, scores_of

from mlem_core.figures.compare import importance_scatter
from mlem_core.figures.context import with_interactions
from mlem_core.figures.profiles import profiles
from mlem_core.figures.stimuli import feature_counts
from mlem_core.figures.why import waterfall

ACCURACY, CEILING = "held-out ρ", "feature ceiling"


def test_profiles_draw_the_means_and_spreads_over_folds():
    importance = mean_importance()
    scores = scores_of(importance)
    figure = profiles(importance, scores, FEATURES)
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


def test_a_model_with_one_layer_has_bars_in_the_place_of_points():
    importance = mean_importance()
    importance = importance[(importance["model"] == "a") & (importance["layer"] == 1)]
    scores = scores_of(importance)
    means = importance.groupby("feature")["importance"].agg(["mean", "std"])
    figure = profiles(importance, scores, FEATURES)
    bars = {bar.legendgroup: bar for bar in figure.data if bar.type == "bar"}
    assert {*bars} == {*means.index}
    for place, feature in enumerate(FEATURES):
        if feature in bars:
            assert list(bars[feature].x) == [place]
            np.testing.assert_allclose(bars[feature].y, [means.loc[feature, "mean"]])
            np.testing.assert_allclose(bars[feature].error_y.array, [means.loc[feature, "std"]])
    assert tuple(figure.layout.xaxis.ticktext) == FEATURES
    (rho,) = named(figure, ACCURACY)
    np.testing.assert_allclose(rho.y, [scores["rho"].mean()] * 2)
    tested = profiles(importance, scores, FEATURES, intervals=find_intervals(importance))
    (bar,) = [bar for bar in tested.data if bar.type == "bar" and bar.legendgroup == "pos"]
    # p = .2: it is open.
    assert bar.marker.line.width and "p = .200" in bar.hovertext[0]


def find_intervals(importance):
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
    importance = mean_importance()
    shuffled = find_intervals(importance).sample(frac=1, random_state=0)
    figure = profiles(importance, scores_of(importance), FEATURES, intervals=shuffled)
    line = named(figure, "pos")[0]
    assert list(line.marker.symbol) == ["circle", "circle-open", "circle"] and line.showlegend
    bands = {t.legendgroup: t for t in reversed(figure.data) if t.name == "band"}
    np.testing.assert_allclose(bands["pos"].y[:3], np.array(line.y) + 0.3)
    np.testing.assert_allclose(bands["pos"].y[3:], (np.array(line.y) - 0.1)[::-1])
    assert "p = .200" in line.hovertext[1] and "p < .001" in line.hovertext[0]
    assert ".400 to .800" in named(figure, ACCURACY)[0].hovertext[0]
    scatter = importance_scatter(importance, (("a", 0), ("b", 1)), FEATURES, 0.5, 0.4, shuffled)
    point = named(scatter, "tense")[0]
    np.testing.assert_allclose(point.error_x.array, [0.3])
    np.testing.assert_allclose(point.error_y.arrayminus, [0.1])


def test_importance_scatter_puts_each_feature_at_its_two_means():
    importance, layers = mean_importance(), (("a", 2), ("b", 1))
    figure = importance_scatter(importance, layers, FEATURES, -0.24, np.nan)
    for name in FEATURES:
        own = importance[importance["feature"] == name]
        x = own[(own["model"] == "a") & (own["layer"] == 2)]["importance"]
        y = own[(own["model"] == "b") & (own["layer"] == 1)]["importance"]
        (point,) = named(figure, name)
        assert (point.x[0], point.y[0]) == pytest.approx((x.mean(), y.mean()))
        assert point.error_x.array[0] == pytest.approx(x.std())
    assert "−.24" in figure.layout.title.text and "not defined" in figure.layout.title.text


def test_the_strongest_interactions_follow_the_features():
    strength = {"a": 0.5, "a × b": 0.1, "a × c": 0.3, "b × c": 0.2}
    rows = [("m", 0, fold, name, size) for name, size in strength.items() for fold in (0, 1)]
    importance = pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])
    assert with_interactions(importance, ["a"], most=2) == ["a", "a × c", "b × c"]
    assert with_interactions(importance[:2], ["a"]) == ["a"]


def test_counts_are_the_counts_of_the_table():
    table = pd.DataFrame(
        {"pos": ["Noun", "Verb", "Noun", None] * 20, "length": [3.0, np.nan, 3.0, 10.0] * 20}
    ).assign(many=np.arange(80.0))
    kinds = [("pos", "nominal"), ("length", "ordered"), ("many", "ordered")]
    figure = feature_counts(table, kinds)
    pos, length, many = figure.data
    assert list(pos.y) == list(length.y) == [40, 20, 20]
    assert list(figure.layout.xaxis.ticktext) == ["Noun", "Verb", "missing"]
    assert list(figure.layout.xaxis2.ticktext) == ["3", "10", "missing"]
    assert sum(many.y) == 80 and len(many.y) <= 12


def test_a_waterfall_runs_from_0_to_the_similarity_with_its_intervals():
    terms = pd.DataFrame({"term": [*FEATURES, "unexplained"], "value": [0.1, 0.3, -0.05, 0.2]})
    figure = waterfall(terms, FEATURES)
    bars, total = figure.data
    names = ["tense", "pos", "number", "unexplained", "<b>RSA, ρ</b>"]
    assert list(figure.layout.yaxis.ticktext) == names
    np.testing.assert_allclose(bars.x, [0.3, 0.1, -0.05, 0.2])
    # Each bar begins where the one before it ended.
    np.testing.assert_allclose(np.array(bars.base, dtype=float), [0.0, 0.3, 0.4, 0.35], atol=1e-12)
    assert total.x[0] == pytest.approx(0.55) and bars.error_x.array is None
    # A feature keeps its colour when another one is left out.
    rest = waterfall(terms.iloc[1:], FEATURES).data[0]
    assert bars.marker.color[0] == rest.marker.color[0]
    sure = terms.assign(lower=terms["value"] - 0.04, upper=terms["value"] + 0.06)
    first = waterfall(sure, FEATURES)
    np.testing.assert_allclose(first.data[0].error_x.array, 0.06)
    np.testing.assert_allclose(first.data[0].error_x.arrayminus, 0.04)
    # What is kept of a figure is not changed by who draws it.
    drawn = first.to_json()
    first.update_layout(margin_t=99).update_yaxes(range=[0, 1])
    assert waterfall(sure, FEATURES).to_json() == drawn


def test_a_model_with_one_layer_has_a_bar_a_feature():
    importance = mean_importance()
    importance = importance[(importance["model"] == "a") | (importance["layer"] == 1)]
    table = find_intervals(importance)
    figure = profiles(importance, scores_of(importance), FEATURES, intervals=table)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    of_b = importance[importance["model"] == "b"].groupby("feature")["importance"].mean()
    assert [bar.name for bar in bars] == list(figure.layout.xaxis2.ticktext)
    for place, (bar, feature) in enumerate(zip(bars, FEATURES, strict=True)):
        assert list(bar.x) == [place] and bar.y[0] == pytest.approx(of_b[feature])
        assert bar.error_y.array[0] == pytest.approx(0.3)
        assert bar.error_y.arrayminus[0] == pytest.approx(0.1)
    is_filled = [bar.marker.line.width is None for bar in bars]
    assert is_filled == [feature != "pos" for feature in FEATURES]

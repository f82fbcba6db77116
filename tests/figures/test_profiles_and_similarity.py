"""Figures as functions: what is drawn is what the tables say."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from mlem_core import figures

FEATURES = ("pos", "tense", "number")
ACCURACY, CEILING = "prediction accuracy<br>(held-out ρ)", "best possible<br>(ceiling)"


def importance_of(
    features: tuple[str, ...] = FEATURES, layers: dict[str, int] | None = None
) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    counts = layers or {"a": 3, "b": 2}
    rows = [
        (model, layer, fold, feature, rng.uniform())
        for model, n in counts.items()
        for layer, fold, feature in product(range(n), range(4), features)
    ]
    return pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])


def scores_of(importance: pd.DataFrame) -> pd.DataFrame:
    scores = importance[["model", "layer", "fold"]].drop_duplicates().reset_index(drop=True)
    rng = np.random.default_rng(1)
    return scores.assign(rho=rng.uniform(size=len(scores)), ceiling=rng.uniform(size=len(scores)))


def square_of(n: dict[str, int]) -> pd.DataFrame:
    names = [f"{model}:{layer}" for model, count in n.items() for layer in range(count)]
    values = np.random.default_rng(2).uniform(-0.4, 1, (len(names), len(names)))
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1)
    return pd.DataFrame(values, index=names, columns=names)


def named(figure: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.name == name]


def is_sound(figure: go.Figure) -> None:
    json.loads(figure.to_json())
    go.Figure(figure.to_dict())  # Plotly checks every property
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color in (None, "#444")  # left to the page


def test_profiles_draw_the_means_and_spreads_over_folds() -> None:
    importance = importance_of()
    scores = scores_of(importance)
    figure = figures.profiles(importance, scores, FEATURES)
    is_sound(figure)
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
    assert figure.layout.yaxis.title.text == "feature importance (FI)"
    assert "FI = " in named(figure, "pos")[0].hovertext[0]


def test_a_feature_keeps_its_colour_when_another_is_dropped() -> None:
    importance = importance_of()
    scores = scores_of(importance)
    rest = importance[importance["feature"] != "pos"]
    before = figures.profiles(importance, scores, FEATURES)
    after = figures.profiles(rest, scores, FEATURES)
    assert not named(after, "pos")
    for name in ("tense", "number"):
        assert named(after, name)[0].line.color == named(before, name)[0].line.color
    scatter = figures.importance_scatter(rest, (("a", 0), ("b", 1)), FEATURES, 0.5, 0.5)
    assert named(scatter, "tense")[0].marker.color == named(before, "tense")[0].line.color


def test_more_than_eight_features_are_told_apart_by_their_dashes() -> None:
    many = tuple(f"f{i}" for i in range(20))
    figure = figures.profiles(importance_of(many), scores_of(importance_of(many)), many)
    is_sound(figure)
    looks = {(named(figure, f)[0].line.color, named(figure, f)[0].line.dash) for f in many}
    assert len(looks) == 20
    scatter = figures.importance_scatter(
        importance_of(many), (("a", 0), ("b", 0)), many, 0.1, float("nan")
    )
    assert sum(len(t.x) for t in scatter.data) == 20 + 2
    assert "not defined" in scatter.layout.title.text


@pytest.mark.parametrize(
    "layers", [{"a": 1}, {"a": 2}, {"a": 1, "b": 1}, dict.fromkeys("abcde", 2)]
)
def test_few_layers_and_many_models_are_drawn(layers: dict[str, int]) -> None:
    importance = importance_of(layers=layers)
    is_sound(figures.profiles(importance, scores_of(importance), FEATURES))
    square = square_of(layers)
    is_sound(figures.similarity_matrices(square, square))
    points = [
        (measure, model, layer, 0.0, 0.0)
        for measure in ("profiles", "rsa")
        for model, n in layers.items()
        for layer in range(n)
    ]
    columns = ["measure", "model", "layer", "x", "y"]
    is_sound(figures.layer_maps(pd.DataFrame(points, columns=columns)))


def test_what_a_user_wrote_is_text_and_not_markup() -> None:
    nasty = ("<b>bold</b>", "$x$ & %{y}", "very long " * 20)
    importance = importance_of(nasty, {"<i>m</i>": 2})
    figure = figures.profiles(importance, scores_of(importance), nasty)
    shown = [t.name for t in figure.data] + [t for x in figure.data for t in x.hovertext or ()]
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert not any("<b>bold" in text or "<i>" in text or "$" in text for text in shown)
    assert all(len(t.name) < 60 and t.hovertemplate is None for t in figure.data)
    table = pd.DataFrame({nasty[0]: ["<a href='x'>y</a>", None, "$z$"]})
    counts = figures.feature_counts(table, [(nasty[0], "nominal")])
    assert "<a" not in json.dumps(counts.to_dict(), default=str)
    points = pd.DataFrame({"stimulus": [0], "x": [0.0], "y": [0.0], "label": ["<b>hi</b>"]})
    points[nasty[0]] = "<u>v</u>"
    drawn = figures.stimulus_map(points, nasty[0], "nominal", "<s>t</s>")
    assert not any(
        tag in drawn.to_plotly_json()["data"][0]["hovertext"][0] for tag in ("<u>", "<b>")
    )
    assert drawn.layout.title.text == "&lt;s&gt;t&lt;/s&gt;"


def test_profiles_mark_the_layers_that_are_looked_at() -> None:
    importance = importance_of()
    marked = figures.Annotations(marked=[("b", 1), ("a", 0)])
    figure = figures.profiles(importance, scores_of(importance), FEATURES, annotations=marked)
    is_sound(figure)
    lines = {(line.xref, line.x0, line.x1) for line in figure.layout.shapes}
    assert lines == {("x2", 1, 1), ("x", 0, 0)}
    letters = {
        (one.xref, one.x): one.text for one in figure.layout.annotations if one.xref[-1] != "n"
    }
    assert letters == {("x2", 1): "<b>A</b>", ("x", 0): "<b>B</b>"}
    twice = figures.Annotations(marked=[("b", 1), ("b", 1)])
    figure = figures.profiles(importance, scores_of(importance), FEATURES, annotations=twice)
    assert len(figure.layout.shapes) == 1 and figure.layout.annotations[-1].text == "<b>A, B</b>"


def test_layer_maps_have_a_point_a_layer_and_equal_scales() -> None:
    rng = np.random.default_rng(0)
    rows = [
        (measure, model, layer, *rng.normal(size=2))
        for measure in ("profiles", "rsa")
        for model in ("a", "b")
        for layer in (2, 0, 1)
    ]
    table = pd.DataFrame(rows, columns=["measure", "model", "layer", "x", "y"])
    figure = figures.layer_maps(table)
    is_sound(figure)
    assert len(figure.data) == 4
    for trace, (measure, model) in zip(
        figure.data, product(("profiles", "rsa"), ("a", "b")), strict=True
    ):
        own = table[(table["measure"] == measure) & (table["model"] == model)]
        own = own.sort_values("layer")
        np.testing.assert_array_equal(trace.x, own["x"])
        np.testing.assert_array_equal(trace.y, own["y"])
        assert [list(c) for c in trace.customdata] == [[model, n] for n in (0, 1, 2)]
    for x, y in (
        (figure.layout.xaxis, figure.layout.yaxis),
        (figure.layout.xaxis2, figure.layout.yaxis2),
    ):
        assert np.ptp(x.range) == pytest.approx(np.ptp(y.range))
    assert figure.layout.yaxis.scaleanchor == "x"
    assert figure.layout.yaxis2.scaleanchor == "x2"


def test_the_stress_of_a_map_stands_below_it() -> None:
    figure = figures.layer_maps(map_of(), stress={"rsa": 0.21, "profiles": 0.03})
    is_sound(figure)
    below = {one.xref: one.text for one in figure.layout.annotations if one.y == 0}
    assert below == {"x domain": "stress 0.03 (excellent)", "x2 domain": "stress 0.21 (poor)"}
    points = pd.DataFrame({"stimulus": [0, 1], "x": [0.0, 1], "y": [0.0, 1], "label": ["a", "b"]})
    points = points.assign(f=["u", "v"])
    maps = [figures.stimulus_map(points, "f", "nominal", "t", stress=s) for s in (0.1, np.nan)]
    assert [len(one.layout.annotations) for one in maps] == [1, 0]
    scatter = figures.importance_scatter(importance_of(), (("a", 2), ("b", 1)), FEATURES, 0.1, 0.5)
    both = figures.two_layers(scatter, (maps[0], maps[1]))
    is_sound(both)
    (said,) = [one for one in both.layout.annotations if "stress" in one.text]
    assert (said.xref, said.yref, said.text) == ("x2 domain", "y2 domain", "stress 0.10 (fair)")


def test_hovering_over_a_layer_tells_its_profile() -> None:
    importance = importance_of()
    table = pd.DataFrame(
        [("rsa", "a", 2, 0.0, 1.0), ("profiles", "a", 2, 0.0, 1.0)],
        columns=["measure", "model", "layer", "x", "y"],
    )
    (text,) = figures.layer_maps(table, importance).data[0].hovertext
    own = importance[(importance["model"] == "a") & (importance["layer"] == 2)]
    means = own.groupby("feature")["importance"].mean().sort_values(ascending=False)
    lines = [f"{name}: FI = {value:.3f}" for name, value in means.items()]
    assert text == "<br>".join(["<b>a layer 2</b>", *lines])


@pytest.mark.parametrize("across", [1, 2])
def test_panels_are_square_beside_and_below_each_other(across: int) -> None:
    square = square_of({"a": 3, "b": 2})
    for figure in (
        figures.similarity_matrices(square, square, across=across),
        figures.layer_maps(map_of(), across=across),
    ):
        is_sound(figure)
        first, second = figure.layout.xaxis, figure.layout.xaxis2
        assert (first.domain == second.domain) == (across == 1)
        assert figure.layout.yaxis.scaleanchor == "x"
        assert figure.layout.yaxis2.scaleanchor == "x2"


def map_of() -> pd.DataFrame:
    rows = [(m, "a", i, float(i), float(i % 2)) for m in ("profiles", "rsa") for i in range(3)]
    return pd.DataFrame(rows, columns=["measure", "model", "layer", "x", "y"])


def test_importance_scatter_puts_each_feature_at_its_two_means() -> None:
    importance = importance_of()
    figure = figures.importance_scatter(importance, (("a", 2), ("b", 1)), FEATURES, -0.24, 0.5)
    is_sound(figure)
    for name in FEATURES:
        own = importance[importance["feature"] == name]
        x = own[(own["model"] == "a") & (own["layer"] == 2)]["importance"]
        y = own[(own["model"] == "b") & (own["layer"] == 1)]["importance"]
        (point,) = named(figure, name)
        assert (point.x[0], point.y[0]) == pytest.approx((x.mean(), y.mean()))
        assert point.error_x.array[0] == pytest.approx(x.std())
    assert "−0.24" in figure.layout.title.text
    assert "0.50" in figure.layout.title.text


def test_flags_of_the_audit_stand_at_the_ends_of_axes_and_diagonal() -> None:
    why = {"a": "tense leads by less", "both": "RSA falls to 0.1 <here>"}
    figure = figures.importance_scatter(
        importance_of(), (("a", 2), ("b", 1)), FEATURES, 0.3, 0.5, figures.Annotations(flags=why)
    )
    is_sound(figure)
    (audit,) = named(figure, "audit")
    low, high = figure.layout.xaxis.range
    assert list(zip(audit.x, audit.y, strict=True)) == [(high, low), (high, high)]
    assert "tense leads by less" in audit.hovertext[0] and "a layer 2" in audit.hovertext[0]
    assert "b layer 1" in audit.hovertext[1] and "&lt;here&gt;" in audit.hovertext[1]
    without = figures.importance_scatter(importance_of(), (("a", 2), ("b", 1)), FEATURES, 0.3, 0.5)
    assert not named(without, "audit")


@pytest.mark.parametrize("kind", ["nominal", "ordered"])
def test_every_stimulus_is_on_its_map_and_missing_ones_are_grey(kind: str) -> None:
    values = [1.0, 2.5, np.nan, 2.5] if kind == "ordered" else ["u", "v", None, "v"]
    points = pd.DataFrame(
        {"stimulus": [4, 7, 9, 11], "x": [0.0, 1, 2, 3], "y": [3.0, 2, 1, 0], "f": values}
    ).assign(label=["one", "two", "three", "four"])
    figure = figures.stimulus_map(points, "f", kind, "a layer")
    is_sound(figure)
    seen = {
        int(row[0]): (x, y)
        for t in figure.data
        for row, x, y in zip(t.customdata, t.x, t.y, strict=True)
    }
    assert seen == {4: (0, 3), 7: (1, 2), 9: (2, 1), 11: (3, 0)}
    (missing,) = named(figure, "missing")
    assert missing.marker.color == figures.GREY
    assert list(missing.hovertext) == ["three<br>f: missing"]


def test_forty_levels_are_drawn_as_the_commonest_and_the_rest() -> None:
    levels = [f"l{i:02d}" for i in range(40)]
    cells = [level for i, level in enumerate(levels) for _ in range(40 - i)]
    points = pd.DataFrame({"stimulus": range(len(cells)), "f": cells, "label": cells})
    points = points.assign(x=np.arange(len(cells)), y=0.0)
    figure = figures.stimulus_map(points, "f", "nominal", "t")
    assert [t.name for t in figure.data] == [*levels[:15], "25 other values"]
    assert sum(len(t.x) for t in figure.data) == len(cells)
    looks = {(t.marker.color, t.marker.symbol) for t in figure.data}
    assert len(looks) == len(figure.data)
    (bars,) = figures.feature_counts(points, [("f", "nominal")]).data
    assert sum(bars.y) == len(cells)
    assert bars.y[:2] == (40, 39)


def test_correlations_show_the_lower_triangle_with_its_numbers() -> None:
    square = pd.DataFrame(
        [[1, 0.25, -0.001], [0.25, 1, np.nan], [-0.001, np.nan, 1]],
        index=FEATURES,
        columns=FEATURES,
    )
    figure = figures.feature_correlations(square)
    is_sound(figure)
    (heat,) = figure.data
    np.testing.assert_array_equal(heat.z, [[0.25, np.nan], [-0.001, np.nan]])
    assert [list(row) for row in heat.text] == [["0.25", ""], ["0.00", "not defined"]]
    assert list(figure.layout.xaxis.ticktext) == ["pos", "tense"]
    assert list(figure.layout.yaxis.ticktext) == ["tense", "number"]
    is_sound(figures.feature_correlations(square.iloc[:1, :1]))


def test_counts_are_the_counts_of_the_table() -> None:
    table = pd.DataFrame(
        {
            "pos": ["Noun", "Verb", "Noun", None],
            "length": [3.0, np.nan, 3.0, 10.0],
            "surprise": [0.1, 0.2, 0.3, np.nan],
            "many": np.arange(4.0),
        }
    )
    table = pd.concat([table] * 20, ignore_index=True)
    table["many"] = np.arange(80.0)
    kinds = [("pos", "nominal"), ("length", "ordered"), ("many", "ordered")]
    figure = figures.feature_counts(table, kinds)
    is_sound(figure)
    pos, length, many = figure.data
    assert list(pos.y) == [40, 20, 20]
    assert list(figure.layout.xaxis.ticktext) == ["Noun", "Verb", "missing"]
    assert pos.marker.color[2] == figures.GREY
    assert list(length.y) == [40, 20, 20]
    assert list(figure.layout.xaxis2.ticktext) == ["3", "10", "missing"]
    assert sum(many.y) == 80
    assert len(many.y) <= 12


def test_a_feature_keeps_its_colour_where_another_is_dropped():
    table = pd.DataFrame({"a": ["x", "y"], "b": ["x", "y"]})
    (bars,) = figures.feature_counts(table, [("b", "nominal")], ["a", "b"]).data
    assert set(bars.marker.color) == {figures.feature_colors(["a", "b"])["b"]}


def test_the_strongest_interactions_follow_the_features():
    importance = pd.DataFrame(
        {
            "model": "m",
            "layer": 0,
            "fold": [0, 1] * 4,
            "feature": ["a", "a", "a × b", "a × b", "a × c", "a × c", "b × c", "b × c"],
            "importance": [0.5, 0.5, 0.1, 0.1, 0.3, 0.3, 0.2, 0.2],
        }
    )
    assert figures.with_interactions(importance, ["a"], most=2) == ["a", "a × c", "b × c"]
    assert figures.with_interactions(importance[:2], ["a"]) == ["a"]


def test_flags_of_the_audit_stand_at_their_layers() -> None:
    importance = importance_of()
    flags = {("a", 2): "without position 0 <x> matters most", ("c", 0): "of no model here"}
    figure = figures.profiles(
        importance, scores_of(importance), FEATURES, annotations=figures.Annotations(flags=flags)
    )
    is_sound(figure)
    (triangles,) = named(figure, "audit")
    assert list(triangles.x) == [2] and triangles.xaxis == "x"
    assert "position 0" in triangles.hovertext[0] and "<x>" not in triangles.hovertext[0]


def test_intervals_take_the_place_of_spreads_over_folds() -> None:
    importance = importance_of()
    means = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    table = means.rename("value").reset_index().assign(quantity="importance")
    rho = table.drop_duplicates(["model", "layer"]).assign(quantity="rho", feature="", value=0.5)
    table = pd.concat([table, rho])
    table = table.assign(lower=table["value"] - 0.1, upper=table["value"] + 0.3, p_corrected=0.0001)
    table.loc[table["feature"] == "", "p_corrected"] = np.nan
    table.loc[(table["feature"] == "pos") & (table["layer"] == 1), "p_corrected"] = 0.2
    shuffled = table.sample(frac=1, random_state=0)
    figure = figures.profiles(
        importance, scores_of(importance), FEATURES, annotations=figures.Annotations(shuffled)
    )
    is_sound(figure)
    line = named(figure, "pos")[0]
    assert list(line.marker.symbol) == ["circle", "circle-open", "circle"]
    band = next(t for t in figure.data if t.name == "band" and t.legendgroup == "pos")
    np.testing.assert_allclose(band.y[:3], np.array(line.y) + 0.3)
    np.testing.assert_allclose(band.y[3:], (np.array(line.y) - 0.1)[::-1])
    grey = next(
        t
        for t in figure.data
        if t.name == "band" and t.legendgroup == "prediction accuracy (held-out ρ)"
    )
    np.testing.assert_allclose(grey.y, [0.8] * 3 + [0.4] * 3)
    assert line.showlegend
    shifted = table.assign(p_corrected=table["p_corrected"].where(table["feature"] != "pos", 0.2))
    hidden = figures.profiles(
        importance, scores_of(importance), FEATURES, annotations=figures.Annotations(shifted)
    )
    is_sound(hidden)
    open_line, entry = named(hidden, "pos")[:2]
    assert set(open_line.marker.symbol) == {"circle-open"} and not open_line.showlegend
    assert entry.showlegend and entry.marker.symbol == "circle" and entry.x == (None,)
    assert "above 0: p = 0.200" in line.hovertext[1] and "p < 0.001" in line.hovertext[0]
    assert "95 % interval 0.400 to 0.800" in named(figure, ACCURACY)[0].hovertext[0]
    scatter = figures.importance_scatter(
        importance, (("a", 0), ("b", 1)), FEATURES, 0.5, 0.4, figures.Annotations(shuffled)
    )
    is_sound(scatter)
    point = named(scatter, "tense")[0]
    np.testing.assert_allclose(point.error_x.array, [0.3])
    np.testing.assert_allclose(point.error_y.arrayminus, [0.1])
    assert "[" in point.hovertext[0] and "sd" not in point.hovertext[0]

"""Values, terms, counts, two analyses and the audit: what is drawn is what the tables say."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from figure_tables import FEATURES, named, of_type

from mlem_core import figures
from mlem_core.analysis.published import MODELS, PUBLISHED
from mlem_core.measures.value_distances import compare_layers, value_map
from mlem_core.robustness.flags import reasons
from mlem_core.robustness.variants import CONTROL, SAYS

LAYERS = [("m", 0), ("m", 4), ("n", 1)]
VALUES = [
    "<b>noun</b>",
    "verb",
    "a very long name of a value, one",
    "a very long name of a value, two",
]


@pytest.fixture
def distances() -> pd.DataFrame:
    """Of every two values in three layers; no pair of stimuli has the second value twice."""
    rng = np.random.default_rng(0)
    rows = []
    for layer in LAYERS:
        for i, a in enumerate(VALUES):
            for b in VALUES[i:]:
                separation = rng.random() if a != b else 0.0
                distance = separation + 0.1 * (1 + (a == b))
                n_pairs = 0 if a == b == "verb" else 10 + i
                rows.append((*layer, "pos", a, b, distance, 0.01, separation, n_pairs))
    columns = ["model", "layer", "feature", "value_a", "value_b"]
    return pd.DataFrame(rows, columns=[*columns, "distance", "sd", "separation", "n_pairs"])


def test_matrices_of_values_share_a_scale_and_mark_what_is_no_distance_of_two(distances) -> None:
    figure = figures.value_matrices(distances, "pos", LAYERS[:2])
    heat = of_type(figure, "heatmap")
    assert {trace.coloraxis for trace in heat} == {"coloraxis"}
    # The layer that is not drawn counts too.
    assert figure.layout.coloraxis.cmin == 0
    assert figure.layout.coloraxis.cmax == pytest.approx(distances["distance"].max())
    for trace, (model, layer) in zip(heat, LAYERS[:2], strict=True):
        rows = distances[(distances["model"] == model) & (distances["layer"] == layer)]
        np.testing.assert_allclose(trace.z, np.transpose(trace.z))
        for row in rows.itertuples():
            i, j = VALUES.index(row.value_a), VALUES.index(row.value_b)
            assert trace.z[i][j] == row.distance
            told = trace.hovertext[i][j]
            assert ("no pair of stimuli" in told) == (row.n_pairs == 0)
            assert (f"{row.n_pairs} pairs" in told) == (row.n_pairs > 0)
    rings, crosses = (named(figure, name)[0] for name in ("within a value", "no pair of stimuli"))
    assert list(rings.x) == list(rings.y) == [0, 2, 3] and list(crosses.x) == [1]
    labels = figure.layout.xaxis.ticktext
    assert len(set(labels)) == 4 and "<b>" not in labels[0]


def test_the_map_has_a_point_a_value(distances) -> None:
    points = value_map(distances, "pos", LAYERS[0])
    figure = figures.value_map(points, "m layer 0")
    (drawn,), (rings,) = named(figure, "values"), named(figure, "spread")
    np.testing.assert_allclose(drawn.x, points["x"])
    assert "<b>noun" not in rings.text[0] and len(set(rings.text)) == 4
    assert "spread 0.100" in drawn.hovertext[0]


def test_lines_name_the_pairs_furthest_apart_and_leave_out_what_no_pair_has(distances) -> None:
    few = distances.copy()
    few.loc[(few["value_a"] == VALUES[0]) & (few["value_b"] == "verb"), "n_pairs"] = 0
    figure = figures.value_lines(few, "pos")
    apart = few[(few["value_a"] != few["value_b"]) & (few["n_pairs"] > 0)]
    means = apart.groupby(["value_a", "value_b"])["distance"].mean().sort_values()
    first = [t for t in figure.data if t.name != "other pairs" and t.showlegend]
    assert len(first) == 5 == len(means)
    a, b = means.index[-1]
    own = apart[(apart["value_a"] == a) & (apart["value_b"] == b) & (apart["model"] == "m")]
    np.testing.assert_allclose(first[0].y, own["distance"])
    assert list(first[0].x) == [0, 4]
    # With more pairs than are named the others are one grey trace.
    grey = named(figures.value_lines(distances, "pos"), "other pairs")
    assert len(grey) == 2 and sum(value is not None for value in grey[0].y) == 2


def test_values_in_two_layers_are_drawn_against_each_other(distances) -> None:
    compared = compare_layers(distances, "pos", LAYERS[0], LAYERS[2])
    figure = figures.value_scatter(compared.table, (LAYERS[0], LAYERS[2]), compared.rho)
    np.testing.assert_allclose(figure.data[0].x, compared.table["distance_a"])
    np.testing.assert_allclose(figure.data[0].y, compared.table["distance_b"])
    assert f"{compared.rho:.2f}".replace("-", "−") in figure.layout.annotations[0].text
    assert all("pairs of stimuli" in text for text in figure.data[0].hovertext)


def test_counts_are_the_counts_of_the_table() -> None:
    table = pd.DataFrame(
        {"pos": ["Noun", "Verb", "Noun", None] * 20, "length": [3.0, np.nan, 3.0, 10.0] * 20}
    ).assign(many=np.arange(80.0))
    kinds = [("pos", "nominal"), ("length", "ordered"), ("many", "ordered")]
    figure = figures.feature_counts(table, kinds)
    pos, length, many = figure.data
    assert list(pos.y) == list(length.y) == [40, 20, 20]
    assert list(figure.layout.xaxis.ticktext) == ["Noun", "Verb", "missing"]
    assert list(figure.layout.xaxis2.ticktext) == ["3", "10", "missing"]
    assert pos.marker.color[2] == figures.GREY
    assert sum(many.y) == 80 and len(many.y) <= 12


def terms_of(interval: bool = False) -> pd.DataFrame:
    terms = pd.DataFrame({"term": [*FEATURES, "unexplained"], "value": [0.1, 0.3, -0.05, 0.2]})
    if interval:
        terms["lower"], terms["upper"] = terms["value"] - 0.04, terms["value"] + 0.06
    return terms


def test_a_waterfall_runs_from_0_to_the_similarity() -> None:
    bars, total = figures.waterfall(terms_of(), FEATURES).data
    assert list(bars.customdata) == ["tense", "pos", "number", "unexplained"]
    np.testing.assert_allclose(bars.x, [0.3, 0.1, -0.05, 0.2])
    # Each bar begins where the one before it ended.
    np.testing.assert_allclose(np.array(bars.base, dtype=float), [0.0, 0.3, 0.4, 0.35], atol=1e-12)
    assert total.x[0] == pytest.approx(0.55) and bars.error_x.array is None
    colors = figures.feature_colors(FEATURES)
    red, green, blue = (int(colors["tense"][i : i + 2], 16) for i in (1, 3, 5))
    assert bars.marker.color[0].startswith(f"rgba({red},{green},{blue}")
    # A feature keeps its colour when another one is left out.
    rest = figures.waterfall(terms_of().iloc[1:], FEATURES).data[0]
    assert bars.marker.color[0] == rest.marker.color[0]


@pytest.mark.parametrize("interval", [False, True])
def test_a_waterfall_is_what_plotly_makes_of_it_and_shares_nothing(interval: bool) -> None:
    before = figures.waterfall(terms_of(interval), FEATURES)
    drawn = before.to_json()
    assert json.loads(go.Figure(json.loads(drawn)).to_json()) == json.loads(drawn)
    before.update_layout(margin_t=99, xaxis_title_text="changed").update_yaxes(range=[0, 1])
    assert figures.waterfall(terms_of(interval), FEATURES).to_json() == drawn


def test_a_waterfall_draws_intervals_that_need_not_be_symmetric() -> None:
    bars = figures.waterfall(terms_of(interval=True), FEATURES).data[0]
    np.testing.assert_allclose(bars.error_x.array, 0.06)
    np.testing.assert_allclose(bars.error_x.arrayminus, 0.04)
    assert "95 %" in bars.hovertext[0]


@pytest.mark.parametrize("scale", [1.0, 0.013, -0.4, 250.0, 0.0, np.nan])
def test_the_grid_of_a_waterfall_stays_clear_of_its_numbers(scale: float) -> None:
    terms = terms_of().assign(value=terms_of()["value"] * scale)
    figure = figures.waterfall(terms, FEATURES)
    ticks = figure.layout.xaxis.tickvals
    numbers = min(note.x for note in figure.layout.annotations)
    assert all(tick < numbers for tick in ticks) or np.isnan(scale)
    if scale and np.isfinite(scale):
        assert 0.0 in ticks and 3 <= len(ticks) <= 7
        steps = np.diff(ticks)
        np.testing.assert_allclose(steps, steps[0])


def test_terms_without_universality_are_left_out() -> None:
    bounds = {"universality_lower": [0.4, np.nan, 0.7], "universality_upper": [0.7, np.nan, 0.9]}
    table = pd.DataFrame({"term": ["x", "y", "rsa"], "universality": [0.5, np.nan, 0.8], **bounds})
    (bars,) = figures.universality(table).data
    np.testing.assert_allclose(bars.x, [0.5, 0.8])
    np.testing.assert_allclose(bars.error_x.array, [0.2, 0.1])
    np.testing.assert_allclose(bars.error_x.arrayminus, [0.1, 0.1])


def test_published_numbers_have_a_line_to_those_of_here_where_there_are_both() -> None:
    rows = [
        ("agreement", "", "", value)
        if pair is None
        else ("weighted_tau", *(f"{model}:{layer}" for model, layer in pair), value)
        for pair, value in PUBLISHED
    ]
    table = pd.DataFrame(rows, columns=["quantity", "layer_a", "layer_b", "published"])
    figure = figures.published_values(table.assign(here=[0.5, np.nan, -0.1]))
    published, here = (t for t in figure.data if t.mode == "markers")
    assert list(published.x) == [value for _, value in PUBLISHED] and published.name == "published"
    np.testing.assert_array_equal(here.x, [0.5, np.nan, -0.1])
    lines = [list(t.x) for t in figure.data if t.mode == "lines"]
    assert lines == [[0.69, 0.5], [-0.24, -0.1]]
    labels = figure.layout.yaxis.ticktext
    assert labels[0].startswith("agreement") and "layer 8" in labels[1] and MODELS[1] in labels[1]


def of_one_analysis(models: list[str], scale: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = list(itertools.product(models, range(3), range(2)))
    scores = pd.DataFrame(rows, columns=["model", "layer", "fold"]).assign(rho=0.5, ceiling=0.6)
    importance = scores.merge(pd.DataFrame({"feature": ["colour", "size"]}), "cross")
    return importance.assign(importance=scale * (1 + importance["layer"])), scores


def titles(figure: go.Figure) -> list[str]:
    return [one.text for one in figure.layout.annotations]


def test_models_of_both_analyses_stand_beside_each_other_and_others_come_last() -> None:
    first, second = of_one_analysis(["a", "only", "b"], 0.1), of_one_analysis(["b", "a"], 0.2)
    features = ["colour", "size"]
    figure = figures.side_by_side((first[0], second[0]), (first[1], second[1]), features)
    assert titles(figure) == ["a, first", "a, second", "b, first", "b, second", "only, first"]
    colors = figures.feature_colors(features)
    for name in features:
        assert {trace.line.color for trace in named(figure, name)} == {colors[name]}
    # One scale for all panels, by the axis that the others match.
    axes = [figure.layout[f"yaxis{n}"] for n in ("2", "3", "4", "5")]
    assert all(axis.matches == "y" for axis in axes)
    assert max(named(figure, "size")[0].y) == pytest.approx(0.3)


@pytest.mark.parametrize("sure", [True, False])
def test_differences_of_importance_tell_their_interval_and_test_if_there_is_one(sure) -> None:
    rows = list(itertools.product(["m"], range(2), ["colour", "size"]))
    table = pd.DataFrame(rows, columns=["model", "layer", "feature"])
    table = table.assign(first=0.3, second=0.1, difference=[0.2, -0.2, 0.1, 0.0])
    bound = 0.05 if sure else np.nan
    table = table.assign(
        lower=table["difference"] - bound,
        upper=table["difference"] + bound,
        p=0.01 if sure else np.nan,
        p_corrected=[0.01, 0.01, 0.2, 0.9] if sure else np.nan,
    )
    figure = figures.importance_differences(table, ["colour", "size"])
    colour, size = (next(t for t in named(figure, f) if t.hovertext) for f in ("colour", "size"))
    told = colour.hovertext[0]
    assert ("0.150 to 0.250" in told) == ("not 0: p" in told) == ("interval" in told) == sure
    assert "above 0" not in told and "sd" not in told and size.y[0] == -0.2
    if sure:
        assert list(colour.marker.symbol) == ["circle", "circle-open"]


def test_where_nothing_is_shared_it_is_said() -> None:
    none = pd.DataFrame(columns=["model", "layer", "feature", "first", "second", "difference",
                                 "lower", "upper", "p", "p_corrected"])  # fmt: skip
    assert titles(figures.importance_differences(none, ["colour"]))[-1]
    columns = [f"{name}_{what}" for name in ("rsa", "weighted_tau")
               for what in ("first", "second", "difference", "lower", "upper")]  # fmt: skip
    empty = pd.DataFrame(columns=["layer_a", "layer_b", *columns, "rsa_p", "rsa_p_corrected"])
    assert titles(figures.similarity_differences(empty))[-1]


OF_AUDIT = [("a", 0), ("a", 1), ("<b>", 2)]
MARKS = pd.DataFrame(
    [
        ("profiles", "a", 1, "", -1, "without-first", "f matters most, not g", 4.0),
        ("scores", "a", 1, "", -1, "without-first", "ρ is 0.1 instead of 0.4", 0.0),
        ("scores", "a", 0, "", -1, "random-weights", "random weights reach ρ = 0.4", 2.0),
        ("rsa", "a", 0, "<b>", 2, "cosine", "RSA is 0.9 instead of 0.1", 4.0),
    ],
    columns=[
        "measure", "model_a", "layer_a", "model_b", "layer_b", "variant", "reason", "severity",
    ],
)  # fmt: skip


def test_the_map_of_the_audit_shows_every_quantity_and_dots_the_marked() -> None:
    frame = pd.DataFrame(OF_AUDIT, columns=["model", "layer"])
    layers = frame.assign(
        position0_ranks=[0.1, 0.7, np.nan],
        outlier_share=[0.0, 0.9, 0.2],
        n_outliers=[0, 2, 1],
        n_units=50,
        mean_cosine=[-0.2, 0.6, 0.3],
    )
    first = frame.assign(variant="without-first", rsa_change=[-0.3, 0.8, 0.1], rho=0.1)
    random = frame[:2].assign(variant="random-weights", rsa_change=0.0, rho=[0.4, 0.1])
    changes = pd.concat([first, random], ignore_index=True)
    changes = changes.assign(rho_before=0.4, tau=0.5, rsa_with="a:0")
    figure = figures.audit_map(layers, changes, MARKS, SAYS, CONTROL)
    heat, dots = figure.data
    rows = [text.replace(":<br>", ": ") for text in figure.layout.yaxis.ticktext]
    values = dict(zip(rows, np.array(heat.z, dtype=float), strict=True))
    for row, expected in {
        "position 0: share of variance": [0.1, 0.7, np.nan],
        "outlier units: share of variance": [0.0, 0.9, 0.2],
        "mean cosine": [0.0, 0.6, 0.3],
        "without position 0: change of RSA": [0.3, 0.8, 0.1],
        "random weights: share of ρ": [1.0, 0.25, np.nan],
        "with cosine distance: change of RSA": [np.nan] * 3,
    }.items():
        np.testing.assert_allclose(values[row], expected, err_msg=row)
    at = [(x, rows[y]) for x, y in zip(dots.x, dots.y, strict=True)]
    assert at == [(1, "without position 0: change of RSA"), (0, "random weights: share of ρ")]
    assert "f matters most, not g<br>ρ is 0.1" in dots.hovertext[0]
    assert "−0.20" in heat.hovertext[2][0]
    assert "2 of 50 units" in heat.hovertext[1][1] and "&lt;b&gt; layer 2" in heat.hovertext[0][2]
    assert len(figures.audit_map(layers, changes, MARKS.iloc[:0], SAYS, CONTROL).data[1].x) == 0


def test_reasons_are_by_layer_and_by_pair() -> None:
    assert reasons(MARKS, "profiles") == {("a", 1): "f matters most, not g"}
    # Where only a number changes, a figure says nothing.
    assert set(reasons(MARKS, "scores")) == {("a", 0)}
    pair = reasons(MARKS, "rsa")
    assert pair[("a", 0), ("<b>", 2)] == pair[("<b>", 2), ("a", 0)]
    assert len(pair) == 2 and reasons(MARKS, "tau") == {}


def test_the_curve_shows_every_variant_and_its_choices() -> None:
    curve = pd.DataFrame(
        {
            "universe": [2, 3, 1, 0],
            "distance": ["cosine", "cosine", "euclidean", "euclidean"],
            "special_tokens": ["model", "start", "start", "model"],
            "own": [False, False, False, True],
            "margin": [-0.2, -0.1, 0.3, 0.4],
            "holds": [False, False, True, True],
            "place": range(4),
        }
    )
    figure = figures.specification_curve(curve, ["distance", "special_tokens"], "f rules a:1")
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["holds"].y) == [0.3, 0.4] and list(traces["holds"].x) == [2, 3]
    assert list(traces["does not hold"].y) == [-0.2, -0.1]
    assert list(traces["this analysis"].x) == [3]
    assert list(traces["distance=cosine"].x) == [0, 1]
    assert list(traces["special_tokens=start"].x) == [1, 2]
    ticks = [text.split("  ")[-1] for text in figure.layout.yaxis2.ticktext]
    assert ticks == ["euclidean", "cosine", "model", "start"]
    assert figure.layout.title.text == "f rules a:1: 2 of 4"
    assert "special tokens: start" in traces["holds"].hovertext[0]
    one = curve.iloc[3:].drop(columns=["distance", "special_tokens"])
    assert figures.specification_curve(one, [], "f rules a:1").layout.title.text.endswith("1 of 1")

"""Figures of values: what they draw is what the table says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mlem_core import figures
from mlem_core.figures.style import short_names
from mlem_core.measures.value_distances import compare_layers, value_map

LAYERS = [("m", 0), ("m", 4), ("n", 1)]
NAMES = [
    "<b>noun</b>",
    "verb",
    "a very long name of a value, one",
    "a very long name of a value, two",
]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    rows = []
    for model, layer in LAYERS:
        for i, a in enumerate(NAMES):
            for b in NAMES[i:]:
                separation = rng.random() if a != b else 0.0
                spread = 0.1 * (1 + (a == b))
                n_pairs = 0 if (a, b) == (NAMES[1], NAMES[1]) else 10 + i
                rows.append(
                    (model, layer, "pos", a, b, separation + spread, 0.01, separation, n_pairs)
                )
    columns = [
        "model",
        "layer",
        "feature",
        "value_a",
        "value_b",
        "distance",
        "sd",
        "separation",
        "n_pairs",
    ]
    return pd.DataFrame(rows, columns=columns)


def test_matrices_share_a_colour_scale_and_mark_what_is_not_a_distance_of_two_values(table):
    figure = figures.value_matrices(table, "pos", LAYERS[:2])
    heat = [trace for trace in figure.data if trace.type == "heatmap"]
    assert len(heat) == 2 and {trace.coloraxis for trace in heat} == {"coloraxis"}
    # The layer that is not drawn counts too.
    assert figure.layout.coloraxis.cmin == 0
    assert figure.layout.coloraxis.cmax == pytest.approx(table["distance"].max())
    for trace, (model, layer) in zip(heat, LAYERS[:2], strict=True):
        rows = table[(table["model"] == model) & (table["layer"] == layer)]
        np.testing.assert_allclose(trace.z, np.transpose(trace.z))
        for row in rows.itertuples():
            i, j = NAMES.index(row.value_a), NAMES.index(row.value_b)
            assert trace.z[i][j] == row.distance
            told = trace.hovertext[i][j]
            assert ("no pair of stimuli has it" in told) == (row.n_pairs == 0)
            assert (f"{row.n_pairs} pairs" in told) == (row.n_pairs > 0)
    rings = next(trace for trace in figure.data if trace.name == "within a value")
    crosses = next(trace for trace in figure.data if trace.name == "no pair of stimuli")
    assert list(rings.x) == list(rings.y) == [0, 2, 3] and list(crosses.x) == [1]
    labels = figure.layout.xaxis.ticktext
    assert len(set(labels)) == 4 and "<b>" not in labels[0]


def test_the_map_has_a_point_a_value(table):
    points = value_map(table, "pos", LAYERS[0])
    figure = figures.value_map(points, "m layer 0")
    drawn = next(trace for trace in figure.data if trace.name == "values")
    np.testing.assert_allclose(drawn.x, points["x"])
    rings = next(trace for trace in figure.data if trace.name == "spread")
    assert "<b>noun" not in rings.text[0] and len(set(rings.text)) == 4
    assert "spread 0.100" in drawn.hovertext[0]


def test_lines_name_the_pairs_furthest_apart_and_leave_out_what_no_pair_has(table):
    few = table.copy()
    few.loc[(few["value_a"] == NAMES[0]) & (few["value_b"] == "verb"), "n_pairs"] = 0
    figure = figures.value_lines(few, "pos")
    apart = few[(few["value_a"] != few["value_b"]) & (few["n_pairs"] > 0)]
    means = apart.groupby(["value_a", "value_b"])["distance"].mean().sort_values()
    named = [t for t in figure.data if t.name != "other pairs" and t.showlegend]
    assert len(named) == 5 == len(means)
    ends = means.index[-1]
    rows = apart[(apart["value_a"] == ends[0]) & (apart["value_b"] == ends[1])]
    own = rows[rows["model"] == "m"]
    np.testing.assert_allclose(named[0].y, own["distance"])
    assert list(named[0].x) == [0, 4]
    # With more pairs than are named the others are one grey trace.
    grey = [t for t in figures.value_lines(table, "pos").data if t.name == "other pairs"]
    assert len(grey) == 2 and sum(value is not None for value in grey[0].y) == 2


def test_two_layers_are_drawn_against_each_other(table):
    compared = compare_layers(table, "pos", LAYERS[0], LAYERS[2])
    figure = figures.value_scatter(compared.table, (LAYERS[0], LAYERS[2]), compared.rho)
    np.testing.assert_allclose(figure.data[0].x, compared.table["distance_a"])
    np.testing.assert_allclose(figure.data[0].y, compared.table["distance_b"])
    assert f"{compared.rho:.2f}".replace("-", "−") in figure.layout.annotations[0].text
    assert all("pairs of stimuli" in text for text in figure.data[0].hovertext)


def test_short_names_stay_different():
    assert short_names(["noun", "verb"]) == ["noun", "verb"]
    short = short_names(NAMES, 12)
    assert len(set(short)) == 4 and all(len(name) <= 40 for name in short)
    alike = ["x" * 30 + "a" + "y" * 30, "x" * 30 + "b" + "y" * 30]
    assert len(set(short_names(alike, 12))) == 2

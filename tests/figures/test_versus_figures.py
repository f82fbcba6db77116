"""Figures of two analyses: made of tidy tables, on one scale, in one set of colours."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from mlem_core.figures.style import DIVERGING, feature_colors
from mlem_core.figures.two_analyses import (
    importance_differences,
    side_by_side,
    similarity_differences,
)

FEATURES = ["colour", "size"]


def tables(models: list[str], scale: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = list(itertools.product(models, range(3), range(2)))
    scores = pd.DataFrame(rows, columns=["model", "layer", "fold"]).assign(rho=0.5, ceiling=0.6)
    rows = list(itertools.product(models, range(3), range(2), FEATURES))
    importance = pd.DataFrame(rows, columns=["model", "layer", "fold", "feature"])
    return importance.assign(importance=scale * (1 + importance["layer"])), scores


def titles(figure) -> list[str]:
    return [one.text for one in figure.layout.annotations]


def test_models_of_both_stand_beside_each_other_and_others_come_last() -> None:
    first, second = tables(["a", "only", "b"], 0.1), tables(["b", "a"], 0.2)
    figure = side_by_side((first[0], second[0]), (first[1], second[1]), FEATURES)
    assert titles(figure) == ["a, first", "a, second", "b, first", "b, second", "only, first"]
    colors = feature_colors(FEATURES)
    for trace in figure.data:
        if trace.name in colors:
            assert trace.line.color == colors[trace.name]
    # One scale for all panels, by the axis that the others match.
    axes = [figure.layout[f"yaxis{n}"] for n in ("2", "3", "4", "5")]
    assert all(axis.matches == "y" for axis in axes)
    assert max(figure.data[[t.name for t in figure.data].index("size")].y) == pytest.approx(0.3)


def differences(sure: bool) -> pd.DataFrame:
    rows = list(itertools.product(["m"], range(2), FEATURES))
    table = pd.DataFrame(rows, columns=["model", "layer", "feature"])
    table = table.assign(first=0.3, second=0.1, difference=[0.2, -0.2, 0.1, 0.0])
    bound = 0.05 if sure else np.nan
    return table.assign(
        lower=table["difference"] - bound,
        upper=table["difference"] + bound,
        p=0.01 if sure else np.nan,
        p_corrected=[0.01, 0.01, 0.2, 0.9] if sure else np.nan,
    )


def test_differences_of_importance_say_their_interval_and_test() -> None:
    figure = importance_differences(differences(True), FEATURES)
    colour = next(t for t in figure.data if t.name == "colour" and t.hovertext)
    assert "95 % interval 0.150 to 0.250" in colour.hovertext[0]
    assert "not 0: p" in colour.hovertext[0] and "above 0" not in colour.hovertext[0]
    assert list(colour.marker.symbol) == ["circle", "circle-open"]
    plain = importance_differences(differences(False), FEATURES)
    colour = next(t for t in plain.data if t.name == "colour" and t.hovertext)
    assert "interval" not in colour.hovertext[0] and "sd" not in colour.hovertext[0]
    assert min(t.y[0] for t in plain.data if t.name == "size" and t.hovertext) == -0.2


def similarities(largest: float) -> pd.DataFrame:
    names = ["m:0", "m:1", "other:0"]
    pairs = list(itertools.combinations(names, 2))
    table = pd.DataFrame(pairs, columns=["layer_a", "layer_b"])
    for name in ("rsa", "weighted_tau"):
        value = largest * np.array([1.0, -0.5, 0.0])
        table = table.assign(**{
            f"{name}_first": 0.5 + value, f"{name}_second": 0.5, f"{name}_difference": value,
            f"{name}_lower": value - 0.01, f"{name}_upper": value + 0.01,
        })  # fmt: skip
    return table.assign(rsa_p=0.01, rsa_p_corrected=[0.01, 0.3, 0.9])


def test_differences_of_similarity_are_signed_about_0() -> None:
    figure = similarity_differences(similarities(0.5))
    heatmaps = [trace for trace in figure.data if trace.type == "heatmap"]
    assert len(heatmaps) == 2
    for trace in heatmaps:
        square = np.array(trace.z, dtype=float)
        np.testing.assert_array_equal(np.isnan(square), np.eye(3, dtype=bool))
        assert square[0, 1] == square[1, 0] == 0.5 and square[2, 0] == -0.25
        assert "95 % interval 0.490 to 0.510" in trace.hovertext[0][1]
    scale = figure.layout.coloraxis
    assert scale.cmin == -scale.cmax == -0.5
    assert [color for _, color in scale.colorscale] == [color for _, color in DIVERGING]
    # The one pair whose difference of RSA is not 0 has a dot, on both sides.
    (dots,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert sorted(zip(dots.x, dots.y, strict=True)) == [(0, 1), (1, 0)]


def test_small_differences_are_not_painted_as_large_ones() -> None:
    scale = similarity_differences(similarities(0.001)).layout.coloraxis
    assert (scale.cmin, scale.cmax) == (-0.2, 0.2)


def test_where_nothing_is_shared_it_is_said() -> None:
    assert "No layer" in titles(importance_differences(differences(True)[:0], FEATURES))[-1]
    assert "Two layers" in titles(similarity_differences(similarities(0.1)[:0]))[-1]

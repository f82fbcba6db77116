"""Figures of groups of models: what is drawn is what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core import figures


def test_profiles_have_a_band_where_there_is_a_spread() -> None:
    rows = [
        (group, n, layer, layer / 2, feature, 0.1 * layer, 0.1 * layer - low, 0.1 * layer + low)
        for group, n, low in (("g", 3, 0.05), ("h", 1, np.nan))
        for layer in range(3)
        for feature in ("x", "y")
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


def test_terms_without_universality_are_left_out() -> None:
    table = pd.DataFrame(
        {
            "term": ["x", "y", "rsa"],
            "universality": [0.5, np.nan, 0.8],
            "universality_lower": [0.4, np.nan, 0.7],
            "universality_upper": [0.7, np.nan, 0.9],
        }
    )
    (bars,) = figures.universality(table).data
    np.testing.assert_allclose(bars.x, [0.5, 0.8])
    np.testing.assert_allclose(bars.error_x.array, [0.2, 0.1])
    np.testing.assert_allclose(bars.error_x.arrayminus, [0.1, 0.1])


def test_the_matrix_of_groups_has_every_pair_once_with_its_interval() -> None:
    rows = [
        ("g", "g", 3, 0.9, 0.8, 0.95),
        ("g", "h", 3, -0.2, -0.5, 0.1),
        ("h", "h", 0, np.nan, np.nan, np.nan),
    ]
    table = pd.DataFrame(rows, columns=["group_a", "group_b", "pairs", "rsa", "lower", "upper"])
    figure = figures.group_similarity(table)
    (heatmap,) = figure.data
    np.testing.assert_allclose(heatmap.z, [[0.9, np.nan], [-0.2, np.nan]])
    texts = {(one.x, one.y): one for one in figure.layout.annotations}
    assert set(texts) == {(0, 0), (0, 1), (1, 1)}
    assert "0.90" in texts[0, 0].text and "0.80 to 0.95" in texts[0, 0].text
    assert "−0.20" in texts[0, 1].text and texts[1, 1].text == "one model"
    # Light on dark, dark on light.
    assert texts[0, 0].font.color == "white" != texts[0, 1].font.color
    assert "3 pairs of models" in heatmap.hovertext[1][0] and "−0.500" in heatmap.hovertext[1][0]


def test_many_groups_have_values_and_no_intervals_in_their_cells() -> None:
    names = [f"g{i}" for i in range(13)]

    def texts(n: int) -> list[str]:
        rows = [(a, b, 1, 0.5, 0.4, 0.6) for i, a in enumerate(names[:n]) for b in names[i:n]]
        table = pd.DataFrame(rows, columns=["group_a", "group_b", "pairs", "rsa", "lower", "upper"])
        return [one.text for one in figures.group_similarity(table).layout.annotations]

    assert all("0.40" in text for text in texts(6))
    assert set(texts(7)) == {"0.50"} and texts(13) == []

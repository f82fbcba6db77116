"""The published numbers as a figure: what is drawn is what the table says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis.published import MODELS, PUBLISHED


def table_of(here: list[float]) -> pd.DataFrame:
    rows = [
        ("agreement", "", "", value)
        if pair is None
        else ("weighted_tau", *(f"{model}:{layer}" for model, layer in pair), value)
        for pair, value in PUBLISHED
    ]
    names = ["quantity", "layer_a", "layer_b", "published"]
    return pd.DataFrame(rows, columns=names).assign(here=here)


def test_a_row_a_number_with_both_marks_and_a_line_where_there_are_both() -> None:
    figure = figures.published_values(table_of([0.5, np.nan, -0.1]))
    go.Figure(figure.to_dict())  # Plotly checks every property
    published, here = (t for t in figure.data if t.mode == "markers")
    assert list(published.x) == [value for _, value in PUBLISHED] and published.name == "published"
    np.testing.assert_array_equal(here.x, [0.5, np.nan, -0.1])
    lines = [list(t.x) for t in figure.data if t.mode == "lines"]
    assert lines == [[0.69, 0.5], [-0.24, -0.1]]
    labels = figure.layout.yaxis.ticktext
    assert labels[0].startswith("agreement") and "layer 8" in labels[1] and "<br>" in labels[2]
    assert MODELS[1] in labels[1]

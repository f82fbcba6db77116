"""Importances over training: lines and bands are what the table says, and step 0 has a place."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core import figures
from mlem_core.figures.trajectories import step_places


def table(steps: dict[str, list[tuple[int, int]]]) -> pd.DataFrame:
    """Two features and ρ at some (step, seeds) of each trajectory; none of one seed has bounds."""
    rows = []
    for name, own in steps.items():
        for at, (step, seeds) in enumerate(own):
            value, known = 0.1 * at, seeds > 1
            bounds = (value - 0.05, value + 0.07) if known else (np.nan, np.nan)
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


def test_lines_bands_and_legend() -> None:
    given = table({"many": [(0, 3), (10, 3), (100, 3)], "one": [(10, 1), (100, 1)]})
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
    assert list(figure.layout.xaxis.ticktext) == ["0", "10", "100"]


def test_a_band_crosses_no_step_without_an_interval() -> None:
    given = table({"t": [(1, 3), (10, 3), (100, 1), (1000, 3)]})
    bands = [trace for trace in figures.trajectories(given, ["x", "y"]).data if trace.fill]
    assert len(bands) == 3 and {len(trace.x) for trace in bands} == {4}


def test_ticks_of_many_steps_are_powers_of_ten() -> None:
    steps = [0, *(2**k for k in range(10)), *range(1000, 143_001, 1000)]
    figure = figures.trajectories(table({"t": [(step, 1) for step in steps]}), ["x", "y"])
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "10", "100", "1k", "10k", "100k"]
    close = figures.trajectories(table({"t": [(n, 1) for n in range(2000, 2900, 100)]}), ["x"])
    assert list(close.layout.xaxis.ticktext) == ["2k", "2.8k"]

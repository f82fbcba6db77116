"""Figures of other methods: what is drawn is what the tables say."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from mlem_core import figures

LAYERS = {"a": (0, 1, 4), "b": (0, 1)}
ROWS = [(m, n, f) for m, layers in LAYERS.items() for n, f in product(layers, range(3))]


def table_of(**columns: float) -> pd.DataFrame:
    """A row a layer and fold, with columns of random numbers up to some."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(ROWS, columns=["model", "layer", "fold"])
    return table.assign(**{name: most * rng.random(len(table)) for name, most in columns.items()})


def is_sound(figure: go.Figure) -> None:
    go.Figure(figure.to_dict())  # Plotly checks every property
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_each_method_is_a_line_of_its_means_under_the_ceiling() -> None:
    ceilings = table_of(ceiling=1)
    scores = pd.concat([table_of(rho=0.5).assign(method=name) for name in ("frrsa", "ridge", "x")])
    called = {"ridge": "MLEM, ridge", "spearman": "MLEM, Spearman", "frrsa": "FR-RSA"}
    figure = figures.method_scores(scores, ceilings, called)
    is_sound(figure)
    lines = {t.name: t for t in figure.data if t.mode == "lines+markers" and t.showlegend}
    assert list(lines) == ["MLEM, ridge", "FR-RSA", "x"]
    means = table_of(rho=0.5).groupby(["model", "layer"])["rho"].mean()
    np.testing.assert_allclose(lines["FR-RSA"].y, means["a"])
    (dotted,) = [t for t in figure.data if t.line.dash == "dot" and t.showlegend]
    np.testing.assert_allclose(
        dotted.y, ceilings.groupby(["model", "layer"])["ceiling"].mean()["a"]
    )


@pytest.mark.parametrize("across", [1, 2])
def test_agreement_has_a_line_a_model_in_both_panels(across: int) -> None:
    table = table_of(frobenius=2, tau=1)
    figure = figures.method_agreement(table, across)
    is_sound(figure)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [(one.name, one.xaxis, bool(one.showlegend)) for one in lines] == [
        ("a", "x", True), ("b", "x", True), ("a", "x2", False), ("b", "x2", False)
    ]  # fmt: skip
    means = table.groupby(["model", "layer"])[["frobenius", "tau"]].mean()
    np.testing.assert_allclose(lines[0].y, means.loc["a", "frobenius"])
    np.testing.assert_allclose(lines[3].y, means.loc["b", "tau"])
    assert (figure.layout.xaxis.domain == figure.layout.xaxis2.domain) == (across == 1)


@pytest.mark.parametrize("across", [1, 2])
def test_agreement_by_noise_is_a_line_with_its_band_in_both_panels(across: int) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(list(product((0, 0.5, 2), range(5))), columns=["noise", "fold"])
    table = table.assign(frobenius=rng.random(15), tau=rng.random(15))
    figure = figures.noise_agreement(table, across)
    is_sound(figure)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    stats = table.groupby("noise")[["frobenius", "tau"]].agg(["mean", "std"])
    for line, measure in zip(lines, ("frobenius", "tau"), strict=True):
        assert list(line.x) == [0, 0.5, 2] and not line.showlegend
        np.testing.assert_allclose(line.y, stats[measure, "mean"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    np.testing.assert_allclose(bands[1].y[:3], stats["tau", "mean"] + stats["tau", "std"])
    assert (figure.layout.xaxis.domain == figure.layout.xaxis2.domain) == (across == 1)
    alone = figures.noise_agreement(table[table["fold"] == 0])
    assert np.isfinite(alone.data[0].y).all()


def test_units_have_a_shape_a_layer_their_best_and_the_whole() -> None:
    whole = table_of(rho=1)
    units = pd.concat([table_of(rho=0.3).assign(unit=u, rho=lambda t, u=u: t["rho"] + u)
                       for u in range(5)])  # fmt: skip
    figure = figures.unit_scores(units, whole)
    is_sound(figure)
    shapes = [trace for trace in figure.data if trace.type == "violin"]
    assert [trace.x0 for trace in shapes] == [0, 1, 4, 0, 1]
    base = table_of(rho=0.3).groupby(["model", "layer"])["rho"].mean()
    np.testing.assert_allclose(sorted(shapes[1].y), base["a", 1] + np.arange(5))
    best = [trace for trace in figure.data if trace.name == "best unit"]
    np.testing.assert_allclose(best[1].y, base["b"] + 4)
    assert "unit 4" in best[0].hovertext[0]
    lines = [trace for trace in figure.data if trace.name == "whole layer"]
    np.testing.assert_allclose(lines[0].y, whole.groupby(["model", "layer"])["rho"].mean()["a"])
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert legend == ["single units", "best unit", "whole layer"]

"""What the audit's figures draw is what its tables say."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.robustness.flags import reasons
from mlem_core.robustness.variants import CONTROL, SAYS

LAYERS = [("a", 0), ("a", 1), ("<b>", 2)]
FIRST = "without-first"
MARKS = pd.DataFrame(
    [
        (
            "profiles",
            "a",
            1,
            "",
            -1,
            "without-first",
            "without position 0 f matters most, not g",
            4.0,
        ),
        (
            "scores",
            "a",
            1,
            "",
            -1,
            "without-first",
            "without position 0 ρ is 0.1 instead of 0.4",
            0.0,
        ),
        ("scores", "a", 0, "", -1, "random-weights", "random weights reach ρ = 0.4", 2.0),
        ("rsa", "a", 0, "<b>", 2, "cosine", "with cosine distance RSA is 0.9 instead of 0.1", 4.0),
    ],
    columns=[
        "measure",
        "model_a",
        "layer_a",
        "model_b",
        "layer_b",
        "variant",
        "reason",
        "severity",
    ],
)


def audit_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    frame = pd.DataFrame(LAYERS, columns=["model", "layer"])
    layers = frame.assign(
        position0_ranks=[0.1, 0.7, np.nan],
        outlier_share=[0.0, 0.9, 0.2],
        n_outliers=[0, 2, 1],
        n_units=50,
        mean_cosine=[-0.2, 0.6, 0.3],
    )
    changes = pd.concat(
        [
            frame.assign(variant="without-first", rsa_change=[-0.3, 0.8, 0.1], rho=0.1),
            frame[:2].assign(variant="random-weights", rsa_change=0.0, rho=[0.4, 0.1]),
        ],
        ignore_index=True,
    )
    return layers, changes.assign(rho_before=0.4, tau=0.5, rsa_with="a:0")


def sound(figure: go.Figure) -> None:
    json.loads(figure.to_json())
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_the_map_shows_every_quantity_and_dots_the_marked() -> None:
    layers, changes = audit_tables()
    figure = figures.audit_map(layers, changes, MARKS, SAYS, CONTROL)
    sound(figure)
    heat, dots = figure.data
    titles = [text.replace(":<br>", ": ") for text in figure.layout.yaxis.ticktext]
    values = dict(zip(titles, np.array(heat.z, dtype=float), strict=True))
    np.testing.assert_allclose(values["position 0: share of variance"], [0.1, 0.7, np.nan])
    np.testing.assert_allclose(values["outlier units: share of variance"], [0.0, 0.9, 0.2])
    np.testing.assert_allclose(values["mean cosine"], [0.0, 0.6, 0.3])
    np.testing.assert_allclose(values["without position 0: change of RSA"], [0.3, 0.8, 0.1])
    np.testing.assert_allclose(values["random weights: share of ρ"], [1.0, 0.25, np.nan])
    assert np.isnan(values["with cosine distance: change of RSA"]).all()
    at = [(x, titles[y]) for x, y in zip(dots.x, dots.y, strict=True)]
    assert at == [(1, "without position 0: change of RSA"), (0, "random weights: share of ρ")]
    assert "f matters most, not g<br>without position 0 ρ" in dots.hovertext[0]
    assert "mean cosine −0.20" in heat.hovertext[2][0]
    assert "2 of 50 units" in heat.hovertext[1][1] and "&lt;b&gt; layer 2" in heat.hovertext[0][2]
    assert len(figures.audit_map(layers, changes, MARKS.iloc[:0], SAYS, CONTROL).data[1].x) == 0


def test_reasons_are_by_layer_and_by_pair() -> None:
    assert reasons(MARKS, "profiles") == {("a", 1): "without position 0 f matters most, not g"}
    # Where only a number changes, a figure says nothing.
    assert set(reasons(MARKS, "scores")) == {("a", 0)}
    pair = reasons(MARKS, "rsa")
    assert pair[("a", 0), ("<b>", 2)] == pair[("<b>", 2), ("a", 0)]
    assert len(pair) == 2 and reasons(MARKS, "tau") == {}


def test_the_curve_shows_every_universe_and_its_choices() -> None:
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
    sound(figure)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["holds"].y) == [0.3, 0.4] and list(traces["holds"].x) == [2, 3]
    assert list(traces["does not hold"].y) == [-0.2, -0.1]
    assert list(traces["this analysis"].x) == [3]
    assert list(traces["distance=cosine"].x) == [0, 1]
    assert list(traces["special_tokens=start"].x) == [1, 2]
    assert list(figure.layout.yaxis2.ticktext) == [
        "distance  euclidean",
        "cosine",
        "special tokens  model",
        "start",
    ]
    assert figure.layout.title.text == "f rules a:1: 2 of 4"
    assert "special tokens: start" in traces["holds"].hovertext[0]
    one = curve.iloc[3:].drop(columns=["distance", "special_tokens"])
    sound(figures.specification_curve(one, [], "f rules a:1"))

"""Matrices of layers: what each cell says, where it stands, what is around them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from mlem_core import figures
from mlem_core.base.labels import Names
from mlem_core.figures.style import DIVERGING

COUNTS = {"m:x": 12, "b": 31}


def square_of(layers: dict[str, int | list[int]], seed: int = 2) -> pd.DataFrame:
    names = [
        f"{model}:{layer}"
        for model, chosen in layers.items()
        for layer in (range(chosen) if isinstance(chosen, int) else chosen)
    ]
    values = np.random.default_rng(seed).uniform(-0.4, 1, (len(names), len(names)))
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1)
    return pd.DataFrame(values, index=names, columns=names)


def is_sound(figure: go.Figure) -> None:
    json.loads(figure.to_json())
    go.Figure(figure.to_dict())  # Plotly checks every property
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"


def heatmaps(figure: go.Figure) -> list[go.Heatmap]:
    return [t for t in figure.data if t.type == "heatmap" and t.name != "models"]


def cells(figure: go.Figure) -> list[go.Scatter]:
    return [t for t in figure.data if (t.name or "").startswith("cells")]


def text(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def painted(heat: go.Heatmap, x: float, y: float) -> float:
    """The value of the strip that a point is in."""
    column, row = (int(np.searchsorted(ends, at) - 1) for ends, at in ((heat.x, x), (heat.y, y)))
    return float(heat.z[row][column])


@pytest.mark.parametrize("order", ["model", "clustering"])
def test_each_cell_is_painted_told_and_chosen_where_its_layers_meet(order: str) -> None:
    first, second = square_of(COUNTS), square_of(COUNTS, 3)
    second.iloc[0, 3] = second.iloc[3, 0] = np.nan
    figure = figures.similarity_matrices(first, second, order=order)
    is_sound(figure)
    for heat, points, square, unit in zip(
        heatmaps(figure),
        cells(figure),
        (first, second),
        ("weighted Kendall τ", "Spearman ρ"),
        strict=True,
    ):
        assert len(points.x) == square.size
        assert np.isfinite(heat.z).sum() == np.isfinite(square.to_numpy()).sum()
        for x, y, at, said in zip(
            points.x, points.y, points.customdata, points.hovertext, strict=True
        ):
            row, column = f"{at[0]}:{at[1]}", f"{at[2]}:{at[3]}"
            value = square.loc[row, column]
            np.testing.assert_equal(painted(heat, x, y), value)
            number = text(value) if np.isfinite(value) else "not defined"
            assert said == f"{at[0]} {at[1]} and {at[2]} {at[3]}<br>{unit} = {number}"


def test_both_matrices_are_on_one_scale_from_minus_one_to_one() -> None:
    square = square_of({"a": 3, "b": 2})
    figure = figures.similarity_matrices(square, square * 0.01)
    assert {heat.coloraxis for heat in heatmaps(figure)} == {"coloraxis"}
    scale = figure.layout.coloraxis
    assert (scale.cmin, scale.cmax) == (-1, 1)
    assert [list(step) for step in scale.colorscale] == DIVERGING
    light = [sum(int(color[i : i + 2], 16) for i in (1, 3, 5)) for _, color in DIVERGING]
    middle = len(light) // 2
    assert light[: middle + 1] == sorted(light[: middle + 1])
    assert light[middle:] == sorted(light[middle:], reverse=True)
    assert min(int(DIVERGING[middle][1][i : i + 2], 16) for i in (1, 3, 5)) > 230


def test_models_and_layers_that_are_left_out_stand_apart() -> None:
    square = square_of({"bert": [0, 3, 6], "gpt": [4, 5]})
    figure = figures.rsa_matrix(square)
    is_sound(figure)
    (heat,) = heatmaps(figure)
    edges = np.asarray(heat.x)
    np.testing.assert_array_equal(heat.x, heat.y)
    wide = np.diff(edges)
    # B0 gap B3 gap B6 wider gap G4 G5
    is_cell = np.array([True, False, True, False, True, False, True, True])
    np.testing.assert_allclose(wide[is_cell], 1)
    assert np.isnan(heat.z)[~is_cell].all() and np.isnan(heat.z)[:, ~is_cell].all()
    skipped, other, models = wide[~is_cell]
    assert 0 < skipped < models and other == pytest.approx(skipped)
    assert list(figure.layout.xaxis.ticktext) == ["B0", "B3", "B6", "G4", "G5"]
    middles = (edges[:-1] + edges[1:]) / 2
    np.testing.assert_allclose(figure.layout.xaxis.tickvals, middles[is_cell])
    named = [one for one in figure.layout.annotations if one.text == "bert"]
    assert {(one.xref, one.yref) for one in named} == {("x", "y domain"), ("x domain", "y")}
    assert named[0].x == pytest.approx((edges[0] + edges[5]) / 2)


def test_ticks_of_many_layers_do_not_stand_on_each_other() -> None:
    figure = figures.similarity_matrices(square_of({"a": 60, "b": 1}), square_of({"a": 60, "b": 1}))
    at, names = np.array(figure.layout.yaxis.tickvals), figure.layout.yaxis.ticktext
    assert names[0] == "A0" and names[-1] == "B0"
    high = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    assert np.diff(at).min() * high / np.ptp(figure.layout.yaxis.range) >= 11


def test_forty_models_have_names_that_do_not_stand_on_each_other() -> None:
    square = square_of({f"a model with a long name {i:02d}": 1 for i in range(40)})
    figure = figures.rsa_matrix(square)
    is_sound(figure)
    beside = sorted(one.y for one in figure.layout.annotations if one.xref == "x domain")
    assert len(beside) > 10
    high = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    assert np.diff(beside).min() * high / np.ptp(figure.layout.yaxis.range) >= 11
    assert len({one.text for one in figure.layout.annotations}) == len(beside)


def test_the_order_by_clustering_is_that_of_scipy_with_its_tree() -> None:
    rsa = square_of({"a": 6, "b": 5})
    tree = linkage(squareform(1 - rsa.to_numpy(), checks=False), "average", optimal_ordering=True)
    order = [rsa.index[row] for row in leaves_list(tree)]
    figure = figures.similarity_matrices(square_of({"a": 6, "b": 5}, 9), rsa, order="clustering")
    is_sound(figure)
    for points in cells(figure):
        diagonal = points.customdata[:: len(rsa) + 1]
        assert [f"{model}:{layer}" for model, layer, *_ in diagonal] == order
    (line,) = [trace for trace in figure.data if trace.name == "dendrogram"]
    assert line.xaxis == "x2" and line.yaxis == "y2"
    x = np.array([at for at in line.x if at is not None]).reshape(-1, 4)
    y = np.array([at for at in line.y if at is not None]).reshape(-1, 4)
    # A merger is as far from the cells as SciPy says, the last one furthest.
    cells_end = x.min()
    far = (x[:, 1] - cells_end) / (x[:, 1].max() - cells_end) * tree[-1, 2]
    np.testing.assert_allclose(np.sort(far), tree[:, 2])
    assert cells_end > max(np.asarray(heatmaps(figure)[1].x))
    # Its leaves are at the cells.
    ends = {
        round(float(at), 6)
        for at, a in zip(y[:, [0, 3]].ravel(), x[:, [0, 3]].ravel(), strict=True)
        if a == cells_end
    }
    assert ends == set(range(len(rsa)))
    (strip, _) = [trace for trace in figure.data if trace.name == "models"]
    assert [row[0] for row in strip.z] == [0 if name[0] == "a" else 1 for name in order]
    assert list(figure.layout.yaxis.ticktext) == [f"{name[0].upper()}{name[2:]}" for name in order]
    assert figure.layout.xaxis.range[1] - figure.layout.xaxis.range[0] < (
        figure.layout.xaxis2.range[1] - figure.layout.xaxis2.range[0]
    )


def test_layers_are_labelled_by_the_names_that_models_are_called() -> None:
    square = square_of({"m_1": 2, "m_2": 2})
    with figures.naming(Names(models={"m_1": "GPT <2>", "m_2": "Mamba"})):
        figure = figures.rsa_matrix(square)
    is_sound(figure)
    assert list(figure.layout.xaxis.ticktext) == ["G0", "G1", "M0", "M1"]
    (points,) = cells(figure)
    assert points.hovertext[3].startswith("GPT &lt;2&gt; 0 and Mamba 1<br>")
    assert tuple(points.customdata[3]) == ("m_1", 0, "m_2", 1)
    assert "GPT &lt;2&gt;" in {one.text for one in figure.layout.annotations}
    assert list(figures.rsa_matrix(square).layout.xaxis.ticktext) == ["Ma0", "Ma1", "Mb0", "Mb1"]


@pytest.mark.parametrize("order", ["model", "clustering"])
def test_a_similarity_that_is_nowhere_defined_is_drawn(order: str) -> None:
    for n in (1, 2, 3):
        empty = square_of({"a": n}) * np.nan
        is_sound(figures.similarity_matrices(empty, empty, order=order))
        is_sound(figures.rsa_matrix(empty, order=order))


@pytest.mark.parametrize("order", ["model", "clustering"])
@pytest.mark.parametrize("n", [2, 9])
def test_both_matrices_outline_the_pair_and_write_its_value(n: int, order: str) -> None:
    first, second = square_of({"a": n, "b": n}), -square_of({"a": n, "b": n})
    pair = (("b", 0), ("a", 1))
    figure = figures.similarity_matrices(first, second, pair=pair, order=order)
    is_sound(figure)
    for ref, square, points in zip(("", "2"), (first, second), cells(figure), strict=True):
        at = {
            (round(float(x), 3), round(float(y), 3))
            for x, y, c in zip(points.x, points.y, points.customdata, strict=True)
            if {tuple(c[:2]), tuple(c[2:])} == set(pair)
        }
        boxes = [s for s in figure.layout.shapes if s.type == "rect" and s.xref == f"x{ref}"]
        assert {(round((s.x0 + s.x1) / 2, 3), round((s.y0 + s.y1) / 2, 3)) for s in boxes} == at
        assert len(at) == 2 and {s.x1 - s.x0 for s in boxes} == {1.0}
        said = text(square.loc["a:1", "b:0"], 2)
        (label,) = [one for one in figure.layout.annotations if one.text == said]
        assert (label.xref, label.yref) == (f"x{ref}", f"y{ref}")
        assert min(max(abs(label.x - x), abs(label.y - y)) for x, y in at) <= 0.5
    without = figures.similarity_matrices(first, second, order=order)
    assert not [shape for shape in without.layout.shapes if shape.type == "rect"]


def test_a_layer_with_itself_is_outlined_once() -> None:
    figure = figures.rsa_matrix(square_of({"a": 3}), (("a", 1), ("a", 1)))
    assert len({(shape.x0, shape.y0) for shape in figure.layout.shapes}) == 1
    assert "1.00" in {one.text for one in figure.layout.annotations}


def test_the_matrix_of_rsa_tells_why_a_pair_is_flagged() -> None:
    pair = (("a", 1), ("b", 0))
    square = square_of({"a": 2, "b": 2})
    figure = figures.rsa_matrix(square, pair, {pair: "<x> changes it", pair[::-1]: "<x> too"})
    is_sound(figure)
    (points,) = cells(figure)
    (at,) = [k for k, c in enumerate(points.customdata) if tuple(c) == ("a", 1, "b", 0)]
    assert "audit: &lt;x&gt; changes it" in points.hovertext[at]
    assert not [t for t in figure.data if (t.name or "").startswith("audit")]


def test_flags_of_the_audit_stand_at_their_pairs() -> None:
    square = square_of({"a": 2, "b": 1})
    pair = (("a", 1), ("b", 0))
    both = {"rsa": {pair: "it changes", pair[::-1]: "it changes"}}
    figure = figures.similarity_matrices(
        square, square, annotations=figures.Annotations(flags=both)
    )
    is_sound(figure)
    (dots,) = [trace for trace in figure.data if (trace.name or "").startswith("audit")]
    points = cells(figure)[1]
    at = {
        (x, y)
        for x, y, c in zip(points.x, points.y, points.customdata, strict=True)
        if (tuple(c[:2]), tuple(c[2:])) in (pair, pair[::-1])
    }
    assert set(zip(dots.x, dots.y, strict=True)) == at and dots.xaxis == "x2"
    said = [sum("it changes" in one for one in trace.hovertext) for trace in cells(figure)]
    assert said == [0, 2]


def test_the_marks_of_the_audit_can_be_left_out() -> None:
    square = square_of({"a": 2, "b": 1})
    pair = (("a", 1), ("b", 0))
    both = {"rsa": {pair: "it changes"}, "tau": {pair: "so does it"}}
    with_marks = figures.similarity_matrices(
        square, square, annotations=figures.Annotations(flags=both)
    )
    without = figures.without_marks(with_marks)
    is_sound(without)
    names = [trace.name for trace in with_marks.data if not trace.name.startswith("audit")]
    assert [trace.name for trace in without.data] == names
    assert len(with_marks.data) == len(names) + 2
    assert without.layout == with_marks.layout
    importance = pd.DataFrame(
        {"model": "a", "layer": [0, 1], "fold": 0, "feature": "f", "importance": 0.2}
    )
    marked = figures.profiles(
        importance,
        importance[["model", "layer", "fold"]],
        ["f"],
        annotations=figures.Annotations(flags={("a", 1): "it changes"}),
    )
    assert "audit" in {trace.name for trace in marked.data}
    assert "audit" not in {trace.name for trace in figures.without_marks(marked).data}


@pytest.mark.parametrize("across", [1, 2])
@pytest.mark.parametrize("order", ["model", "clustering"])
def test_matrices_are_square_and_of_one_size(across: int, order: str) -> None:
    square = square_of({"a": 3, "b": 2})
    figure = figures.similarity_matrices(square, square, across=across, order=order)
    is_sound(figure)
    layout = figure.layout
    axes = [(layout.xaxis, layout.yaxis), (layout.xaxis2, layout.yaxis2)]
    assert (axes[0][0].domain == axes[1][0].domain) == (across == 1)
    wide = layout.margin.l + layout.margin.r + 800
    high = layout.height - layout.margin.t - layout.margin.b
    sizes = []
    for number, (x, y) in enumerate(axes):
        assert y.scaleanchor == ("x", "x2")[number]
        room = np.diff(x.domain or (0, 1))[0] * (wide - layout.margin.l - layout.margin.r)
        tall = np.diff(y.domain or (0, 1))[0] * high
        sizes.append(min(room / np.ptp(x.range), tall / np.ptp(y.range)))
    assert sizes[0] == pytest.approx(sizes[1])


def test_hovering_over_two_layers_tells_their_intervals() -> None:
    square = square_of({"a": 2, "b": 1})
    table = pd.DataFrame(
        {
            "layer_a": ["a:0"], "layer_b": ["b:0"],
            "weighted_tau_lower": [0.11], "weighted_tau_upper": [0.22],
            "rsa_lower": [-0.5], "rsa_upper": [0.25], "rsa_p_corrected": [0.04],
        }
    )  # fmt: skip
    figure = figures.similarity_matrices(square, square, annotations=figures.Annotations(table))
    tau, rsa = (points.hovertext for points in cells(figure))
    for cell in (2, 6):
        assert (
            "95 % interval 0.110 to 0.220" in tau[cell] and "p" not in tau[cell].split("<br>")[-1]
        )
        assert "−0.500 to 0.250" in rsa[cell] and "p = 0.040" in rsa[cell]
    assert "interval" not in rsa[0]


def test_a_matrix_that_is_not_symmetric_shows_each_value_where_it_is() -> None:
    square = square_of(COUNTS)
    square.loc[:, :] = np.random.default_rng(2).uniform(-0.9, 1.1, square.shape)
    square.iloc[1, 2] = np.nan
    first, last = square.index[0], square.index[-1]
    layers = [(name.rpartition(":")[0], int(name.rpartition(":")[2])) for name in (first, last)]
    for pair in (layers, layers[::-1]):
        figure = figures.partial_matrix(square, "held-out ρ", (pair[0], pair[1]))
        is_sound(figure)
        (heat,), (points,) = heatmaps(figure), cells(figure)
        for x, y, at in zip(points.x, points.y, points.customdata, strict=True):
            value = square.loc[f"{at[0]}:{at[1]}", f"{at[2]}:{at[3]}"]
            np.testing.assert_equal(painted(heat, x, y), value)
        assert sum("not defined" in said for said in points.hovertext) == 1
        # The value beside the outlined cell is that of the cell in which, or by which, it stands.
        said = text(square.loc[first, last], 2)
        (label,) = [one for one in figure.layout.annotations if one.text == said]
        (at,) = [
            (x, y)
            for x, y, c in zip(points.x, points.y, points.customdata, strict=True)
            if (tuple(c[:2]), tuple(c[2:])) == tuple(layers)
        ]
        assert max(abs(label.x - at[0]), abs(label.y - at[1])) <= 0.5
    is_sound(figures.partial_matrix(square * np.nan, "S_feat"))


def test_a_small_matrix_fills_half_of_a_window() -> None:
    square = square_of(COUNTS)
    small, whole = (figures.partial_matrix(square, "S_feat", small=one) for one in (True, False))
    is_sound(small)
    assert small.layout.margin.l < whole.layout.margin.l
    margin = small.layout.margin
    side = small.layout.height - margin.t - margin.b
    # As high as it is wide in a column of 350 px.
    assert abs(350 - margin.l - margin.r - side) < 30
    assert len(small.layout.annotations) < len(whole.layout.annotations)

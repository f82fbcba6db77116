"""Matrices of layers: what each cell says, where it stands, what is around them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from figure_tables import FEATURES, named, of_type, square_of
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from mlem_core import figures
from mlem_core.base.labels import Names
from mlem_core.figures.style import DIVERGING

COUNTS = {"m:x": 12, "b": 31}
PAIR = (("a", 1), ("b", 0))
ORDERS = pytest.mark.parametrize("order", ["model", "clustering"])


def heatmaps(figure: go.Figure) -> list[go.Heatmap]:
    return [trace for trace in of_type(figure, "heatmap") if trace.name != "models"]


def cells(figure: go.Figure) -> list[go.Scatter]:
    return [t for t in figure.data if (t.name or "").startswith("cells")]


def meetings(points: go.Scatter):
    """Of each cell its place, its two layers, and what it tells."""
    for x, y, at, said in zip(points.x, points.y, points.customdata, points.hovertext, strict=True):
        yield (float(x), float(y)), (tuple(at[:2]), tuple(at[2:])), said


def places_of(points: go.Scatter, *pairs: object) -> set[tuple[float, float]]:
    return {(round(x, 3), round(y, 3)) for (x, y), both, _ in meetings(points) if both in pairs}


def text(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def value_of(square: pd.DataFrame, both: tuple) -> float:
    (row, n), (column, m) = both
    return square.loc[f"{row}:{n}", f"{column}:{m}"]


def painted(heat: go.Heatmap, place: tuple[float, float]) -> float:
    """The value of the strip that a point is in."""
    column, row = (
        int(np.searchsorted(ends, at) - 1) for ends, at in zip((heat.x, heat.y), place, strict=True)
    )
    return float(heat.z[row][column])


def inside(figure: go.Figure) -> float:
    """The height of the panels in pixels."""
    return figure.layout.height - figure.layout.margin.t - figure.layout.margin.b


@ORDERS
def test_each_cell_is_painted_told_and_chosen_where_its_layers_meet(order: str) -> None:
    squares = square_of(COUNTS), square_of(COUNTS, 3)
    squares[1].iloc[0, 3] = squares[1].iloc[3, 0] = np.nan
    figure = figures.similarity_matrices(*squares, order=order)
    units = ("weighted Kendall τ", "Spearman ρ")
    for heat, points, square, unit in zip(
        heatmaps(figure), cells(figure), squares, units, strict=True
    ):
        assert len(points.x) == square.size
        assert np.isfinite(heat.z).sum() == np.isfinite(square.to_numpy()).sum()
        for place, both, said in meetings(points):
            value, ((a, n), (b, m)) = value_of(square, both), both
            np.testing.assert_equal(painted(heat, place), value)
            number = text(value) if np.isfinite(value) else "not defined"
            assert said == f"{a} {n} and {b} {m}<br>{unit} = {number}"


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


def test_models_and_layers_that_are_left_out_stand_apart() -> None:
    figure = figures.rsa_matrix(square_of({"bert": [0, 3, 6], "gpt": [4, 5]}))
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
    own = [one for one in figure.layout.annotations if one.text == "bert"]
    assert {(one.xref, one.yref) for one in own} == {("x", "y domain"), ("x domain", "y")}
    assert own[0].x == pytest.approx((edges[0] + edges[5]) / 2)


def test_ticks_and_names_of_many_do_not_stand_on_each_other() -> None:
    square = square_of({"a": 60, "b": 1})
    figure = figures.similarity_matrices(square, square)
    names = figure.layout.yaxis.ticktext
    assert names[0] == "A0" and names[-1] == "B0"
    models = figures.rsa_matrix(
        square_of({f"a model with a long name {i:02d}": 1 for i in range(40)})
    )
    beside = sorted(one.y for one in models.layout.annotations if one.xref == "x domain")
    assert len({one.text for one in models.layout.annotations}) == len(beside) > 10
    for drawn, at in ((figure, figure.layout.yaxis.tickvals), (models, beside)):
        assert np.diff(at).min() * inside(drawn) / np.ptp(drawn.layout.yaxis.range) >= 11


def test_the_order_by_clustering_is_that_of_scipy_with_its_tree() -> None:
    rsa = square_of({"a": 6, "b": 5})
    tree = linkage(squareform(1 - rsa.to_numpy(), checks=False), "average", optimal_ordering=True)
    order = [rsa.index[row] for row in leaves_list(tree)]
    figure = figures.similarity_matrices(square_of({"a": 6, "b": 5}, 9), rsa, order="clustering")
    for points in cells(figure):
        diagonal = points.customdata[:: len(rsa) + 1]
        assert [f"{model}:{layer}" for model, layer, *_ in diagonal] == order
    (line,) = named(figure, "dendrogram")
    assert line.xaxis == "x2" and line.yaxis == "y2"
    x = np.array([at for at in line.x if at is not None]).reshape(-1, 4)
    y = np.array([at for at in line.y if at is not None]).reshape(-1, 4)
    # A merger is as far from the cells as SciPy says, the last one furthest.
    cells_end = x.min()
    far = (x[:, 1] - cells_end) / (x[:, 1].max() - cells_end) * tree[-1, 2]
    np.testing.assert_allclose(np.sort(far), tree[:, 2])
    assert cells_end > max(np.asarray(heatmaps(figure)[1].x))
    # Its leaves are at the cells.
    leaves = y[:, [0, 3]][x[:, [0, 3]] == cells_end]
    assert set(leaves.round(6).tolist()) == set(range(len(rsa)))
    (strip, _) = named(figure, "models")
    assert [row[0] for row in strip.z] == [0 if name[0] == "a" else 1 for name in order]
    assert list(figure.layout.yaxis.ticktext) == [f"{name[0].upper()}{name[2:]}" for name in order]
    assert np.ptp(figure.layout.xaxis.range) < np.ptp(figure.layout.xaxis2.range)


def test_layers_are_labelled_by_the_names_that_models_are_called() -> None:
    square = square_of({"m_1": 2, "m_2": 2})
    with figures.naming(Names(models={"m_1": "GPT <2>", "m_2": "Mamba"})):
        figure = figures.rsa_matrix(square)
    assert list(figure.layout.xaxis.ticktext) == ["G0", "G1", "M0", "M1"]
    assert cells(figure)[0].hovertext[3].startswith("GPT &lt;2&gt; 0 and Mamba 1<br>")
    assert "GPT &lt;2&gt;" in {one.text for one in figure.layout.annotations}
    assert list(figures.rsa_matrix(square).layout.xaxis.ticktext) == ["Ma0", "Ma1", "Mb0", "Mb1"]


@ORDERS
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_similarity_that_is_nowhere_defined_is_drawn_empty(order: str, n: int) -> None:
    empty = square_of({"a": n}) * np.nan
    both = figures.similarity_matrices(empty, empty, order=order)
    for figure in (both, figures.rsa_matrix(empty, order=order)):
        assert all(not np.isfinite(np.array(heat.z, float)).any() for heat in heatmaps(figure))


@ORDERS
@pytest.mark.parametrize("n", [2, 9])
def test_both_matrices_outline_the_pair_and_write_its_value(n: int, order: str) -> None:
    squares = square_of({"a": n, "b": n}), -square_of({"a": n, "b": n})
    figure = figures.similarity_matrices(*squares, pair=PAIR[::-1], order=order)
    for ref, square, points in zip(("", "2"), squares, cells(figure), strict=True):
        at = places_of(points, PAIR, PAIR[::-1])
        boxes = [s for s in figure.layout.shapes if s.type == "rect" and s.xref == f"x{ref}"]
        assert {(round((s.x0 + s.x1) / 2, 3), round((s.y0 + s.y1) / 2, 3)) for s in boxes} == at
        assert len(at) == 2 and {s.x1 - s.x0 for s in boxes} == {1.0}
        said = text(square.loc["a:1", "b:0"], 2)
        (label,) = [one for one in figure.layout.annotations if one.text == said]
        assert (label.xref, label.yref) == (f"x{ref}", f"y{ref}")
        assert min(max(abs(label.x - x), abs(label.y - y)) for x, y in at) <= 0.5
    without = figures.similarity_matrices(*squares, order=order)
    assert not [shape for shape in without.layout.shapes if shape.type == "rect"]


def test_a_layer_with_itself_is_outlined_once() -> None:
    figure = figures.rsa_matrix(square_of({"a": 3}), (("a", 1), ("a", 1)))
    assert len({(shape.x0, shape.y0) for shape in figure.layout.shapes}) == 1
    assert "1.00" in {one.text for one in figure.layout.annotations}


def test_flags_of_the_audit_stand_at_their_pairs_and_can_be_left_out() -> None:
    square = square_of({"a": 2, "b": 1})
    flags = {"rsa": {PAIR: "<x> changes", PAIR[::-1]: "<x> changes"}}
    figure = figures.similarity_matrices(
        square, square, annotations=figures.Annotations(flags=flags)
    )
    (dots,) = [trace for trace in figure.data if (trace.name or "").startswith("audit")]
    at = places_of(cells(figure)[1], PAIR, PAIR[::-1])
    places = {(round(float(x), 3), round(float(y), 3)) for x, y in zip(dots.x, dots.y, strict=True)}
    assert places == at and dots.xaxis == "x2"
    said = [sum("&lt;x&gt; changes" in one for one in each.hovertext) for each in cells(figure)]
    assert said == [0, 2]
    without = figures.without_marks(figure)
    assert [t.name for t in without.data] == [t.name for t in figure.data if t is not dots]
    assert without.layout == figure.layout
    # The large matrix has no dots, and says why on hovering.
    alone = figures.rsa_matrix(square, PAIR, flags["rsa"])
    (points,) = cells(alone)
    (reason,) = [told for _, both, told in meetings(points) if both == PAIR]
    assert "&lt;x&gt; changes" in reason
    assert not [t for t in alone.data if (t.name or "").startswith("audit")]
    importance = pd.DataFrame(
        {"model": "a", "layer": [0, 1], "fold": 0, "feature": "f", "importance": 0.2}
    )
    marked = figures.profiles(
        importance,
        importance[["model", "layer", "fold"]],
        ["f"],
        annotations=figures.Annotations(flags={("a", 1): "it changes"}),
    )
    assert named(marked, "audit") and not named(figures.without_marks(marked), "audit")


@pytest.mark.parametrize("across", [1, 2])
@ORDERS
def test_matrices_are_square_and_of_one_size(across: int, order: str) -> None:
    square = square_of({"a": 3, "b": 2})
    figure = figures.similarity_matrices(square, square, across=across, order=order)
    layout, sizes = figure.layout, []
    assert (layout.xaxis.domain == layout.xaxis2.domain) == (across == 1)
    for x, y, anchor in ((layout.xaxis, layout.yaxis, "x"), (layout.xaxis2, layout.yaxis2, "x2")):
        assert y.scaleanchor == anchor
        room = np.diff(x.domain or (0, 1))[0] * 800
        tall = np.diff(y.domain or (0, 1))[0] * inside(figure)
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
        assert "0.110 to 0.220" in tau[cell] and "p" not in tau[cell].split("<br>")[-1]
        assert "−0.500 to 0.250" in rsa[cell] and "p = 0.040" in rsa[cell]
    assert "interval" not in rsa[0]


def test_a_matrix_that_is_not_symmetric_shows_each_value_where_it_is() -> None:
    square = square_of(COUNTS)
    square.loc[:, :] = np.random.default_rng(2).uniform(-0.9, 1.1, square.shape)
    square.iloc[1, 2] = np.nan
    layers = (("m:x", 0), ("b", 30))
    for pair in (layers, layers[::-1]):
        figure = figures.partial_matrix(square, "held-out ρ", pair)
        (heat,), (points,) = heatmaps(figure), cells(figure)
        for place, both, _ in meetings(points):
            np.testing.assert_equal(painted(heat, place), value_of(square, both))
        assert sum("not defined" in said for said in points.hovertext) == 1
        # The value beside the outlined cell is that of the cell in which, or by which, it stands.
        said = text(value_of(square, layers), 2)
        (label,) = [one for one in figure.layout.annotations if one.text == said]
        ((x, y),) = places_of(points, layers)
        assert max(abs(label.x - x), abs(label.y - y)) <= 0.5
    empty = figures.partial_matrix(square * np.nan, "S_feat")
    assert all("not defined" in said for said in cells(empty)[0].hovertext)


def test_a_small_matrix_fills_half_of_a_window() -> None:
    square = square_of(COUNTS)
    small, whole = (figures.partial_matrix(square, "S_feat", small=one) for one in (True, False))
    margin = small.layout.margin
    assert margin.l < whole.layout.margin.l
    # As high as it is wide in a column of 350 px.
    assert abs(350 - margin.l - margin.r - inside(small)) < 30
    assert len(small.layout.annotations) < len(whole.layout.annotations)


def test_the_matrix_of_groups_has_every_pair_once_with_its_interval() -> None:
    rows = [
        ("g", "g", 3, 0.9, 0.8, 0.95),
        ("g", "h", 3, -0.2, -0.5, 0.1),
        ("h", "h", 0, np.nan, np.nan, np.nan),
    ]
    columns = ["group_a", "group_b", "pairs", "rsa", "lower", "upper"]
    figure = figures.group_similarity(pd.DataFrame(rows, columns=columns))
    (heatmap,) = figure.data
    np.testing.assert_allclose(heatmap.z, [[0.9, np.nan], [-0.2, np.nan]])
    texts = {(one.x, one.y): one for one in figure.layout.annotations}
    assert set(texts) == {(0, 0), (0, 1), (1, 1)}
    assert "0.90" in texts[0, 0].text and "0.80 to 0.95" in texts[0, 0].text
    assert "−0.20" in texts[0, 1].text and texts[1, 1].text == "one model"
    # Light on dark, dark on light.
    assert texts[0, 0].font.color == "white" != texts[0, 1].font.color
    assert "3 pairs of models" in heatmap.hovertext[1][0] and "−0.500" in heatmap.hovertext[1][0]
    # Many groups have values and no intervals in their cells.
    for n, written in ((6, "0.40"), (7, "0.50"), (13, None)):
        many = [(f"g{a}", f"g{b}", 1, 0.5, 0.4, 0.6) for a in range(n) for b in range(a, n)]
        drawn = figures.group_similarity(pd.DataFrame(many, columns=columns))
        texts = [one.text for one in drawn.layout.annotations]
        assert all(written in text for text in texts) and ("0.40" in str(texts)) == (n == 6)
        assert bool(texts) == (written is not None)


def test_correlations_show_the_lower_triangle_with_its_numbers() -> None:
    square = pd.DataFrame(
        [[1, 0.25, -0.001], [0.25, 1, np.nan], [-0.001, np.nan, 1]],
        index=FEATURES,
        columns=FEATURES,
    )
    figure = figures.feature_correlations(square)
    (heat,) = figure.data
    np.testing.assert_array_equal(heat.z, [[0.25, np.nan], [-0.001, np.nan]])
    assert [list(row) for row in heat.text] == [["0.25", ""], ["0.00", "not defined"]]
    assert list(figure.layout.xaxis.ticktext) == ["pos", "tense"]
    assert list(figure.layout.yaxis.ticktext) == ["tense", "number"]
    figures.feature_correlations(square.iloc[:1, :1])


def test_matrices_of_terms_share_one_scale_about_0_and_leave_the_diagonal_blank() -> None:
    terms = {
        term: square_of({"a": 2, "b": 1}, seed)
        for seed, term in enumerate((*FEATURES, "unexplained"))
    }
    figure = figures.term_matrices(terms)
    assert [trace.name for trace in figure.data] == list(terms)
    off = ~np.eye(3, dtype=bool)
    for trace, square in zip(figure.data, terms.values(), strict=True):
        np.testing.assert_allclose(np.array(trace.z)[off], square.to_numpy()[off])
        assert np.isnan(np.diag(np.array(trace.z, dtype=float))).all()
    largest = {term: np.abs(m.to_numpy()[off]).max() for term, m in terms.items()}
    for axis, expected in (
        (figure.layout.coloraxis, max(largest[feature] for feature in FEATURES)),
        (figure.layout.coloraxis2, largest["unexplained"]),
    ):
        assert axis.cmax == -axis.cmin == pytest.approx(expected)


@pytest.mark.parametrize("n_features", [1, 2, 8])
def test_the_bars_of_both_scales_stand_one_above_the_other(n_features: int) -> None:
    names = [*(f"feature {k}" for k in range(n_features)), "unexplained"]
    layout = figures.term_matrices(dict.fromkeys(names, square_of({"a": 1, "b": 1}))).layout
    upper, lower = layout.coloraxis.colorbar, layout.coloraxis2.colorbar
    room = layout.height - layout.margin.t - layout.margin.b
    assert upper.y - upper.len / room > lower.y + 20 / room
    assert lower.y - lower.len / room > -40 / room and upper.len >= 50


def similarity_changes(largest: float) -> pd.DataFrame:
    """Of three pairs, the first changes most, the second half as much the other way."""
    pairs = list(combinations(["m:0", "m:1", "other:0"], 2))
    table = pd.DataFrame(pairs, columns=["layer_a", "layer_b"])
    value = largest * np.array([1.0, -0.5, 0.0])
    for name in ("rsa", "weighted_tau"):
        table = table.assign(**{
            f"{name}_first": 0.5 + value, f"{name}_second": 0.5, f"{name}_difference": value,
            f"{name}_lower": value - 0.01, f"{name}_upper": value + 0.01,
        })  # fmt: skip
    return table.assign(rsa_p=0.01, rsa_p_corrected=[0.01, 0.3, 0.9])


def test_differences_of_similarity_are_signed_about_0() -> None:
    figure = figures.similarity_differences(similarity_changes(0.5))
    drawn = of_type(figure, "heatmap")
    assert len(drawn) == 2
    for trace in drawn:
        square = np.array(trace.z, dtype=float)
        np.testing.assert_array_equal(np.isnan(square), np.eye(3, dtype=bool))
        assert square[0, 1] == square[1, 0] == 0.5 and square[2, 0] == -0.25
        assert "0.490 to 0.510" in trace.hovertext[0][1]
    scale = figure.layout.coloraxis
    assert scale.cmin == -scale.cmax == -0.5
    assert [color for _, color in scale.colorscale] == [color for _, color in DIVERGING]
    # The one pair whose difference of RSA is not 0 has a dot, on both sides.
    (dots,) = of_type(figure, "scatter")
    assert sorted(zip(dots.x, dots.y, strict=True)) == [(0, 1), (1, 0)]
    # Small differences are not painted as large ones.
    scale = figures.similarity_differences(similarity_changes(0.001)).layout.coloraxis
    assert (scale.cmin, scale.cmax) == (-0.2, 0.2)

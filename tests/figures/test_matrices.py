"""Matrices and maps of layers: all stands where its table says."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from helpers.figure_tables import FEATURES, layer_map_of, named, of_type, square_of
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from mlem_core.base.typing import parse_layer
from mlem_core.figures.maps import layer_maps, nearest_layers
from mlem_core.figures.matrix import grid, labels
from mlem_core.figures.similarity import similarity_matrices
from mlem_core.figures.stimuli import feature_correlations
from mlem_core.figures.terms import term_matrices

COUNTS = {"m:x": 12, "b": 31}
ORDERS = pytest.mark.parametrize("order", ["model", "clustering"])


def heatmaps(figure):
    return [trace for trace in of_type(figure, "heatmap") if trace.name != "models"]


def cells(figure):
    return [t for t in figure.data if (t.name or "").startswith("cells")]


def meetings(points):
    """Of each cell its place, its two layers, and what it tells."""
    for x, y, at, said in zip(points.x, points.y, points.customdata, points.hovertext, strict=True):
        yield (float(x), float(y)), (tuple(at[:2]), tuple(at[2:])), said


def places_of(points, *pairs):
    return {(round(x, 3), round(y, 3)) for (x, y), both, _ in meetings(points) if both in pairs}


def value_of(square, both):
    (row, n), (column, m) = both
    return square.loc[f"{row}:{n}", f"{column}:{m}"]


def painted(heat, place):
    """The value of the strip that a point is in."""
    column, row = np.searchsorted(heat.x, place[0]) - 1, np.searchsorted(heat.y, place[1]) - 1
    return float(heat.z[row][column])


@ORDERS
def test_each_cell_is_painted_told_and_chosen_where_its_layers_meet(order):
    squares = square_of(COUNTS), square_of(COUNTS, 3)
    squares[1].iloc[0, 3] = squares[1].iloc[3, 0] = np.nan
    figure = similarity_matrices(*squares, order=order)
    units = ("weighted Kendall τ", "RSA, ρ")
    drawn = zip(heatmaps(figure), cells(figure), squares, units, strict=True)
    for heat, points, square, unit in drawn:
        assert len(points.x) == square.size
        assert np.isfinite(heat.z).sum() == np.isfinite(square.to_numpy()).sum()
        for place, both, said in meetings(points):
            value, ((a, n), (b, m)) = value_of(square, both), both
            assert painted(heat, place) == pytest.approx(value, rel=1e-6, nan_ok=True)
            number = f"{value:.3f}".replace("-", "−") if np.isfinite(value) else "not defined"
            assert said == f"{a} {n} and {b} {m}<br>{unit} = {number}".replace("0.", ".")


def test_of_many_layers_runs_are_drawn_and_the_page_stays_small():
    rsa = square_of({f"m{k}": 25 for k in range(43)})
    figure = similarity_matrices(rsa, rsa)
    terms = term_matrices({f"f{k}": rsa for k in range(9)})
    assert max(len(one.to_json()) for one in (figure, terms)) < 5e6
    heat = heatmaps(figure)[1]
    np.testing.assert_allclose(heat.z[0, 1], rsa.to_numpy()[:3, 3:6].mean(), rtol=1e-5)


def test_the_order_by_clustering_is_that_of_scipy_with_its_tree():
    rsa = square_of({"a": 6, "b": 5})
    tree = linkage(squareform(1 - rsa.to_numpy(), checks=False), "average", optimal_ordering=True)
    order = [rsa.index[row] for row in leaves_list(tree)]
    figure = similarity_matrices(square_of({"a": 6, "b": 5}, 9), rsa, order="clustering")
    for points in cells(figure):
        diagonal = points.customdata[:: len(rsa) + 1]
        assert [f"{model}:{layer}" for model, layer, *_ in diagonal] == order
    (line,) = named(figure, "dendrogram")
    x = np.array([at for at in line.x if at is not None]).reshape(-1, 4)
    # A merger is as far from the cells as SciPy says, the last one furthest.
    far = (x[:, 1] - x.min()) / (x[:, 1].max() - x.min()) * tree[-1, 2]
    np.testing.assert_allclose(np.sort(far), tree[:, 2])


def test_cells_that_chance_reaches_are_grey_and_have_a_key():
    square = square_of({"a": 2, "b": 1})
    ends = {"weighted_tau_lower": [0.1, -0.1], "weighted_tau_upper": 0.3, "rsa_lower": 0.1}
    pairs = {"layer_a": ["a:0", "a:1"], "layer_b": "b:0", "rsa_upper": 0.3}
    table = pd.DataFrame({**pairs, **ends, "rsa_p_corrected": [0.06, 0.04]})
    figure = similarity_matrices(square, square, intervals=table)
    grey = {"x": {("a:1", "b:0")}, "x2": {("a:0", "b:0")}}
    for heat, points in zip(named(figure, "not above chance"), cells(figure), strict=True):
        pairs = {
            tuple(sorted(f"{model}:{layer}" for model, layer in both))
            for place, both, _ in meetings(points)
            if np.isfinite(painted(heat, place))
        }
        assert pairs == grey[heat.xaxis]
    assert any("not above chance" in note.text for note in figure.layout.annotations)


def test_names_of_families_stand_once_and_their_seeds_inside_them():
    counts = {"a": 3, "a@seed1": 3, "a@seed2": 3, "b@step8": 2, "b": 2, "c": 4}
    of = grid([parse_layer(name) for name in square_of(counts).index], "model", np.eye(17))
    around = labels(of)
    assert around.ticks["ticktext"] == ["0", "1", "2", "8", "trained"]
    assert [name for _, name in around.names] == ["a", "b", "c"]
    middles = {name: middle for middle, name in around.names}
    assert middles["a"] == pytest.approx(around.ticks["tickvals"][1])
    assert list(labels(grid([("a", 0), ("b", 1)], "model", np.eye(2))).ticks["ticktext"]) == [
        "0",
        "1",
    ]


def test_the_nearest_layers_are_those_of_another_family():
    square = square_of({"a": 2, "a@seed1": 1, "b": 2}) * 0.0
    for pair, value in {
        ("a:0", "a@seed1:0"): 0.9,
        ("a:1", "b:0"): 0.4,
        ("a@seed1:0", "b:1"): 0.3,
    }.items():
        square.loc[pair] = square.loc[pair[::-1]] = value
    lines = ["a layer 1 and b layer 0: .40", "a, seed 1, layer 0 and b layer 1: .30"]
    assert nearest_layers(square) == lines


def test_hovering_over_two_layers_tells_their_intervals():
    square = square_of({"a": 2, "b": 1})
    tau = {"weighted_tau_lower": 0.11, "weighted_tau_upper": 0.22}
    rsa = {"rsa_lower": -0.5, "rsa_upper": 0.25, "rsa_p_corrected": 0.04}
    table = pd.DataFrame([{"layer_a": "a:0", "layer_b": "b:0", **tau, **rsa}])
    figure = similarity_matrices(square, square, intervals=table)
    tau, rsa = (points.hovertext for points in cells(figure))
    for cell in (2, 6):
        assert ".110 to .220" in tau[cell] and "p" not in tau[cell].split("<br>")[-1]
        assert "−.500 to .250" in rsa[cell] and "p = .040" in rsa[cell]
    assert "interval" not in rsa[0]


def test_correlations_show_the_lower_triangle_with_its_numbers():
    values = [[1, 0.25, -0.001], [0.25, 1, np.nan], [-0.001, np.nan, 1]]
    square = pd.DataFrame(values, index=FEATURES, columns=FEATURES)
    (heat,) = feature_correlations(square).data
    np.testing.assert_array_equal(heat.z, [[0.25, np.nan], [-0.001, np.nan]])
    assert [list(row) for row in heat.text] == [[".25", ""], [".00", "not defined"]]


def test_matrices_of_terms_share_one_scale_and_leave_the_diagonal_blank():
    names = (*FEATURES, "unexplained")
    terms = {term: square_of({"a": 2, "b": 1}, seed) for seed, term in enumerate(names)}
    figure = term_matrices(terms)
    assert [trace.name for trace in figure.data] == list(terms)
    off = ~np.eye(3, dtype=bool)
    for trace, square in zip(figure.data, terms.values(), strict=True):
        np.testing.assert_allclose(np.array(trace.z)[off], square.to_numpy()[off])
        assert np.isnan(np.diag(np.array(trace.z, dtype=float))).all()
    largest = max(np.abs(terms[feature].to_numpy()[off]).max() for feature in FEATURES)
    assert figure.layout.coloraxis.cmax == -figure.layout.coloraxis.cmin == pytest.approx(largest)


def test_layer_maps_have_a_point_a_layer_and_equal_scales():
    table = layer_map_of({"a": (2, 0, 1), "b": (2, 0, 1)})
    figure = layer_maps(table)
    of_traces = list(product(("profiles", "rsa"), ("a", "b")))
    for trace, (measure, model) in zip(figure.data, of_traces, strict=True):
        own = table[(table["measure"] == measure) & (table["model"] == model)]
        own = own.sort_values("layer")
        np.testing.assert_array_equal(trace.x, own["x"])
        np.testing.assert_array_equal(trace.y, own["y"])
        assert list(trace.hovertext) == [f"{model} layer {n}" for n in (0, 1, 2)]

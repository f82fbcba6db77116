"""Maps of layers, of stimuli and of values: every point is where its table says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from figure_tables import FEATURES, importance_of, layer_map_of, named

from mlem_core import figures
from mlem_core.measures.nested import nested_groups, outlines

BY = ["<b>one</b>", "two"]


def four(values: list) -> pd.DataFrame:
    """Four stimuli with these values of a feature `f`."""
    points = pd.DataFrame({"stimulus": [4, 7, 9, 11], "x": [0.0, 1, 2, 3], "y": [3.0, 2, 1, 0]})
    return points.assign(label=["one", "two", "three", "four"], f=values)


def nested_points(n: int = 60, levels: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((n, 2)), columns=["x", "y"])
    first = [f"u{i}" for i in rng.integers(0, levels, n)]
    second = [f"v{i}" for i in rng.integers(0, 2, n)]
    table = table.assign(**dict(zip(BY, (first, second), strict=True)), stimulus=range(n))
    table.loc[::9, BY[1]] = None
    table.loc[::13, BY[0]] = None
    return table.assign(label="l <i>")


def nested(points: pd.DataFrame):
    return figures.nested_map(
        points, nested_groups(points, BY), BY, outlines(points, BY), "t", 0.12
    )


def places(traces) -> dict[int, tuple[float, float]]:
    return {
        int(row[0]): (x, y)
        for trace in traces
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }


def test_layer_maps_have_a_point_a_layer_and_equal_scales() -> None:
    table = layer_map_of({"a": (2, 0, 1), "b": (2, 0, 1)})
    figure = figures.layer_maps(table)
    of_traces = list(product(("profiles", "rsa"), ("a", "b")))
    for trace, (measure, model) in zip(figure.data, of_traces, strict=True):
        own = table[(table["measure"] == measure) & (table["model"] == model)]
        own = own.sort_values("layer")
        np.testing.assert_array_equal(trace.x, own["x"])
        np.testing.assert_array_equal(trace.y, own["y"])
        assert [list(c) for c in trace.customdata] == [[model, n] for n in (0, 1, 2)]
    layout = figure.layout
    for x, y in ((layout.xaxis, layout.yaxis), (layout.xaxis2, layout.yaxis2)):
        assert np.ptp(x.range) == pytest.approx(np.ptp(y.range))


@pytest.mark.parametrize("across", [1, 2])
def test_layer_maps_stand_beside_or_below_each_other(across: int) -> None:
    layout = figures.layer_maps(layer_map_of({"a": range(3)}), across=across).layout
    assert (layout.xaxis.domain == layout.xaxis2.domain) == (across == 1)
    assert (layout.yaxis.scaleanchor, layout.yaxis2.scaleanchor) == ("x", "x2")


def test_hovering_over_a_layer_tells_its_profile() -> None:
    importance = importance_of()
    (text,) = figures.layer_maps(layer_map_of({"a": [2]}), importance).data[0].hovertext
    own = importance[(importance["model"] == "a") & (importance["layer"] == 2)]
    means = own.groupby("feature")["importance"].mean().sort_values(ascending=False)
    told = [text.index(f"{name}: FI = {value:.3f}") for name, value in means.items()]
    assert told == sorted(told) and "a layer 2" in text


def test_the_stress_of_a_map_stands_below_it() -> None:
    figure = figures.layer_maps(
        layer_map_of({"a": range(3)}), stress={"rsa": 0.21, "profiles": 0.03}
    )
    below = {one.xref: one.text for one in figure.layout.annotations if one.y == 0}
    assert below == {"x domain": "stress 0.03 (excellent)", "x2 domain": "stress 0.21 (poor)"}
    points = four(["u", "v", "v", "v"])
    maps = [figures.stimulus_map(points, "f", "nominal", "t", stress=s) for s in (0.1, np.nan)]
    assert [len(one.layout.annotations) for one in maps] == [1, 0]
    scatter = figures.importance_scatter(importance_of(), (("a", 2), ("b", 1)), FEATURES, 0.1, 0.5)
    both = figures.two_layers(scatter, (maps[0], maps[1]))
    (said,) = [one for one in both.layout.annotations if "stress" in one.text]
    assert (said.xref, said.yref, said.text) == ("x2 domain", "y2 domain", "stress 0.10 (fair)")


@pytest.mark.parametrize(
    ("kind", "values"), [("ordered", [1.0, 2.5, np.nan, 2.5]), ("nominal", ["u", "v", None, "v"])]
)
def test_every_stimulus_is_on_its_map_and_missing_ones_are_grey(kind: str, values: list) -> None:
    figure = figures.stimulus_map(four(values), "f", kind, "a layer")
    assert places(figure.data) == {4: (0, 3), 7: (1, 2), 9: (2, 1), 11: (3, 0)}
    (missing,) = named(figure, "missing")
    assert missing.marker.color == figures.GREY
    assert list(missing.hovertext) == ["three<br>f: missing"]


def test_forty_levels_are_drawn_as_the_commonest_and_the_rest() -> None:
    levels = [f"l{i:02d}" for i in range(40)]
    cells = [level for i, level in enumerate(levels) for _ in range(40 - i)]
    points = pd.DataFrame({"stimulus": range(len(cells)), "f": cells, "label": cells})
    points = points.assign(x=np.arange(len(cells)), y=0.0)
    figure = figures.stimulus_map(points, "f", "nominal", "t")
    assert [t.name for t in figure.data] == [*levels[:15], "25 other values"]
    assert sum(len(t.x) for t in figure.data) == len(cells)
    looks = {(t.marker.color, t.marker.symbol) for t in figure.data}
    assert len(looks) == len(figure.data)
    (bars,) = figures.feature_counts(points, [("f", "nominal")]).data
    assert sum(bars.y) == len(cells) and bars.y[:2] == (40, 39)


def test_a_nested_map_has_every_stimulus_and_every_centre() -> None:
    points = nested_points()
    figure, groups = nested(points), nested_groups(points, BY)
    seen = places(named(figure, "stimuli"))
    np.testing.assert_array_equal([seen[i] for i in range(len(points))], points[["x", "y"]])
    (centres,) = named(figure, "centres")
    np.testing.assert_array_equal(np.column_stack([centres.x, centres.y]), groups[["x", "y"]])
    ends = sum(sum(x is None for x in t.x) for t in named(figure, "branches"))
    assert ends == (groups["depth"] == 2).sum() == 6
    assert len(named(figure, "outline")) == 3
    (said,) = [one.text for one in figure.layout.annotations]
    shares = groups.groupby("depth")["between"].first()
    assert "stress 0.12 (fair)" in said
    assert all(f"{share:.0%}".replace("%", " %").replace("-", "−") in said for share in shares)
    assert "u0" in centres.hovertext[0] and f"{groups['n'].iloc[0]} stimuli" in centres.hovertext[0]
    headings = {trace.legendgrouptitle.text for trace in figure.data if trace.showlegend is None}
    assert len(headings) == 2 and not any("<b>" in text for text in headings)


def test_rare_levels_of_a_nested_map_are_grey_and_marked_stimuli_stand_out() -> None:
    points = nested_points(400, levels=12).assign(marked=lambda t: t["stimulus"] == 5)
    stimuli = named(nested(points), "stimuli")
    colors = {trace.marker.color for trace in stimuli}
    assert figures.GREY in colors and len(colors) == 9
    sizes = {
        row[0]: size
        for trace in stimuli
        for row, size in zip(trace.customdata, trace.marker.size, strict=True)
    }
    assert [at for at, size in sizes.items() if size == 9] == [5]


def test_maps_of_many_layers_have_a_panel_each_and_one_legend() -> None:
    points = nested_points(levels=2)
    maps = [
        figures.stimulus_map(points, BY[0], "nominal", f"layer {n}", stress=n / 10)
        for n in range(5)
    ]
    figure = figures.map_panels(maps, across=3)
    assert len(figure.data) == sum(len(one.data) for one in maps)
    assert {trace.xaxis for trace in figure.data} == {"x", "x2", "x3", "x4", "x5"}
    shown = [trace.name for trace in figure.data if trace.showlegend]
    assert sorted(shown) == sorted({trace.name for one in maps for trace in one.data})
    texts = [one.text for one in figure.layout.annotations]
    assert [text for text in texts if text.startswith("layer")] == [f"layer {n}" for n in range(5)]
    assert "stress 0.40 (poor)" in texts
    assert figure.layout.yaxis5.scaleanchor == "x5"
    assert figure.layout.xaxis4.range == maps[3].layout.xaxis.range
    scale = figures.stimulus_map(points.assign(n=1.0), "n", "ordered", "t")
    both = figures.map_panels([scale, scale])
    bars = [trace.marker.showscale for trace in both.data if trace.marker.colorbar.title.text]
    assert bars == [True, False]

"""Maps of layers, of stimuli and of values: every point is where its table says."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from figure_tables import layer_map_of, named

from mlem_core import figures
from mlem_core.measures.nested import nested_groups, outlines

BY = ["<b>one</b>", "two"]


def four(values):
    """Four stimuli with these values of a feature `f`."""
    points = pd.DataFrame({"stimulus": [4, 7, 9, 11], "x": [0.0, 1, 2, 3], "y": [3.0, 2, 1, 0]})
    return points.assign(label=["one", "two", "three", "four"], f=values)


def nested_points(n=60):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((n, 2)), columns=["x", "y"]).assign(stimulus=range(n))
    table[BY[0]] = [f"u{i}" for i in rng.integers(0, 3, n)]
    table[BY[1]] = [f"v{i}" for i in rng.integers(0, 2, n)]
    table.loc[::9, BY[1]] = None
    table.loc[::13, BY[0]] = None
    return table.assign(label="l <i>")


def places(traces):
    return {
        int(row[0]): (x, y)
        for trace in traces
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }


def test_layer_maps_have_a_point_a_layer_and_equal_scales():
    table = layer_map_of({"a": (2, 0, 1), "b": (2, 0, 1)})
    figure = figures.layer_maps(table)
    of_traces = list(product(("profiles", "rsa"), ("a", "b")))
    for trace, (measure, model) in zip(figure.data, of_traces, strict=True):
        own = table[(table["measure"] == measure) & (table["model"] == model)]
        own = own.sort_values("layer")
        np.testing.assert_array_equal(trace.x, own["x"])
        np.testing.assert_array_equal(trace.y, own["y"])
        assert [list(c) for c in trace.customdata] == [[model, n] for n in (0, 1, 2)]


@pytest.mark.parametrize(
    ("kind", "values"), [("ordered", [1.0, 2.5, np.nan, 2.5]), ("nominal", ["u", "v", None, "v"])]
)
def test_every_stimulus_is_on_its_map_and_missing_ones_are_grey(kind, values):
    figure = figures.stimulus_map(four(values), "f", kind, "a layer")
    assert places(figure.data) == {4: (0, 3), 7: (1, 2), 9: (2, 1), 11: (3, 0)}
    (missing,) = named(figure, "missing")
    assert missing.marker.color == figures.GREY
    assert list(missing.hovertext) == ["three<br>f: missing"]


def test_forty_levels_are_drawn_as_the_commonest_and_the_rest():
    levels = [f"l{i:02d}" for i in range(40)]
    cells = [level for i, level in enumerate(levels) for _ in range(40 - i)]
    points = pd.DataFrame({"stimulus": range(len(cells)), "f": cells, "label": cells})
    points = points.assign(x=np.arange(len(cells)), y=0.0)
    figure = figures.stimulus_map(points, "f", "nominal", "t")
    assert [t.name for t in figure.data] == [*levels[:15], "25 other values"]
    assert sum(len(t.x) for t in figure.data) == len(cells)


def test_a_nested_map_has_every_stimulus_and_every_centre():
    points = nested_points()
    groups = nested_groups(points, BY)
    figure = figures.nested_map(points, groups, BY, outlines(points, BY), "t", 0.12)
    seen = places(named(figure, "stimuli"))
    np.testing.assert_array_equal([seen[i] for i in range(len(points))], points[["x", "y"]])
    (centres,) = named(figure, "centres")
    np.testing.assert_array_equal(np.column_stack([centres.x, centres.y]), groups[["x", "y"]])
    (said,) = [one.text for one in figure.layout.annotations]
    shares = groups.groupby("depth")["between"].first()
    assert "stress 0.12 (fair)" in said
    assert all(f"{share:.0%}".replace("%", " %").replace("-", "−") in said for share in shares)
    assert "u0" in centres.hovertext[0] and f"{groups['n'].iloc[0]} stimuli" in centres.hovertext[0]


def test_maps_of_many_layers_have_a_panel_each_and_one_legend():
    points = nested_points()
    maps = [figures.stimulus_map(points, BY[0], "nominal", f"layer {n}") for n in range(5)]
    figure = figures.map_panels(maps, across=3)
    assert len(figure.data) == sum(len(one.data) for one in maps)
    assert {trace.xaxis for trace in figure.data} == {"x", "x2", "x3", "x4", "x5"}
    shown = [trace.name for trace in figure.data if trace.showlegend]
    assert sorted(shown) == sorted({trace.name for one in maps for trace in one.data})
    texts = [one.text for one in figure.layout.annotations]
    assert [text for text in texts if text.startswith("layer")] == [f"layer {n}" for n in range(5)]

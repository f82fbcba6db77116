"""Maps of the stimuli: their stress, their figures, and a canvas without maps."""

import sys

import numpy as np
import pandas as pd
import pytest
from helpers.figure_tables import check_texts, named
from helpers.inputs import finished, refused, three_layers
from scipy.spatial.distance import pdist, squareform

import mlem_core
from mlem_core.extensions.stimulus_maps.computation import MAP, compute_map
from mlem_core.extensions.stimulus_maps.figures import map_caption, stimulus_map
from mlem_core.figures.canvas import CANVAS_MAPS, canvas_data, lacking_maps
from mlem_core.figures.plots import FigureContext, draw
from mlem_core.figures.style import GREY


def context_of(planted):
    return FigureContext.from_analysis(planted.analysis, planted.store)


def test_a_map_has_all_stimuli_and_the_stress_of_its_points(tmp_path):
    planted = finished(tmp_path, *three_layers(tmp_path))
    analysis, store, layer = planted.analysis, planted.store, ("m", 1)
    assert MAP.find(context_of(planted), layer=layer) is None
    points = mlem_core.stimulus_map(analysis, *layer, store)
    assert list(points["stimulus"]) == list(range(len(analysis.stimuli)))
    layer_map = MAP.find(context_of(planted), layer=layer)
    np.testing.assert_array_equal(layer_map.points, points[["x", "y"]])
    near = pdist(layer_map.points)
    far = pdist(np.asarray(planted.layers["layer_01"], dtype=np.float64))
    stress = np.sqrt(((near - far) ** 2).sum() / (near @ near))
    assert layer_map.stress == pytest.approx(stress, rel=1e-5)
    with refused("did you mean m:"):
        mlem_core.stimulus_map(analysis, "m", 33, store)


def test_umap_is_beside_mds_the_same_each_time_or_says_what_it_needs(tmp_path, monkeypatch):
    planted = finished(tmp_path, *three_layers(tmp_path))
    analysis, store = planted.analysis, planted.store
    mds = mlem_core.stimulus_map(analysis, "m", 1, store)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "umap", None)
        with refused("umap-learn"):
            mlem_core.stimulus_map(analysis, "m", 1, store, "umap")
    with refused("tsne"):
        mlem_core.stimulus_map(analysis, "m", 1, store, "tsne")
    pytest.importorskip("umap")
    kept = mlem_core.stimulus_map(analysis, "m", 1, store, "umap")
    again = compute_map(context_of(planted), ("m", 1), "umap")
    np.testing.assert_array_equal(kept[["x", "y"]], again.points)
    assert np.isnan(again.stress) and not np.allclose(kept["x"], mds["x"])
    # Neighbours stay neighbours: those of a random map would be about k / n of them.
    far = squareform(pdist(np.asarray(planted.layers["layer_01"], dtype=np.float64)))
    near = squareform(pdist(again.points))
    both = [set(a[1:11]) & set(b[1:11]) for a, b in zip(far.argsort(), near.argsort(), strict=True)]
    assert np.mean([len(shared) for shared in both]) > 3 * 100 / len(far)
    # The map that is kept by metric MDS is still that.
    np.testing.assert_array_equal(mds, mlem_core.stimulus_map(analysis, "m", 1, store))


def test_the_canvas_has_maps_only_where_an_extension_adds_them(tmp_path, monkeypatch):
    planted = finished(tmp_path, *three_layers(tmp_path))
    context = context_of(planted)
    assert canvas_data(context)["maps"] == {}
    assert lacking_maps(context) == list(context.pair)
    for layer in context.pair:
        MAP.get(context, layer=layer)
    context = context_of(planted)
    drawn = canvas_data(context)
    assert [*drawn["maps"]] == [str(place) for place in sorted(drawn["pair"])]
    assert drawn["colour"] in drawn["features"] and lacking_maps(context) == []
    monkeypatch.delitem(CANVAS_MAPS, "mds")
    context = context_of(planted)
    without = canvas_data(context)
    assert without["maps"] is None and not {"sentences", "features", "colour"} & {*without}
    assert lacking_maps(context) == []


def four(values):
    """Four stimuli with these values of a feature `f`."""
    points = pd.DataFrame({"stimulus": [4, 7, 9, 11], "x": [0.0, 1, 2, 3], "y": [3.0, 2, 1, 0]})
    return points.assign(label=["one", "two", "three", "four"], f=values)


def places(traces):
    return {
        text.partition("<br>")[0]: (x, y)
        for trace in traces
        for text, x, y in zip(trace.hovertext, trace.x, trace.y, strict=True)
    }


@pytest.mark.parametrize(
    ("kind", "values"), [("ordered", [1.0, 2.5, np.nan, 2.5]), ("nominal", ["u", "v", None, "v"])]
)
def test_every_stimulus_is_on_its_map_and_missing_ones_are_grey(kind, values):
    figure = stimulus_map(four(values), "f", kind, "a layer")
    assert places(figure.data) == {"one": (0, 3), "two": (1, 2), "three": (2, 1), "four": (3, 0)}
    (missing,) = named(figure, "missing")
    assert missing.marker.color == GREY
    assert list(missing.hovertext) == ["three<br>f: missing"]


def coloured_points(user):
    points = {"stimulus": [0, 1], "x": [0.0, 1.0], "y": [0.0, 1.0], "label": list(user.values)}
    table = pd.DataFrame({**points, user.features[0]: list(user.values)})
    return stimulus_map(table, user.features[0], "nominal", user.values[0])


def test_texts_are_those_of_the_user_and_captions_name_a_sample():
    check_texts(coloured_points, of_layers=False)
    caption = map_caption(1_000, 1_200, "tense", "umap")
    assert "random sample of 1,000" in caption and caption.startswith("UMAP of")
    caption = map_caption(1_000, 1_000, "", "mds", 0.1)
    assert "sample" not in caption and "Metric MDS" in caption and "stress .10" in caption.lower()


def test_two_layers_are_a_scatter_and_two_maps(tmp_path):
    planted = finished(tmp_path, *three_layers(tmp_path))
    context = context_of(planted)
    figure, maps = draw("two_layers", context), [draw(f"stimulus_map_{side}", context)
                                                 for side in "ab"]  # fmt: skip
    for axis, layer_map in zip(("x2", "x3"), maps, strict=True):
        drawn = places([trace for trace in figure.figure.data if trace.xaxis == axis])
        assert drawn == places(layer_map.figure.data)
    assert (
        figure.figure.layout.xaxis.title.text
        == draw("compare", context).figure.layout.xaxis.title.text
    )

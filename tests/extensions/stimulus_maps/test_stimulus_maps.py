"""Maps of the stimuli: stress by the distances of the points, and a canvas without maps."""

import numpy as np
import pytest
from helpers.inputs import finished, refused, three_layers
from scipy.spatial.distance import pdist

from mlem_core import stimulus_map
from mlem_core.extensions.stimulus_maps.computation import MAP
from mlem_core.figures.canvas import CANVAS_MAPS, canvas_data, lacking_maps
from mlem_core.figures.context import FigureContext


def context_of(planted):
    return FigureContext.from_analysis(planted.analysis, planted.store)


def test_a_map_has_all_stimuli_and_the_stress_of_its_points(tmp_path):
    planted = finished(tmp_path, *three_layers(tmp_path))
    analysis, store, layer = planted.analysis, planted.store, ("m", 1)
    assert MAP.find(context_of(planted), layer=layer) is None
    points = stimulus_map(analysis, *layer, store)
    assert list(points["stimulus"]) == list(range(len(analysis.stimuli)))
    layer_map = MAP.find(context_of(planted), layer=layer)
    np.testing.assert_array_equal(layer_map.points, points[["x", "y"]])
    near = pdist(layer_map.points)
    far = pdist(np.asarray(planted.layers["layer_01"], dtype=np.float64))
    stress = np.sqrt(((near - far) ** 2).sum() / (near @ near))
    assert layer_map.stress == pytest.approx(stress, rel=1e-5)
    with refused("did you mean m:"):
        stimulus_map(analysis, "m", 33, store)


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

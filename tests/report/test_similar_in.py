from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, noise, probing, refused

from mlem_core.analysis.run import run
from mlem_core.inference.partial import of_layers
from mlem_core.report import similar_in
from mlem_core.report.figures import Drawing, Shown, draw
from mlem_core.storage.store import Store


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("similar")
    table = probing(40)
    codes = table["part_of_speech"].astype("category").cat.codes.to_numpy()
    layers = {n: np.eye(9)[codes] * 4 * n + rows for n, rows in noise(len(table), 3, 9).items()}
    spec = in_files(folder, table, {"model": layers}, folds=3, features=("part_of_speech", "tense"))
    return run(spec, Store(folder / "store"))


def shown(analysis, estimator="ridge", **options):
    selection = analysis.select(estimator=estimator)
    results = analysis.results()
    return Shown(analysis, selection, results, Drawing(options=options))


def test_each_similarity_is_drawn_from_its_table(analysis):
    own, rsa = analysis.subset(analysis.select())
    found = of_layers(own, rsa, "ridge")
    assert similar_in.choices("ridge") == ("features", "rest", "transfer", "ratio")
    for name in similar_in.choices("ridge"):
        made = draw("similar_in", shown(analysis, partial=name))
        heat = next(trace for trace in made.figure.data if trace.type == "heatmap")
        square = found.square(name, analysis.layers)
        np.testing.assert_allclose(np.array(heat.z, dtype=float), square.to_numpy(), atol=1e-6)
        assert made.title == similar_in.NAMES[name] and "whether they differ" in made.caption
        assert len(made.data) == 3 and made.printed.columns[0] == "layer"
    pd.testing.assert_frame_equal(made.data, found.table(analysis.layers))
    # The features tell nothing of layer 0, which is noise, and the one and only way to use them
    # is that of the other two.
    assert np.isnan(found.features[0]).all()
    assert found.features[1, 2] == pytest.approx(1.0, abs=0.1)
    with refused("features, rest, transfer"):
        draw("similar_in", shown(analysis, partial="all"))


def test_a_slow_estimator_is_not_fitted_for_transfer(analysis):
    assert similar_in.choices("spearman") == ("features", "rest")
    own, rsa = analysis.subset(analysis.select(estimator="spearman"))
    found = of_layers(own, rsa, "spearman")
    assert np.isnan(found.transfer).all() and np.isnan(found.ratio).all()
    assert np.isfinite(found.rest).all()
    one = Shown(analysis, analysis.select(layers="model:1"), analysis.results(), Drawing())
    assert draw("similar_in", one) is None

"""Other similarities as figures show them."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, noise, words

from mlem_core import Store, explain, run
from mlem_core.analysis import similarities
from mlem_core.figures.plots import FigureContext, FigureOptions, draw
from mlem_core.inference.explanation import add_intervals
from mlem_core.measures.similarity import agreement

OTHERS = ("cka", "neighbours")
ALIGNED = ("procrustes", "cca")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("similarities"), words(60)
    rng = np.random.default_rng(0)
    noun = 3.0 * (table[["noun"]].astype(float).to_numpy())
    shape = (len(table), 4)
    layers = {k: noun * rng.standard_normal(4) + rng.standard_normal(shape) for k in (0, 1)}
    store = Store(folder / "store")
    analysis = run(in_files(folder, table, {"a": layers, "b": noise(len(table))}, folds=3), store)
    for name in OTHERS:
        similarities.compared(analysis, name, store)
    return analysis, store


def shown_with(made, name):
    analysis, store = made
    drawing = FigureOptions(options={"similarity": name})
    selection = analysis.select()
    return FigureContext(analysis, selection, store, drawing=drawing)


@pytest.mark.parametrize("name", OTHERS)
def test_figures_show_the_similarity_that_is_chosen(made, name, monkeypatch):
    analysis, store = made
    found, shown = similarities.compared(analysis, name, store), shown_with(made, name)
    matrices = draw("similarity", shown)
    heat = [trace.z for trace in matrices.figure.data if trace.type == "heatmap"][1]
    values = np.asarray(heat, dtype=float)
    np.testing.assert_allclose(np.sort(values[np.isfinite(values)]), np.sort(found.values.ravel()))
    above = np.triu_indices(len(found.values), 1)
    np.testing.assert_array_equal(matrices.data[name], found.values[above])
    both = abs(agreement(shown.results.similarity_profiles.to_numpy(), found.values))
    assert found.similarity.called in matrices.caption and f"{both:.2f}"[1:] in matrices.caption
    titles = " ".join(one.text for one in matrices.figure.layout.annotations)
    assert found.similarity.title in titles and "RSA" not in titles
    why, layers = draw("why", shown), draw("why_layers", shown)
    pd.testing.assert_frame_equal(why.data, explain(analysis, *shown.pair, compared=found).terms)
    assert found.similarity.called in why.caption and found.similarity.called in layers.caption
    assert name in layers.data and "rsa" not in layers.data
    monkeypatch.setattr(type(found), "decomposed", None)  # it is kept
    pd.testing.assert_frame_equal(draw("why_layers", shown).data, layers.data)
    assert "RSA" in draw("similarity", shown_with(made, "rsa")).caption


@pytest.mark.parametrize("name", ALIGNED)
def test_a_similarity_without_terms_has_its_matrix_alone_and_says_so(made, name):
    analysis, store = made
    found = similarities.compared(analysis, name, store)
    np.testing.assert_allclose(np.diag(found.values), 1.0)
    # The layers of one model share what tells nouns apart.
    assert found.values[0, 1] > {"procrustes": 0.2, "cca": 0.1}[name]
    shown = shown_with(made, name)
    kept = similarities.SIMILARITY.find(shown, name=name)
    pd.testing.assert_frame_equal(kept.square, found.square)
    matrices = draw("similarity", shown)
    assert name in matrices.data and found.similarity.no_terms in matrices.caption
    assert draw("why", shown) is None and draw("why_layers", shown) is None
    two = explain(analysis, "a:0", "a:1", compared=found)
    assert two.terms.empty and two.value == found.values[0, 1]
    assert [*found.written()] == [f"similarity_{name}.csv"]


@pytest.mark.parametrize("name", [pytest.param("rsa", marks=pytest.mark.slow), "cka"])
def test_intervals_made_on_a_screen_are_in_the_report(made, name, tmp_path):
    analysis, store = made[0], Store(tmp_path, overlays=(made[1].root,))
    shown = shown_with((analysis, store), name)
    assert "lower" not in draw("why", shown).data
    sure = add_intervals(shown.why, shown)
    after = draw("why", shown_with((analysis, store), name))
    assert sure.how in after.caption and "error_x" in str(after.figure)
    np.testing.assert_array_equal(after.data["lower"], sure.terms["lower"])

"""Other similarities, and features given by their distances, as they are shown and rerun."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, noise, words
from scipy.spatial.distance import pdist, squareform

from mlem_core import Store, explain, run
from mlem_core.analysis import files, similarities
from mlem_core.figures.plots import FigureContext, FigureOptions, draw
from mlem_core.inference.explanation import kept_intervals
from mlem_core.measures.similarity import agreement
from mlem_core.report.archive import write_archive
from mlem_core.report.rerun import rerun

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
    drawing = FigureOptions(store=store, options={"similarity": name})
    selection = analysis.select()
    return FigureContext(analysis, selection, analysis.results_of(selection), drawing)


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
    pd.testing.assert_frame_equal(
        similarities.kept_similarity(analysis, name, store).square, found.square
    )
    shown = shown_with(made, name)
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
    sure = kept_intervals(shown.why, analysis, store)
    after = draw("why", shown_with((analysis, store), name))
    assert sure.how in after.caption and "error_x" in str(after.figure)
    np.testing.assert_array_equal(after.data["lower"], sure.terms["lower"])


N = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("given")


@pytest.fixture(scope="module")
def spec(folder):
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((N, 4))
    table = pd.DataFrame(rng.standard_normal((N, 2)), columns=["s1", "s2"])
    table["sentence"] = [f"the sentence number{row} is short" for row in range(N)]
    table["noun"] = rng.choice(["a", "b", "c"], N)
    np.save(folder / "own.npy", squareform(pdist(hidden)))
    layers = noise(N, n_layers=1)
    layers[1] = hidden @ rng.standard_normal((4, 20))
    given = {"vectors": ("semantics=s1,s2",), "rdms": (f"own={folder / 'own.npy'}",)}
    return in_files(folder, table, {"brain": layers}, **given, folds=4)


@pytest.fixture(scope="module")
def analysis(spec, folder):
    return run(spec, Store(folder / "cache"))


def test_an_rdm_that_drives_a_layer_is_what_matters_there(analysis, tmp_path):
    importance = analysis.results().importance.groupby(["layer", "feature"])["importance"].mean()
    assert importance[1, "own"] > 0.7
    assert importance[1].drop("own").abs().max() < 0.1
    assert importance[0].abs().max() < 0.1
    assert analysis.pairs.columns.kinds == ("nominal", "vector", "rdm")
    files.save_analysis(analysis, tmp_path)
    kept = files.load_analysis(tmp_path)
    assert kept.whole.digest == analysis.whole.digest
    pd.testing.assert_frame_equal(kept.results().importance, analysis.results().importance)


@pytest.mark.slow
def test_a_zip_holds_the_distances_and_is_rerun(analysis, folder):
    path = write_archive(analysis, folder / "all.zip", Store(folder / "cache"), images=False)
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert str(folder).encode() not in b"".join(found.values())
    with np.load(io.BytesIO(found["rdms.npz"]), allow_pickle=False) as kept:
        own = np.load(folder / "own.npy")
        np.testing.assert_array_equal(kept["distances_0"], own[np.triu_indices(N, 1)])
    assert b"semantics (vector)" in found["methods.md"] and b"own (RDM)" in found["methods.md"]
    again = rerun(path, representations=dict(analysis.spec.representations))
    assert again.same, again.lines()

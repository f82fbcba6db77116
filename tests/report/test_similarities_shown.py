"""Other similarities, and similarity in the features and in the rest, as they are shown."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, noise, probing, refused, words
from scipy.spatial.distance import squareform

from mlem_core import Store, explain, run
from mlem_core.analysis import similarities
from mlem_core.cli.commands import main
from mlem_core.inference.partial import of_layers
from mlem_core.measures.similarity import agreement
from mlem_core.report import capsule, similar_in
from mlem_core.report.beside import how_sure
from mlem_core.report.figures import FIGURES, OF_SIMILARITIES, Drawing, Shown, draw
from mlem_core.report.verify import verify

OTHERS = ("cka", "neighbours")
ALIGNED = ("procrustes", "cca")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("similarities"), words(60)
    rng = np.random.default_rng(0)
    noun = 3.0 * (table[["noun"]].astype(float).to_numpy())
    layers = {
        k: noun * rng.standard_normal(4) + rng.standard_normal((len(table), 4)) for k in (0, 1)
    }
    store = Store(folder / "store")
    analysis = run(in_files(folder, table, {"a": layers, "b": noise(len(table))}, folds=3), store)
    for name in OTHERS:
        similarities.compared(analysis, name, store)
    return analysis, store


def shown_with(made, name, store=True):
    analysis, of_it = made
    drawing = Drawing(store=of_it if store else None, options={"similarity": name})
    selection = analysis.select()
    return Shown(analysis, selection, analysis.results_of(selection), drawing)


@pytest.mark.parametrize("name", OTHERS)
def test_figures_show_the_similarity_that_is_chosen(made, name):
    analysis, store = made
    found, shown = similarities.compared(analysis, name, store), shown_with(made, name)
    matrices = draw("similarity", shown)
    titles = [one.text for one in matrices.figure.layout.annotations]
    expected = f"{found.similarity.title}: {found.similarity.unit}"
    assert any(expected in text for text in titles) and not any("RSA" in text for text in titles)
    heat = [trace.z for trace in matrices.figure.data if trace.type == "heatmap"][1]
    values = np.asarray(heat, dtype=float)
    np.testing.assert_allclose(np.sort(values[np.isfinite(values)]), np.sort(found.values.ravel()))
    above = np.triu_indices(len(found.values), 1)
    np.testing.assert_array_equal(matrices.data[name], found.values[above])
    both = agreement(shown.results.similarity_profiles.to_numpy(), found.values)
    assert found.similarity.called in matrices.caption and f"{both:.2f}" in matrices.caption
    why = draw("why", shown)
    terms = explain(analysis, *shown.pair, compared=found).terms
    pd.testing.assert_frame_equal(why.data, terms)
    assert found.similarity.called in why.caption
    layers = draw("why_layers", shown)
    assert found.similarity.called in layers.caption
    assert name in layers.data and "rsa" not in layers.data


@pytest.mark.parametrize("name", ALIGNED)
def test_a_similarity_without_terms_has_its_matrix_alone_and_says_so(made, name, tmp_path):
    analysis, store = made
    found = similarities.compared(analysis, name, store)
    values = found.values
    np.testing.assert_allclose(np.diag(values), 1.0)
    # The layers of one model share what tells nouns apart.
    assert values[0, 1] > {"procrustes": 0.2, "cca": 0.1}[name]
    pd.testing.assert_frame_equal(similarities.find(analysis, name, store).square, found.square)
    shown = shown_with(made, name)
    matrices = draw("similarity", shown)
    assert name in matrices.data and found.similarity.no_terms in matrices.caption
    assert draw("why", shown) is None and draw("why_layers", shown) is None
    assert f"similarity_{name}" in OF_SIMILARITIES and f"why_{name}" not in OF_SIMILARITIES
    assert list(found.written()) == [f"similarity_{name}.csv"]
    for of_terms in (found.decomposed, lambda: explain(analysis, "a:0", "a:1", compared=found)):
        with refused(name, "no terms"):
            of_terms()
    tables = how_sure(replace(shown, drawing=Drawing(store=store)))
    assert f"similarity_{name}.csv" in tables and f"why_{name}.csv" not in tables


def test_an_alignment_needs_representations(made, tmp_path):
    analysis, store = made
    spec = replace(analysis.spec, representations=(), models=())
    square = squareform(np.ones(len(analysis.stimuli) * (len(analysis.stimuli) - 1) // 2))
    np.savez(tmp_path / "rated.npz", layer_00=square + np.diag(np.zeros(len(square))))
    files = (*analysis.spec.representations, ("rated", str(tmp_path / "rated.npz")))
    beside = run(replace(spec, representations=files, precomputed=("rated",)), store)
    with refused("rated:0", "distances", "Procrustes"):
        similarities.compared(beside, "procrustes", store)


def test_the_command_line_writes_a_similarity_without_terms_and_says_so(
    made, tmp_path, capsys, monkeypatch
):
    analysis, _ = made
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    spec = analysis.spec
    files = [f"--representations={name}={path}" for name, path in spec.representations]
    given = [f"--stimuli={spec.stimuli}", *files, "--folds=3"]
    out = tmp_path / "out"
    assert main(["analyze", *given, "--similarities=cca,cka", f"--out={out}"]) == 0
    assert (out / "similarity_cca.csv").exists() and not (out / "why_layers_cca.csv").exists()
    assert (out / "why_layers_cka.csv").exists()
    said = capsys.readouterr().err
    assert "RSA" in said and "CKA" in said
    assert main(["why", "a:0", "a:1", *given, "--similarity=cca"]) == 0
    assert "canonical correlation" in capsys.readouterr().out


def test_without_a_store_or_for_rsa_the_figures_are_what_they_were(made):
    for shown in (shown_with(made, "cka", store=False), shown_with(made, "rsa")):
        assert shown.compared is None
        assert "RSA" in draw("similarity", shown).caption
        assert "RSA" in draw("why", shown).caption
        assert "rsa" in draw("why_layers", shown).data


@pytest.mark.slow
def test_a_capsule_has_the_tables_of_what_was_computed_and_verify_names_them(
    made, tmp_path, monkeypatch
):
    analysis, store = made
    of_others = [name for name in OF_SIMILARITIES if not name.endswith(ALIGNED)]
    some = {name: FIGURES[name] for name in ("similarity", *of_others)}
    monkeypatch.setattr("mlem_core.report.figures.FIGURES", some)
    path = tmp_path / "c.zip"
    capsule.write(analysis, path, drawing=Drawing(store=store, images=False))
    with zipfile.ZipFile(path) as whole:
        tables = {name: whole.read(name) for name in whole.namelist() if name.startswith("tables/")}
    for name in OTHERS:
        found = similarities.compared(analysis, name, store)
        square = pd.read_csv(io.BytesIO(tables[f"tables/similarity_{name}.csv"]), index_col="layer")
        np.testing.assert_allclose(square, found.square, atol=1e-9)
        terms = pd.read_csv(io.BytesIO(tables[f"tables/why_layers_{name}.csv"]))
        assert name in terms and f"tables/why_{name}.csv" in tables
        with zipfile.ZipFile(path) as whole:
            assert f"figures/similarity_{name}.html" in whole.namelist()
    checked = verify(path)
    assert checked.same and any("similarity_cka" in one for one in checked.not_compared)


@pytest.fixture(scope="module")
def part_of_speech(tmp_path_factory):
    """A layer of noise, and two in which parts of speech stand apart."""
    folder = tmp_path_factory.mktemp("similar")
    table = probing(40)
    codes = table["part_of_speech"].astype("category").cat.codes.to_numpy()
    layers = {n: np.eye(9)[codes] * 4 * n + rows for n, rows in noise(len(table), 3, 9).items()}
    spec = in_files(folder, table, {"model": layers}, folds=3, features=("part_of_speech", "tense"))
    return run(spec, Store(folder / "store"))


def of_part(analysis, estimator="ridge", layers=None, **options):
    selection = analysis.select(estimator=estimator, layers=layers)
    return Shown(analysis, selection, analysis.results(), Drawing(options=options))


def test_each_similarity_in_a_part_is_drawn_from_its_table(part_of_speech):
    analysis = part_of_speech
    own, rsa = analysis.subset(analysis.select())
    found = of_layers(own, rsa, "ridge")
    assert similar_in.choices("ridge") == ("features", "rest", "transfer", "ratio")
    for name in similar_in.choices("ridge"):
        made = draw("similar_in", of_part(analysis, partial=name))
        heat = next(trace for trace in made.figure.data if trace.type == "heatmap")
        square = found.square(name, analysis.layers)
        np.testing.assert_allclose(np.array(heat.z, dtype=float), square.to_numpy(), atol=1e-6)
        assert made.title == similar_in.NAMES[name]
        assert len(made.data) == 3 and made.printed.columns[0] == "layer"
    pd.testing.assert_frame_equal(made.data, found.table(analysis.layers))
    # The features tell nothing of layer 0, which is noise, and the one and only way to use them
    # is that of the other two.
    assert np.isnan(found.features[0]).all()
    assert found.features[1, 2] == pytest.approx(1.0, abs=0.1)
    with refused("features, rest, transfer"):
        draw("similar_in", of_part(analysis, partial="all"))


def test_a_slow_estimator_is_not_fitted_for_transfer(part_of_speech):
    analysis = part_of_speech
    assert similar_in.choices("spearman") == ("features", "rest")
    own, rsa = analysis.subset(analysis.select(estimator="spearman"))
    found = of_layers(own, rsa, "spearman")
    assert np.isnan(found.transfer).all() and np.isnan(found.ratio).all()
    assert np.isfinite(found.rest).all()
    assert draw("similar_in", of_part(analysis, layers="model:1")) is None

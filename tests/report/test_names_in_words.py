"""Display names reach every word of a figure, a caption and a printed table; CSV keeps the ids."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inputs import in_files, probing

from mlem_core import Analysis, Store, run
from mlem_core.base.labels import Names
from mlem_core.inference.explanation import explain
from mlem_core.measures.correlated import warning
from mlem_core.report import captions
from mlem_core.report.figures import FIGURES, Drawing, Shown, draw
from mlem_core.report.latex import table as as_latex
from mlem_core.report.methods import methods_paragraph
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.flags import summary

IDS = ("part_of_speech", "word_position", "word_length", "model_a1", "model_b2")
NAMES = Names({"part_of_speech": "word class"}, {"model_a1": "Anna", "model_b2": "Berta"})


@pytest.fixture(scope="module")
def told_apart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Store]:
    """Two models, the values of the part of speech told apart."""
    folder, table = tmp_path_factory.mktemp("named"), probing(40)
    rng = np.random.default_rng(0)
    codes = table["part_of_speech"].astype("category").cat.codes.to_numpy()
    layers = {n: np.eye(9)[codes] * n + rng.standard_normal((len(table), 9)) for n in range(2)}
    store = Store(folder / "store")
    features = ("part_of_speech", "tense", "word_position")
    spec = in_files(
        folder, table, {"model_a1": layers, "model_b2": layers}, folds=3,
        values=("part_of_speech",), features=features,
    )  # fmt: skip
    return run(spec, store), store


@pytest.mark.slow
def test_no_identifier_is_left_in_words(told_apart: tuple[Analysis, Store]) -> None:
    analysis, store = told_apart
    shown = Shown(
        analysis, analysis.select(), analysis.results(), Drawing(store=store, names=NAMES)
    )
    found = {}
    for name in FIGURES:
        made = draw(name, shown)
        if made is None:
            continue
        drawn = json.loads(made.figure.to_json())
        words = (made.title, made.caption, as_latex(made.printed, made.caption, title=made.title))
        found[name] = " ".join((*words, " ".join(_texts(drawn)))).replace(r"\_", "_")
    assert {"profiles", "values", "values_layers", "two_layers", "why"} <= set(found)
    left = {name: [one for one in IDS if one in text] for name, text in found.items()}
    assert not {name: ids for name, ids in left.items() if ids}
    assert "coded by which values of word class differ" in found["profiles"]
    assert "The values of word class" in captions.value_table("word class")


def _texts(drawn: object, key: str = "") -> list[str]:
    """All that a figure writes: titles, labels, legends, and what hovering says."""
    if isinstance(drawn, dict):
        # What a click hands on, and by what traces belong together, nobody reads.
        quiet = ("customdata", "legendgroup", "uid")
        return [text for name, one in drawn.items() if name not in quiet
                for text in _texts(one, name)]  # fmt: skip
    if isinstance(drawn, list):
        return [text for one in drawn for text in _texts(one, key)]
    return [drawn] if isinstance(drawn, str) else []


def test_sentences_have_the_names(told_apart: tuple[Analysis, Store]) -> None:
    analysis, _ = told_apart
    why = replace(explain(analysis, "model_a1:1", "model_b2:1"), names=NAMES)
    coded = Shown(analysis, analysis.select(), analysis.results(), Drawing(names=NAMES)).coding
    why = replace(why, coding=coded)
    warned = warning([("part_of_speech", "tense", -0.4)], NAMES)
    methods = methods_paragraph(analysis, analysis.results(), names=NAMES)
    said = " ".join((why.headline, why.sentence, warned, methods))
    assert "Anna layer 1 and Berta layer 1" in why.sentence
    assert "word class and tense (r = −0.40)" in said
    assert "of word class every two values" in said and "Anna (model_a1, repres" in said
    assert "part_of_speech" not in said and "word_position" not in said


def test_an_audit_names_layers_and_features(tmp_path: Path, example: Analysis) -> None:
    names = Names({"part_of_speech": "word class"}, {"smollm2": "Smol"})
    shown = Shown(
        example, example.select(), example.results(), Drawing(store=Store(tmp_path), names=names)
    )
    audit = shown.audit
    assert isinstance(audit, Audit)
    assert "Smol:3 to" not in " ".join(summary(audit)) and "Smol:" in " ".join(
        summary(audit, names)
    )
    named = names.table(audit.changes)
    assert "word class" in set(named["top"]) and "part_of_speech" in set(audit.changes["top"])
    assert not named.isin(["part_of_speech", "smollm2"]).to_numpy().any()
    table = example.stimuli.table
    assert "word class" in names.table(table, shown.all_features)
    assert "part_of_speech" in table

"""One text where several are wanted, and the bars of what is done."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from inputs import noise, refused, words

from mlem_core import AnalysisSpec, RidgeMLEM, explain, from_frame
from mlem_core.base.bars import Bars
from mlem_core.base.parameters import names_in
from mlem_core.base.typing import Progress, layer_name, layers_in, parse_layer


@pytest.mark.parametrize(
    "given, kept",
    [
        ({"models": "minilm"}, ("minilm",)),
        ({"models": ["minilm", "smollm2"]}, ("minilm", "smollm2")),
        ({"representations": "brain=b.npz"}, (("brain", "b.npz"),)),
        ({"representations": {"brain": "b.npz"}}, (("brain", "b.npz"),)),
        ({"layers": "3,0"}, (0, 3)),
        ({"layers": range(3)}, (0, 1, 2)),
        ({"layers": None}, None),
        ({"features": "tense, number"}, ("tense", "number")),
        ({"values": "none"}, ()),
        ({"roles": "note=ignore"}, (("note", "ignore"),)),
        ({"bins": "length=4"}, (("length", 4),)),
        ({"na": "NA,-"}, ("NA", "-")),
    ],
)
def test_an_analysis_takes_one_or_several(given, kept):
    spec = AnalysisSpec(**given)
    assert getattr(spec, next(iter(given))) == kept
    assert AnalysisSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert hash(spec) == hash(AnalysisSpec.from_dict(spec.to_dict()))


def test_names_and_layers():
    assert names_in("tense") == ("tense",) == names_in(["tense"])
    assert names_in(["a, b"]) == ("a, b",)  # a name with a comma goes into a list
    three = ("minilm", 3)
    for asked in ("minilm:3", three, ["minilm:3"], [three], (three,), ("minilm", np.int64(3))):
        assert layers_in(asked) == (three,)
    assert layers_in("minilm:3, a:b:0") == (three, ("a:b", 0))
    assert layers_in((three, ("minilm", 4))) == (three, ("minilm", 4))
    assert layer_name(parse_layer("hub:org/model:12")) == "hub:org/model:12"
    for wrong in ("minilm", ":3", "minilm:", "minilm:x"):
        with refused("MODEL:LAYER"):
            parse_layer(wrong)


def test_results_explanations_and_stimuli_take_a_single_name(systems):
    analysis = systems.analysis
    one = analysis.results(features="noun", layers="one:1")
    assert one.layers == [("one", 1)] and set(one.importance["feature"]) == {"noun"}
    listed = analysis.results(features=["noun"], layers=[("one", 1)])
    assert one.importance.equals(listed.importance)
    why = explain(analysis, "one:0", ("one", 1), features="noun")
    assert list(why.features["term"]) == ["noun"] and why.layers == (("one", 0), ("one", 1))
    with refused("minilm:3"):
        explain(analysis, "one:0,one:1", "one:1")
    stimuli = analysis.stimuli
    assert [f.name for f in stimuli.select("length,position").features] == ["length", "position"]
    y = noise(len(stimuli))[0]
    model = RidgeMLEM(values="noun").fit(stimuli, y)
    assert list(model.value_names_) == ["noun"]


def test_fit_refuses_a_column_of_sentences():
    table, y = words(), noise(len(words()))[0]
    with refused("'sentence'", "from_frame"):
        RidgeMLEM().fit(table, y)
    without = table.drop(columns=["sentence", "word_index"])
    fitted = RidgeMLEM().fit(without, y)
    np.testing.assert_array_equal(fitted.feature_names_in_, ["noun", "length", "position"])
    with refused("'sentence'"):
        fitted.predict(table)
    same = RidgeMLEM().fit(from_frame(table, "words"), y, groups=np.arange(len(table)))
    np.testing.assert_allclose(same.coef_, fitted.coef_)


def test_a_bar_a_stage_on_a_terminal(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    with Bars() as bars:
        for done in (0, 1, 3):
            bars.show(Progress("representations", "minilm", done, 3, "sentences"))
        bars.show(Progress("pair tables", None, 2, 2, "layers"))
    shown = screen.getvalue()
    assert "representations minilm: 100%" in shown and "3/3" in shown
    assert "pair tables: 100%" in shown and "2/2" in shown


def test_a_line_a_minute_where_there_is_no_terminal(monkeypatch, capsys):
    seconds = iter([0.0, 30.0, 61.0, 100.0, 190.0])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("mlem_core.base.bars.time", clock)
    with Bars() as bars:
        for done in (1, 2, 3, 4):
            bars.show(Progress("pair tables", None, done, 38, "layers"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "After 1 min: pair tables, 2 of 38 layers.",
        "After 3 min: pair tables, 4 of 38 layers.",
    ]

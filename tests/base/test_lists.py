"""A single text where several are wanted is understood, wherever a user can give one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import Finished, noise, refused, words

from mlem_core import AnalysisSpec, RidgeMLEM, explain, from_frame, read_csv
from mlem_core.base.parameters import names_in
from mlem_core.base.typing import layers_in
from mlem_core.data.stimulus_csv import write_csv


@pytest.mark.parametrize(
    "given, kept",
    [
        ({"models": "minilm"}, ("minilm",)),
        ({"models": ["minilm", "smollm2"]}, ("minilm", "smollm2")),
        ({"models": (name for name in ("minilm",))}, ("minilm",)),
        ({"representations": "brain=b.npz"}, (("brain", "b.npz"),)),
        ({"representations": ["brain=b.npz"]}, (("brain", "b.npz"),)),
        ({"representations": {"brain": "b.npz"}}, (("brain", "b.npz"),)),
        ({"layers": "3,0"}, (0, 3)),
        ({"layers": 3}, (3,)),
        ({"layers": range(3)}, (0, 1, 2)),
        ({"layers": np.arange(2)}, (0, 1)),
        ({"layers": None}, None),
        ({"features": "tense"}, ("tense",)),
        ({"features": "tense, number"}, ("tense", "number")),
        ({"values": "none"}, ()),
        ({"values": "tense"}, ("tense",)),
        ({"roles": "note=ignore"}, (("note", "ignore"),)),
        ({"bins": "length=4"}, (("length", 4),)),
        ({"na": "NA,-"}, ("NA", "-")),
        ({"ordered": "length"}, ("length",)),
        ({"add": "frequency"}, ("frequency",)),
        ({"stimuli": "probing"}, "probing"),
    ],
)
def test_an_analysis_takes_one_or_several(given: dict[str, Any], kept: Any) -> None:
    spec = AnalysisSpec(**given)
    assert getattr(spec, next(iter(given))) == kept
    assert AnalysisSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert hash(spec) == hash(AnalysisSpec.from_dict(spec.to_dict()))


@pytest.mark.parametrize(
    ("understand", "facts"),
    [
        (lambda: AnalysisSpec(representations="brain"), ("'brain'", "NAME=FILE")),
        (lambda: AnalysisSpec(layers="deep"), ("'deep'", "layer numbers")),
        (lambda: layers_in("minilm3"), ("'minilm3'", "MODEL:LAYER")),
        (lambda: layers_in([3]), ("3", "('minilm', 3)")),
    ],
)
def test_what_cannot_be_understood_is_said(understand, facts) -> None:
    with refused(*facts):
        understand()


def test_names_and_layers() -> None:
    assert names_in("tense") == ("tense",) == names_in(["tense"])
    assert names_in(["a, b"]) == ("a, b",)  # a name with a comma goes into a list
    three = ("minilm", 3)
    for asked in ("minilm:3", three, ["minilm:3"], [three], (three,), ("minilm", np.int64(3))):
        assert layers_in(asked) == (three,)
    assert layers_in("minilm:3, a:b:0") == (three, ("a:b", 0))
    assert layers_in((three, ("minilm", 4))) == (three, ("minilm", 4))


def test_results_explanations_and_stimuli_take_a_single_name(
    tmp_path: Path, systems: Finished
) -> None:
    analysis = systems.analysis
    one = analysis.results(features="noun", layers="one:1")
    assert one.layers == [("one", 1)] and set(one.importance["feature"]) == {"noun"}
    listed = analysis.results(features=["noun"], layers=[("one", 1)])
    assert one.importance.equals(listed.importance)
    why = explain(analysis, "one:0", ("one", 1), features="noun")
    assert list(why.features["term"]) == ["noun"] and why.layers == (("one", 0), ("one", 1))
    with refused("minilm:3"):
        explain(analysis, "one:0,one:1", "one:1")
    with refused("'nuon'"):
        analysis.results(features="nuon")
    stimuli = analysis.stimuli
    assert [f.name for f in stimuli.select("length,position").features] == ["length", "position"]
    kinds = {f.name: f.kind for f in stimuli.with_kinds(nominal="length").features}
    assert kinds["length"] == "nominal"
    write_csv(stimuli, tmp_path / "again.csv")
    again = read_csv(tmp_path / "again.csv", nominal="length")
    assert next(f.kind for f in again.features if f.name == "length") == "nominal"
    y = noise(len(stimuli))[0]
    model = RidgeMLEM(values="noun").fit(stimuli, y)
    assert list(model.value_names_) == ["noun"]


def test_fit_refuses_a_column_of_sentences() -> None:
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

"""Groups of models: what is taken, what is not, and that they change nothing that is computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inputs import in_files, noise, words

from mlem_core.analysis.grouped import labels_of, parse_group, parse_labels
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.errors import InputError
from mlem_core.cli.options import parser, spec_of
from mlem_core.storage.store import Store

GIVEN = AnalysisSpec(models=("a", "a@r2", "b"), representations=(("c", "c.npz"),))


def test_the_command_line_and_python_say_the_same() -> None:
    command = ["analyze", "--stimuli", "probing", "--out", "x", "--model", "a", "--model", "a@r2"]
    group = ["--group", "family = a, a@r2", "--label", "family=objective:mlm,size:small"]
    spec = spec_of(parser(None).parse_args([*command, *group]))
    named = {"family": ["a", "a@r2"]}, {"family": ["objective:mlm", "size:small"]}
    assert spec == AnalysisSpec(models=("a", "a@r2"), groups=named[0], labels=named[1])
    assert AnalysisSpec.from_dict(spec.to_dict()) == spec
    spec.check()
    assert "groups" not in AnalysisSpec(models=("a",)).to_dict()


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"g": ["a", "d"]}, r"unknown member of the group 'g' 'd': .*choices are a, a@r2, b, c"),
        ({"g": ["a"], "h": ["b", "a"]}, "'a' is named twice, in the group 'g' and 'h'"),
        ({"g": ["a", "a"]}, "'a' is named twice, in the group 'g'"),
        ((("g", ("a",)), ("g", ("b",))), "the group 'g' is named twice"),
        ({"b": ["a", "c"]}, "the group 'b' has the name of a model that is not in it"),
        ({"g": []}, "'g' has 0 members"),
        ({"g\n": ["a"]}, "a name that can be printed"),
    ],
)
def test_what_is_no_group_is_said(groups: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(GIVEN, groups=groups).check()


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"x": ["f:1"]}, "unknown model or group with a label 'x'"),
        ({"g": ["f:1"]}, "the model 'b' has no 'f', which others have; .*--label b=f:VALUE"),
        ({"g": ["f:1"], "a": ["f:2"]}, "the 'f' of 'a' is '1' and '2'"),
        ({"g": ["f"]}, "not of the form FACTOR:VALUE"),
    ],
)
def test_what_is_no_label_is_said(labels: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(GIVEN, groups={"g": ["a", "a@r2"]}, labels=labels).check()


@pytest.mark.parametrize("text", ["", "g", "g=", "=a", "g= , "])
def test_texts_of_another_form(text: str) -> None:
    for parse in (parse_group, parse_labels):
        with pytest.raises(InputError, match="not of the form"):
            parse(text)


def test_labels_of_a_group_are_those_of_its_members() -> None:
    groups, labels = (("g", ("a", "b")),), (("g", ("f:1", "s:x")), ("c", ("f:2", "s:x")))
    assert labels_of(groups, labels, ["c", "a", "b"]) == {"f": ("2", "1", "1"), "s": ("x",) * 3}


def test_a_part_of_the_models_keeps_its_part_of_the_groups() -> None:
    spec = replace(GIVEN, groups={"g": ["a", "c"], "h": ["b"]}, labels={"g": ["f:1"]})
    assert with_files(spec, ()).groups == (("g", ("a",)), ("h", ("b",)))
    assert with_models(spec, ["b"]).groups == (("g", ("c",)), ("h", ("b",)))
    assert with_models(with_files(spec, ()), ["b"]).labels == ()
    assert with_models(spec, ["z", "b"], {"a": "z"}).groups[0] == ("g", ("z", "c"))


def test_groups_change_nothing_that_is_computed(tmp_path) -> None:
    table = words()
    made_up = {name: noise(len(table)) for name in ("m0", "m1")}
    alone = in_files(tmp_path, table, made_up)
    grouped = replace(alone, groups={"m": ["m0", "m1"]})
    store = Store(tmp_path / "store")
    first, second = (run(spec, store, progress=False).results() for spec in (alone, grouped))
    assert first.importance.equals(second.importance)
    assert first.similarity_rsa.equals(second.similarity_rsa)

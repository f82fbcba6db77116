"""Models that belong together: groups, labels and trajectories over training, and what is none."""

from dataclasses import replace

import pytest
from inputs import refused

from mlem_core.analysis.grouped import labels_of, step_of
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.cli.options import parser, spec_from_options

GROUPED = AnalysisSpec(models=("a", "a@r2", "b"), representations=(("c", "c.npz"),))
STEPS = AnalysisSpec(
    models=("a@step1", "a@step20", "b@step1", "a@random", "a@random1", "a", "a@20"),
    representations=(("b@20", "b.npz"),),
)


@pytest.mark.parametrize(
    ("models", "line", "expected"),
    [
        (
            ("a", "a@r2"),
            ["--group", "f = a, a@r2", "--label", "f=objective:mlm,size:small"],
            {"groups": {"f": ["a", "a@r2"]}, "labels": {"f": ["objective:mlm", "size:small"]}},
        ),
        (
            STEPS.models,
            ["--trajectory", "run = a@step1, a@step20"],
            {"trajectories": {"run": ["a@step1", "a@step20"]}},
        ),
    ],
)
def test_the_command_line_and_python_say_the_same(models, line, expected):
    given = [word for name in models for word in ("--model", name)]
    command = ["analyze", "--stimuli", "probing", "--out", "x", *given, *line]
    spec = spec_from_options(parser(None).parse_args(command))
    assert spec == AnalysisSpec(models=models, **expected)
    assert AnalysisSpec.from_dict(spec.to_dict()) == spec
    spec.check()


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"groups": {"g": ["a", "d"]}}, ["group 'g'", "'d'", "a, a@r2, b, c"]),
        ({"groups": {"g": ["a"], "h": ["b", "a"]}}, ["'a' is named twice", "'g' and 'h'"]),
        ({"groups": (("g", ("a",)), ("g", ("b",)))}, ["the group 'g' is named twice"]),
        ({"groups": {"b": ["a", "c"]}}, ["the group 'b' has the name of a model"]),
        ({"groups": {"g": []}}, ["'g' has 0 members"]),
        ({"labels": {"x": ["f:1"]}}, ["'x'"]),
        ({"labels": {"g": ["f:1"]}}, ["'b' has no 'f'", "--label b=f:VALUE"]),
        ({"labels": {"g": ["f:1"], "a": ["f:2"]}}, ["the 'f' of 'a' is '1' and '2'"]),
        ({"trajectories": {"t": ["a@step1", "c@step2"]}}, ["'t'", "'c@step2'", "a@step"]),
        ({"trajectories": {"t": ["a@step1", "a"]}}, ["'a'", "no training step"]),
        ({"trajectories": {"t": ["a@step1", "a@20", "a@step1"]}}, ["'a@step1' is named twice"]),
        ({"trajectories": {"t": ["a@step1", "b@step1"]}}, ["'t' has the step 1 alone"]),
        # Two revisions of one step of one run are no seeds.
        ({"trajectories": {"t": ["a@step20", "a@20"]}}, ["'a@step20' and 'a@20'", "step 20 of"]),
    ],
)
def test_what_is_no_group_no_label_and_no_trajectory(change, facts):
    spec = STEPS if "trajectories" in change else replace(GROUPED, groups={"g": ["a", "a@r2"]})
    with refused(*facts):
        replace(spec, **change).check()


@pytest.mark.parametrize(
    ("member", "step"),
    [
        ("mini@step1000", 1000),
        ("org/mini@1000", 1000),
        ("a@global_step_007", 7),
        ("a@random", 0),
        ("a@random3", 0),
        ("a@step5@random", 0),
    ],
)
def test_the_step_is_the_number_at_the_end_of_the_revision(member, step):
    assert step_of(member) == step


@pytest.mark.parametrize(
    "member",
    ["a", "a1000", "a@main", "a@", "@step5", "a@step5k", "a@v1.5", "a@step5-tokens2B"]
    + ["a@step" + "1" * 16, "a@e5f3a12", "a@seed1", "a@" + "0" * 39 + "f1", "a@step५"],
)
def test_a_member_without_a_number_is_refused(member):
    with refused("no training step", "@step1000"):
        step_of(member)


def test_labels_of_a_group_are_those_of_its_members():
    groups, labels = (("g", ("a", "b")),), (("g", ("f:1", "s:x")), ("c", ("f:2", "s:x")))
    assert labels_of(groups, labels, ["c", "a", "b"]) == {"f": ("2", "1", "1"), "s": ("x",) * 3}


def test_a_part_of_the_models_keeps_its_part():
    spec = replace(GROUPED, groups={"g": ["a", "c"], "h": ["b"]}, labels={"g": ["f:1"]})
    assert with_files(spec, ()).groups == (("g", ("a",)), ("h", ("b",)))
    assert with_models(spec, ["b"]).groups == (("g", ("c",)), ("h", ("b",)))
    named = {"t": ["a@step1", "a@step20", "b@step1"], "u": ["b@step1", "b@20"]}
    spec = replace(STEPS, trajectories=named)
    spec.check()
    assert with_files(spec, ()).trajectories == (("t", tuple(named["t"])),)
    assert with_models(spec, ["a@step1", "b@step1"]).trajectories == (("u", ("b@step1", "b@20")),)

"""Trajectories over training: which members are taken, at which step, and which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.errors import InputError
from mlem_core.cli.options import parser, spec_of
from mlem_core.models.checkpoints import parse_trajectory, step_of

GIVEN = AnalysisSpec(
    models=("a@step1", "a@step20", "b@step1", "a@random", "a@random1", "a"),
    representations=(("b@20", "b.npz"),),
)


@pytest.mark.parametrize(
    ("member", "step"),
    [
        ("mini@step1000", 1000),
        ("org/mini@1000", 1000),
        ("a@checkpoint-1000", 1000),
        ("a@step0", 0),
        ("a@global_step_007", 7),
        ("a@random", 0),
        ("a@random3", 0),
        ("a@b@step5", 5),
        ("a@step5@random", 0),
    ],
)
def test_the_step_is_the_number_at_the_end_of_the_revision(member: str, step: int) -> None:
    assert step_of(member) == step


@pytest.mark.parametrize(
    "member",
    ["a", "a1000", "a@main", "a@", "@step5", "a@step5k", "a@v1.5", "a@step5-tokens2B", "a@"]
    + ["a@step" + "1" * 16, "a@e5f3a12", "a@seed1", "a@" + "0" * 39 + "f1", "a@step५"],
)
def test_a_member_without_a_number_is_said_in_a_sentence(member: str) -> None:
    with pytest.raises(InputError, match=r"^the member .* has no training step; .*@step1000'?\.$"):
        step_of(member)


def test_the_command_line_and_python_say_the_same() -> None:
    command = ["analyze", "--stimuli", "probing", "--out", "x"]
    models = [word for name in GIVEN.models for word in ("--model", name)]
    text = "run = a@step1, a@step20"
    spec = spec_of(parser(None).parse_args([*command, *models, "--trajectory", text]))
    assert spec == AnalysisSpec(models=GIVEN.models, trajectories={"run": ["a@step1", "a@step20"]})
    assert AnalysisSpec.from_dict(spec.to_dict()) == spec
    spec.check()
    assert "trajectories" not in AnalysisSpec(models=("a",)).to_dict()


@pytest.mark.parametrize(
    ("trajectories", "says"),
    [
        ({"t": ["a@step1", "c@step2"]}, "unknown member of the trajectory 't' 'c@step2': .*a@step"),
        ({"t": ["a@step1", "a"]}, "the member 'a' of a trajectory has no training step"),
        ({"t": ["a@step1", "a@step20", "a@step1"]}, "'a@step1' is named twice in the trajectory"),
        ({"t": ["a@step1", "b@step1"]}, "'t' has the step 1 alone; expected members of two steps"),
        ({"t": ["a@random", "a@random1"]}, "the step 0 alone"),
        ({"t": []}, "'t' has no member; expected"),
        ({"": ["a@step1"]}, "needs a name that can be printed"),
        ({"t\n": ["a@step1"]}, "needs a name that can be printed"),
        (
            (("t", ("a@step1", "a@step20")), ("t", ("b@step1", "b@20"))),
            "the trajectory 't' is named twice",
        ),
    ],
)
def test_what_is_no_trajectory_is_said(trajectories: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        replace(GIVEN, trajectories=trajectories).check()
    assert str(raised.value).count(". ") == 0


def test_two_revisions_of_one_step_of_one_run_are_no_seeds() -> None:
    spec = AnalysisSpec(models=("a@step5", "a@5", "a@9"), trajectories={"t": ["a@step5", "a@5"]})
    with pytest.raises(InputError, match=r"'a@step5' and 'a@5' .* are both step 5 of 'a'"):
        spec.check()


@pytest.mark.parametrize("text", ["", "t", "t=", "=a@1", "t= , "])
def test_texts_of_another_form(text: str) -> None:
    with pytest.raises(InputError, match="not of the form NAME=MODEL@STEP"):
        parse_trajectory(text)


def test_a_part_of_the_models_keeps_its_part_of_the_trajectories() -> None:
    spec = replace(
        GIVEN, trajectories={"t": ["a@step1", "a@step20", "b@step1"], "u": ["b@step1", "b@20"]}
    )
    spec.check()
    assert with_files(spec, ()).trajectories == (("t", ("a@step1", "a@step20", "b@step1")),)
    assert with_models(spec, ["a@step1", "b@step1"]).trajectories == (("u", ("b@step1", "b@20")),)
    called = {"a@step1": "c@step1"}
    named = with_models(spec, ["c@step1", "a@step20"], called).trajectories
    assert named == (("t", ("c@step1", "a@step20")),)
    # What is called so that its step is hidden is on no axis.
    assert with_models(spec, ["/c", "a@step20"], {"a@step1": "/c"}).trajectories == ()

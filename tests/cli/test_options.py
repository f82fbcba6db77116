from __future__ import annotations

import argparse

import pytest

from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.errors import InputError
from mlem_core.cli.options import parser, spec_of
from mlem_core.data.datasets import SETS
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.models.registry import MODELS, BuiltInModel


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = parser(None)._actions
    (found,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return dict(found.choices)


def test_every_option_is_explained() -> None:
    for name, command in commands().items():
        assert not [action.dest for action in command._actions if not action.help], name
        assert command.format_help()


def test_the_built_in_sets_are_named() -> None:
    said = commands()["stimuli"].format_help()
    assert all(name in said for name in SETS)


def test_what_is_registered_from_outside_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = AnalysisSpec(models=("minilm",), estimator="toy")
    with pytest.raises(InputError, match="unknown estimator 'toy'"):
        spec.check()
    monkeypatch.setitem(ESTIMATORS, "toy", ESTIMATORS["ridge"])
    monkeypatch.setitem(MODELS, "toy-model", BuiltInModel("toy-model", "a toy", "mlem_core"))
    monkeypatch.setitem(SETS, "toy-set", SETS["probing"])
    spec.check()
    said = commands()["analyze"].format_help() + commands()["stimuli"].format_help()
    assert all(name in said for name in ("|toy", "toy-model", "toy-set"))


def test_every_field_of_an_analysis_is_an_option_with_the_same_default() -> None:
    options = parser(None).parse_args(["analyze", "--stimuli", "probing", "--out", "x"])
    assert spec_of(options) == AnalysisSpec()
    assert set(parameters()) <= set(vars(options))
    assert all(described.label for described in parameters().values())

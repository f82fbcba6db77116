from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.errors import InputError
from mlem_core.cli import streams
from mlem_core.cli.commands import main
from mlem_core.cli.options import BAD_INPUT, parser, spec_of
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


def test_no_control_character_of_a_file_reaches_the_terminal(tmp_path, capsys) -> None:
    escape = "\x1b[31mred\x07\x9b2J\u202e"
    path = tmp_path / "mine.csv"
    rows = [f"s {i},{'ab'[i % 2]},{i % 3},NA" for i in range(12)]
    path.write_text(f"sentence,tense{escape},number,x{escape}\n" + "\n".join(rows))
    assert main(["lint", "--stimuli", str(path)]) == 0
    assert main(["lint", "--stimuli", str(path), "--features", f"no{escape}"]) == BAD_INPUT
    assert main(["stimuli", f"{tmp_path}/no{escape}.csv", "--out", str(tmp_path / "o.csv")]) == 2
    said = "".join(capsys.readouterr())
    assert said.count(r"\x1b[31mred\x07\x9b2J\u202e") >= 3
    assert not [char for char in said if char != "\n" and not char.isprintable()]


def test_streams_alone_print() -> None:
    for module in sorted(Path(streams.__file__).parent.glob("*.py")):
        assert ("print(" in module.read_text()) == (module.name == "streams.py"), module.name

import argparse
from pathlib import Path

import numpy as np
import pytest
from inputs import arguments_of, in_files, noise, words

from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.cli import streams
from mlem_core.cli.commands import main
from mlem_core.cli.options import BAD_INPUT, parser, spec_from_options
from mlem_core.data.datasets import SETS


def commands():
    actions = parser(None)._actions
    (found,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return dict(found.choices)


def test_every_option_is_explained():
    for name, command in commands().items():
        assert not [action.dest for action in command._actions if not action.help], name
        assert command.format_help()
    assert all(name in commands()["stimuli"].format_help() for name in SETS)


def test_every_field_of_an_analysis_is_an_option_with_the_same_default():
    options = parser(None).parse_args(["analyze", "--stimuli", "probing", "--out", "x"])
    assert spec_from_options(options) == AnalysisSpec()
    assert set(parameters()) <= set(vars(options))
    assert all(described.label for described in parameters().values())


def test_no_control_character_of_a_file_reaches_the_terminal(tmp_path, capsys):
    escape = "\x1b[31mred\x07\x9b2J\u202e"
    path = tmp_path / "mine.csv"
    rows = [f"s {i},{'ab'[i % 2]},{i % 3},NA" for i in range(12)]
    path.write_text(f"sentence,tense{escape},number,x{escape}\n" + "\n".join(rows))
    assert main(["lint", "--stimuli", str(path)]) == 0
    assert main(["lint", "--stimuli", str(path), "--features", f"no{escape}"]) == BAD_INPUT
    assert main(["stimuli", f"{tmp_path}/no{escape}.csv", "--out", str(tmp_path / "o.csv")]) == 2
    said = "".join(capsys.readouterr())
    assert said.count(r"\x1b[31mred\x07\x9b2J") >= 3
    assert not [char for char in said if char != "\n" and not char.isprintable()]


def test_streams_alone_print():
    for module in sorted(Path(streams.__file__).parent.glob("*.py")):
        assert ("print(" in module.read_text()) == (module.name == "streams.py"), module.name


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """20 sentences, a file of two numbered layers, and one whose layers have names."""
    folder, table = tmp_path_factory.mktemp("inputs"), words(20)
    layers = noise(len(table))
    spec = in_files(folder, table, {"m": layers})
    np.savez(folder / "hIT.npz", V1=layers[0], IT=layers[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLEM_CACHE", str(folder / "store"))
        yield [*arguments_of(spec), f"--representations=hIT={folder / 'hIT.npz'}", "--folds=3"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["why", "hIT:IT", "hIT:1"], ["layer hIT:1 twice"]),
        (["why", "m:0", "m:40"], ["unknown layer of m '40'", "choices are 0, 1."]),
        (["why", "hIT:IT", "hIT:V4"], ["unknown layer of hIT 'V4'", "choices are V1, IT."]),
        (["why", "m:0", "m:V1"], ["'V1'", "choices are 0, 1."]),
        (["multiverse", "--out=x", "--claim=top nouns m:0"], ["unknown feature 'nouns'"]),
        (["multiverse", "--out=x", "--claim=top noun x:0"], ["'x'"]),
    ],
)
def test_a_layer_or_feature_that_is_not_there_is_named(inputs, capsys, command, said):
    assert main([*command, *inputs]) == 2
    told = capsys.readouterr()
    assert all(part in told.err for part in said), told.err
    assert not told.out


def test_a_layer_has_the_name_that_is_shown(inputs, capsys):
    assert main(["why", "hIT:IT", "hIT:V1", *inputs]) == 0
    named = capsys.readouterr().out
    assert main(["why", "hIT:1", "hIT:0", *inputs]) == 0
    assert capsys.readouterr().out == named and "hIT IT" in named

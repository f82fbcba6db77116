"""The command line: options, `replicate`, and groups of models with planted seeds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import arguments_of, for_each, in_files, noise, two_systems, words

from mlem_core import AnalysisSpec, write_csv
from mlem_core.analysis.spec import parameters
from mlem_core.cli import streams
from mlem_core.cli.commands import BAD_INPUT, main, parser
from mlem_core.cli.options import spec_from_options
from mlem_core.stimuli.datasets import SETS


def test_every_option_is_explained():
    commands = parser(None)._subparsers._group_actions[0].choices
    for name, command in commands.items():
        assert not [action.dest for action in command._actions if not action.help], name
        shown = command.format_help()
        assert shown.startswith("examples:\n  mlem ") and "\nusage:" in shown
    assert all(name in commands["stimuli"].format_help() for name in SETS)


def test_a_list_that_is_given_twice_counts_twice():
    given = ("--stimuli=probing", "--features=a", "--features=b,c", "--nominal=a", "--out=x")
    spec = spec_from_options(parser(None).parse_args(["analyze", *given]))
    assert (spec.features, spec.nominal, spec.ordered) == (("a", "b", "c"), ("a",), ())


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


@for_each(
    "command, said",
    (["why", "hIT:IT", "hIT:1"], ["layer hIT:1 twice"]),
    (["why", "m:0", "m:40"], ["unknown layer of m '40'", "choices are 0, 1."]),
    (["why", "hIT:IT", "hIT:V4"], ["unknown layer of hIT 'V4'", "choices are V1, IT."]),
    (["why", "m:0", "m:V1"], ["'V1'", "choices are 0, 1."]),
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


@pytest.mark.slow
def test_results_and_halves_are_compared_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    given = [*arguments_of(two_systems(tmp_path)[0]), "--folds=3"]
    one, out = str(tmp_path / "one"), tmp_path / "found" / "r.csv"
    out.parent.mkdir()
    assert main(["analyze", *given, f"--out={one}"]) == 0
    capsys.readouterr()
    assert main(["replicate", one, "--halves", f"--out={out}"]) == 0
    said = capsys.readouterr()
    assert "replicate" in said.out.splitlines()[0] and "correlate at" in said.out
    assert "half (first; second)" in said.err
    table = pd.read_csv(out)
    assert table["quantity"].tolist() == ["importance", "rsa", "weighted_tau"]
    assert (table["lower"] < table["value"]).all() and (table["value"] < table["upper"]).all()
    for name in ("importances", "similarities"):
        assert len(pd.read_csv(out.with_name(f"r_{name}.csv")))
    # The same stimuli as a set, with the options of analyze, are the same result.
    assert main(["replicate", one, *given[1:]]) == 0
    assert "correlate at 1.00 (95 % CI 1.00 to 1.00" in capsys.readouterr().out
    write_csv(words(40).assign(noun=lambda t: ~t["noun"]), tmp_path / "words.csv")
    assert main(["replicate", one, one]) == 2
    assert "not those of that run" in capsys.readouterr().err


def test_a_result_whose_model_is_gone_is_no_result_of_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    given = [*arguments_of(two_systems(tmp_path)[0]), "--folds=3"]
    one = str(tmp_path / "one")
    assert main(["analyze", *given, f"--out={one}"]) == 0
    files = [Path(word.rpartition("=")[2]) for word in given if word.endswith(".npz")]
    files[0].unlink()
    for command in (["export", one, f"--html={tmp_path / 'p.html'}"], ["replicate", one, one]):
        capsys.readouterr()
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "not to be had now" in said and files[0].name in said
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("name", ["representations", "rdms"])
def test_the_home_folder_may_stand_after_a_name(name):
    assert parameters()[name].parse("x=~/a.npz") == ("x", str(Path.home() / "a.npz"))

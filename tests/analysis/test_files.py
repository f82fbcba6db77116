"""An analysis as a command and in Python gives the same analysis."""

import shlex
from dataclasses import replace

import pytest
from helpers.inputs import in_files, words

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.files import command_options, python_lines, shell_line
from mlem_core.analysis.spec import parameters
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main, parser
from mlem_core.cli.options import spec_from_options

SPECS = (
    AnalysisSpec(),
    AnalysisSpec(
        "my words.csv", sep=",", roles=(("note", "ignore"),), add=("next_word", "frequency"),
        ordered=("length",), merge_rare=(("frequency", 4),), folds=3, seed=7, interactions=True,
        models=("minilm", "mini-gpt2"), layers=(0, 3), features=("length", "kind"),
        values=(), groups=(("g", ("minilm", "mini-gpt2")),),
        labels=(("minilm", ("family:a b",)),),
        distance="cosine", missing="level", pairs=0,
    ),
    AnalysisSpec(representations=(("brain", "it's.npz"),), precomputed=("brain",), models=()),
)  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_the_command_is_read_as_the_same_analysis(spec):
    words = shlex.split(shell_line("analyze", spec, "--out=results"))
    assert spec_from_options(parser(None).parse_args(words[1:])) == spec
    code = python_lines(spec, (("minilm", 3), ("gpt2", 5))).splitlines()[2]
    assert eval(code.removeprefix("analysis = run(")[:-1]) == spec


def test_every_parameter_has_its_option():
    options = {option.partition("=")[0] for option in command_options(SPECS[1])}
    known = {f"--{(one.option or name).replace('_', '-')}" for name, one in parameters().items()}
    assert options <= known and len(options) > 15
    assert '--features="a,b",c' in command_options(AnalysisSpec(features=("a,b", "c")))
    with pytest.raises(InputError, match="use Python"):
        command_options(AnalysisSpec(features=(" a", "c")))


def test_what_is_shown_runs_as_its_command_and_in_python(tmp_path, monkeypatch, capsys):
    table = words(12)
    layers = {k: table[["length", "position"]].to_numpy(float) * (k + 1) for k in range(2)}
    layers[1][:, 0] += table["noun"]
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    spec = in_files(tmp_path, table, {"one": layers})
    made = run(spec, Store())
    own = replace(spec, features=made.select(["noun", "length"]).features)
    assert main(shlex.split(shell_line("why", own, "one:0", "one:1"))[1:]) == 0
    said = capsys.readouterr().out
    names = {"profiles": None}
    exec(python_lines(own, (("one", 0), ("one", 1))), names)
    assert [*names["analysis"].pairs.features] == ["noun", "length"]
    assert "noun" in said and "position" not in said

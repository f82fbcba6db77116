"""Odd command lines: done, or refused in one sentence."""

import argparse
import os
import stat
from pathlib import Path

import pytest
from commands import contents, inputs_in
from hostile_capsules import small

from mlem_core.cli.commands import main
from mlem_core.cli.options import parser

ODD = (
    "", " ", "-1", "0", "1", "nan", "inf", "1e999", "0.5", "9223372036854775808", "1" * 400,
    "1" * 5000, "٣", "a\0b", "x\udcff", "a\nb", "../..", "/dev/null", "/", "x" * 300, "=", "m=",
    "=m", "m:", ":0", "m:-1", "m:99999999999999999999", "0,,1", "-1,0", "all", "none", "%s%n{}",
)  # fmt: skip


def options_of(name):
    actions = parser(None)._actions
    (found,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return [
        action.option_strings[0]
        for action in found.choices[name]._actions
        if action.option_strings and action.nargs != 0 and action.dest not in ("help", "cluster")
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    options = inputs_in(folder / "in")
    (folder / "a" / "b").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "a" / "b")
        patch.setenv("MLEM_CACHE", str(folder / "store"))
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
        yield folder, options


def wrongly_taken(arguments, capsys):
    """What is wrong with how a command line was taken; None where nothing is."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:
        capsys.readouterr()
        return f"{type(error).__name__}: {str(error)[:200]}"
    said = capsys.readouterr().err
    if status not in (0, 2) or "Traceback" in said:
        return f"status {status}: {said[:300]}"
    if status == 0:
        return None
    lines = [line for line in said.splitlines() if line]
    wrong = len(lines) != 1 or not lines[0].endswith((".", "?", "is)")) or len(lines[0]) > 1500
    return f"{len(lines)} lines: {said[:300]!r}" if wrong else None


def tried(home, command, capsys, every=1):
    """What is wrong, by the option and its value; `every` so many are tried."""
    folder, inputs = home
    inside = contents(folder / "in")
    wrong: dict[str, str] = {}
    lines = [(option, value) for option in options_of(command[0]) for value in ODD]
    for option, value in lines[every - 1 :: every]:
        lacks = "--out" in options_of(command[0]) and option != "--out"
        needed = ["--out", "out.csv" if command[0] in ("why", "stimuli") else "out"] * lacks
        given = {"lint": inputs[:2], "stimuli": [], "verify": []}.get(command[0], inputs)
        said = wrongly_taken([*command, *given, *needed, f"{option}={value}"], capsys)
        if said is not None:
            wrong[f"{option}={value[:20]!a}"] = said
    assert contents(folder / "in") == inside
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    return wrong


@pytest.mark.parametrize(
    ("command", "every"), [pytest.param("analyze", 47, marks=pytest.mark.slow), ("lint", 17)]
)
def test_some_odd_values(command, every, home, capsys):
    assert tried(home, [command], capsys, every=every) == {}


def test_what_was_found_odd(home, capsys):
    folder, inputs = home
    analyze, why = ["analyze", *inputs, "--out=o"], ["why", "m:0", "m:1", *inputs]
    for command, last in (
        *((analyze, f"--{one}") for one in ("seed=-1", "seed=4294967296", "folds=0", "out=",
                                            "out=/dev/null", "out=a\0b", "capsule=/dev/null")),
        *((why, f"--out={out}") for out in ("", "/dev/null", folder)),
    ):  # fmt: skip
        assert main([*command, last]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert wrongly_taken([*analyze, f"--bootstrap={2**63}"], capsys) is None
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert not Path("o").exists()


@pytest.mark.faults
@pytest.mark.parametrize(
    "command", ["analyze", "lint", "why", "stimuli", "audit", "multiverse", "verify"]
)
def test_odd_values_of_every_option(command, home, capsys):
    (home[0] / "capsule").mkdir(exist_ok=True)
    before = {
        "why": ["m:0", "m:1"],
        "stimuli": [str(home[0] / "in/words.csv")],
        # One layer and one other distance, so that each is a short run.
        "multiverse": ["m:0", "--vary", "distance=euclidean,cosine"],
        "verify": [str(small(home[0] / "capsule"))] if command == "verify" else [],
    }
    assert tried(home, [command, *before.get(command, [])], capsys) == {}
    with capsys.disabled():
        print(f"\n{command}: {len(options_of(command)) * len(ODD)} command lines")

"""`replicate` from the command line: two results, halves, and what is none of them."""

import pandas as pd
import pytest
from inputs import arguments_of, in_files, two_systems, words

from mlem_core.cli.commands import main
from mlem_core.data.stimulus_csv import write_csv


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


def test_what_cannot_be_compared_is_refused(tmp_path, capsys):
    in_files(tmp_path, words(), {})
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "manifest.json").write_text("[]")
    for arguments, fact in (
        (["x"], "one result"),
        (["x", "y", "--halves"], "two results with --halves"),
        ([str(bad), str(bad)], "manifest.json"),
    ):
        assert main(["replicate", *arguments]) == 2
        assert fact in capsys.readouterr().err

"""One way to read: the command line, the app's part, and what is kept of a file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from inputs import WORDS, refused

from mlem_core.analysis import source
from mlem_core.analysis.source import READING, StimulusSource
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.cli.commands import main
from mlem_core.data import datasets
from mlem_core.data.reading.table import read_table
from mlem_core.data.roles import apply_roles, as_csv, guess_roles
from mlem_core.data.stimulus_csv import read_csv, write_csv
from mlem_core.tasks import analyses

TREEBANK = datasets.SETS["treebank"].file


def table(n: int = 24) -> pd.DataFrame:
    """Sentences in columns of other names, numbers, names, and gaps."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(n):
        words = [*rng.choice(WORDS[:6], 3, replace=False), f"né{number}"]
        for i in (0, 2):
            rows.append((" ".join(words), words[i], rng.normal(), rng.choice(["Nom", "Akk"]), "x"))
    frame = pd.DataFrame(rows, columns=["Text", "target", "Häufigkeit", "Kasus", "note"])
    frame.loc[frame.index % 7 == 3, "Häufigkeit"] = np.nan
    return frame


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A file as Excel writes it in Germany."""
    text = table().to_csv(index=False, sep=";", decimal=",", na_rep="NA")
    (tmp_path / "excel.csv").write_bytes(text.encode("cp1252"))
    return tmp_path / "excel.csv"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A file of two sentences."""
    (tmp_path / "two.csv").write_text("sentence,a\nand more,1\nand less,2\n")
    return tmp_path / "two.csv"


def test_app_command_line_and_workbook_read_the_same(made, tmp_path):
    by_app = apply_roles(read_table(made), guess_roles(read_table(made)))
    assert AnalysisSpec(stimuli=str(made)).load_stimuli().digest == by_app.digest
    # What the app keeps of an upload with roles is read to the same.
    assert read_csv(as_csv(by_app)).digest == by_app.digest
    book, frame = openpyxl.Workbook(), table().astype(object)
    for row in [list(frame), *frame.where(frame.notna(), None).values.tolist()]:
        book.active.append(row)
    book.save(tmp_path / "excel.xlsx")
    frame = table()
    for stimuli in (by_app, AnalysisSpec(stimuli=str(tmp_path / "excel.xlsx")).load_stimuli()):
        assert stimuli.sentences == frame["Text"].tolist()
        assert stimuli.words == frame["target"].tolist()
        np.testing.assert_allclose(stimuli.values("Häufigkeit"), frame["Häufigkeit"], rtol=1e-15)
        assert stimuli.values("Kasus").tolist() == frame["Kasus"].tolist()
        assert [f.name for f in stimuli.features] == ["Häufigkeit", "Kasus"]


def test_what_is_chosen_is_in_the_spec_only_where_it_is_chosen(made):
    plain = AnalysisSpec(stimuli=str(made))
    assert not set(READING) & set(plain.to_dict())
    chosen = replace(plain, sep=";", na=(), roles=(("Kasus", "ignore"),), bins=(("a", 3),))
    kept = json.loads(json.dumps(chosen.to_dict()))
    assert set(READING) & set(kept) == {"sep", "na", "roles", "bins"}
    assert AnalysisSpec.from_dict(kept) == chosen
    assert analyses.job_id(plain) != analyses.job_id(chosen)


def test_choices_decide_over_what_is_detected(made):
    asked = StimulusSource(str(made), roles=(("target", "ignore"), ("Häufigkeit", "nominal")))
    stimuli = asked.load_stimuli()
    assert stimuli.level == "sentence" and "_target" in stimuli.table
    assert [f.kind for f in stimuli.features] == ["nominal", "nominal"]
    values = replace(asked, na=(), roles=()).load_stimuli().values("Häufigkeit")
    assert "NA" in values  # no mark, so that the column holds names
    for change, facts in (
        ({"sep": ","}, ["excel.csv"]),
        ({"encoding": "utf-8"}, ["not utf-8"]),
        ({"roles": (("Kasos", "ignore"),)}, ["'Kasos'", "did you mean Kasus"]),
    ):
        with refused(*facts):
            replace(asked, **change).load_stimuli()
    added = {"add": ("word_length",), "bins": (("Häufigkeit", 3),), "nominal": ("Häufigkeit_bin",)}
    kinds = {f.name: f.kind for f in StimulusSource(str(made), **added).load_stimuli().features}
    assert kinds == {"Kasus": "nominal", "word_length": "ordered", "Häufigkeit_bin": "nominal"}
    # Lists and dicts are as good as tuples.
    roles = {"Häufigkeit": "nominal"}
    listed = AnalysisSpec(stimuli=str(made), roles=roles, nominal=["Kasus"]).load_stimuli()
    expected = StimulusSource(str(made), roles=tuple(roles.items()), nominal=("Kasus",))
    assert listed is expected.load_stimuli()


def test_a_file_that_changed_is_read_anew(two):
    asked = StimulusSource(str(two))
    assert asked.load_stimuli() is asked.load_stimuli()
    two.write_text(two.read_text() + "e f,3\n")
    os.utime(two, ns=(1, 1))
    assert len(asked.load_stimuli()) == 3


def test_a_file_is_parsed_once_for_all_roles_of_its_columns(made, monkeypatch):
    parsed = []

    def counted(path, **more):
        parsed.append(path)
        return read_table(path, **more)

    monkeypatch.setattr("mlem_core.analysis.source.read_table", counted)
    whole = StimulusSource(stimuli=str(made))
    name = whole.load_stimuli().features[0].name
    without = StimulusSource(stimuli=str(made), roles=((name, "ignore"),))
    assert name not in [feature.name for feature in without.load_stimuli().features]
    assert parsed == [made]


@pytest.mark.parametrize(
    ("name", "options", "facts"),
    [
        ("table", {"sample": 10}, ["--sample", "a table"]),
        ("table", {"level": "sentence"}, ["--level", "a table"]),
        ("probing", {"sep": ";"}, ["--sep", "a built-in set"]),
        (str(TREEBANK), {"roles": (("upos", "ignore"),)}, ["--role", "a treebank"]),
        ("folder", {}, ["no .conllu file"]),
        ("probin", {}, ["did you mean probing"]),
    ],
)
def test_options_that_do_not_go_with_a_source_are_refused(made, name, options, facts):
    path = {"table": str(made), "folder": str(made.parent)}.get(name, name)
    with refused(*facts):
        StimulusSource(path, **options).load_stimuli()


def test_a_folder_of_treebanks_has_an_id_by_its_content(tmp_path):
    one = tmp_path / "a.conllu"
    one.write_bytes(TREEBANK.read_bytes())
    spec = AnalysisSpec(stimuli=str(tmp_path), models=("minilm",), sample=100)
    assert spec.stimulus_files == [one] and 100 <= len(spec.load_stimuli()) < 115
    before = analyses.job_id(spec)
    one.write_bytes(one.read_bytes()[: one.read_bytes().rindex(b"# sent_id")])
    assert analyses.job_id(spec) != before


def test_the_command_line_says_how_it_read_the_file(made, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    np.savez(tmp_path / "brain.npz", layer_00=np.random.default_rng(1).normal(size=(48, 6)))
    write_csv(AnalysisSpec(stimuli=str(made)).load_stimuli(), tmp_path / "plain.csv")
    said = {}
    for name in ("excel", "plain"):
        command = ["analyze", "--stimuli", str(tmp_path / f"{name}.csv"), "--folds", "3"]
        command += ["--representations", f"brain={tmp_path / 'brain.npz'}"]
        assert main([*command, "--out", str(tmp_path / name)]) == 0
        said[name] = capsys.readouterr().err
    for fact in ("Windows-1252", "semicolons", "decimal comma", "'NA'", "'Text'", "'target'"):
        assert said["excel"].count(fact) == 1 and fact not in said["plain"]
    manifest = json.loads((tmp_path / "excel" / "manifest.json").read_text())
    assert any("semicolons" in notice for notice in manifest["notices"])
    for file in ("scores.csv", "importance.csv", "similarity_rsa.csv"):
        assert (tmp_path / "excel" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()


def test_lint_and_stimuli_on_the_command_line(made, tmp_path, capsys):
    asked = ["lint", "--stimuli", str(made), "--role", "Häufigkeit=ignore", "--folds", "3"]
    assert main(asked) == 0
    shown = capsys.readouterr()
    assert "48 words, 1 feature: Kasus (nominal)" in shown.out and "semicolons" in shown.err
    out = tmp_path / "t.csv"
    sampled = ["--sample", "100", "--balance", "tense", "--out", str(out)]
    assert main(["stimuli", str(TREEBANK), *sampled]) == 0
    assert "A sample of" in capsys.readouterr().err
    expected = StimulusSource(str(TREEBANK), sample=100, balance=("tense",)).load_stimuli()
    assert read_csv(out).digest == expected.digest  # the CSV stands for itself


def test_stimuli_of_a_file_that_changes_while_it_is_read_are_none(two, monkeypatch):
    loaded, other = source._loaded, "sentence,a\nno more,2\nnor less,1\n"
    with monkeypatch.context() as patch:
        patch.setattr(source, "_loaded", lambda *args: (loaded(*args), two.write_text(other))[0])
        with refused("two.csv was changed"):
            StimulusSource(str(two)).load_stimuli()
    assert StimulusSource(str(two)).load_stimuli().sentences[0] == "no more"


def test_surprisal_is_of_the_model_as_it_is_now(two, tmp_path, monkeypatch):
    model, given = tmp_path / "model", []
    model.mkdir()
    asked = StimulusSource(str(two), add=(f"surprisal:{model}",))

    def surprisal(stimuli, name):
        given.append(float((model / "model.safetensors").read_text()))
        return np.array([given[-1], 0.0])

    monkeypatch.setattr("mlem_core.models.surprisal.surprisal", surprisal)
    for now in ("1", "1", "3"):
        (model / "model.safetensors").write_text(now)
        assert asked.load_stimuli().values("surprisal_model")[0] == float(now)
    assert given == [1, 3]

"""One way to read: the command line, the app's part, a capsule and its verification."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from inputs import WORDS

from mlem_core.analysis import files, source
from mlem_core.analysis.run import run
from mlem_core.analysis.source import READING, StimulusSource, as_written
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.data import datasets
from mlem_core.data.reading.table import read_table
from mlem_core.data.roles import apply_roles, as_csv, guess_roles
from mlem_core.data.stimulus_csv import read_csv, write_csv
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.verify import verify
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses


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
def made(tmp_path: Path) -> tuple[Path, tuple[tuple[str, str], ...]]:
    """A file as Excel writes it in Germany, and representations of its rows."""
    frame = table()
    text = frame.to_csv(index=False, sep=";", decimal=",", na_rep="NA")
    (tmp_path / "excel.csv").write_bytes(text.encode("cp1252"))
    rng = np.random.default_rng(1)
    arrays = {f"layer_{k:02d}": rng.normal(size=(len(frame), 6)) for k in range(2)}
    np.savez(tmp_path / "brain.npz", **arrays)
    return tmp_path / "excel.csv", (("brain", str(tmp_path / "brain.npz")),)


def check(stimuli) -> None:
    frame = table()
    assert stimuli.sentences == frame["Text"].tolist()
    assert stimuli.words == frame["target"].tolist()
    np.testing.assert_allclose(stimuli.values("Häufigkeit"), frame["Häufigkeit"], rtol=1e-15)
    assert stimuli.values("Kasus").tolist() == frame["Kasus"].tolist()
    assert [f.name for f in stimuli.features] == ["Häufigkeit", "Kasus"]


def test_app_and_command_line_read_the_same(made):
    path, _ = made
    by_app = apply_roles(read_table(path), guess_roles(read_table(path)))
    check(by_app)
    assert AnalysisSpec(stimuli=str(path)).load_stimuli().digest == by_app.digest
    # What the app keeps of an upload with roles is read to the same.
    assert read_csv(as_csv(by_app)).digest == by_app.digest


def test_a_workbook_gives_the_same_as_the_csv(made, tmp_path):
    book = openpyxl.Workbook()
    frame = table().astype(object)
    for row in [list(frame), *frame.where(frame.notna(), None).values.tolist()]:
        book.active.append(row)
    book.save(tmp_path / "excel.xlsx")
    check(AnalysisSpec(stimuli=str(tmp_path / "excel.xlsx")).load_stimuli())


def test_what_is_chosen_is_in_the_spec_only_where_it_is_chosen(made):
    path, files = made
    plain = AnalysisSpec(stimuli=str(path), representations=files)
    assert not set(READING) & set(plain.to_dict())
    chosen = replace(plain, sep=";", na=(), roles=(("Kasus", "ignore"),), bins=(("a", 3),))
    kept = json.loads(json.dumps(chosen.to_dict()))
    assert set(READING) & set(kept) == {"sep", "na", "roles", "bins"}
    assert AnalysisSpec.from_dict(kept) == chosen
    assert analyses.job_id(plain) != analyses.job_id(chosen)


def test_choices_decide_over_what_is_detected(made):
    path, _ = made
    source = StimulusSource(str(path), roles=(("target", "ignore"), ("Häufigkeit", "nominal")))
    stimuli = source.load_stimuli()
    assert stimuli.level == "sentence" and "_target" in stimuli.table
    assert [f.kind for f in stimuli.features] == ["nominal", "nominal"]
    values = replace(source, na=(), roles=()).load_stimuli().values("Häufigkeit")
    assert "NA" in values  # no mark, so that the column holds names
    with pytest.raises(InputError, match=r"row 1 of excel\.csv has|has the role of the sentence"):
        replace(source, sep=",").load_stimuli()
    with pytest.raises(InputError, match="not utf-8"):
        replace(source, encoding="utf-8").load_stimuli()
    with pytest.raises(InputError, match="unknown column 'Kasos': did you mean Kasus"):
        replace(source, roles=(("Kasos", "ignore"),)).load_stimuli()


def test_added_features_and_bins_can_be_named(made):
    path, _ = made
    source = StimulusSource(
        str(path), add=("word_length",), bins=(("Häufigkeit", 3),), nominal=("Häufigkeit_bin",)
    )
    kinds = {f.name: f.kind for f in source.load_stimuli().features}
    assert kinds == {"Kasus": "nominal", "word_length": "ordered", "Häufigkeit_bin": "nominal"}


def test_lists_and_dicts_are_as_good_as_tuples(made):
    path, _ = made
    roles = {"Häufigkeit": "nominal"}
    stimuli = AnalysisSpec(stimuli=str(path), roles=roles, nominal=["Kasus"]).load_stimuli()
    expected = StimulusSource(str(path), roles=tuple(roles.items()), nominal=("Kasus",))
    assert stimuli is expected.load_stimuli()


def test_a_file_that_changed_is_read_anew(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sentence,f\na b,1\nc d,2\n")
    source = StimulusSource(str(path))
    first = source.load_stimuli()
    assert source.load_stimuli() is first
    path.write_text("sentence,f\na b,1\nc d,2\ne f,3\n")
    os.utime(path, ns=(1, 1))
    assert len(source.load_stimuli()) == 3


def test_a_file_is_parsed_once_for_all_roles_of_its_columns(made, monkeypatch):
    parsed = []

    def counted(path, **more):
        parsed.append(path)
        return read_table(path, **more)

    monkeypatch.setattr("mlem_core.analysis.source.read_table", counted)
    path = made[0].with_name("again.csv")
    path.write_bytes(made[0].read_bytes())
    whole = StimulusSource(stimuli=str(path))
    name = whole.load_stimuli().features[0].name
    without = StimulusSource(stimuli=str(path), roles=((name, "ignore"),))
    assert name not in [feature.name for feature in without.load_stimuli().features]
    assert parsed == [path]


def test_options_that_do_not_go_with_a_source_are_refused(tmp_path, made):
    path, _ = made
    for options, message in (
        ({"sample": 10}, "--sample has no meaning for a table"),
        ({"level": "sentence"}, "--level has no meaning for a table"),
    ):
        with pytest.raises(InputError, match=message):
            StimulusSource(str(path), **options).load_stimuli()
    with pytest.raises(InputError, match="--sep has no meaning for a built-in set"):
        StimulusSource("probing", sep=";").load_stimuli()
    treebank = str(datasets.SETS["treebank"].file)
    with pytest.raises(InputError, match="--role has no meaning for a treebank"):
        StimulusSource(treebank, roles=(("upos", "ignore"),)).load_stimuli()
    with pytest.raises(InputError, match=r"no \.conllu file"):
        StimulusSource(str(tmp_path)).load_stimuli()
    with pytest.raises(InputError, match="did you mean probing"):
        StimulusSource("probin").load_stimuli()


def test_a_folder_of_treebanks_has_an_id_by_its_content(tmp_path):
    one = tmp_path / "a.conllu"
    one.write_bytes(datasets.SETS["treebank"].file.read_bytes())
    spec = AnalysisSpec(stimuli=str(tmp_path), models=("minilm",), sample=100)
    assert spec.stimulus_files == [one] and 100 <= len(spec.load_stimuli()) < 115
    before = analyses.job_id(spec)
    one.write_bytes(one.read_bytes()[: one.read_bytes().rindex(b"# sent_id")])
    assert analyses.job_id(spec) != before


def test_the_command_line_says_how_it_read_the_file(made, tmp_path, capsys, monkeypatch):
    path, files = made
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    (name, array), = files  # fmt: skip
    out = tmp_path / "out"
    code = main(
        ["analyze", "--stimuli", str(path), "--representations", f"{name}={array}", "--folds", "3"]
        + ["--out", str(out)]
    )
    said = capsys.readouterr().err
    assert code == 0, said
    assert said.count("was read as Windows-1252 text separated by semicolons") == 1
    assert "numbers have a decimal comma; 'NA' is a missing value" in said
    assert "'Text' is the sentence, 'target' says which word is the stimulus" in said
    manifest = json.loads((out / "manifest.json").read_text())
    assert any("semicolons" in notice for notice in manifest["notices"])
    write_csv(AnalysisSpec(stimuli=str(path)).load_stimuli(), tmp_path / "plain.csv")
    arguments = ["analyze", "--stimuli", str(tmp_path / "plain.csv"), "--folds", "3"]
    code = main([*arguments, "--representations", f"{name}={array}", "--out", str(tmp_path / "b")])
    assert code == 0 and "read as" not in capsys.readouterr().err
    for file in ("scores.csv", "importance.csv", "similarity_rsa.csv"):
        assert (out / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_lint_and_stimuli_on_the_command_line(made, tmp_path, capsys):
    path, _ = made
    assert (
        main(["lint", "--stimuli", str(path), "--role", "Häufigkeit=ignore", "--folds", "3"]) == 0
    )
    shown = capsys.readouterr()
    assert "48 words, 1 feature: Kasus (nominal)" in shown.out and "semicolons" in shown.err
    out = tmp_path / "t.csv"
    treebank = str(datasets.SETS["treebank"].file)
    arguments = ["stimuli", treebank, "--sample", "100", "--balance", "tense", "--out", str(out)]
    assert main(arguments) == 0
    assert "A sample of" in capsys.readouterr().err
    written = read_csv(out)
    expected = StimulusSource(treebank, sample=100, balance=("tense",)).load_stimuli()
    assert written.digest == expected.digest  # the CSV stands for itself
    assert main(["stimuli", "probing", "--out", str(out)]) == 0
    assert "--nominal person" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["stimuli", str(path), "--sep", "x", "--out", str(out)])
    assert "expected ',' (commas)" in capsys.readouterr().err


def test_a_capsule_of_such_a_file_verifies(made, tmp_path):
    path, sources = made
    spec = AnalysisSpec(
        stimuli=str(path),
        representations=sources,
        folds=3,
        roles=(("note", "ignore"),),
        add=("word_length",),
        na=("NA",),
    )
    analysis = run(spec, Store(tmp_path / "store"))
    assert any("semicolons" in notice for notice in analysis.notices)
    (tmp_path / "kept").mkdir()
    files.save(analysis, tmp_path / "kept")
    assert files.load(tmp_path / "kept").stimuli.digest == analysis.stimuli.digest
    target = capsule.write(analysis, tmp_path / "c.zip", drawing=Drawing(images=False))
    assert verify(target).same
    assert as_written(spec, "x") == AnalysisSpec(stimuli="x", representations=sources, folds=3)


def test_values_that_look_missing_survive_a_capsule(tmp_path):
    """Here NA is a value, and stays one in what is kept of the analysis."""
    rows = [f"a{i} b{i},{'NA' if i % 2 else 'x'},{i}" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["sentence,f,g", *rows]))
    np.savez(tmp_path / "r.npz", layer_00=np.random.default_rng(0).normal(size=(12, 4)))
    sources = (("r", str(tmp_path / "r.npz")),)
    spec = AnalysisSpec(str(tmp_path / "a.csv"), representations=sources, folds=3, na=())
    analysis = run(spec, Store(tmp_path / "store"))
    assert analysis.stimuli.values("f")[1] == "NA"
    (tmp_path / "kept").mkdir()
    files.save(analysis, tmp_path / "kept")
    assert files.load(tmp_path / "kept").stimuli.digest == analysis.stimuli.digest
    target = capsule.write(analysis, tmp_path / "c.zip", drawing=Drawing(images=False))
    assert verify(target).same


def test_stimuli_of_a_file_that_changes_while_it_is_read_are_none(tmp_path, monkeypatch):
    path, other = tmp_path / "one.csv", "sentence,a\nno more,2\nnor less,1\n"
    path.write_text("sentence,a\nand more,1\nand less,2\n")
    loaded = source._loaded
    with monkeypatch.context() as patch:
        patch.setattr(source, "_loaded", lambda *args: (loaded(*args), path.write_text(other))[0])
        with pytest.raises(InputError, match=r"^one\.csv was changed"):
            StimulusSource(str(path)).load_stimuli()
    assert StimulusSource(str(path)).load_stimuli().sentences[0] == "no more"


def test_surprisal_is_of_the_model_as_it_is_now(tmp_path, monkeypatch):
    path, model = tmp_path / "one.csv", tmp_path / "model"
    path.write_text("sentence,a\nand more,1\nand less,2\n")
    model.mkdir()
    asked = StimulusSource(str(path), add=(f"surprisal:{model}",))
    given = []

    def surprisal(stimuli, name):
        given.append(float((model / "model.safetensors").read_text()))
        return np.array([given[-1], 0.0])

    monkeypatch.setattr("mlem_core.models.surprisal.surprisal", surprisal)
    for now in ("1", "1", "3"):
        (model / "model.safetensors").write_text(now)
        assert asked.load_stimuli().values("surprisal_model")[0] == float(now)
    assert given == [1, 3]

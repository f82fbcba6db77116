"""What is asked for: models that belong together, and one way to read stimuli."""

from dataclasses import replace

import numpy as np
import openpyxl
import pandas as pd
import pytest
from helpers.inputs import WORDS, as_csv, for_each, refused

from mlem_core.analysis.source import StimulusSource
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.cli.commands import parser
from mlem_core.cli.options import spec_from_options
from mlem_core.extensions.systems.group_spec import labels_by_factor, training_step
from mlem_core.stimuli.reading.table import read_table
from mlem_core.stimuli.roles import apply_roles, guess_roles, read_csv

GROUPED = AnalysisSpec(models=("a", "a@r2", "b"), representations=(("c", "c.npz"),))
STEPS = AnalysisSpec(
    models=("a@step1", "a@step20", "b@step1", "a@random", "a@random1", "a", "a@20"),
    representations=(("b@20", "b.npz"),),
)


@for_each(
    "models, line, expected",
    (
        ("a", "a@r2"),
        ["--group", "f = a, a@r2", "--label", "f=objective:mlm,size:small"],
        {"groups": {"f": ["a", "a@r2"]}, "labels": {"f": ["objective:mlm", "size:small"]}},
    ),
    (
        STEPS.models,
        ["--trajectory", "run = a@step1, a@step20"],
        {"trajectories": {"run": ["a@step1", "a@step20"]}},
    ),
)
def test_the_command_line_and_python_say_the_same(models, line, expected):
    given = [word for name in models for word in ("--model", name)]
    command = ["analyze", "--stimuli", "probing", "--out", "x", *given, *line]
    spec = spec_from_options(parser(None).parse_args(command))
    assert spec == AnalysisSpec(models=models, **expected)
    assert AnalysisSpec.from_dict(spec.to_dict()) == spec
    spec.check()


@for_each(
    "change, facts",
    ({"groups": {"g": ["a", "d"]}}, ["group 'g'", "'d'", "a, a@r2, b, c"]),
    ({"groups": {"g": ["a"], "h": ["b", "a"]}}, ["'a' is in the groups", "'g' and 'h'"]),
    ({"groups": (("g", ("a",)), ("g", ("b",)))}, ["the group 'g' is named twice"]),
    ({"groups": {"b": ["a", "c"]}}, ["the group 'b' has the name of a model"]),
    ({"groups": {"g": []}}, ["'g' has 0 members"]),
    ({"labels": {"x": ["f:1"]}}, ["'x'"]),
    ({"labels": {"g": ["f:1"]}, "resampled_whole": "h"}, ["unknown property 'h'", "f"]),
    (
        {"labels": {"g": ["f:x"]}, "property_kinds": {"f": "log"}},
        ["unknown kind of the property 'f'", "'log'", "class, ignore"],
    ),
    ({"labels": {"g": ["f:1"], "a": ["f:2"]}}, ["the 'f' of 'a' is '1' and '2'"]),
    ({"trajectories": {"t": ["a@step1", "c@step2"]}}, ["'t'", "'c@step2'", "a@step"]),
    ({"trajectories": {"t": ["a@step1", "a"]}}, ["'a'", "no training step"]),
    (
        {"trajectories": {"t": ["a@step1", "a@20", "a@step1"]}},
        ["'a@step1' of the trajectory 't' is named twice"],
    ),
    ({"trajectories": {"t": ["a@step1", "b@step1"]}}, ["'t' has the step 1 alone"]),
    # Two revisions of one step of one run are no seeds.
    ({"trajectories": {"t": ["a@step20", "a@20"]}}, ["'a@step20' and 'a@20'", "step 20 of"]),
)
def test_what_is_no_group_no_label_and_no_trajectory(change, facts):
    spec = STEPS if "trajectories" in change else replace(GROUPED, groups={"g": ["a", "a@r2"]})
    with refused(*facts):
        replace(spec, **change).check()


@for_each(
    "member, step",
    ("mini@step1000", 1000),
    ("org/mini@1000", 1000),
    ("a@global_step_007", 7),
    ("a@random", 0),
    ("a@random3", 0),
    ("a@step5@random", 0),
)
def test_the_step_is_the_number_at_the_end_of_the_revision(member, step):
    assert training_step(member) == step


def test_labels_of_a_group_are_those_of_its_members():
    groups, labels = (("g", ("a", "b")),), (("g", ("f:1", "s:x")), ("c", ("f:2", "s:x")))
    assert labels_by_factor(groups, labels, ["c", "a", "b"]) == {
        "f": ("2", "1", "1"),
        "s": ("x",) * 3,
    }


def test_a_part_of_the_models_keeps_its_part():
    spec = replace(GROUPED, groups={"g": ["a", "c"], "h": ["b"]}, labels={"g": ["f:1"]})
    assert with_files(spec, ()).groups == (("g", ("a",)), ("h", ("b",)))
    assert with_models(spec, ["b"]).groups == (("g", ("c",)), ("h", ("b",)))
    named = {"t": ["a@step1", "a@step20", "b@step1"], "u": ["b@step1", "b@20"]}
    spec = replace(STEPS, trajectories=named)
    spec.check()
    assert with_files(spec, ()).trajectories == (("t", tuple(named["t"])),)
    assert with_models(spec, ["a@step1", "b@step1"]).trajectories == (("u", ("b@step1", "b@20")),)


def table(n=24):
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
def made(tmp_path):
    """A file as Excel writes it in Germany."""
    text = table().to_csv(index=False, sep=";", decimal=",", na_rep="NA")
    (tmp_path / "excel.csv").write_bytes(text.encode("cp1252"))
    return tmp_path / "excel.csv"


@pytest.fixture
def two(tmp_path):
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
    added = {"add": ("word_length",), "nominal": ("Häufigkeit",)}
    kinds = {f.name: f.kind for f in StimulusSource(str(made), **added).load_stimuli().features}
    assert kinds == {"Kasus": "nominal", "word_length": "ordered", "Häufigkeit": "nominal"}


def test_surprisal_is_of_the_model_as_it_is_now(two, tmp_path, monkeypatch):
    model, given = tmp_path / "model", []
    model.mkdir()
    asked = StimulusSource(str(two), add=(f"surprisal:{model}",))

    def surprisal(stimuli, name, **_):
        given.append(float((model / "model.safetensors").read_text()))
        return np.array([given[-1], 0.0])

    monkeypatch.setattr("mlem_core.extensions.text_features.surprisal.surprisal", surprisal)
    for now in ("1", "1", "3"):
        (model / "model.safetensors").write_text(now)
        assert asked.load_stimuli().values("surprisal_model")[0] == float(now)
    assert given == [1, 3]

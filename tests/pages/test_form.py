"""The form of a new analysis or a duplicate: what is read, chosen, carried over and refused."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, in_files, noise, probing, words
from helpers.screens import Screen, jobs_in
from huggingface_hub import constants
from scipy.spatial.distance import pdist, squareform

from mlem_core import AnalysisSpec, Store, write_csv
from mlem_core.analysis.source import StimulusSource
from mlem_core.analysis.spec import names_in_section, parameters
from mlem_core.stimuli import datasets
from mlem_core.tasks import analyses
from pages.form import models, state
from pages.form.draft import draft
from pages.form.state import form_state
from pages.parts import choices, stored


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def csv(tmp_path):
    write_csv(words(20), tmp_path / "mine.csv")
    return tmp_path / "mine.csv"


def can_run(screen):
    return not screen.buttons["Run"].disabled


def test_a_doubt_has_a_button_and_the_preview_marks_the_stimulus(store, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("sentence,word_index,f\nthe old boy,1,u\nthe old boy,2,v\na cat runs,1,u\n")
    screen = Screen("new").upload(path)
    assert screen.preview[1] == ["1", "the [old] boy", "1", "u"]
    screen.press("Count from 1")
    sentences = [row[1] for row in screen.preview[1:]]
    assert sentences == ["[the] old boy", "the [old] boy", "[a] cat runs"]
    assert "--counts-from" not in screen.said and screen.address["counts_from"] == ["1"]
    # Of what can only count from 1, the step shows the choice beside the error.
    path.write_text("sentence,word_index,f\nthe old boy,1,u\nthe old boy,3,v\na cat runs,1,u\n")
    screen = Screen("new").upload(path)
    assert "choose that they do" in " ".join(screen.said.split()) and "--" not in screen.said
    screen.choose("Words count from", "1")
    assert screen.preview[2][1] == "the old [boy]"
    # Numbers that lead to the words, and others that count the sentences, are offered as that.
    rows = [f"a {name} runs,{name},1,{n},u" for n, name in enumerate(("dog", "cat", "cow", "hen"))]
    rows += ["the old boy,old,1,4,u", "the old boy,boy,2,4,v"]
    path.write_text("\n".join(("sentence,critical,pos,part,f", *rows)))
    screen = Screen("new").upload(path).press("Use pos")
    assert screen.preview[5][1] == "the [old] boy"
    screen.press("Keep rows with the same part together")
    assert screen.address["roles"] == ["critical=word", "pos=word_index", "part=sentence_id"]
    codes = [*[1, 2, 3] * 4, -99]
    rows = "".join(f"the {n} sings,{code},{n % 4 + 1}\n" for n, code in enumerate(codes * 2))
    path.write_text(f"sentence,code,label\n{rows}")
    screen = Screen("new").upload(path).press("Read -99 as missing")
    assert screen.address["na"] == ["-99"]
    screen.press("Make code and label categorical")
    assert screen.address["roles"] == ["code=nominal", "label=nominal"]


def test_the_header_is_found_marked_and_chosen(store, tmp_path):
    path = tmp_path / "titled.csv"
    table = "sentence,word_index,f\nthe old boy,0,u\n\nthe old boy,1,v\na cat runs,1,u\n"
    path.write_text(f"Items,,\n\n{table}")
    screen = Screen("new").upload(path)
    assert [row[0] for row in screen.preview] == ["·", "·", "header", "1", "·", "2", "3"]
    assert screen.preview[5][1] == "the [old] boy" and screen.errors == []
    assert screen.choose("Header row", "1").preview[0] == ["header", "Items", "", ""]
    # Where the file cannot be read, its rows are there to be chosen.
    path.write_text(f"a,b,c,d\nItems\n{table}")
    screen = Screen("new").upload(path)
    assert len(screen.errors) == 1 and screen.preview[2][1:] == ["sentence", "word_index", "f", ""]
    assert screen.choose("Header row", "3").errors == []


@pytest.mark.slow
def test_an_excel_file_is_read_as_it_is_and_run(store, tmp_path):
    """Sentences as a German Excel writes them: semicolons, decimal commas, Latin-1, `NA`."""
    table = probing(20)
    numbers = [f"{1 + row % 7},{row % 9}1" if row % 6 else "NA" for row in range(len(table))]
    table = table.assign(Häufigkeit=numbers)
    names = ["sentence", "word_index", "Häufigkeit", "part_of_speech", "tense"]
    path = tmp_path / "Wörter.csv"
    text = table[names].to_csv(sep=";", index=False, na_rep="NA", lineterminator="\r\n")
    path.write_bytes(text.encode("latin-1"))
    screen = Screen("new").upload(path)
    boxes = {one.label: one.options[0] for one in screen.app.selectbox}
    for label, found in {
        "Separator": "semicolons",
        "Encoding": "Windows-1252",
        "Decimal sign": "comma",
        "Missing-value marks": "NA",
    }.items():
        assert boxes[label] == f"detected: {found}"
    assert screen.errors == []
    screen.press("Next: Roles")
    assert screen.widget("selectbox", "Role of Häufigkeit").value == "ordered"
    assert "features have empty cells" in screen.said and "tense (" in screen.said
    screen.press("Next: Models").choose("form models", ["mini-bert"], "multiselect")
    screen.choose("choice layers", "0,6", "text_input").press("Run")
    spec = screen.spec(store)
    # The upload itself is what was analysed, read as the command line reads it.
    assert Path(spec.stimuli).read_bytes() == path.read_bytes()
    assert spec.load_stimuli().digest == AnalysisSpec(str(path)).load_stimuli().digest
    screen = Screen(analysis=screen.job)
    assert screen.canvas["terms"] and screen.errors == []
    assert screen.pair == ("mini-bert layer 0", "mini-bert layer 6")


def test_roles_and_free_features_go_into_the_analysis(store, csv, tmp_path):
    np.save(tmp_path / "brain.npy", np.random.default_rng(0).standard_normal((len(words(20)), 4)))
    screen = Screen("new", models="none").upload(csv).press("step roles")
    screen.choose("Role of position", "ignore")
    screen.choose("form add", ["frequency", "position_from_end"], "button_group")
    screen.press("step models").press("step roles")
    assert screen.said.count("(added)") == 2
    screen.press("step models").upload(tmp_path / "brain.npy", to="representations").press("Run")
    spec = screen.spec(store)
    assert spec.roles == (("position", "ignore"),)
    assert spec.add == ("frequency", "position_from_end")
    names = [feature.name for feature in spec.load_stimuli().features]
    assert names == ["noun", "length", "frequency", "position_from_end"]


def test_neighbours_that_are_alike_have_a_button_that_makes_blocks_of_them(store, tmp_path):
    rng, names = np.random.default_rng(0), [f"trial {number}" for number in range(120)]
    frame = pd.DataFrame({"stimulus": names, "topic": rng.choice(["a", "b"], 120)})
    frame.to_csv(tmp_path / "trials.csv", index=False)
    np.save(tmp_path / "scan.npy", np.cumsum(rng.standard_normal((120, 10)), axis=0))
    screen = Screen("new", models="none").upload(tmp_path / "trials.csv").press("step models")
    screen.upload(tmp_path / "scan.npy", to="representations")
    (warning,) = screen.app.warning
    assert "Neighbours are alike in scan" in warning.value
    screen.press("Group rows into blocks of 12")
    assert screen.address["blocks"] == ["12"] and not screen.app.warning
    spec = screen.press("Run").spec(store)
    assert np.bincount(spec.load_stimuli().groups).tolist() == [12] * 10


def test_an_image_asks_for_an_atlas_and_rows_that_do_not_match_for_a_table(store, tmp_path):
    nibabel, rng = pytest.importorskip("nibabel"), np.random.default_rng(0)
    names = [f"image {number}" for number in range(30)]
    frame = pd.DataFrame({"stimulus": names, "kind": rng.choice(["a", "b"], 30)})
    frame.to_csv(tmp_path / "images.csv", index=False)
    volumes = rng.standard_normal((4, 4, 2, 60))
    atlas = rng.integers(1, 3, (4, 4, 2)).astype(np.int16)
    for name, array in (("betas", volumes), ("atlas", atlas)):
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / f"{name}.nii.gz")
    pd.DataFrame({"stimulus": names * 2}).to_csv(tmp_path / "volumes.csv", index=False)
    screen = Screen("new", models="none").upload(tmp_path / "images.csv").press("step models")
    screen.upload(tmp_path / "betas.nii.gz", to="representations")
    assert "name a mask or an atlas" in screen.errors[0] and not can_run(screen)
    screen.upload(tmp_path / "atlas.nii.gz", to="regions of betas")
    assert "60 rows" in screen.errors[0]
    screen.press("regions away betas")
    assert "name a mask or an atlas" in screen.errors[0]
    screen.upload(tmp_path / "atlas.nii.gz", to="regions of betas")
    screen.upload(tmp_path / "volumes.csv", to="rows of betas")
    assert screen.errors == [] and "layers region 1 and region 2" in screen.said
    spec = screen.press("Run").spec(store)
    assert [Path(path).name for _, path in spec.regions] == ["atlas.nii.gz"]
    # What an analysis is of stays, however old the upload is.
    analyses.purge_uploads(store, days=-1)
    assert all(Path(path).is_file() for _, path in (*spec.regions, *spec.rows))


@pytest.mark.slow
def test_columns_become_a_vector_and_a_file_a_feature(store, tmp_path):
    rng, table = np.random.default_rng(0), words(20)
    vectors, hidden = rng.standard_normal((len(table), 2)), rng.standard_normal((len(table), 3))
    write_csv(table.assign(s1=vectors[:, 0], s2=vectors[:, 1]), tmp_path / "with vectors.csv")
    np.save(tmp_path / "ratings.npy", squareform(pdist(hidden)))
    np.save(tmp_path / "wrong.npy", np.zeros((3, 4)))
    np.save(tmp_path / "brain.npy", hidden @ rng.standard_normal((3, 8)))
    screen = Screen("new", models="none", step="roles").upload(tmp_path / "with vectors.csv")
    screen.widget("multiselect", "Numeric columns that are one vector").set_value(["s1", "s2"])
    screen.widget("text_input", "Name of the vector").set_value("semantics")
    screen.press("Make one feature")
    assert screen.said.count("the vector semantics") == 2
    screen.upload(tmp_path / "wrong.npy", to="rdm")
    (error,) = screen.errors
    assert "wrong.npy" in error and "3 × 4" in error
    screen.press("form rdms away wrong").upload(tmp_path / "ratings.npy", to="rdm")
    assert screen.errors == []
    assert (
        "distance matrix :gray[(added)]" in screen.said and "vector :gray[(added)]" in screen.said
    )
    screen.press("step models").upload(tmp_path / "brain.npy", to="representations").press("Run")
    spec = screen.spec(store)
    assert spec.vectors == (("semantics", ("s1", "s2")),)
    assert [name for name, _ in spec.rdms] == ["ratings"]
    # One layer has no other to be compared with; its importances are shown.
    assert {"semantics", "ratings"} <= Screen(analysis=screen.job).traces("profiles")


@pytest.mark.slow
def test_distances_and_named_layers_beside_a_model(store, csv, tmp_path):
    n, rng = len(words(20)), np.random.default_rng(0)
    points = rng.normal(size=(n, 3))
    np.savez(tmp_path / "brain.npz", V1=rng.normal(size=(n, 4)), IT=points)
    np.savez(tmp_path / "ratings.npz", rated=squareform(pdist(points)))
    np.savez(tmp_path / "short.npz", V1=np.zeros((3, 2)))
    files = [tmp_path / f"{name}.npz" for name in ("brain", "ratings", "short")]
    screen = Screen("new", models="mini-bert", layers="0,1").upload(csv).press("step models")
    screen.upload(*files, to="representations")
    assert "layers V1 and IT" in screen.said and screen.address["precomputed"] == ["ratings"]
    (error,) = screen.errors
    assert "array V1 of short.npz has 3 rows" in error and not can_run(screen)
    screen.press("file away short")
    assert screen.errors == [] and can_run(screen)
    screen.choose("file name brain", "cortex", "text_input").press("Run")
    spec = screen.spec(store)
    assert spec.precomputed == ("ratings",)
    assert [name for name, _ in spec.representations] == ["cortex", "ratings"]
    assert {"mini-bert", "cortex", "ratings"} <= {*Screen(analysis=screen.job).canvas["models"]}


BAD_INDEX = b"sentence,word_index,kind\nthe cat sleeps,0,a\nthe dog barks,7,b\n"
PHOTO = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(range(256))


@for_each(
    "name, content, step, facts",
    ("bad.csv", BAD_INDEX, "roles", ("word_index", "row 2", "7")),
    ("photo.xls", PHOTO, "read", ("photo.xls",)),
    ids=["index", "photo"],
)
def test_a_bad_file_loses_and_runs_nothing(store, csv, tmp_path, name, content, step, facts):
    (tmp_path / name).write_bytes(content)
    screen = Screen("new", models="mini-bert").upload(csv)
    assert "mini-bert on mine.csv" in screen.said and can_run(screen)
    screen.upload(tmp_path / name)
    for here in ("models", "roles", "read"):
        screen.press(f"step {here}")
        assert len(screen.errors) == (here == step) and not can_run(screen)
        assert here == "roles" != step or all(fact in screen.said for fact in facts)
    screen.choose("form stimuli", screen.widget("selectbox", "form stimuli").options[-2])
    assert "mini-bert on mine.csv" in screen.said and can_run(screen)
    assert jobs_in(store) == set()


def test_findings_of_one_kind_are_one_sentence_with_the_choice_that_changes_them(store):
    screen = Screen("new", stimuli="treebank", models="mini-bert", step="roles")
    assert screen.said.count("features follow from others") == 1
    assert screen.said.count(":orange[") == 2  # what follows from others, and what correlates
    screen.press("Ignore these 3 columns")
    assert "pron_type=ignore" in screen.address["roles"]
    assert "follow from others" not in screen.said and can_run(screen)
    screen.press("Count empty cells as a value")
    assert screen.address["missing"] == ["level"]


def test_rare_values_are_merged_and_taken_apart_again(store, tmp_path):
    write_csv(TABLE.assign(kind=[*"ab"] * 40 + ["c"] * 2), tmp_path / "mine.csv")
    screen = Screen("new").upload(tmp_path / "mine.csv").press("step roles")
    screen.press("Merge rare values")
    assert screen.address["merge_rare"] == ["kind=5"] and "of kind are merged" in screen.said
    assert "merge_rare" not in screen.press("Keep those of kind").address


@for_each(
    "asked, facts",
    ({"layers": "three"}, ("'three'",)),
    ({"models": "mini-brt"}, ("'mini-brt'", "mini-bert")),
    ({"stimuli": f"{'0' * 64}/gone.csv"}, ("gone.csv", "not on this machine")),
    ({"models": "none"}, ("no model",)),
    ({"estimator": "spearman", "values": "tense"}, ("spearman", "tense")),
    ({"pooling": "last"}, ("pooling of a word", "standard, mean")),
)
def test_what_cannot_be_is_said_in_an_address_too(store, asked, facts):
    screen = Screen("new", **{"step": "models", "models": "mini-bert", **asked})
    said = " ".join(screen.errors) or screen.said
    assert all(fact in said for fact in facts), said
    assert not can_run(screen)


def test_the_form_offers_what_the_command_line_does(store):
    screen = Screen("new", step="models", models="mini-bert")
    kinds = ("selectbox", "text_input", "number_input", "multiselect")
    keys = [str(one.key) for kind in kinds for one in screen.app.get(kind)]
    offered = {name for name in parameters() if any(k.startswith(f"choice {name} ") for k in keys)}
    # Stimuli, their features, models and files are chosen in the steps that other tests go through.
    steps = {"models", "features", "representations", *names_in_section("files")}
    assert offered == {*parameters()} - {each.name for each in fields(StimulusSource)} - steps
    pooling = screen.widget("selectbox", "Pooling")
    assert pooling.options[0] == parameters()["pooling"].labels["standard"]


def test_models_are_checked_when_they_are_added(store):
    screen = Screen("new", step="models", models="mini-bert")
    # The trio's own steps of training are here; those of a model of the hub are not.
    screen.choose("form models", ["mini-gpt2@step512"], "multiselect")
    assert "cannot be reached" not in screen.said
    typed = "EleutherAI/pythia-70m@step1000, EleutherAI/pythia-70m@step143000"
    screen.choose("form models", ["mini-gpt2@step512", typed], "multiselect")
    assert "EleutherAI/pythia-70m@step1000" in screen.address["models"] and can_run(screen)
    assert screen.said.count("pythia-70m@step") == screen.said.count("cannot be reached") == 2
    screen.press("Groups of seeds")
    assert "mini-gpt2@seed2" in screen.address["models"]
    assert screen.address["groups"][0].startswith("mini-bert=mini-bert,mini-bert@seed1")
    screen.press("The paper's three")
    assert "548 MB" in screen.said and "groups" not in screen.address


TABLE = words(20).assign(tense=["past", "present"] * 34 + ["past"] * (len(words(20)) - 68))
BANK = "bank.conllu"
TWO, STEPS = ("mini-gpt2", "mini-bert"), ("mini-bert@step512", "mini-bert@step1024")
PROPERTIES = {"models": TWO, "labels": tuple((name, ("size:small",)) for name in TWO)}
# Each field with a value that is none's default, and what else such an analysis needs.
ASKED = {
    "stimuli": ("words.csv", {}),
    "sep": (";", {"stimuli": "other.csv"}),
    "encoding": ("windows-1252", {}),
    "decimal": (",", {"stimuli": "other.csv", "sep": ";"}),
    "na": (("past", "-"), {}),
    "sheet": ("second", {"stimuli": "words.xlsx"}),
    "header_row": (1, {}),
    "roles": ((("tense", "ignore"),), {}),
    "counts_from": ("0", {}),
    "blocks": (12, {}),
    "level": ("sentence", {"stimuli": BANK}),
    "sample": (60, {"stimuli": BANK}),
    "balance": (("upos",), {"stimuli": BANK, "sample": 60}),
    "sample_seed": (2**32 - 1, {"stimuli": BANK, "sample": 60}),
    "add": (("word_length",), {}),
    "language": ("de", {}),
    "merge_rare": ((("tense", 30),), {}),
    "vectors": ((("both", ("length", "position")),), {}),
    "rdms": ((("given", "rdm.npy"),), {}),
    "ordered": (("length",), {"nominal": ("position",)}),
    "nominal": (("length",), {}),
    "models": (TWO, {}),
    "representations": ((("brain", "brain.npz"),), {}),
    "precomputed": (("brain",), {"representations": (("brain", "brain.npz"),)}),
    "first_column": ((("brain", "skip"),), {"representations": (("brain", "brain.npz"),)}),
    "rows": ((("brain", "words.csv"),), {"representations": (("brain", "brain.npz"),)}),
    "regions": ((("brain", "words.csv"),), {"representations": (("brain", "brain.npz"),)}),
    "subjects": ((("brain", "2"),), {"representations": (("brain", "brain.npz"),)}),
    "axes": ((("brain", "time:ms"),), {"representations": (("brain", "brain.npz"),)}),
    "layers": ((0, 3), {}),
    "features": (("noun", "position"), {}),
    "missing": ("level", {}),
    "as_in": ("paper1", {}),
    "estimator": ("spearman", {}),
    "interactions": (True, {}),
    "values": (("tense",), {}),
    "distance": ("cosine", {}),
    "already_squared": (True, {"distance": "cosine"}),
    "folds": (37, {}),
    "folds_over": ("items", {}),
    "lag": ("10", {}),
    "seed": (2**32 - 1, {}),
    "pairs": (0, {}),
    "device": ("cpu", {}),
    "dtype": ("bfloat16", {}),
    "special_tokens": ("none", {}),
    "pooling": ("mean", {}),
    "positions": ("without-first", {}),
    "units": ("standardised", {}),
    "half": ("second", {}),
    "groups": ((("g", TWO[:1]), ("h", TWO[1:])), {"models": TWO}),
    "labels": (PROPERTIES["labels"], {"models": TWO}),
    "trajectories": ((("t", STEPS),), {"models": STEPS}),
    "property_kinds": ((("size", "class"),), PROPERTIES),
    "property_groups": ((("g", ("size",)),), PROPERTIES),
    "resampled_whole": ("size", PROPERTIES),
}


@pytest.fixture(scope="module")
def upload(tmp_path_factory):
    """Gives a value with the names of files in it as uploads of a store."""
    folder = tmp_path_factory.mktemp("uploads")
    in_files(folder, TABLE, {"brain": noise(len(TABLE))})
    TABLE.to_csv(folder / "other.csv", sep=";", index=False)
    with pd.ExcelWriter(folder / "words.xlsx") as book:
        TABLE.to_excel(book, sheet_name="first", index=False)
        TABLE.to_excel(book, sheet_name="second", index=False)
    (folder / BANK).write_bytes(datasets.SETS["treebank"].file.read_bytes())
    np.save(folder / "rdm.npy", np.abs(np.subtract.outer(TABLE.index, TABLE.index)))
    store = Store(folder / "store")

    def kept(value):
        if isinstance(value, tuple):
            return tuple(map(kept, value))
        if value in ("words.csv", "other.csv", "words.xlsx", BANK, "rdm.npy", "brain.npz"):
            return str(analyses.keep_upload((folder / value).read_bytes(), value, store))
        return value

    kept.store = store  # type: ignore[attr-defined]
    return kept


@pytest.mark.parametrize("name", [each.name for each in fields(AnalysisSpec)])
def test_a_duplicate_asks_for_what_the_analysis_had(name, upload, monkeypatch):
    value, more = ASKED[name]  # a new field has to stand there
    asked = {"stimuli": "words.csv", "models": ("mini-gpt2",), **more, name: value}
    spec = AnalysisSpec(**{key: upload(one) for key, one in asked.items()})
    assert getattr(spec, name) != next(f.default for f in fields(spec) if f.name == name)
    spec.check()
    form = form_state(spec)
    assert set(form) <= set(choices.FORM)  # or the address does not have it
    monkeypatch.setattr(choices, "get", form.get)
    monkeypatch.setattr(stored, "store", lambda: upload.store)  # type: ignore[attr-defined]
    now = draft()
    assert now.error == ""
    found = models.build_spec(now, state.chosen_options(now.stimuli)[0])
    # The form says of features by roles what else is said by kinds or names.
    by_roles = {"roles", "ordered", "nominal", "features"}
    for each in fields(AnalysisSpec):
        if each.name not in by_roles:
            assert getattr(found, each.name) == getattr(spec, each.name), each.name
    ours, theirs = (one.load_stimuli().select(one.features) for one in (found, spec))
    assert ours.features == theirs.features
    for each in theirs.features:
        assert ours.table[each.name].equals(theirs.table[each.name]), each.name


@pytest.mark.slow
def test_a_file_of_subjects_over_time_is_run_and_drawn_with_its_ceiling(store, csv, tmp_path):
    shape, rng = (3, len(words(20)), 4), np.random.default_rng(0)
    np.savez(tmp_path / "meg.npz", **{f"{ms} ms": rng.normal(size=shape) for ms in (100, 20)})
    screen = Screen("new", models="none", step="roles").upload(csv).press("step models")
    screen.upload(tmp_path / "meg.npz", to="representations")
    screen.choose("file subjects meg", True, "toggle")
    screen.choose("file axis meg", "time:ms", "text_input")
    assert screen.errors == []
    spec = screen.press("Run").spec(store)
    assert spec.groups == (("meg", tuple(f"meg@subject{n}" for n in (1, 2, 3))),)
    shown = Screen(analysis=screen.job)
    bands = [band["name"] for band in shown.canvas["importance"]["bands"]]
    assert bands == ["noise ceiling"] and shown.errors == []
    models = Screen(analysis=screen.job, view="profiles").unfold("folded models")
    assert {"model-comparison", "group-rdms"} <= {*models.figures} and models.errors == []

"""Every screen: what it shows of an analysis, what choices change, and why it shows nothing."""

import os
import re
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files
from helpers.screens import Screen, in_this_process, jobs_in, ran
from PIL import Image

from mlem_core.base.files import write_json
from mlem_core.figures.style import AUDIT
from mlem_core.report.archive import write_archive
from mlem_core.tasks import analyses, processes, runner
from pages.parts import background, choices, screens
from pages.parts.stored import thumbnails

# The figures of each screen of an analysis of one's own, by its address.
FIGURES: dict[tuple[str, ...], set[str]] = {
    ("",): set(),
    ("profiles",): {"profiles"},
    ("heatmaps",): {"similarity", "compare"},
    ("systems",): set(),
    ("layers",): {"layer-map"},
    ("layers", "part=terms"): {"why-layers"},
    ("stimuli",): {"feature-counts", "feature-correlations"},
    ("trust",): set(),
    ("because",): set(),
    ("report",): set(),
    ("new",): set(),
}
slow = pytest.mark.slow
LISTED = ("profiles", "heatmaps", "layers", "trust", "because", "report", "docs")


@pytest.mark.parametrize("address", FIGURES, ids=" ".join)
def test_each_screen_draws_an_analysis_of_one_s_own(own, address):
    page, *chosen = address
    screen = Screen(page, analysis=own.jobs[0].id, **dict(one.split("=") for one in chosen))
    assert set(screen.figures) == FIGURES[address] and screen.errors == []
    assert all(figure["alt"] and figure["data"] for figure in screen.figures.values())


@pytest.mark.parametrize("page", ["heatmaps", "trust"])
def test_the_example_is_what_is_shown_where_nothing_is_chosen(store, example, page):
    screen = Screen(page)
    assert set(screen.figures) == ({"audit"} if page == "trust" else {"similarity", "compare"})
    assert screen.errors == [] and screen.job == "example"
    assert f"{len(example.stimuli):,} words" in [one.label for one in screen.app.page_link]


@pytest.mark.parametrize("page", ["", "new", *LISTED])
def test_without_any_analysis_each_screen_says_so(nothing, page):
    screen = Screen(page)
    assert screen.figures == {} and screen.errors == []
    if page not in ("new", "docs"):
        assert len(screen.app.info) == 1
    if page not in ("new", "docs"):
        assert "New analysis" in " ".join(one.label for one in screen.app.page_link)


@pytest.mark.parametrize("page", ["", "profiles", "trust", "report"])
@pytest.mark.parametrize("job", ["../../etc", "0123456789abcdef"])
def test_an_analysis_that_is_not_there_is_an_error_with_a_way_on(own, page, job):
    screen = Screen(page, analysis=job)
    assert len(screen.errors) == 1 and "not on this machine" in screen.errors[0]
    assert screen.figures == {}
    (way,) = [name for name in screen.buttons if name.startswith("Open ")]
    screen.press(way)
    assert screen.errors == [] and screen.job in {job.id for job in own.jobs}


@pytest.mark.parametrize(
    "state", ["queued", "running", *(pytest.param(k, marks=slow) for k in ("cancelled", "failed"))]
)
def test_an_analysis_that_is_not_done_shows_its_state(mine, monkeypatch, state):
    """Above every page stands how far it is; whoever looks at it is told what it waits for."""

    def stopped(command, folder, held, environment):
        if state == "cancelled":
            (folder / "cancelled").touch()
        elif state == "failed":
            write_json(folder / "failed.json", {"message": "layer 99 is not there."})
        else:
            processes.write_pid(folder, os.getpid())
            stage = {"stage": "Pair tables", "model": "one", "done": 1, "total": 3}
            seen = {"unit": "layers", "began": 0.0, "began_at": 0, "seen": 1.0}
            write_json(folder / "progress.json", {"state": state, "stages": [stage | seen]})

    monkeypatch.setattr(runner, "start_process", stopped)
    job = analyses.start(replace(mine.jobs[0].spec, seed=8), mine.store)
    assert job.status().state == state
    screen = Screen("profiles", analysis=job.id)
    assert screen.figures == {} and len(screen.app.info) == 1
    assert "seed 8" in screen.said
    moving = state in ("queued", "running")
    assert (f"cancel {job.id}" in screen.buttons) is moving
    assert (f"dismiss {job.id}" in screen.buttons) is not moving
    assert ["layer 99" in error for error in screen.errors] == [True] * (state == "failed")
    if moving:
        assert "1 of 3 layers" in screen.app.get("progress")[0].proto.text
        pid = job.folder / "pid.json"
        monkeypatch.setattr(runner, "signal_group", lambda *sent: pid.unlink())
        screen.press(f"cancel {job.id}")
        assert job.status().state == "cancelled"
        return
    screen.press(f"dismiss {job.id}")
    assert "seed 8" not in screen.said and screen.errors == []
    # It can be run again, and leads to what it found.
    monkeypatch.setattr(runner, "start_process", in_this_process)
    analyses.start(job.spec, mine.store)
    assert Screen("profiles", analysis=job.id).figures


def test_a_first_visit_finds_the_finding_of_the_example(store, example):
    screen = Screen()
    shown, pair = screen.canvas, example.most_alike()
    assert screen.errors == [] and screen.figures == {} and screen.job == "example"
    called = "mini-gpt2, seed 1, layer 6 and mini-mamba, seed 1, layer 11"
    assert shown["finding"].startswith(f"{called} are similar (RSA .84). Part of speech accounts")
    assert [example.layers[at] for at in shown["pair"]] == [*pair]
    assert shown["chip"]["state"] == "sure" and "5 of 5" in shown["chip"]["more"]
    assert {*map(str, shown["pair"])} <= set(shown["maps"])


def test_two_layers_that_share_an_artefact_fail_a_check(store):
    """mini-bert layer 1 and smollm2 layer 11 share the first word, and little else."""
    chip = Screen(analysis="example", a="smollm2:11", b="mini-bert:1").canvas["chip"]
    assert chip["state"] == "fails" and "; fails " in chip["text"]
    assert "ithout position 0" in chip["more"]
    trust = Screen("trust", analysis="example", a="smollm2:11", b="mini-bert:1")
    verdicts = [said.split()[-1] for said in trust.app.table[0].value["verdict"]]
    assert verdicts[:3] == ["holds", "fails", "fails"] and len(verdicts) == 10


def test_intervals_of_two_layers_and_their_maps_arrive_by_themselves(mine, monkeypatch):
    monkeypatch.setattr(background, "begin_ahead", lambda work: work.begin())
    first = Screen(analysis=mine.jobs[0].id, a="one:0", b="two:1")
    assert "; " not in first.canvas["finding"] and first.canvas["finding"].endswith(").")
    assert {term["kind"] for term in first.canvas["terms"]} == {"open", "rest"}
    assert first.canvas["chip"]["state"] == "provisional" and first.canvas["maps"] == {}
    # The page looks again once the canvas stands; in the browser by a timer.
    monkeypatch.setattr(
        "streamlit.fragment", lambda look, **_: lambda *given: (look(*given), look(*given))
    )
    later = first.run().run().canvas
    assert later["chip"]["text"].startswith("95 % CI ") and len(later["maps"]) == 2
    assert all(term["lower"] is not None for term in later["terms"] if term["kind"] == "feature")


@pytest.mark.slow
def test_all_pages_of_docs_open(store):
    for name, title in screens.docs_pages().items():
        screen = Screen("docs", page=name)
        assert screen.address["page"] == [name] and screen.app.selectbox[0].value == name, title
    cited = Screen("docs", page=screens.CITE)
    assert "arxiv.org/abs/2406.12620" in cited.said
    assert "@article{salle2024" in cited.app.code[0].value


@pytest.mark.slow
def test_what_runs_stands_on_every_screen_until_one_has_looked(mine):
    job = mine.jobs[0].id
    form = Screen().unfold(f"more {job}").press(f"duplicate {job}").address
    screen = Screen("new", **form | {"seed": "9"}).press("Run")
    for page in ("home", "profiles", "trust"):
        screen.go(page)
        assert f"look {screen.job}" in screen.buttons and "seed 9" in screen.said
    job = screen.job
    screen.press(f"look {job}")
    assert screen.title == "Why" and screen.job == job
    assert f"look {job}" not in screen.buttons and "one layer" in screen.canvas["finding"]


SCORES = {"held-out ρ", "feature ceiling"}
FEATURES = {"noun", "position", "kind"}


def seen(own, page="", **query):
    """A page of an analysis of one's own."""
    return Screen(page, analysis=own.jobs[0].id, **query)


def test_profiles_draw_what_was_run(own):
    screen = seen(own, "profiles")
    assert screen.traces("profiles") == {*FEATURES, *SCORES, "band", AUDIT}
    drawn = screen.figures["profiles"]["data"]
    importance = own.jobs[0].analysis().results().importance
    mean = importance.groupby(["feature", "model", "layer"])["importance"].mean()
    for name in FEATURES:
        found = np.ravel([one["y"] for one in drawn if one.get("name") == name])
        assert np.allclose(np.sort(found), np.sort(mean[name])), name
    assert screen.panels("profiles") == {"one", "two"}


def test_dropping_a_feature_needs_no_run_and_goes_along(own):
    screen, before = seen(own, "profiles"), jobs_in(own.store)
    screen.tick_off("kind")
    assert screen.traces("profiles") == {"noun", "position", *SCORES, "band", AUDIT}
    assert jobs_in(own.store) == before
    assert screen.address["features"] == ["noun", "position"]
    screen.go("heatmaps")
    assert screen.traces("compare") == {"noun", "position", "equal importance", AUDIT}
    assert screen.go("trust").address["features"] == ["noun", "position"]
    # From its address to another window.
    other = Screen("profiles", **screen.address)
    assert not [name for name in other.traces("profiles") if "kind" in name]
    other.tick_off("two", among="choice show_models")
    assert other.panels("profiles") == {"one"}
    other.tick_off("noun", "position")
    assert other.figures == {} and len(other.app.info) == 1


def test_products_are_drawn_where_the_analysis_has_them(mine):
    job = ran(replace(mine.jobs[0].spec, interactions=True), mine.store)
    with_products = Screen("profiles", analysis=job.id, features=["noun", "position"])
    assert "noun × position" in with_products.traces("profiles")


def test_an_address_of_before_the_last_choice_undoes_it_only_by_back(own, monkeypatch):
    """Otherwise the browser has not heard of the choice yet."""
    screen = seen(own, "profiles")
    before = screen.address
    screen.tick_off("kind")
    after = screen.address
    for back, expected in ((False, after), (True, before)):
        run = SimpleNamespace(is_history_navigation=back)
        monkeypatch.setattr(choices, "get_script_run_ctx", lambda run=run: run)
        screen.app.query_params.clear()
        screen.app.query_params.update(before)
        assert screen.run().address == expected and after != before


def test_a_pair_is_the_same_in_every_tab(own):
    screen = seen(own, a="one:0", b="two:1")
    canvas = screen.canvas
    assert [canvas["layers"][at]["title"] for at in canvas["pair"]] == [
        "one layer 0",
        "two layer 1",
    ]
    for page in ("profiles", "layers", "stimuli", "heatmaps"):
        assert screen.go(page).errors == [] and screen.figures
    axes = screen.figures["compare"]["layout"]
    titles = {axes[axis]["title"]["text"] for axis in ("xaxis", "yaxis")}
    assert all(any(name in title for title in titles) for name in ("one layer 0", "two layer 1"))
    results = own.jobs[0].analysis().results()
    shown = {one.value.replace("-", "−") for one in screen.app.metric}
    for square in (results.similarity_rsa, results.similarity_profiles):
        assert f"{square.loc['one:0', 'two:1']:.2f}".replace("-", "−").replace("0.", ".") in shown
    assert screen.go("home").canvas["pair"] == canvas["pair"]
    # An address that names no analysis is one of the latest.
    assert Screen(a="one:0", b="two:1").canvas["pair"] == canvas["pair"]


def test_both_similarities_of_every_two_layers_are_drawn(own):
    screen = seen(own, "heatmaps")
    squares = [one for one in screen.figures["similarity"]["data"] if one["type"] == "heatmap"]
    # Of three layers of two systems, with a gap between the two.
    assert [np.shape(one["z"]) for one in squares] == [(7, 7)] * 2
    agreement = own.jobs[0].analysis().results().agreement
    assert screen.app.metric[0].value == f"{agreement:.2f}"[1:]
    screen.choose("choice order", "clustering")
    assert screen.address["order"] == ["clustering"] and screen.errors == []


@pytest.mark.slow
def test_a_similarity_with_terms_takes_the_place_of_rsa(mine, monkeypatch):
    monkeypatch.setattr(background, "begin_ahead", lambda work: work.begin())
    screen = seen(mine, "heatmaps", a="one:0", b="one:1", similarity="cka").press("Compute CKA")
    assert "cells by squared distances" in screen.traces("similarity") and screen.errors == []
    assert any("(CKA)" in one.label for one in screen.app.metric)
    shown = screen.go("home").run().canvas
    assert "(CKA ." in shown["finding"] and re.search(r"CKA −?\.\d+ to \.\d", shown["chip"]["more"])
    assert screen.go("layers").part("terms").figures and "CKA" in screen.how("why-layers")


def test_features_are_coded_by_value_in_a_run_of_their_own(mine):
    form = seen(mine, "profiles").unfold("folded values").press("Code kind by value").address
    assert form["values"] == ["kind"] and form["folds"] == ["3"]
    screen = Screen("profiles", analysis="example").unfold("folded values")
    matrices = screen.figures["values-matrices"]["data"]
    assert any(one["type"] == "heatmap" for one in matrices)


def test_decoding_stands_beside_the_profiles_and_is_kept(mine):
    screen = seen(mine, "profiles").unfold("folded baseline_decoding")
    screen.press("Compute it")
    assert screen.traces("baseline-decoding") >= FEATURES
    drawn = [screen.figures[name]["data"] for name in ("profiles", "baseline-decoding")]
    above, below = ({one.get("name"): one.get("line") for one in lines} for lines in drawn)
    assert all(above[name]["color"] == below[name]["color"] for name in FEATURES)
    again = seen(mine, "profiles").unfold("folded baseline_decoding")
    assert "baseline-decoding" in again.figures and "Compute it" not in again.buttons


@pytest.mark.slow
def test_scores_are_tested_against_permuted_labels(mine):
    screen = Screen("trust", analysis=mine.jobs[0].id).unfold("folded chance")
    screen.press("Test the scores")
    screen.unfold("folded chance", "folded chance-tests")
    (table,) = screen.app.dataframe
    assert {"rho", "chance", "p", "p_corrected"} <= {*table.value} and table.value["p"].max() < 0.1


@pytest.mark.slow
def test_intervals_and_tests_are_corrected(mine):
    screen = Screen("trust", analysis=mine.jobs[0].id)
    screen.press("Add confidence intervals and tests")
    screen.unfold("folded importance-tests", "folded similarity-tests")
    assert "Benjamini-Hochberg" in screen.said and len(screen.app.dataframe) == 2
    profiles = Screen("profiles", **screen.address)
    assert "Benjamini-Hochberg" in profiles.how("profiles")
    # Other features have no intervals yet: the bands are named as what they are.
    profiles.tick_off("kind")
    assert "standard deviation over folds" in profiles.how("profiles")
    assert "Add confidence intervals and tests" in profiles.buttons


@slow
def test_nothing_speaks_of_words_where_stimuli_are_none(store, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.choice([*"xyz"], (60, 2)), columns=["kind", "colour"])
    table.insert(0, "stimulus", [f"images/{n}.png" for n in range(60)])
    layers = {n: rng.standard_normal((60, 4)) for n in range(2)}
    spec = in_files(tmp_path, table, {"brain": layers})
    path = (tmp_path / "words.csv").rename(tmp_path / "images.csv")
    (tmp_path / "images").mkdir()
    Image.new("RGB", (300, 200), "red").save(tmp_path / "images" / "3.png")
    (tmp_path / "images" / "4.png").write_text("no image")
    job = ran(replace(spec, stimuli=str(path)), store)
    texts = [Screen(page, analysis=job.id).said for page in ("profiles", "stimuli", "trust")]
    seen = Screen("stimuli", analysis=job.id).app.dataframe[0].value["image"]
    assert seen[3].startswith("data:image/jpeg;base64,") and seen.notna().sum() == 1
    form = Screen("new").upload(path).press("step models").widget("selectbox", "Folds over")
    texts += [*form.options, form.help]
    assert "60 stimuli" in {one.label for one in Screen("", analysis=job.id).app.page_link}
    with zipfile.ZipFile(write_archive(job.analysis(), tmp_path / "all.zip", store)) as files:
        names = [name for name in files.namelist() if name.endswith((".md", ".tex", ".csv"))]
        texts += [files.read(name).decode() for name in names]
    wrong = [text for text in texts if re.search(r"(?i)\b(sentence|word)", text)]
    assert not wrong, wrong
    assert any("There were 60 stimuli (" in text for text in texts)


def test_images_are_files_of_this_machine_and_nothing_else(tmp_path):
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    Image.new("1", (7000, 7000)).save(tmp_path / "large.png")
    (tmp_path / "link.png").symlink_to("/dev/zero")
    Image.new("RGB", (9, 9)).save(tmp_path / "b.gif")
    web = ["https://x.org/a.png", "//x/a.png"]
    names = ["large.png", "link.png", "b.gif", "gone.png", *web, "", None]
    assert thumbnails([*names, "/dev/zero", "a\0.png"], tmp_path) is None
    (made,) = thumbnails([tmp_path / "a.png"], tmp_path / "elsewhere")
    assert thumbnails(["a.png", *names], tmp_path) == [made, *[None] * len(names)]


def test_what_else_explains_the_finding_of_the_example_can_be_added(store, monkeypatch):
    screen = Screen(analysis="example", detail="rest").unfold("folded details")
    assert "what-else" in screen.figures and "is a function of the word" in screen.said
    best = next(label for label in screen.buttons if label.startswith("Add "))
    shown = screen.canvas
    assert re.search(r"would explain \d+\s%? ?\w* ?", shown["more"])
    assert "unexplained" in shown["finding"] and shown["coding"].startswith("Features coded ")
    started = []
    monkeypatch.setattr(
        analyses, "start", lambda spec, _: started.append(spec) or analyses.find("example", _)
    )
    screen.press(best)
    assert (best, started[0].add) == ("Add the next word", ("next_word",)) and screen.errors == []

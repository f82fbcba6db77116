"""Every screen: what it shows of an analysis, what choices change, and why it shows nothing."""

import os
import re
import shutil
import sys
import zipfile
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files
from helpers.screens import Screen, in_this_process, jobs_in, ran
from PIL import Image

from mlem_core.base.files import write_json
from mlem_core.base.text import fraction
from mlem_core.figures.thumbnails import thumbnails
from mlem_core.report.archive import write_archive
from mlem_core.tasks import analyses, processes, runner
from pages.parts import background, canvas, choices, screens
from pages.parts.screens import MOVED

# The figures of each screen of an analysis of one's own, all of it unfolded.
FIGURES = {
    "": {"why-layers"},
    "?view=map": {"map-panels"},
    "?view=profiles": {"importance-left-out"},
    "?view=scatter": set(),
    "?view=scatter&detail=pairs": set(),
    "?view=scatter&detail=rest": set(),
    "?view=scatter&detail=erase": set(),
    "?view=scatter&detail=checks": set(),
    "?view=scatter&detail=how": {"why"},
    "?view=scatter&detail=stimuli": {"feature-counts", "feature-correlations"},
    "systems": set(),
    "report": set(),
    "new": set(),
}
slow = pytest.mark.slow
ASIDE = ("report", "systems", "docs")


@pytest.mark.parametrize("address", FIGURES)
def test_each_screen_draws_an_analysis_of_one_s_own(own, address):
    page, _, chosen = address.partition("?")
    screen = Screen(page, analysis=own.jobs[0].id, **dict(parse_qsl(chosen))).unfold()
    assert set(screen.figures) == FIGURES[address] and screen.errors == []
    assert all(figure["alt"] and figure["data"] for figure in screen.figures.values())


@pytest.mark.parametrize("old", MOVED)
def test_an_address_of_earlier_versions_leads_to_explore(own, old):
    screen = Screen(old, analysis=own.jobs[0].id, a="one:0", b="two:1", features=["noun"])
    expected = {**MOVED[old], "a": "one:0", "b": "two:1", "features": "noun"}
    expected |= {"analysis": own.jobs[0].id}
    assert screen.address == {name: [value] for name, value in expected.items()}
    assert screen.pair == ("one layer 0", "two layer 1") and [*screen.importances] == ["noun"]
    canvas, drawer = screen.canvas, screen.widget("button_group", "choice detail").value
    assert canvas["view"] == MOVED[old].get("view", "heatmap")
    assert drawer == MOVED[old].get("detail") and screen.errors == []


@pytest.mark.parametrize("page", ["", "new", *ASIDE, *MOVED])
def test_without_any_analysis_each_screen_says_so(nothing, page):
    screen = Screen(page)
    assert screen.figures == {} and screen.errors == []
    if page not in ("new", "docs"):
        assert len(screen.app.info) == 1
        assert "New analysis" in " ".join(one.label for one in screen.app.page_link)


@pytest.mark.parametrize("page", ["", "trust", "report"])
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

    holders = list[int]()

    def stopped(folder, held, *, is_awaited):
        if state == "cancelled":
            (folder / "cancelled").touch()
        elif state == "failed":
            write_json(folder / "failed.json", {"message": "layer 99 is not there."})
        else:
            processes.write_pid(folder, os.getpid())
            holders.append(os.dup(held))
            stage = {"stage": "Pair tables", "model": "one", "done": 1, "total": 3}
            seen = {"unit": "layers", "began": 0.0, "began_at": 0, "seen": 1.0}
            write_json(folder / "progress.json", {"state": state, "stages": [stage | seen]})

    monkeypatch.setattr(runner, "start_process", stopped)
    job = analyses.start(replace(mine.jobs[0].spec, seed=8), mine.store)
    assert job.status().state == state
    screen = Screen(analysis=job.id)
    assert "canvas_views" not in screen.components and len(screen.app.info) == 1
    assert "seed 8" in screen.said
    moving = state in ("queued", "running")
    assert (f"cancel {job.id}" in screen.buttons) is moving
    assert (f"dismiss {job.id}" in screen.buttons) is not moving
    assert ["layer 99" in error for error in screen.errors] == [True] * (state == "failed")
    if moving:
        assert "1 of 3 layers" in screen.app.get("progress")[0].proto.text
        monkeypatch.setattr(runner, "signal_group", lambda *sent: os.close(holders.pop()))
        screen.press(f"cancel {job.id}")
        assert job.status().state == "cancelled"
        return
    screen.press(f"dismiss {job.id}")
    assert "seed 8" not in screen.said and screen.errors == []
    # It can be run again, and leads to what it found.
    monkeypatch.setattr(runner, "start_process", in_this_process)
    analyses.start(job.spec, mine.store)
    assert Screen(analysis=job.id).canvas["terms"]


def test_a_first_visit_finds_the_finding_of_the_example(shipped, example):
    screen = Screen()
    assert screen.errors == [] and screen.figures == {} and screen.job == "example"
    # One sentence says what is there; the drawers of the two layers are closed.
    assert "What makes two models think alike?" in screen.said
    assert f"two layers on {len(example.stimuli):,} words" in screen.said
    assert screen.widget("button_group", "choice detail").value is None
    shown, pair = screen.canvas, example.most_alike()
    assert screen.pair == ("mini-gpt2, seed 1, layer 6", "mini-mamba, seed 1, layer 11")
    begin = "These two layers are similar (RSA .84). Part of speech accounts for "
    assert shown["finding"].startswith(begin) and "unexplained" in shown["finding"]
    # The shares of the sentence, without their intervals, add up to the whole.
    shares = re.findall(r"(\d+) %(?! to| \()", re.sub(r"\([^)]*%\)", "", shown["finding"]))
    assert sum(map(int, shares)) == 100
    assert [example.layers[at] for at in shown["pair"]] == [*pair]
    assert [chip["state"] for chip in shown["chips"]] == ["sure", "sure"]
    assert shown["chips"][0]["text"].startswith("95 % CI .78 to .86, largest of ")
    assert "5 of 5" in shown["chips"][1]["text"]
    assert {*map(str, shown["pair"])} <= set(shown["maps"]) and shown["view"] == "heatmap"
    assert {*screen.unfold("folded audit").drawer("checks").figures} == {"audit"}
    assert screen.drawer("checks").figures == {} and "detail" not in screen.address


def test_two_layers_that_share_an_artefact_fail_a_check(shipped):
    """mini-bert layer 1 and smollm2 layer 11 share the first word, and little else."""
    screen = Screen(analysis="example", a="smollm2:11", b="mini-bert:1", detail="checks")
    _, audit, dominated = screen.canvas["chips"]
    assert audit["state"] == dominated["state"] == "fails" and "fails " in audit["text"]
    assert "ithout position 0" in audit["more"] and "position 0 has" in dominated["more"]
    verdicts = [said.split()[-1] for said in screen.app.table[0].value["verdict"]]
    assert verdicts[:3] == ["holds", "fails", "fails"] and len(verdicts) == 10
    # The verdict says which condition failed.
    assert "position 0" in screen.app.table[0].value["basis"].iloc[1]


def test_intervals_of_two_layers_and_their_maps_arrive_by_themselves(mine, monkeypatch):
    monkeypatch.setattr(background, "begin_ahead", lambda work: work.begin())
    shutil.rmtree(mine.store.root / "stimulus-map", ignore_errors=True)  # of another test
    first = Screen(analysis=mine.jobs[0].id, a="one:0", b="two:1")
    assert first.canvas["finding"].endswith(").") and "%" not in first.canvas["finding"]
    assert {term["kind"] for term in first.canvas["terms"]} == {"open", "rest"}
    chip = first.canvas["chips"][0]
    assert chip["state"] == "provisional" and chip["text"].startswith("intervals:")
    assert first.canvas["maps"] == {}
    # The page looks again once the canvas stands; in the browser by a timer.
    monkeypatch.setattr(
        "streamlit.fragment", lambda look, **_: lambda *given: (look(*given), look(*given))
    )
    later = first.run().run().canvas
    assert later["chips"][0]["text"].startswith("95 % CI ") and len(later["maps"]) == 2
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
    # Its result opens by itself.
    new = Screen(analysis=screen.job)
    assert new.job != job and f"look {new.job}" not in new.buttons
    assert new.pair[0].startswith("one layer")


FEATURES = {"noun", "position", "kind"}


def seen(own, page="", **query):
    """A page of an analysis of one's own."""
    return Screen(page, analysis=own.jobs[0].id, **query)


def test_dropping_a_feature_needs_no_run_and_goes_along(own):
    screen, before = seen(own, view="profiles"), jobs_in(own.store)
    assert {*screen.importances} == FEATURES
    screen.tick_off("kind")
    assert {*screen.importances} == {"noun", "position"}
    assert {term["name"] for term in screen.canvas["terms"]} == {"noun", "position", "unexplained"}
    assert jobs_in(own.store) == before
    assert screen.address["features"] == ["noun", "position"]
    assert screen.go("report").address["features"] == ["noun", "position"]
    assert {*screen.go("explore").importances} == {"noun", "position"}
    # From its address to another window.
    other = Screen(**screen.address)
    assert {*other.importances} == {"noun", "position"}
    other.tick_off("two", among="choice show_models")
    assert {*other.canvas["models"]} == {"one"}
    assert {"2 of 3 features", "1 of 2 models", "3 of 6 layers"} < {*other.popovers}
    other.choose("choice show_layers", ["1"], "multiselect")
    assert "There is one layer" in other.said
    other.tick_off("noun", "position")
    assert other.figures == {} and len(other.app.info) == 1


def test_products_are_drawn_where_the_analysis_has_them(mine):
    job = ran(replace(mine.jobs[0].spec, interactions=True), mine.store)
    with_products = Screen(analysis=job.id, features=["noun", "position"])
    labels = [each["label"] for each in with_products.canvas["importance"]["features"]]
    assert "noun × position" in labels


def test_an_address_of_before_the_last_choice_undoes_it_only_by_back(own, monkeypatch):
    """Otherwise the browser has not heard of the choice yet."""
    screen = seen(own, view="profiles")
    before = screen.address
    screen.tick_off("kind")
    after = screen.address
    for back, expected in ((False, after), (True, before)):
        run = SimpleNamespace(is_history_navigation=back)
        monkeypatch.setattr(choices, "get_script_run_ctx", lambda run=run: run)
        screen.app.query_params.clear()
        screen.app.query_params.update(before)
        assert screen.run().address == expected and after != before


@pytest.mark.parametrize("view", canvas.VIEWS)
def test_a_pair_is_the_same_in_every_view_and_drawer(own, view):
    screen = seen(own, a="one:0", b="two:1", view=view, detail="checks")
    chosen = screen.pair
    assert chosen == ("one layer 0", "two layer 1") and screen.canvas["view"] == view
    assert screen.app.table[0].value.index[0] == "one layer 0 and two layer 1 are similar"
    results = own.jobs[0].analysis().results()
    if view == "scatter":
        screen.unfold()
        tau = fraction(results.similarity_profiles.loc["one:0", "two:1"])
        assert tau in [one.value for one in screen.app.metric]
    # The figure that a view is saved as is of the same two.
    figure = screen.save(view).widget("button_group", "export format")
    assert figure and screen.errors == []
    assert screen.go("report").go("explore").pair == chosen
    # An address that names no analysis is one of the latest.
    assert Screen(a="one:0", b="two:1").pair == chosen


def test_umap_that_is_not_installed_is_not_offered_and_said_where_an_address_names_it(
    own, monkeypatch
):
    monkeypatch.setitem(sys.modules, "umap", None)
    assert not [box for box in seen(own).app.selectbox if box.label == "Maps of the stimuli by"]
    screen = seen(own, layout="umap")
    assert "needs umap-learn" in screen.said and screen.errors == []


def test_similarities_have_their_agreement_and_order(own):
    screen = seen(own).unfold()
    agreement = own.jobs[0].analysis().results().agreement
    assert screen.app.metric[0].value == f"{agreement:.2f}"[1:]
    assert [shown["name"] for shown in screen.canvas["similarity"]] == ["RSA", "τ"]
    screen.choose("choice order", "clustering")
    assert screen.address["order"] == ["clustering"] and screen.errors == []


@pytest.mark.slow
def test_a_similarity_with_terms_takes_the_place_of_rsa(mine, monkeypatch):
    monkeypatch.setattr(background, "begin_ahead", lambda work: work.begin())
    screen = seen(mine, detail="how", a="one:0", b="one:1", similarity="cka")
    screen.unfold("folded Similarities, their agreement and order").press("Compute CKA")
    shown = screen.run().canvas
    assert shown["similarity"][0]["name"] == "CKA" and shown["layerMap"][0] is None
    assert "(CKA ." in shown["finding"] and screen.errors == []
    assert re.search(r"CKA −?\.\d+ to \.\d", shown["chips"][0]["more"])
    screen.unfold()
    assert "CKA" in screen.how("why-layers") and "CKA" in screen.app.metric[0].label


def test_features_are_coded_by_value_in_a_run_of_their_own(mine):
    form = seen(mine, view="profiles").unfold("folded values").press("Code kind by value").address
    assert form["values"] == ["kind"] and form["folds"] == ["3"]


def test_features_coded_by_value_have_a_matrix_a_layer(shipped):
    screen = Screen(view="profiles", analysis="example").unfold("folded values")
    matrices = screen.figures["values-matrices"]["data"]
    assert any(one["type"] == "heatmap" for one in matrices)


def test_decoding_stands_beside_the_profiles_and_is_kept(mine):
    screen = seen(mine, view="profiles").unfold("folded baseline_decoding")
    screen.press("Compute it")
    assert screen.traces("baseline-decoding") >= FEATURES
    lines = screen.figures["baseline-decoding"]["data"]
    below = {line["name"]: line["line"]["color"] for line in lines if line.get("name") in FEATURES}
    above = {each["name"]: each["color"] for each in screen.canvas["importance"]["features"]}
    assert above == below
    again = seen(mine, view="profiles").unfold("folded baseline_decoding")
    assert "baseline-decoding" in again.figures and "Compute it" not in again.buttons


@pytest.mark.slow
def test_scores_are_tested_against_permuted_labels(mine):
    screen = seen(mine, detail="checks").unfold("folded chance")
    screen.press("Test the scores")
    screen.unfold("folded chance")
    (table,) = screen.app.dataframe
    assert {"rho", "chance", "p", "p_corrected"} <= {*table.value} and table.value["p"].max() < 0.1


@pytest.mark.slow
def test_intervals_and_tests_are_corrected(mine):
    screen = seen(mine, detail="checks")
    screen.press("Compute confidence intervals and tests")
    screen.unfold("folded importance-tests", "folded similarity-tests", "folded difference-tests")
    assert "Benjamini-Hochberg" in screen.said and len(screen.app.dataframe) == 3
    assert screen.canvas["importance"]["spread"].startswith("95 % CI over ")
    # Other features have no intervals yet: the bands are named as what they are.
    screen.tick_off("kind")
    assert screen.canvas["importance"]["spread"] == "± 1 sd over folds"
    assert "Compute confidence intervals and tests" in screen.buttons


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
    drawers = {name: Screen(analysis=job.id, detail=name) for name in ("checks", "stimuli", "how")}
    texts = [screen.said for screen in drawers.values()]
    # The values, without the names that they have in the content.
    texts += map(str, drawers["how"].canvas.values())
    texts += drawers["how"].widget("button_group", "choice detail").options
    images = drawers["stimuli"].app.dataframe[0].value["image"]
    assert images[3].startswith("data:image/jpeg;base64,") and images.notna().sum() == 1
    assert "two layers on 60 stimuli" in drawers["how"].said
    form = Screen("new").upload(path).press("step models").widget("selectbox", "Folds over")
    texts += [*form.options, form.help]
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


def test_what_else_explains_the_finding_of_the_example_can_be_added(shipped, monkeypatch):
    screen = Screen(analysis="example", detail="rest")
    assert "what-else" in screen.figures and "is a function of the word" in screen.said
    best = next(label for label in screen.buttons if label.startswith("Add "))
    shown = screen.canvas
    assert re.search(r"would explain \d+\s%? ?\w* ?", shown["more"])
    assert "unexplained" in shown["finding"]
    started = []
    monkeypatch.setattr(
        analyses,
        "start",
        lambda spec, _, **more: started.append(spec) or analyses.find("example", _),
    )
    screen.press(best)
    assert (best, started[0].add) == ("Add the next word", ("next_word",)) and screen.errors == []

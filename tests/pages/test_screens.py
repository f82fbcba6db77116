"""Every screen: with a result, with nothing to show, and where it says why it shows nothing."""

import os
import re
from dataclasses import replace

import pytest
from screens import Screen, in_this_process

from mlem_core.base.files import write_json
from mlem_core.base.typing import layer_name
from mlem_core.tasks import analyses, processes, runner
from pages.parts import manual

# The figures of each screen of an analysis of one's own, by its address.
FIGURES: dict[tuple[str, ...], set[str]] = {
    ("",): {"home-why", "home"},
    ("explore",): {"similarity", "why"},
    ("explore", "tab=profiles"): {"profiles"},
    ("explore", "tab=all"): {"layer-map", "why-layers"},
    ("explore", "tab=stimuli"): {"feature-counts", "feature-correlations"},
    ("explore", "look=features"): {"similarity", "compare"},
    ("explore", "look=maps"): {"similarity", "stimuli-a", "stimuli-b"},
    ("trust",): set(),
    ("report",): set(),
    ("new",): set(),
    ("versus",): {"two-profiles", "importance-differences", "similarity-differences"},
}
slow = pytest.mark.slow
LISTED = ("", "new", "explore", "trust", "report", "docs", "versus")


@pytest.mark.parametrize("address", FIGURES, ids=" ".join)
def test_each_screen_draws_an_analysis_of_one_s_own(own, address):
    page, *chosen = address
    screen = Screen(page, analysis=own.jobs[0].id, **dict(one.split("=") for one in chosen))
    assert set(screen.figures) == FIGURES[address] and screen.errors == []
    assert all(figure["alt"] and figure["data"] for figure in screen.figures.values())


@pytest.mark.parametrize("page", ["explore", "trust"])
def test_the_example_is_what_is_shown_where_nothing_is_chosen(store, example, page):
    screen, trust = Screen(page), {"audit", "multiverse"}
    assert set(screen.figures) == (trust if page == "trust" else {"similarity", "why"})
    assert screen.errors == [] and screen.job == "example"
    assert f"{len(example.stimuli):,} stimuli" in screen.said


@pytest.mark.parametrize("page", LISTED)
def test_without_any_analysis_each_screen_says_so(nothing, page):
    screen = Screen(page)
    assert screen.figures == {} and screen.errors == []
    if page not in ("new", "docs"):
        assert len(screen.app.info) == 1
    if page in ("explore", "trust", "report"):
        assert "New analysis" in " ".join(one.label for one in screen.app.page_link)


@pytest.mark.parametrize("page", ["explore", "trust", "report"])
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
    screen = Screen("explore", analysis=job.id)
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
    assert Screen("explore", analysis=job.id).figures


@pytest.mark.slow
def test_a_first_visit_finds_something_and_one_click_says_why(store, example):
    screen = Screen()
    assert set(screen.figures) == {"home-why", "home"} and screen.errors == []
    assert f"{len(example.stimuli):,} stimuli" in screen.said
    pair = [layer_name(one) for one in example.most_alike()]
    called = " and ".join(name.replace(":", " layer ") for name in pair)
    assert f"{called} are alike (RSA 0.84)" in screen.said and "5 of 5" in screen.said
    assert "terms" in screen.traces("home-why")
    screen.press("home explore")
    assert screen.title == "Explore" and f"{called} are alike" in screen.said
    assert [screen.address[name] for name in "ab"] == [[name] for name in pair]
    screen.go("home").press("home trust")
    assert screen.title == "Trust"
    begun = Screen("new", step="models").go("home").press("Analyse your own")
    assert begun.title == "New analysis" and "step" not in begun.address


def test_two_layers_that_share_an_artefact_are_no_finding(store):
    """mini-bert layer 1 and smollm2 layer 11 share the first word, and little else."""
    screen = Screen(analysis="example", a="smollm2:11", b="mini-bert:1")
    assert "No finding" in screen.said and "without position 0" in screen.said
    assert "are alike (RSA" not in screen.said


@pytest.mark.slow
def test_the_tour_leads_through_three_views(store):
    screen, titles = Screen().press("Two-minute tour"), []
    for button in ("tour to 1", "tour to 2", "tour own"):
        titles.append(screen.title)
        screen.press(button)
    assert titles == ["Explore", "Explore", "Trust"] and screen.title == "New analysis"


@pytest.mark.slow
def test_all_pages_of_docs_open_and_lead_to_each_other(store):
    for name, title in manual.pages().items():
        screen = Screen("docs", page=name)
        assert screen.address["page"] == [name] and screen.app.selectbox[0].value == name, title
        linked = re.findall(r"\]\(\?page=(\w+)\)", screen.said)
        assert set(linked) <= set(manual.pages()), title
    cited = Screen("docs", page=manual.CITE)
    assert "arxiv.org/abs/2406.12620" in cited.said
    assert "@article{salle2024" in cited.app.code[0].value


@pytest.mark.slow
def test_what_runs_stands_on_every_screen_until_one_has_looked(mine):
    job = mine.jobs[0].id
    form = Screen().unfold(f"more {job}").press(f"duplicate {job}").address
    screen = Screen("new", **form | {"seed": "9"}).press("Run")
    for page in ("home", "explore", "trust"):
        screen.go(page)
        assert f"look {screen.job}" in screen.buttons and "seed 9" in screen.said
    job = screen.job
    screen.press(f"look {job}")
    assert screen.title == "MLEM Explorer" and screen.job == job
    assert f"look {job}" not in screen.buttons
    assert "one layer" in screen.said and "Audit every layer" in screen.buttons

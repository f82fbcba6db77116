"""One's analyses the next day, and Back, reload, Undo and two tabs, on a real store."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from driving import START, App, picture, served, settled, traces
from inputs import in_files, noise, probing
from playwright.sync_api import Browser, Locator, Page, expect

from mlem_core.data.reading.table import read_table
from mlem_core.data.roles import guess_roles
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, notes
from mlem_core.tasks.analyses import Job

pytestmark = pytest.mark.browser

FEATURES = ("number", "tense", "question")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("yesterday")


@pytest.fixture(scope="module")
def jobs(folder: Path) -> list[Job]:
    """What was run yesterday: three analyses of one upload, one with a model that is not there."""
    store, table = Store(folder / "cache"), probing(40)
    spec = in_files(folder, table, {"brain": noise(len(table), units=4)})
    guessed = guess_roles(read_table(spec.stimuli)).items()
    ignored = [k for k, role in guessed if role in ("ordered", "nominal") and k not in FEATURES]
    spec = replace(spec, roles=tuple((name, "ignore") for name in ignored))
    uploads = {
        name: str(analyses.keep_upload(Path(name).read_bytes(), Path(name).name, store))
        for name in (spec.stimuli, spec.representations[0][1])
    }
    spec = replace(
        spec,
        stimuli=uploads[spec.stimuli],
        representations=(("brain", uploads[spec.representations[0][1]]),),
    )
    asked = [spec, replace(spec, folds=4), replace(spec, seed=7, models=("/not/there",))]
    made = [analyses.start(one, store) for one in asked]
    end = time.monotonic() + 120
    for job in made:
        while job.status().state in ("queued", "running") and time.monotonic() < end:
            time.sleep(0.1)
        assert job.status().state == "done", job.status()
    return made


@pytest.fixture(scope="module")
def next_day(folder: Path, jobs: list[Job]) -> Iterator[App]:
    """A new server on that store."""
    with served(folder) as app:
        yield app


def entry(page: Page, name: str) -> Locator:
    """The line of an analysis in the list."""
    lines = page.locator('[class*="st-key-line-of-"]')
    return lines.filter(has=page.get_by_text(name, exact=True))


def more(page: Page, name: str) -> None:
    """Open what can be done with an analysis of the list."""
    entry(page, name).get_by_role("button", name="More").click()
    expect(page.get_by_role("textbox", name="Name", exact=True)).to_be_visible()
    settled(page)


def names_in_figure(page: Page) -> set[str]:
    return {trace["name"] for trace in traces(page)} & set(FEATURES)


def until(page: Page, names: set[str]) -> None:
    """Wait until these features, and no others, are in the figure."""
    page.wait_for_function(
        """([all, shown]) => {
            const plot = document.querySelector('.js-plotly-plot');
            const now = plot && plot.data ? plot.data.map(t => t.name) : [];
            return now.length && all.every(n => now.includes(n) === shown.includes(n));
        }""",
        arg=[list(FEATURES), list(names)],
    )
    assert names_in_figure(page) == names


def test_the_next_day(next_day: App, jobs: list[Job], page: Page, browser: Browser) -> None:
    """Find, rename, compare two, delete one, undo."""
    page.goto(next_day.url)
    # Found: what each is, apart from the others, and what was left out of it.
    four = "words · brain · folds 4"
    expect(page.get_by_text("words · brain", exact=True)).to_be_visible()
    expect(page.get_by_text(four, exact=True)).to_be_visible()
    expect(page.get_by_text("Left out: /not/there.")).to_be_visible()
    expect(page.get_by_text(re.compile("3 features: .*number.*tense")).first).to_be_visible()
    settled(page)
    # Renamed, with a note.
    more(page, four)
    name = page.get_by_role("textbox", name="Name", exact=True)
    name.fill("Four folds")
    name.press("Enter")
    note = page.get_by_role("textbox", name="Note", exact=True)
    note.fill("less variance?\nlook at tense: عربي 中文")
    note.press("Control+Enter")
    expect(page.get_by_text("look at tense: عربي 中文").first).to_be_visible()
    expect(page.get_by_text("Four folds", exact=True)).to_be_visible()
    settled(page)
    picture(page, "story-my-analyses")
    # Another browser sees the same.
    other = browser.new_context().new_page()
    other.goto(next_day.url)
    expect(other.get_by_text("Four folds", exact=True)).to_be_visible(timeout=START)
    other.context.close()
    # Compared with the one of five folds.
    choice = page.get_by_role("combobox", name="Compare with")
    choice.click()
    page.get_by_role("option", name="words · brain", exact=True).click()
    page.wait_for_url(re.compile("/versus.versus="))
    expect(page.get_by_text("The first and the second differ in folds (4; 5).")).to_be_visible()
    titles = page.locator(".js-plotly-plot").first.locator(".annotation-text")
    expect(titles.filter(has_text="brain, first")).to_have_count(1)
    page.get_by_role("button", name="Add intervals of the differences").click()
    expect(page.get_by_text("of which the same are left out of both").first).to_be_visible()
    settled(page)
    picture(page, "story-two-analyses")
    page.reload()
    expect(page.get_by_text("of which the same are left out of both").first).to_be_visible()
    # Deleted, which a reload does not forget, and brought back.
    page.get_by_role("link", name="Home").click()
    expect(page.get_by_text("Four folds", exact=True)).to_be_visible()
    settled(page)
    more(page, "Four folds")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Deleted Four folds")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Deleted Four folds")).to_be_visible()
    settled(page)
    assert entry(page, "Four folds").count() == 0
    picture(page, "story-deleted")
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.get_by_text("Deleted Four folds")).to_have_count(0)
    expect(page.get_by_text("look at tense: عربي 中文").first).to_be_visible()
    page.goto(f"{next_day.url}/versus?versus={jobs[1].id}&versus={jobs[0].id}")
    expect(page.get_by_text("of which the same are left out of both").first).to_be_visible()


def test_the_name_stands_wherever_the_analysis_is_named(
    next_day: App, jobs: list[Job], page: Page
) -> None:
    page.goto(next_day.url)
    settled(page)
    more(page, "words · brain")
    name = page.get_by_role("textbox", name="Name", exact=True)
    name.fill("My words <b>*bold*</b>")
    name.press("Enter")
    shown = page.get_by_text("My words <b>*bold*</b>", exact=True)
    expect(shown.first).to_be_visible()
    settled(page)
    page.goto(f"{next_day.url}/explore?analysis={jobs[0].id}")
    expect(page.get_by_text("My words <b>*bold*</b> · ")).to_be_visible()
    chosen = page.get_by_test_id("stSidebar").get_by_role("combobox", name="Analysis")
    expect(chosen).to_have_value("My words <b>*bold*</b>")
    # Emptied, it is called by what was chosen again.
    page.goto(next_day.url)
    settled(page)
    more(page, "My words <b>*bold*</b>")
    name.fill("")
    name.press("Enter")
    expect(page.get_by_text("words · brain", exact=True)).to_be_visible()


def test_a_duplicate_is_a_form_with_all_choices(next_day: App, jobs: list[Job], page: Page) -> None:
    page.goto(next_day.url)
    settled(page)
    more(page, "words · brain")
    page.get_by_role("button", name="Duplicate").click()
    page.wait_for_url(re.compile("/new.*"))
    settled(page)
    for part in ("stimuli=[0-9a-f]{64}", "files=brain%3D[0-9a-f]{64}", "roles=[a-z_]+%3Dignore"):
        assert re.search(part, page.url), page.url
    page.goto(page.url)  # elsewhere, from the address alone
    run = page.get_by_role("button", name="Run", exact=True)
    expect(run).to_be_enabled()
    settled(page)
    before = {job.id for job in analyses.recent(Store(next_day.cache))}
    run.click()
    # Run as it is, it is that analysis: no other one begins.
    page.wait_for_url(re.compile(f"analysis={jobs[0].id}"))
    settled(page)
    assert {job.id for job in analyses.recent(Store(next_day.cache))} == before


def test_back_forward_and_reload_show_what_the_address_showed(
    next_day: App, jobs: list[Job], page: Page
) -> None:
    everything = set(FEATURES)
    page.goto(f"{next_day.url}/explore?analysis={jobs[0].id}&tab=profiles")
    until(page, everything)
    addresses = [page.url]
    for number, name in enumerate(("tense", "question"), 1):
        settled(page)
        page.get_by_role("button", name=name, exact=True).click()
        until(page, everything - {"tense"} if number == 1 else {"number"})
        page.wait_for_url(lambda url: url not in addresses)
        addresses.append(page.url)
    assert len(set(addresses)) == 3
    page.go_back()
    until(page, everything - {"tense"})
    assert page.url == addresses[1]
    page.go_back()
    until(page, everything)
    page.go_forward()
    until(page, everything - {"tense"})
    settled(page)
    assert page.url == addresses[1]
    page.reload()
    until(page, everything - {"tense"})
    # The widgets too: what is ticked off can be ticked on again.
    settled(page)
    page.get_by_role("button", name="tense", exact=True).click()
    until(page, everything)


def test_back_leads_over_pages(next_day: App, jobs: list[Job], page: Page) -> None:
    """One press a page, whether a link, a button or a tab led there."""
    page.goto(f"{next_day.url}/explore?analysis={jobs[0].id}&tab=profiles")
    until(page, set(FEATURES))
    settled(page)
    page.get_by_role("button", name="tense", exact=True).click()
    until(page, set(FEATURES) - {"tense"})
    settled(page)
    addresses = [page.url]
    for name, there in (("Trust", "/trust.analysis="), ("Home", "/.analysis=")):
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_url(re.compile(there))
        settled(page)
        addresses.append(page.url)
    page.get_by_role("button", name="Explore these two").click()
    page.wait_for_url(re.compile("/explore.*look=why"))
    settled(page)
    for address in reversed(addresses):
        page.go_back()
        page.wait_for_url(address)
        settled(page)
        assert page.url == address
    until(page, set(FEATURES) - {"tense"})


def test_undo_and_reset(next_day: App, jobs: list[Job], page: Page) -> None:
    everything = set(FEATURES)
    page.goto(f"{next_day.url}/explore?analysis={jobs[0].id}&tab=profiles")
    until(page, everything)
    settled(page)
    undo = page.get_by_role("button", name="Undo", exact=True)
    reset = page.get_by_role("button", name="Reset", exact=True)
    expect(undo).to_be_disabled()
    expect(reset).to_be_disabled()
    for name in ("tense", "question"):
        page.get_by_role("button", name=name, exact=True).click()
        settled(page)
    until(page, {"number"})
    undo.click()
    until(page, everything - {"tense"})
    settled(page)
    reset.click()
    until(page, everything)
    settled(page)
    assert "features=" not in page.url
    undo.click()
    until(page, everything - {"tense"})


def test_two_tabs_are_two(next_day: App, jobs: list[Job], page: Page) -> None:
    other = page.context.new_page()
    for one, name in ((page, "tense"), (other, "question")):
        one.goto(f"{next_day.url}/explore?analysis={jobs[0].id}&tab=profiles")
        until(one, set(FEATURES))
        settled(one)
        one.get_by_role("button", name=name, exact=True).click()
    until(page, set(FEATURES) - {"tense"})
    until(other, set(FEATURES) - {"question"})
    # A name that one tab gives, and a note of the other: neither is lost.
    store = Store(next_day.cache)
    notes.change(jobs[2].id, store, lambda old: old.named("Shared"))
    for one in (page, other):
        one.goto(next_day.url)
        settled(one)
        more(one, "Shared")
    name = page.get_by_role("textbox", name="Name", exact=True)
    name.fill("Named in one tab")
    name.press("Enter")
    expect(page.get_by_text("Named in one tab", exact=True)).to_be_visible()
    note = other.get_by_role("textbox", name="Note", exact=True)
    note.fill("noted in the other")
    note.press("Control+Enter")
    expect(other.get_by_text("noted in the other").first).to_be_visible()
    page.reload()
    expect(page.get_by_text("Named in one tab", exact=True)).to_be_visible()
    expect(page.get_by_text("noted in the other").first).to_be_visible()
    settled(page)
    settled(other)

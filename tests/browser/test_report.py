"""The report: figures are chosen, named, described, put in order, and saved together."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest
from driving import START, App, picture, served, settled
from playwright.sync_api import Browser, Locator, Page, expect
from pypdf import PdfReader

from mlem_core.storage.store import Store
from mlem_core.tasks import notes

pytestmark = pytest.mark.browser


class Counting:
    """Clicks, and how many there were."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()
        settled(self.page)


def saved(page: Page, button: Locator) -> tuple[str, bytes]:
    """What a button downloads: file name and content."""
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def is_figure_4(pdf: bytes) -> None:
    """A page of 183 mm with the scatter and both maps."""
    reader = PdfReader(io.BytesIO(pdf))
    (page,) = reader.pages
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(183, abs=0.5)
    text = page.extract_text()
    assert "mini-gpt2@seed1 layer 6" in text and "mini-mamba@seed1 layer 11" in text
    assert "weighted Kendall" in text and "part of speech" in text and "Noun" in text
    assert reader.metadata is not None
    assert (
        reader.metadata.title
        == "mini-gpt2@seed1:6 and mini-mamba@seed1:11: importances and maps of the stimuli"
    )


def test_figure_4_of_the_paper_takes_four_clicks(app: App, page: Page) -> None:
    page.goto(app.url + "/")
    settled(page)
    user = Counting(page)
    user.click(page.get_by_role("link", name="Report", exact=False).first)
    user.click(button(page, "Add a figure"))
    user.click(button(page, "Figure 4: scatter and maps of two layers"))
    name, pdf = saved(page, button(page, "PDF").first)
    assert user.clicks + 1 <= 4
    assert name == "01-two-layers.pdf"
    is_figure_4(pdf)
    picture(page, "report")


def test_figure_4_is_offered_where_two_layers_are_looked_at(app: App, page: Page) -> None:
    page.goto(app.url + "/explore?analysis=example")
    settled(page)
    page.locator(".st-key-export-why button").first.click()
    settled(page)
    page.get_by_text("figure 4: scatter and both maps").click()
    settled(page)
    name, pdf = saved(page, button(page, "Download PDF"))
    assert name == "figure-4.pdf"
    is_figure_4(pdf)


def test_a_report_is_chosen_worded_ordered_and_saved(app: App, page: Page) -> None:
    page.goto(app.url + "/explore?analysis=example&features=tense&features=part_of_speech")
    settled(page)
    page.locator(".st-key-export-why button").first.click()
    settled(page)
    button(page, "Add to report").click()
    expect(page.get_by_text("Added to the report.")).to_be_visible()
    page.goto(app.url + "/report?analysis=example")
    # Another test may have put its own here before; the button is drawn after all of them.
    expect(button(page, "Download the report")).to_be_visible()
    settled(page)
    titles = page.get_by_role("textbox", name="Title")
    for left in range(titles.count() - 1, 0, -1):
        button(page, "Remove").first.click()
        expect(titles).to_have_count(left)
        settled(page)
    button(page, "Add a figure").click()
    button(page, "Similarity of every two layers").click()
    settled(page)
    page.keyboard.press("Escape")
    expect(titles).to_have_count(2)
    expect(titles.first).to_have_value("What makes mini-gpt2@seed1:6 and mini-mamba@seed1:11 alike")
    button(page, "Down").first.click()
    settled(page)
    expect(titles.nth(1)).to_have_value(
        "What makes mini-gpt2@seed1:6 and mini-mamba@seed1:11 alike"
    )
    titles.nth(1).fill("Why both are alike")
    titles.nth(1).press("Enter")
    settled(page)
    picture(page, "report-of-two")
    name, content = saved(page, button(page, "Download the report"))
    assert name == "probing-report.zip"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {one: archive.read(one) for one in archive.namelist()}
    assert {"figures/01-similarity.pdf", "figures/02-why.pdf", "report.tex"} < set(files)
    text = PdfReader(io.BytesIO(files["figures/02-why.pdf"])).pages[0].extract_text()
    assert "tense" in text and "gender" not in text  # as it was when it was added
    tex = files["report.tex"].decode()
    assert r"\caption[{Why both are alike}]" in tex and re.search(r"\\citep\{salle2024", tex)
    page.reload()
    settled(page)
    expect(page.get_by_role("textbox", name="Title").nth(1)).to_have_value("Why both are alike")


def test_names_of_ones_own_stand_in_figures_and_files(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as app:
        context = browser.new_context(viewport={"width": 1440, "height": 1600})
        context.set_default_timeout(START)
        page = context.new_page()
        page.goto(app.url + "/report?analysis=example")
        settled(page)
        button(page, "Add a figure").click()
        button(page, "Importances of two layers").click()
        settled(page)
        # What the table of names writes; its cells are painted, so no test can find them.
        notes.change("example", Store(app.cache), lambda own: own.showing("word_length", "letters"))
        page.reload()
        page.wait_for_function(
            "() => { const p = document.querySelector('.js-plotly-plot');"
            " return p && p.data && p.data.some(t => t.name === 'letters') }"
        )
        settled(page)
        _, tex = saved(page, button(page, "LaTeX").first)
        assert b"letters & " in tex
        _, csv = saved(page, button(page, "CSV").first)
        assert b"word_length" in csv and b"letters" not in csv
        context.close()

"""What leaves the app: figures, tables, everything in one zip, and the address of a screen."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from driving import (
    ROOT,
    SMALL,
    App,
    explore,
    fresh_page,
    picture,
    run,
    settled,
    traces,
    upload,
)
from playwright.sync_api import Browser, Page, expect
from pypdf import PdfReader

pytestmark = pytest.mark.browser


def drop_tense(page: Page, app: App, done: str) -> None:
    """Look at the profiles of a finished analysis, and tick a feature off."""
    page.goto(f"{app.url}/profiles?{done}")
    traces(page)
    settled(page)
    page.get_by_role("button", name="tense", exact=True).click()
    page.wait_for_url(re.compile("features="))
    settled(page)


def test_a_pdf_for_a_paper(app: App, page: Page) -> None:
    page.goto(f"{app.url}/profiles?analysis=example")
    traces(page)
    settled(page)
    page.get_by_role("button", name="Export").first.click()
    page.get_by_role("radio", name="one column, 89 mm").click()
    settled(page)
    picture(page, "story-export")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download PDF").click()
    assert waiting.value.suggested_filename == "profiles.pdf"
    (drawn,) = PdfReader(io.BytesIO(Path(waiting.value.path()).read_bytes())).pages
    assert float(drawn.mediabox.width) / 72 * 25.4 == pytest.approx(89, abs=0.5)
    assert "part of speech" in drawn.extract_text()
    for font in drawn["/Resources"]["/Font"].values():
        (inner,) = font.get_object()["/DescendantFonts"]
        assert "/FontFile2" in inner.get_object()["/FontDescriptor"]


def test_the_numbers_behind_a_figure(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    traces(page)
    settled(page)
    page.get_by_role("button", name="Export").first.click()
    for format, name, start in (
        ("CSV", "profiles.csv", b"model,layer,fold,feature,importance"),
        ("LaTeX", "profiles.tex", rb"\begin{table}"),
    ):
        page.get_by_role("radio", name=format, exact=True).click()
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Download {format}").click()
        assert waiting.value.suggested_filename == name
        assert Path(waiting.value.path()).read_bytes().startswith(start)


def test_everything_in_one_zip_and_verified(
    app: App, page: Page, done: str, tmp_path: Path
) -> None:
    drop_tense(page, app, done)
    page.get_by_role("button", name="Download everything").click()
    expect(page.get_by_text("of what is shown: 4 features in 7 layers")).to_be_visible()
    page.get_by_role("button", name="Make the capsule").click()
    download = page.get_by_role("button", name=re.compile("^Download the capsule"))
    expect(download).to_be_visible()
    picture(page, "story-capsule")
    with page.expect_download() as waiting:
        download.click()
    assert waiting.value.suggested_filename == "small_set-capsule.zip"
    capsule = tmp_path / "capsule.zip"
    waiting.value.save_as(capsule)
    with zipfile.ZipFile(capsule) as archive:
        assert {"methods.md", "references.bib", "figures/profiles.pdf"} <= {*archive.namelist()}
        importance = pd.read_csv(archive.open("tables/importance.csv"))
    assert set(importance["feature"]) == {*SMALL, "note"} - {"tense"}
    command = [sys.executable, "-m", "mlem_core", "verify", str(capsule)]
    verified = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "nothing differs" in verified.stdout


def test_relative_clauses_are_downloaded_cut_down_and_run(
    app: App, page: Page, tmp_path: Path
) -> None:
    page.goto(app.url + "/new?models=mini-bert&layers=0,6&folds=3")
    page.get_by_role("button", name="Examples to start from").click()
    settled(page)
    # Where it rests, the mouse may call up what another button says, over this one.
    page.mouse.move(0, 0)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="relative-clauses").click()
    whole = pd.read_csv(waiting.value.path(), dtype=str, keep_default_na=False)
    whole.iloc[::16].to_csv(tmp_path / "clauses.csv", index=False)
    page.keyboard.press("Escape")
    upload(page, tmp_path / "clauses.csv")
    expect(page.get_by_text("480 stimuli (whole sentences), 12 features")).to_be_visible()
    run(page)
    expect(page.get_by_text("Done:")).to_be_visible()
    explore(page, "Profiles")
    names = {trace["name"] for trace in traces(page)}
    assert {
        "relative clause type",
        "attachment site",
        "prediction accuracy<br>(held-out ρ)",
    } <= names
    settled(page)
    picture(page, "story-clauses")


def test_export_without_chromium_on_the_server(app_without_chromium: App, page: Page) -> None:
    page.goto(f"{app_without_chromium.url}/profiles")
    traces(page)
    settled(page)
    export = page.get_by_role("button", name="Export").first
    export.click()
    expect(page.get_by_text(re.compile("PDF is written by Chrome or Chromium"))).to_be_visible()
    for format, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        page.get_by_role("radio", name=format, exact=True).click()
        expect(page.get_by_text(f"saves it as {format}, from your browser")).to_be_visible()
        settled(page)
        picture(page, f"story-no-chromium-{format}")
        with page.expect_download() as waiting:
            page.locator('[data-testid="stPopoverBody"] .modebar-btn').first.click()
        # Saving a picture closes what it stood in.
        expect(page.get_by_role("radio", name=format, exact=True)).to_have_count(0)
        settled(page)
        export.click()
        assert waiting.value.suggested_filename == f"profiles.{format.lower()}"
        content = Path(waiting.value.path()).read_bytes()
        assert content.startswith(start)
        if format == "SVG":
            assert b"part of speech" in content
        else:
            width = int.from_bytes(content[16:20], "big")
            assert width == pytest.approx(183 / 25.4 * 300, rel=0.01)


def test_a_copied_link_opens_the_same_screen(
    app: App, page: Page, browser: Browser, done: str
) -> None:
    drop_tense(page, app, done)
    page.get_by_text("How it is computed").click()
    choice = page.get_by_role("combobox", name="Interactions")
    # A list that opens while the sidebar scrolls closes again.
    choice.scroll_into_view_if_needed()
    settled(page)
    choice.click()
    choice.fill("yes")
    choice.press("Enter")
    page.wait_for_url(re.compile("products=yes"))
    expected = re.compile("word length × |part of speech × |note × ")
    page.wait_for_function(
        "() => document.querySelector('.js-plotly-plot').data.some(t => t.name.includes('×'))"
    )
    other = fresh_page(browser)
    other.goto(page.url)
    other.locator(".js-plotly-plot").first.wait_for()
    names = {trace["name"] for trace in traces(other)}
    assert "tense" not in names
    assert any(expected.match(name) for name in names)
    other.context.close()

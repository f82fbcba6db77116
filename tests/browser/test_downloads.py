"""Pictures that leave the app: written by the server's Chrome, or by the visitor's browser."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from driving import App, fresh_page, go, keyed, served, settled, sound, traces
from playwright.sync_api import Browser, Page
from pypdf import PdfReader

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_pdf_for_a_paper(app: App, page: Page) -> None:
    page.goto(f"{app.url}/explore?analysis=example&tab=profiles")
    traces(page)
    settled(page)
    keyed(page, "export-profiles").click()
    page.get_by_role("radio", name="89 mm").click()
    settled(page)
    with page.expect_download() as waiting:
        keyed(page, "download-profiles").click()
    assert waiting.value.suggested_filename == "profiles.pdf"
    (drawn,) = PdfReader(io.BytesIO(Path(waiting.value.path()).read_bytes())).pages
    assert float(drawn.mediabox.width) / 72 * 25.4 == pytest.approx(89, abs=0.5)
    assert "part of speech" in drawn.extract_text()
    for font in drawn["/Resources"]["/Font"].values():
        (inner,) = font.get_object()["/DescendantFonts"]
        assert "/FontFile2" in inner.get_object()["/FontDescriptor"]


def test_without_chrome_on_the_server_the_browser_saves_a_picture(
    browser: Browser, tmp_path: Path
) -> None:
    with served(tmp_path, BROWSER_PATH="/nowhere/chrome") as app:
        page = fresh_page(browser)
        page.goto(f"{app.url}/explore?analysis=example&tab=profiles")
        traces(page)
        settled(page)
        for form, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
            keyed(page, "export-profiles").click()
            page.get_by_role("radio", name=form, exact=True).click()
            settled(page)
            camera = page.locator('[data-testid="stPopoverBody"] .modebar-btn').first
            with page.expect_download() as waiting:
                camera.click()
            # Saving a picture closes what it stood in.
            camera.wait_for(state="detached")
            settled(page)
            assert waiting.value.suggested_filename == f"profiles.{form.lower()}"
            content = Path(waiting.value.path()).read_bytes()
            assert content.startswith(start)
            if form == "SVG":
                assert b"part of speech" in content
            else:
                width = int.from_bytes(content[16:20], "big")
                assert width == pytest.approx(183 / 25.4 * 300, rel=0.01)
        go(page, "Home")
        sound(page, app)
        page.context.close()

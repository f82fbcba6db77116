"""A server that may write neither its store nor a home: the example is there all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import App, served
from permissions import heed_permissions
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("shut")
    for name in ("home", "cache"):
        (folder / name).mkdir(mode=0o555)
    with served(folder, before=heed_permissions, HOME=str(folder / "home")) as app:
        yield app
    assert not any((folder / "home").iterdir()) and not any((folder / "cache").iterdir())


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    expect(page.locator("h1").first).to_be_visible(timeout=60_000)
    expect(page.locator('[data-testid="stStatusWidget"]')).to_have_count(0, timeout=60_000)
    return page


@pytest.mark.parametrize("name", ["", "explore", "trust", "report", "new"])
def test_every_page_of_the_example_is_drawn(shut: App, browser: Browser, name: str) -> None:
    page = opened(browser, f"{shut.url}/{name}?analysis=example")
    body = page.inner_text("body")
    assert page.locator('[data-testid="stException"]').count() == 0
    assert "unexpected happened" not in body and "Traceback" not in body, shut.log.read_text()
    page.close()


def test_a_run_is_refused_in_a_sentence(shut: App, browser: Browser) -> None:
    page = opened(browser, f"{shut.url}/new?step=models&stimuli=probing&models=mini-bert")
    page.get_by_role("button", name="Run", exact=True).click()
    said = page.get_by_text(re.compile("cannot be written")).first
    expect(said).to_be_visible(timeout=60_000)
    assert "Traceback" not in page.inner_text("body")
    page.close()


def test_an_upload_is_refused_in_a_sentence(shut: App, browser: Browser, small_csv: Path) -> None:
    page = opened(browser, f"{shut.url}/new")
    page.locator('input[type="file"]').first.set_input_files(small_csv)
    expect(page.get_by_text(re.compile("cannot be written")).first).to_be_visible(timeout=60_000)
    assert "unexpected happened" not in page.inner_text("body")
    page.close()

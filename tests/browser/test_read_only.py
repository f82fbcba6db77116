"""A server that may write neither its store nor a home: the example is there all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import App, fresh_page, go, run, served, settled, sound
from permissions import heed_permissions
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("shut")
    for name in ("home", "cache"):
        (folder / name).mkdir(mode=0o555)
    with served(folder, before=heed_permissions, HOME=str(folder / "home")) as app:
        yield app
    assert not any((folder / "home").iterdir()) and not any((folder / "cache").iterdir())


def test_all_is_shown_and_nothing_is_kept(shut: App, browser: Browser, small_csv: Path) -> None:
    page = fresh_page(browser)
    page.goto(f"{shut.url}/?analysis=example")
    for screen in ("Home", "Explore", "Trust", "Report", "New analysis"):
        go(page, screen)
        sound(page, shut)
    refused = page.get_by_test_id("stMain").get_by_text(re.compile("cannot be written")).first
    run(page)
    expect(refused).to_be_visible()
    sound(page, shut)
    page.reload()
    settled(page)
    expect(refused).to_have_count(0)
    page.locator('input[type="file"]').first.set_input_files(small_csv)
    expect(refused).to_be_visible()
    sound(page, shut)
    page.context.close()

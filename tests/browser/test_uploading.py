"""Files between the browser and the server: those that come slowly, and those that never come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from driving import App, fresh_page, keyed, settled, sound, upload
from playwright.sync_api import Browser, Page, Route, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_file_on_its_way_is_lost_by_no_step_and_waited_for(
    app: App, browser: Browser, small_csv: Path, tmp_path: Path
) -> None:
    """A slow line: each file arrives when the test lets it."""
    held: list[Route] = []
    page = fresh_page(browser)
    page.route("**/_stcore/upload_file/**", lambda route: held.append(route))

    def let_go() -> None:
        # The page says that a file is coming before the browser asks to send it.
        while not held:
            page.wait_for_timeout(50)
        held.pop().continue_()

    page.goto(f"{app.url}/new?models=mini-bert")
    run_button = page.get_by_role("button", name="Run", exact=True)
    expect(run_button).to_be_enabled()
    page.locator('input[type="file"]').set_input_files(small_csv)
    # The click comes before the browser shows the file.
    keyed(page, "step-roles").click()
    expect(page.get_by_role("combobox", name="Role of tense")).to_be_visible()
    coming = page.locator(".st-key-form-coming")
    expect(coming).to_be_visible()
    expect(run_button).to_have_count(0)
    settled(page)
    let_go()
    expect(page.get_by_role("combobox", name="Role of note")).to_be_visible()
    expect(coming).to_be_hidden()
    # Those of a step keep the step.
    settled(page)
    keyed(page, "step-models").click()
    settled(page)
    np.savez(tmp_path / "brain.npz", V1=np.random.default_rng(0).normal(size=(9, 4)))
    page.locator('input[type="file"]').last.set_input_files(tmp_path / "brain.npz")
    expect(coming).to_be_visible()
    expect(keyed(page, "step-roles")).to_be_hidden()
    expect(run_button).to_have_count(0)
    let_go()
    expect(page.get_by_text("brain.npz").first).to_be_visible()
    expect(keyed(page, "step-roles")).to_be_visible()
    sound(page, app)
    page.context.close()


def test_a_file_that_the_browser_refuses_never_lets_run_go_on(
    app: App, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{app.url}/new?models=mini-bert")
    run_button = page.get_by_role("button", name="Run", exact=True)
    expect(run_button).to_be_enabled()
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(501_000_000)  # takes no room on the disk
    upload(page, huge)
    expect(page.locator(".st-key-form-refused")).to_be_visible()
    expect(run_button).to_have_count(0)
    page.get_by_role("button", name="Remove huge.csv").click()
    expect(run_button).to_be_enabled()

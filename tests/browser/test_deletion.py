"""An analysis is deleted after one question, and comes back with Undo."""

import pytest
from helpers.browser import fresh_page, keyed, settled, sound
from helpers.inputs import in_files, noise, words
from helpers.waiting import wait
from playwright.sync_api import expect

from mlem_core import Store
from mlem_core.tasks import analyses


@pytest.mark.slow
def test_an_analysis_is_deleted_after_one_question_and_comes_back(app, browser, tmp_path):
    store, table = Store(app.cache), words()
    job = analyses.start(in_files(tmp_path, table, {"brain": noise(len(table))}), store)
    wait(job, "done")
    page = fresh_page(browser)
    page.goto(f"{app.url}/?analysis=example")
    settled(page)
    line, undo = page.locator(f".st-key-line-of-{job.id}"), keyed(page, "undo-deletion")

    def ask():
        keyed(page, f"more-{job.id}").click()
        keyed(page, f"delete-{job.id}").click()
        expect(page.get_by_role("dialog")).to_be_visible()

    ask()
    keyed(page, f"keep-{job.id}").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(line).to_have_count(1)
    settled(page)
    page.reload()
    settled(page)
    ask()
    keyed(page, f"delete-for-sure-{job.id}").click()
    expect(line).to_have_count(0)
    undo.click()
    expect(line).to_have_count(1)
    expect(undo).to_have_count(0)
    assert job.status().state == "done"
    settled(page)
    page.reload()
    settled(page)
    ask()
    keyed(page, f"delete-for-sure-{job.id}").click()
    expect(undo).to_be_visible()
    page.reload()
    expect(undo).to_be_visible()
    expect(line).to_have_count(0)
    sound(page, app)
    page.context.close()

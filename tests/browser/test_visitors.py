"""Two visitors of a shared server, in two browsers."""

from __future__ import annotations

from pathlib import Path

import psutil
from driving import START, fresh_page, run, served, settled, upload
from playwright.sync_api import Browser, expect


def test_visitors_see_what_is_theirs_and_what_they_are_shown(
    browser: Browser, tmp_path: Path, small_csv: Path
) -> None:
    settings = tmp_path / "shared.toml"
    settings.write_text("upload_mb = 2\n")
    with served(tmp_path, MLEM_SHARED=str(settings)) as app:
        listens = [
            one.laddr.ip
            for one in psutil.Process(app.process).net_connections()
            if one.status == psutil.CONN_LISTEN
        ]
        assert set(listens) <= {"127.0.0.1", "::1"} and listens
        first, second = fresh_page(browser), fresh_page(browser)
        first.goto(app.url + "/new?models=mini-bert")
        upload(first, small_csv)
        run(first)
        expect(first.get_by_text("Done:")).to_be_visible(timeout=START)
        assert str(tmp_path) not in first.content()
        job = first.url.rpartition("analysis=")[2]
        asked = first.url.partition("?")[2]
        for address in (f"/explore?analysis={job}", f"/new?{asked}"):
            second.goto(app.url + address)
            expect(second.get_by_text("is not on this machine").first).to_be_visible()
        second.goto(app.url)
        expect(second.get_by_text("My analyses")).to_be_visible()
        lines = second.locator('[class*="st-key-line-of-"]')
        expect(lines).to_have_count(1)
        first.goto(f"{app.url}/?analysis={job}")
        first.get_by_role("button", name="More").first.click()
        first.get_by_role("button", name="Show to others").click()
        expect(first.get_by_text("Whoever has this link")).to_be_visible()
        link = first.locator('[data-testid="stCode"]').last.inner_text().strip()
        second.goto(link)
        expect(lines).to_have_count(2)
        settled(second)
        assert link.rpartition("=")[2] not in second.url and second.url.endswith(job)
        # The same browser is the same visitor, and no page can read who it is.
        second.goto(app.url)
        expect(lines).to_have_count(2)
        assert "mlem_visitor" not in second.evaluate("document.cookie")
        for page in (first, second):
            assert str(tmp_path) not in page.content()
            page.context.close()
        assert "Traceback" not in app.log.read_text()

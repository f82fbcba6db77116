"""Servers of their own: one that only shows, one with a log-in, and one that cannot write."""

import re

import psutil
import pytest
from helpers.browser import fresh_page, go, run, served, settled, sound
from helpers.permissions import heed_permissions
from playwright.sync_api import expect

from pages.parts.canvas import VIEWS

SHOWN = [f"?view={name}" for name in VIEWS]
SHOWN += [f"?detail={name}" for name in ("checks", "erase", "rest", "how")] + ["systems", "report"]
CHANGES = re.compile(
    r"^(Run|Rename|Delete|Duplicate|Cancel|Undo|Erase it|Add .*|Make .*|Find .*|Up|Down|Remove)$"
)


def listens(app):
    """The addresses that the server listens on."""
    own = psutil.Process(app.process).net_connections()
    return {one.laddr.ip for one in own if one.status == psutil.CONN_LISTEN}


@pytest.mark.slow
def test_a_server_that_only_shows_offers_nothing_that_changes(tmp_path, browser):
    with served(tmp_path, options=("--host", "0.0.0.0", "--view-only")) as app:
        assert listens(app) == {"0.0.0.0"}
        page = fresh_page(browser)
        for address in SHOWN:
            page.goto(f"{app.url}/{address}{'&' if '?' in address else '?'}analysis=example")
            settled(page)
            sound(page, app)
            expect(page.get_by_role("button", name=CHANGES)).to_have_count(0)
        expect(page.get_by_role("link", name="New analysis", exact=True)).to_have_count(0)
        page.goto(f"{app.url}/new?models=mini-bert")
        expect(page.get_by_text("only shows finished analyses")).to_be_visible()
        settled(page)
        expect(page.locator('input[type="file"]')).to_have_count(0)
        expect(page.get_by_role("button", name=CHANGES)).to_have_count(0)
        page.goto(app.url)
        settled(page)
        expect(page.locator(".st-key-line-of-example")).to_have_count(1)
        expect(page.locator('[class*="st-key-more-"]')).to_have_count(0)
        expect(page.get_by_role("button", name=CHANGES)).to_have_count(0)
        # It is read and exported.
        page.locator(".canvas.views .save").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=re.compile("^Download ")).last.click()
        assert download.value.path().stat().st_size > 1000
        sound(page, app)
        page.context.close()


@pytest.mark.slow
def test_a_server_that_may_write_nothing_shows_all_and_keeps_nothing(tmp_path, browser, small_csv):
    closed = [tmp_path / name for name in ("home", "cache")]
    for folder in closed:
        folder.mkdir(mode=0o555)
    page = fresh_page(browser)
    with served(tmp_path, before=heed_permissions, HOME=str(tmp_path / "home")) as shut:
        assert listens(shut) == {"127.0.0.1"}
        page.goto(f"{shut.url}/?analysis=example")
        for screen in ("Explore", "Systems", "Report", "New analysis"):
            go(page, screen)
            sound(page, shut)
        refused = page.get_by_test_id("stMain").get_by_text(re.compile("cannot be written")).first
        run(page)
        expect(refused).to_be_visible()
        page.reload()
        settled(page)
        expect(refused).to_have_count(0)
        page.locator('input[type="file"]').first.set_input_files(small_csv)
        expect(refused).to_be_visible()
        sound(page, shut)
        page.context.close()
    assert not any(one for folder in closed for one in folder.iterdir())


@pytest.mark.slow
def test_a_log_in_shows_nothing_before_it(tmp_path, browser):
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text(
        '[auth]\nredirect_uri = "http://localhost/oauth2callback"\ncookie_secret = "secret"\n'
        'client_id = "x"\nclient_secret = "y"\nserver_metadata_url = "http://127.0.0.1:9/x"\n'
    )
    (tmp_path / "authlib.py").write_text('__version__ = "1.6.0"\n')  # nobody gets to the provider
    more = {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    with served(tmp_path, options=("--host", "0.0.0.0"), **more) as app:
        page = fresh_page(browser)
        for address in ("", "/?analysis=example", "/new", "/report?analysis=example"):
            page.goto(app.url + address)
            expect(page.get_by_role("button", name="Log in", exact=True)).to_be_visible()
            settled(page)
            expect(page.get_by_text("My analyses")).to_have_count(0)
            expect(page.locator(".canvas, .js-plotly-plot")).to_have_count(0)
            sound(page, app)
        page.context.close()

"""The app in a real browser: one server and one page for all tests that need no others."""

import pytest
from helpers.browser import SCRIPT, START, TAG, at_rest, fresh_page, served, sound
from helpers.inputs import words
from playwright.sync_api import expect

from mlem_core.stimuli.stimulus_csv import write_csv

expect.set_options(timeout=START)


@pytest.fixture(scope="session")
def app(tmp_path_factory):
    """A server of one's own, with the example and what the tests run."""
    with served(tmp_path_factory.mktemp("app")) as app:
        yield app


@pytest.fixture(scope="session")
def long_lived(app, browser):
    """A window that stays open, as loading one takes longer than most tests."""
    page = fresh_page(browser)
    page.goto(app.url)
    yield page
    page.context.close()


@pytest.fixture
def page(app, long_lived):
    """The long-lived window, whatever was done in it before: the example, with nothing chosen."""
    at_rest(long_lived, app)
    yield long_lived
    sound(long_lived, app)


@pytest.fixture(scope="session")
def small_csv(tmp_path_factory):
    """Words of 20 sentences with cells that a careless page would run."""
    table = words(20)
    table["note"] = [TAG if row % 2 else SCRIPT for row in range(len(table))]
    path = tmp_path_factory.mktemp("stimuli") / "small set.csv"
    write_csv(table, path)
    return path

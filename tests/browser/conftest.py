"""The app in a real browser: one real server for all tests, real models, nothing replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import SCRIPT, SMALL, START, TAG, App, picture, run, served, upload
from playwright.sync_api import Browser, Page, expect

from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import write_csv

expect.set_options(timeout=START)


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with served(tmp_path_factory.mktemp("app")) as app:
        yield app


@pytest.fixture
def app_without_chromium(tmp_path: Path) -> Iterator[App]:
    with served(tmp_path, BROWSER_PATH="/nowhere/chrome") as app:
        yield app


@pytest.fixture
def page(app: App, browser: Browser) -> Iterator[Page]:
    """A fresh browser; whatever it shows at the end is no traceback."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(START)
    page = context.new_page()
    yield page
    assert page.locator('[data-testid="stException"]').count() == 0
    body = page.inner_text("body")
    context.close()
    assert "Traceback" not in body
    assert "unexpected happened" not in body, app.log.read_text()
    assert "Page not found" not in body


@pytest.fixture(scope="session")
def small_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 40 sentences of the probing set with cells that a careless page would run."""
    table = datasets.load("probing").table
    kept = table[table["sentence"].isin(table["sentence"].unique()[:40])]
    columns = ["sentence", "word_index", "word", *sorted(SMALL)]
    kept = kept[columns].reset_index(drop=True)
    kept["note"] = [TAG if row % 2 else SCRIPT for row in range(len(kept))]
    path = tmp_path_factory.mktemp("stimuli") / "small set.csv"
    write_csv(kept, path)
    return path


@pytest.fixture(scope="session")
def done(app: App, browser: Browser, small_csv: Path) -> str:
    """The address (its query) of an analysis of the small set with minilm, made by hand."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(app.url + "/new?models=minilm")
    upload(page, small_csv)
    expect(page.get_by_text("5 features:")).to_be_visible(timeout=START)
    run(page)
    # On an idle machine it may be done before the page is there again.
    state = page.get_by_text(re.compile(r"(Waiting|Running|Done):")).first
    expect(state).to_be_visible(timeout=START)
    page.reload()
    expect(state).to_be_visible(timeout=START)
    progress = page.get_by_text(re.compile(r"\d+ of \d+ (sentences|layers)|Done:")).first
    expect(progress).to_be_visible(timeout=START)
    picture(page, "running")
    expect(page.get_by_text("Done:")).to_be_visible(timeout=START)
    picture(page, "done")
    query = page.url.partition("?")[2]
    context.close()
    return query

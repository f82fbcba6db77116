"""The app in a real browser: a real server, real models, nothing replaced."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from mlem_core import datasets
from mlem_core.stimuli import read_csv, write_csv

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parent.parent
VIEWS = ("profiles", "similarity", "compare", "stimuli")
TAG = "<b>bold</b>"
SCRIPT = "<img src=x onerror='window.hacked = 1'>"
START = 60_000  # ms: importing torch takes a while on a busy machine
SMALL = {"word_length", "part_of_speech", "tense", "word_position"}


@dataclass
class App:
    url: str
    log: Path
    cache: Path
    process: int


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The app on a free port with a store of its own; the hub cannot be reached."""
    folder = tmp_path_factory.mktemp("app")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "MLEM_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "hub"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    log = folder / "log"
    command = [sys.executable, "scripts/serve.py", "--server.port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        began = time.monotonic()
        while True:
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1)
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() - began < 30, log.read_text()
                time.sleep(0.1)
        yield App(f"http://localhost:{port}", log, folder / "cache", server.pid)
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def page(app: App, browser: Browser) -> Iterator[Page]:
    """A fresh browser; whatever it shows at the end is no traceback."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(30_000)
    page = context.new_page()
    yield page
    assert page.locator('[data-testid="stException"]').count() == 0
    body = page.inner_text("body")
    context.close()
    assert "Traceback" not in body
    assert "unexpected happened" not in body, app.log.read_text()
    assert "Page not found" not in body


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def done(app: App, browser: Browser, small_csv: Path) -> str:
    """The address (its query) of an analysis of the small set with minilm, made by hand."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(app.url + "/?models=minilm")
    _upload(page, small_csv)
    expect(page.get_by_text("5 features")).to_be_visible(timeout=START)
    _run(page)
    expect(page.get_by_text(re.compile(r"(Waiting|Running):")).first).to_be_visible(timeout=START)
    page.reload()
    expect(page.get_by_text(re.compile(r"(Waiting|Running):")).first).to_be_visible(timeout=START)
    progress = page.get_by_text(re.compile(r"\d+ of \d+ (sentences|layers)")).first
    expect(progress).to_be_visible(timeout=START)
    _picture(page, "running")
    expect(page.get_by_text("Done:")).to_be_visible(timeout=START)
    _picture(page, "done")
    query = page.url.partition("?")[2]
    context.close()
    return query


def _upload(page: Page, file: Path) -> None:
    page.locator('input[type="file"]').first.set_input_files(file)


def _run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()


def _settled(page: Page) -> None:
    page.wait_for_function(
        "() => document.querySelector('[data-test-script-state=\"notRunning\"]') !== null"
    )


def _traces(page: Page, figure: int = 0) -> list[dict]:
    """Name, kind and size of the traces of a figure, as the browser holds them."""
    found = page.locator(".js-plotly-plot").nth(figure)
    found.wait_for()
    page.wait_for_function(
        "n => { const p = document.querySelectorAll('.js-plotly-plot')[n]; return p && p.data }",
        arg=figure,
    )
    return found.evaluate(
        # Long arrays arrive packed; `_fullData` has them unpacked.
        "p => p._fullData.map(t => ({name: t.name, type: t.type, n: (t.x || t.z || []).length}))"
    )


def _picture(page: Page, name: str) -> None:
    if os.environ.get("MLEM_SCREENSHOTS"):
        folder = ROOT / "screenshots"
        folder.mkdir(exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")


# The tests of empty pages come first: no analysis is in the store then.


@pytest.mark.parametrize("view", VIEWS)
def test_empty_view_says_what_to_do(app: App, page: Page, view: str) -> None:
    page.goto(f"{app.url}/{view}")
    expect(page.get_by_text("There is no analysis yet")).to_be_visible()
    _picture(page, f"empty-{view}")
    page.get_by_role("link", name="Go to Analysis").click()
    expect(page.get_by_role("heading", name="Analysis")).to_be_visible()


def test_first_visit_offers_sets_and_models(app: App, page: Page) -> None:
    page.goto(app.url)
    expect(page.get_by_text("2,040 stimuli")).to_be_visible()
    expect(page.get_by_text("SmolLM2-135M-Instruct")).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    _picture(page, "first-visit")


def test_unknown_analysis_is_a_sentence(app: App, page: Page) -> None:
    page.goto(f"{app.url}/profiles?analysis=../../etc")
    expect(page.get_by_text("is not on this machine")).to_be_visible()


def test_profiles_draw_what_was_run(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    names = {trace["name"] for trace in _traces(page)}
    assert {*SMALL, "note", "held-out ρ", "ceiling"} <= names
    assert max(trace["n"] for trace in _traces(page)) >= 7  # MiniLM's layers
    _picture(page, "profiles")


def test_dropping_a_feature_needs_no_run(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    assert "tense" in {trace["name"] for trace in _traces(page)}
    jobs = list((app.cache / "jobs").glob("*/spec.json"))
    _settled(page)
    page.get_by_role("button", name="tense", exact=True).click()
    page.wait_for_function(
        "() => !document.querySelector('.js-plotly-plot').data.some(t => t.name === 'tense')"
    )
    assert "word_length" in {trace["name"] for trace in _traces(page)}
    assert list((app.cache / "jobs").glob("*/spec.json")) == jobs
    page.wait_for_url(re.compile("features=word_length"))
    # The choice goes along to the next page, and from its address to another browser.
    page.get_by_role("link", name="Compare").click()
    page.wait_for_url(re.compile(r"/compare\?.*features="))
    assert "tense" not in {trace["name"] for trace in _traces(page)}
    address = page.url
    other = page.context.browser.new_context().new_page()
    other.goto(address)
    assert "tense" not in {trace["name"] for trace in _traces(other)}
    assert "word_length" in {trace["name"] for trace in _traces(other)}
    other.context.close()


def test_similarity_has_both_matrices(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/similarity?{done}")
    heat = [trace for trace in _traces(page) if trace["type"] == "heatmap"]
    assert [trace["n"] for trace in heat] == [7, 7]
    assert any(trace["name"] == "minilm" for trace in _traces(page, 1))
    _picture(page, "similarity")


def test_compare_keeps_its_choice_in_the_address(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/compare?{done}&a=minilm:1&b=minilm:5&colour=note")
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=START)
    assert {*SMALL, "note"} <= {trace["name"] for trace in _traces(page)}
    expect(page.get_by_text("FI in minilm layer 5")).to_be_visible()
    # The values of the feature are in the map's legend, letter by letter.
    text = page.locator(".js-plotly-plot").nth(1).inner_text()
    assert TAG in text
    _picture(page, "compare")


def test_cells_with_html_are_text(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/stimuli?{done}")
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    _settled(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator('img[src="x"]').count() == 0
    assert {trace["name"] for trace in _traces(page)} >= {*SMALL, "note"}
    _picture(page, "stimuli")


def test_a_view_offers_the_latest_analysis(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles")
    page.get_by_role("button", name=re.compile("^Open small_set")).click()
    assert "tense" in {trace["name"] for trace in _traces(page)}
    assert "analysis=" in page.url


def test_downloads(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    _traces(page)
    _settled(page)
    for label, start in (("CSV", b"model,layer,fold,feature,importance"), ("SVG", b"<svg")):
        with page.expect_download(timeout=START) as waiting:
            page.get_by_role("button", name=label, exact=True).first.click()
        assert waiting.value.suggested_filename == f"profiles.{label.lower()}"
        assert Path(waiting.value.path()).read_bytes().startswith(start)


def test_bad_csv_loses_nothing(app: App, page: Page, done: str, tmp_path: Path) -> None:
    page.goto(f"{app.url}/?{done}")
    expect(page.get_by_text("Done:")).to_be_visible()
    bad = tmp_path / "bad.csv"
    bad.write_text("sentence,word_index,kind\nthe cat sleeps,0,a\nthe dog barks,7,b\n")
    _upload(page, bad)
    error = page.get_by_text(re.compile("word_index in row 2 is .?7.*outside the sentence"))
    expect(error).to_be_visible()
    _picture(page, "bad-csv")
    expect(page.get_by_text("Done:")).to_be_visible()
    expect(page.get_by_text("note").first).to_be_visible()  # still the features of the small set
    page.get_by_role("link", name="Profiles").first.click()
    assert "tense" in {trace["name"] for trace in _traces(page)}


def test_unreachable_model_is_left_out(app: App, page: Page, done: str) -> None:
    query = re.sub(r"&?(analysis|models)=[^&]*", "", done)
    page.goto(f"{app.url}/?{query}&models=minilm&models=gpt2&layers=0,6")
    expect(page.get_by_text("cannot be reached now")).to_be_visible()
    _run(page)
    expect(page.get_by_text(re.compile("gpt2 was left out"))).to_be_visible(timeout=START)
    expect(page.get_by_text("Done:")).to_be_visible()
    _picture(page, "left-out")


def test_representations_from_a_file(
    app: App, page: Page, done: str, small_csv: Path, tmp_path: Path
) -> None:
    n = len(read_csv(small_csv))
    layers = {f"layer_{i:02}": np.random.default_rng(i).normal(size=(n, 8)) for i in range(3)}
    np.savez(tmp_path / "brain.npz", **layers)
    page.goto(f"{app.url}/?{done}")
    _add_representations(page, "brain", tmp_path / "brain.npz")
    _run(page)
    expect(page.get_by_text("Done: small_set.csv · minilm, brain")).to_be_visible(timeout=START)
    page.get_by_role("link", name="Similarity").first.click()
    assert {"minilm", "brain"} <= {trace["name"] for trace in _traces(page, 1)}


def test_wrong_representations_are_left_out(
    app: App, page: Page, done: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "short.npz", layer_00=np.zeros((3, 8)))
    page.goto(f"{app.url}/?{done}")
    _add_representations(page, "short", tmp_path / "short.npz")
    _run(page)
    expect(page.get_by_text(re.compile("short was left out:.*has 3 rows"))).to_be_visible(
        timeout=START
    )
    expect(page.get_by_text("Done: small_set.csv · minilm, short")).to_be_visible()


def test_precomputed_distances_and_other_start_tokens(
    app: App, page: Page, done: str, small_csv: Path, tmp_path: Path
) -> None:
    n = len(read_csv(small_csv))
    points = np.random.default_rng(0).normal(size=(n, 3))
    square = np.linalg.norm(points[:, None] - points, axis=2)
    np.savetxt(tmp_path / "apart.csv", square, delimiter=",")
    page.goto(f"{app.url}/?{done}&distance=precomputed&special_tokens=none")
    _add_representations(page, "apart", tmp_path / "apart.csv")
    _run(page)
    expect(page.get_by_text("goes with representations files only")).to_be_visible(timeout=START)
    models = page.get_by_role("combobox", name="Models").first
    models.press("Backspace")
    models.press("Escape")
    _settled(page)
    _run(page)
    text = "Done: small_set.csv · apart · distance precomputed · special_tokens none"
    expect(page.get_by_text(text)).to_be_visible(timeout=START)
    page.get_by_role("link", name="Profiles").first.click()
    assert "tense" in {trace["name"] for trace in _traces(page)}


def test_a_run_that_fails_loses_nothing(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/?{done}&layers=99")
    _run(page)
    expect(page.get_by_text("Not done:")).to_be_visible(timeout=START)
    expect(page.get_by_text("has none of the layers 99")).to_be_visible()
    _picture(page, "failed")
    page.get_by_role("link", name="Profiles").first.click()
    expect(page.get_by_text("did not finish")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Open small_set")).click()
    assert "tense" in {trace["name"] for trace in _traces(page)}


def _add_representations(page: Page, name: str, file: Path) -> None:
    page.get_by_text("Representations from a file").click()
    field = page.get_by_role("textbox", name="Name")
    field.fill(name)
    field.press("Enter")
    page.locator('input[type="file"]').nth(1).set_input_files(file)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(f"{name}: {file.name}")).to_be_visible()


def test_bad_layers_are_a_sentence(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/?{done}&layers=three")
    expect(page.get_by_text("Done:")).to_be_visible()
    _run(page)
    expect(page.get_by_text("found the layers 'three'")).to_be_visible()
    expect(page.get_by_text("Done:")).to_be_visible()


def test_cancel_stops_within_two_seconds(app: App, page: Page) -> None:
    page.goto(f"{app.url}/?models=smollm2")
    expect(page.get_by_text("2,040 stimuli")).to_be_visible()
    _run(page)
    cancel = page.get_by_role("button", name="Cancel")
    expect(page.get_by_text("Running:")).to_be_visible(timeout=START)
    began = time.monotonic()
    cancel.click()
    expect(page.get_by_text("Cancelled:")).to_be_visible(timeout=10_000)
    # Two seconds for the run to stop, and one for the browser to say so on a busy machine.
    assert time.monotonic() - began < 3
    page.get_by_role("link", name="Profiles").first.click()
    expect(page.get_by_text("was cancelled")).to_be_visible()


def test_torch_stays_out_of_the_server(app: App, page: Page, done: str) -> None:
    maps = Path(f"/proc/{app.process}/maps")
    if not maps.exists():
        pytest.skip("only Linux tells what a process has loaded")
    page.goto(f"{app.url}/compare?{done}")
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=START)
    assert "numpy" in maps.read_text()  # it does tell
    assert "libtorch" not in maps.read_text()

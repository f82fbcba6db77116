"""What the browser tests share: the app as they see it, and what they do with a page."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, ElementHandle, Page, expect

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses

ROOT = Path(__file__).resolve().parents[2]
START = 120_000  # ms: importing torch takes a while on a busy machine
TAG = "<b>bold</b>"
SCRIPT = "<img src=x onerror='window.hacked = 1'>"
SMALL = {"word_length", "part_of_speech", "tense", "word_position"}
SHOWN = {name.replace("_", " ") for name in SMALL}  # as the screens call them


@dataclass
class App:
    url: str
    log: Path
    cache: Path
    process: int


@contextlib.contextmanager
def served(
    folder: Path, before: Callable[[], None] | None = None, **environment: str
) -> Iterator[App]:
    """The app on a free port with a store of its own; the hub cannot be reached.

    `before` is called in its process before it starts.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "MLEM_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "hub"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        **environment,
    }
    log = folder / "log"
    command = [sys.executable, "scripts/serve.py", "--server.port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=before,
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
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def upload(page: Page, *files: Path) -> None:
    """Upload files where the step that is shown takes some, until the script has taken them."""
    chooser = page.locator('input[type="file"]').last.element_handle()
    chooser.set_input_files(files)
    taken(page, chooser)


def taken(page: Page, chooser: ElementHandle) -> None:
    """Wait until the script has what was uploaded, or the browser refuses it.

    Then an uploader without files is there instead; one with a file that is refused stays.
    """
    page.wait_for_function(
        """chooser => !chooser.isConnected || chooser.closest('[data-testid="stFileUploader"]')
            .querySelector('[data-testid="stFileChip"][aria-invalid="true"]')""",
        arg=chooser,
    )
    settled(page)


def run(page: Page) -> None:
    settled(page)
    page.get_by_role("button", name="Run", exact=True).click()


def explore(page: Page, tab: str) -> None:
    """Go to Explore by the navigation, and there to a tab."""
    page.get_by_role("link", name="Explore", exact=True).click()
    page.get_by_role("radio", name=tab).click()
    # Until then the figures of the tab before are there.
    settled(page)


def how_computed(page: Page, figure: int, says: str) -> None:
    """Unfold how a figure of the page was computed, see what it says, and fold it again."""
    settled(page)
    page.get_by_role("button", name="How computed").nth(figure).click()
    expect(page.get_by_text(re.compile(says)).first).to_be_visible()
    page.keyboard.press("Escape")


def settled(page: Page) -> None:
    """Wait until the script has stood still for a while: a click takes a moment to start it."""
    page.evaluate("() => { window.stillSince = null }")
    page.wait_for_function(
        """() => {
            const still = document.querySelector('[data-test-script-state="notRunning"]') !== null;
            window.stillSince = still ? window.stillSince ?? performance.now() : null;
            return still && performance.now() - window.stillSince > 400;
        }"""
    )


def traces(page: Page, figure: int = 0) -> list[dict]:
    """Name, kind and size of the traces of a figure, as the browser holds them."""
    page.locator(".js-plotly-plot").nth(figure).wait_for()
    # In one go: a figure may be replaced at any time. Long arrays arrive packed; `_fullData` has
    # them unpacked.
    found = page.wait_for_function(
        "n => { const p = document.querySelectorAll('.js-plotly-plot')[n]; return p && p._fullData"
        " && p._fullData.map(t => ({name: t.name, type: t.type, n: (t.x || t.z || []).length})) }",
        arg=figure,
    )
    return found.json_value()


def fresh_page(browser: Browser) -> Page:
    """A page of somebody else: a browser without this one's cookies and session."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(START)
    return context.new_page()


def picture(page: Page, name: str) -> None:
    """Leave a screenshot under screenshots/, to be looked at."""
    folder = ROOT / "screenshots"
    folder.mkdir(exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")


def ran(spec: AnalysisSpec, app: App) -> analyses.Job:
    """The job of an analysis that has been run to its end."""
    job = analyses.start(spec, Store(app.cache))
    while job.status().state in ("queued", "running"):
        time.sleep(0.2)
    assert job.status().state == "done", job.status().message
    return job

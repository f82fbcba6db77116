"""What the browser tests share: the app as they see it, and what they do with a page.

Elements are found by role, test id or key, which stay as they are when the prose is rewritten.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ElementHandle, Locator, Page, TimeoutError

from helpers.repository import ROOT

START = 120_000  # ms: importing torch takes a while on a busy machine
SIZE: Any = {"width": 1280, "height": 800}
TAG = "<b>bold</b>"
SCRIPT = "<img src=x onerror='window.hacked = 1'>"

# What has the focus, by its names.
FOCUSED = """() => {
  let at = document.activeElement;
  while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return [
  at.getAttribute('aria-label'), at.innerText, at.value, at.getAttribute('role'),
  at.closest('label') && at.closest('label').innerText ].filter(Boolean).join(' | ') }"""


@dataclass
class App:
    url: str
    log: Path
    cache: Path
    process: int


@contextlib.contextmanager
def served(folder, before=None, options=(), **environment):
    """The app on a free port with a store of its own; the hub cannot be reached.

    `before` is called in its process before it starts; `options` are those of `scripts/serve.py`.
    """
    environment = {
        **os.environ,
        "MLEM_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "hub"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        **environment,
    }
    command = [sys.executable, str(ROOT / "scripts" / "serve.py"), *options, "--server.port"]
    with answering(command, folder, environment, before) as (url, log, process):
        yield App(url, log, folder / "cache", process)


@contextlib.contextmanager
def answering(command, folder, environment, before=None):
    """Address, log and process of a server whose command ends with its port, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log, command = folder / "log", [*map(str, command), str(port)]
    with log.open("wb") as output:
        both = {"stdout": output, "stderr": subprocess.STDOUT}
        server = subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=before, **both)
    try:
        began = time.monotonic()
        while True:
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1)
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() - began < START / 1000, log.read_text()
                time.sleep(0.1)
        yield f"http://localhost:{port}", log, server.pid
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def upload(page: Page, *files: Path) -> None:
    """Upload files where the step that is shown takes some, until the script has taken them."""
    # An uploader that is drawn anew meanwhile would lose them.
    settled(page)
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


def at_rest(page: Page, app: App) -> None:
    """Bring a window to the example on Explore, with nothing chosen."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(SIZE)
    page.goto(f"{app.url}/?analysis=example")
    settled(page)


def sound(page: Page, app: App) -> None:
    """What a window shows at the end is no traceback."""
    assert page.locator('[data-testid="stException"]').count() == 0
    body = page.inner_text("body")
    assert "Traceback" not in body and "Page not found" not in body
    assert "unexpected happened" not in body, app.log.read_text()


def go(page: Page, screen: str) -> None:
    """To a screen by the navigation, whose last links are folded away where there is no room."""
    link = page.get_by_role("link", name=screen, exact=True).first
    while not link.is_visible():
        # Where it is laid out anew meanwhile, there may be room for the link after all.
        with contextlib.suppress(TimeoutError):
            page.get_by_test_id("stTopNavSection").click(timeout=1000)
    link.click()
    settled(page)


def canvas(page: Page, part: str = "finding") -> Locator:
    """A part of the canvas, once all show the two layers that are chosen."""
    page.locator(".canvas.finding h1:not(.stale)").wait_for()
    return page.locator(f".canvas.{part}")


def see(page: Page, view: str) -> Locator:
    """A view of all layers, by a click on its name: "Layer map"."""
    page.get_by_role("tab", name=view, exact=True).click()
    return page.get_by_role("tabpanel", name=view, exact=True)


def chosen_pair(page: Page) -> list[str]:
    """A and B as their pickers say them: "mini-gpt2 layer 6"."""
    return page.locator(".canvas .pick").evaluate_all(
        "all => all.map(each => `${each.querySelector('select').selectedOptions[0].text} "
        "${each.querySelector('.at').textContent}`)"
    )


def keyed(page: Page, key: str) -> Locator:
    """The button with this key."""
    # With a help it stands there twice: in its tooltip too.
    return page.locator(f".st-key-{key} button").first


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


def fresh_page(browser: Browser, **more: Any) -> Page:
    """A page of somebody else: a browser without this one's cookies and session."""
    context = browser.new_context(**{"viewport": SIZE, **more})
    context.set_default_timeout(START)
    return context.new_page()


def until_shown(page: Page, there: set[str], gone: set[str]) -> None:
    """Wait until these features contribute to the similarity of the two, and none of those."""
    more = canvas(page).locator("[data-term=more]")  # small ones, together until one asks
    if more.count():
        more.click()
    for state, names in (("attached", there), ("detached", gone)):
        for name in names:
            page.locator(f".canvas.finding [data-term='{name}']").wait_for(state=state)

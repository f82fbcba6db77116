"""`python -m benchmarks.stories`: what one does in a browser, with clicks, seconds and server time.

A server of its own with an empty store, Chromium, and two idle cores. Seconds are from the click to
what is painted; processor time is that of the server's process meanwhile. With `--analysis` and
`--store` the redraws are of an analysis in that store (as `benchmarks.view` makes one).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from openpyxl import Workbook
from playwright.sync_api import Page, sync_playwright

from mlem_core.base.parallel import cores
from mlem_core.stimuli.datasets import load
from mlem_core.stimuli.stimulus_csv import write_csv

ROOT = Path(__file__).resolve().parents[1]
SIZE = {"width": 1440, "height": 900}
START, TICK = 120_000, os.sysconf("SC_CLK_TCK")
# Words of all texts that are in sight, those of shadow roots among them.
WORDS = """() => {
  const words = [];
  const walk = node => {
    if (node.nodeType === Node.TEXT_NODE) {
      const range = document.createRange(), host = node.parentElement;
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      const shown = host?.checkVisibility({ visibilityProperty: true, opacityProperty: true });
      const icon = host?.closest('[data-testid="stIconMaterial"]');
      const within = box.x >= 0 && box.top < innerHeight && box.bottom > 0;
      if (shown && !icon && box.width > 1 && box.height > 1 && within)
        words.push(...node.textContent.trim().split(/\\s+/).filter(word => /\\p{L}/u.test(word)));
    } else if (!["STYLE", "SCRIPT", "OPTION", "TITLE"].includes(node.nodeName)) {
      for (const child of [...(node.shadowRoot?.childNodes ?? []), ...node.childNodes]) walk(child);
    }
  };
  walk(document.body);
  return words;
}"""
VIEWS = ("Layer map", "Importance profiles", "Importance scatter", "Similarity heatmap")


@contextlib.contextmanager
def served(store: Path) -> Iterator[tuple[str, int]]:
    """Address and process of a server with this store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "scripts" / "serve.py"), "--server.port", str(port)]
    environment = {**os.environ, "MLEM_CACHE": str(store), "HF_HUB_OFFLINE": "1"}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    url = f"http://localhost:{port}"
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/_stcore/health", timeout=1)
                break
            time.sleep(0.1)
        yield url, server.pid
    finally:
        server.terminate()
        server.wait(20)


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def settled(page: Page) -> None:
    """Wait until the finding is of the pair that is chosen and no script runs."""
    page.locator(".canvas.finding h1:not(.stale)").wait_for(timeout=START)
    wait_for_scripts(page)


def wait_for_scripts(page: Page) -> None:
    """Wait until no script runs."""
    page.wait_for_function(
        "() => document.querySelector('[data-test-script-state=\"notRunning\"]') !== null",
        timeout=START,
    )


class Stories:
    """The table of what was measured, a row a story."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        print("| story | clicks | seconds | server, processor time |\n| --- | --- | --- | --- |")

    @contextlib.contextmanager
    def told(self, story: str, clicks: int) -> Iterator[None]:
        """Measures what happens inside."""
        wall, spent = time.monotonic(), processor_seconds(self.pid)
        yield
        wall, spent = time.monotonic() - wall, processor_seconds(self.pid) - spent
        print(f"| {story} | {clicks} | {wall:.1f} | {spent:.1f} s |", flush=True)


def first_visit(page: Page, url: str, stories: Stories) -> None:
    """The example: its sentence, the four views, a pair, and a figure for a paper."""
    with stories.told("first visit of a fresh server: the finding of the example", 0):
        page.goto(url)
        settled(page)
    words = page.evaluate(WORDS)
    with stories.told("another window on it", 0):
        page.goto("about:blank")
        page.goto(url)
        settled(page)
    for view in VIEWS:
        with stories.told(f"view: {view}", 1):
            page.get_by_role("tab", name=view).click()
            page.locator(".canvas.views .view:not([hidden])").wait_for()
    with stories.told("another pair, by a cell", 1):
        matrix = page.locator("canvas.matrix")
        matrix.press("ArrowUp")
        matrix.press("Enter")
        page.wait_for_url("**/?*b=*", wait_until="commit")
        settled(page)
    with stories.told("a figure for a paper (PDF)", 2):
        page.get_by_role("button", name="Export this figure").first.click()
        with page.expect_download(timeout=START) as download:
            page.get_by_role("button", name="Download PDF").click(timeout=START)
        download.value.path()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    print(f"\nThe first screen has {len(words)} words: {' '.join(words)}\n")


def upload(page: Page, path: Path) -> None:
    """Upload a table on New analysis, until its rows are shown."""
    page.get_by_role("link", name="New analysis").first.click()
    chooser = page.locator('input[type="file"]').last
    chooser.wait_for(state="attached")
    chooser.set_input_files(path)
    page.get_by_text(path.name).first.wait_for()
    page.get_by_role("button", name="Run", exact=True).wait_for()
    quiet(page)


def quiet(page: Page) -> None:
    """Wait until no script has run for a while."""
    page.wait_for_timeout(400)
    wait_for_scripts(page)


def own_table(page: Page, folder: Path, stories: Stories) -> None:
    """A CSV of one's own with the five models that are chosen: its sentence, then its intervals."""
    table = folder / "own.csv"
    write_csv(load("probing").table.head(400), table)
    with stories.told("own CSV (400 words, five models): its rows are shown", 2):
        upload(page, table)
    began = time.monotonic()
    with stories.told("*Run*: the sentence", 1):
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url("**/?*analysis=*", wait_until="commit")
        settled(page)
    first = page.locator(".canvas.finding h1").inner_text()
    page.locator(".canvas.finding .chip.sure").first.wait_for(timeout=START)
    settled(page)
    last = page.locator(".canvas.finding h1").inner_text()
    print(f"| the same with 95 % CI and chance | 0 | {time.monotonic() - began:.1f} | |")
    print(f"\nFirst {first!r}, then {last!r}.\n")


def tomorrow(page: Page, stories: Stories) -> None:
    """Rename, compare, delete and undo, each on a page that was opened anew."""
    page.reload()
    settled(page)
    line = page.locator("[class*='st-key-line-of-']").first
    with stories.told("rename", 2):
        line.get_by_role("button", name="More").click()
        name = page.get_by_label("Name", exact=True)
        name.fill("My first")
        name.press("Enter")
        line.get_by_text("My first").wait_for()
    page.reload()
    settled(page)
    with stories.told("compare it with the example", 4):
        page.get_by_role("combobox", name="Compare two analyses").click()
        for _ in range(2):
            page.get_by_role("option").first.click()
            quiet(page)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Compare", exact=True).click()
        page.get_by_role("dialog").locator("li").first.wait_for()
    page.reload()
    settled(page)
    with stories.told("delete", 3):
        line.get_by_role("button", name="More").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        undo = page.get_by_role("button", name="Undo")
        undo.wait_for()
    with stories.told("undo", 1):
        undo.click()
        line.get_by_text("My first").wait_for()


def messy_workbook(page: Page, folder: Path, stories: Stories) -> None:
    """A workbook with a title, a note and merged cells above its header."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["Study 3, pilot"])
    sheet.append(["Collected in May; see the notes below"])
    sheet.append([])
    sheet.append(["item", "", "annotation", ""])
    sheet.merge_cells("A4:B4")
    sheet.merge_cells("C4:D4")
    sheet.append(["sentence", "word", "kind", "length"])
    for row in range(60):
        word = ("cat", "dog", "runs", "sleeps")[row % 4]
        kind = "noun" if row % 4 < 2 else "verb"
        sheet.append([f"the {word} number {row}", word, kind, len(word)])
    book.save(folder / "messy.xlsx")
    with stories.told("a messy workbook: its rows, with the header found", 2):
        upload(page, folder / "messy.xlsx")
    print("\n" + " / ".join(page.locator("th").all_inner_texts()) + "\n")


def main() -> None:
    """Measures the stories of a first visit, of an own table, and redraws."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stories", description=__doc__)
    parser.add_argument("--store", type=Path, help="a store with an analysis of one's own")
    parser.add_argument("--analysis", default="example", help="its id")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        binary = os.environ.get("BROWSER_PATH") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        with served(options.store or Path(folder)) as (url, pid):
            page = browser.new_page(viewport=SIZE)
            page.set_default_timeout(START)
            stories = Stories(pid)
            if options.analysis == "example":
                first_visit(page, url, stories)
                own_table(page, Path(folder), stories)
                tomorrow(page, stories)
                messy_workbook(page, Path(folder), stories)
            with stories.told("an analysis is opened", 0):
                page.goto(f"{url}/?analysis={options.analysis}")
                settled(page)
            for choice, what in (("features", "a feature"), ("models", "a model")):
                page.locator(".st-key-strip").get_by_role("button", name=choice).click()
                pills = page.locator("[data-testid=stPopoverBody] [data-testid=stButtonGroup]")
                last = pills.get_by_role("button").last
                last.wait_for()
                with stories.told(f"{what} switched off", 2):
                    last.click()
                    page.wait_for_timeout(200)
                    settled(page)
                page.keyboard.press("Escape")
        browser.close()
    print(f"\nOn {cores()} cores.")


if __name__ == "__main__":
    main()

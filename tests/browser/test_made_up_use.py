"""Two visitors of a shared server who click, type, upload and leave at random.

    make faults ARGS="-k made_up_use"                      (3 minutes)
    MINUTES=60 SEED=1 make faults ARGS="-k made_up_use"    (an hour)

Both upload the same words under a name of their own, so their analyses have the same address. After
each step: no traceback, nothing that bears the other's name, no path of the store; what a screen
says of the similarity of an analysis is what its files hold.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest
from driving import START, App, fresh_page, served
from inputs import noise, probing
from playwright.sync_api import Browser, Locator, Page
from playwright.sync_api import Error as PageError

from mlem_core.analysis import files
from mlem_core.data.stimulus_csv import write_csv

pytestmark = [pytest.mark.browser, pytest.mark.faults]

PAGES = ("", "new", "explore", "trust", "report", "docs")
TEXTS = ("", "x" * 300, "<b>bold</b>", "=1+1", "0", "-1", "1e9", "nan", "عربي 中文", "../..", "a,b")
HEADLINE = re.compile(r"(\S+) layer (\d+) and (\S+) layer (\d+) are alike \(RSA (\d\.\d\d)")
STEP = 15_000  # ms: what a step may wait for


@dataclass
class Visitor:
    """One browser, the files it has, and what it did."""

    name: str
    page: Page
    files: list[Path]
    rng: random.Random
    did: Counter[str] = field(default_factory=Counter)

    def step(self, url: str) -> str:
        """Do one thing at random; what it was."""
        ways: dict[str, tuple[int, Callable[[str], str]]] = {
            "click": (10, self._click),
            "go": (3, self._go),
            "choose": (3, self._choose),
            "type": (2, self._type),
            "upload": (2, self._upload),
            "run": (3, self._run),
            "look": (3, self._look),
            "back": (1, self._back),
            "reload": (1, self._reload),
        }
        way = self.rng.choices(list(ways), [weight for weight, _ in ways.values()])[0]
        self.did[way] += 1
        return f"{way} {ways[way][1](url)}"

    def _one_of(self, found: Locator) -> Locator | None:
        """One that can be seen and used."""
        n = found.count()
        for k in self.rng.sample(range(n), min(n, 6)):
            one = found.nth(k)
            if one.is_visible() and one.is_enabled():
                return one
        return None

    def _click(self, url: str) -> str:
        inside = self.page.locator("[data-testid=stMain]")
        target = self._one_of(inside.locator("button, summary, [role=radio], [role=tab], label"))
        if target is None:
            return self._go(url)
        label = " ".join(target.inner_text().split())[:60]
        target.click(timeout=STEP)
        return repr(label)

    def _go(self, url: str) -> str:
        place = self.rng.choice(PAGES)
        self.page.goto(f"{url}/{place}", timeout=START)
        return f"/{place}"

    def _choose(self, url: str) -> str:
        box = self._one_of(self.page.locator("[data-testid=stMain] [role=combobox]"))
        if box is None:
            return "nothing"
        box.click(timeout=STEP)
        option = self._one_of(self.page.locator("[role=option]"))
        if option is None:
            self.page.keyboard.press("Escape")
            return "nothing"
        said = " ".join(option.inner_text().split())[:60]
        option.click(timeout=STEP)
        return repr(said)

    def _type(self, url: str) -> str:
        box = self._one_of(self.page.locator("[data-testid=stMain] input[type=text], textarea"))
        text = self.rng.choice(TEXTS)
        if box is None:
            return "nowhere"
        box.fill(text, timeout=STEP)
        box.press("Enter", timeout=STEP)
        return repr(text[:20])

    def _upload(self, url: str) -> str:
        chooser = self.page.locator('input[type="file"]')
        if not chooser.count():
            self.page.goto(url + "/new", timeout=START)
            chooser.first.wait_for(state="attached", timeout=START)
        file = self.rng.choice(self.files)
        chooser.last.set_input_files(file, timeout=STEP)
        return file.name

    def _run(self, url: str) -> str:
        """Press Run on a form that is filled in: the visitor's own words, or a built-in model."""
        models = self.rng.choice(["mini-bert", "mini-gpt2&models=mini-mamba", "minilm"])
        self.page.goto(f"{url}/new?models={models}", timeout=START)
        chooser = self.page.locator('input[type="file"]').first
        chooser.wait_for(state="attached", timeout=START)
        chooser.set_input_files(self.files[0], timeout=STEP)
        button = self.page.get_by_role("button", name="Run", exact=True)
        button.wait_for(timeout=START)
        self.page.wait_for_timeout(2_000)
        button.click(timeout=STEP)
        return models

    def _look(self, url: str) -> str:
        """Open an analysis of the visitor's own list."""
        self.page.goto(url, timeout=START)
        self.page.wait_for_timeout(2_000)
        button = self._one_of(self.page.get_by_role("button", name=re.compile("Look|Open")))
        if button is None:
            return "at nothing"
        button.click(timeout=STEP)
        self.page.wait_for_timeout(2_000)
        return self.page.url.rpartition("/")[2][:60]

    def _back(self, url: str) -> str:
        self.page.go_back(timeout=START)
        return self.page.url.rpartition("/")[2][:60]

    def _reload(self, url: str) -> str:
        self.page.reload(timeout=START)
        return ""


def files_of(name: str, folder: Path) -> list[Path]:
    """A visitor's files: words and arrays under the visitor's name, and what is no table."""
    folder.mkdir()
    table = probing(30)
    words = folder / f"{name}-words.csv"
    write_csv(table, words)
    arrays = folder / f"{name}-layers.npz"
    np.savez(arrays, **{f"layer_{k:02d}": rows for k, rows in noise(len(table)).items()})
    cut = folder / f"{name}-cut.xlsx"
    cut.write_bytes(b"PK\x03\x04" + bytes(300))
    wrong = folder / f"{name}-wrong.csv"
    wrong.write_text("sentence,word_index\nthe woman plays,7\n")
    tree = folder / f"{name}-tree.conllu"
    tree.write_text(
        "1\tdogs\tdog\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tbark\tbark\tVERB\t_\t_\t0\troot\t_\t_\n\n"
    )
    return [words, arrays, cut, wrong, tree]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[App]:
    settings = tmp_path / "shared.toml"
    settings.write_text("upload_mb = 2\nuploads_mb = 20\nminutes = 2\nmemory_gb = 4\n")
    with served(tmp_path, MLEM_SHARED=str(settings)) as app:
        yield app


def wrong(visitor: Visitor, other: str, app: App, folder: Path) -> list[str]:
    """What must not be on the visitor's page, or in the server's log, and is."""
    body = visitor.page.inner_text("body", timeout=START)
    found = [text for text in ("Traceback", "unexpected happened", other) if text in body]
    if str(folder) in visitor.page.content():
        found.append("a path of the store")
    if visitor.page.locator('[data-testid="stException"]').count():
        found.append("an exception")
    if "Traceback" in app.log.read_text():
        found.append("a traceback in the log")
    return found + misstated(visitor, app)


def misstated(visitor: Visitor, app: App) -> list[str]:
    """The headline of the visitor's own analysis where the files of that analysis say otherwise."""
    page = visitor.page
    still = '[data-test-script-state="notRunning"]'
    # While a script runs, the headline of the page before may still be there.
    with contextlib.suppress(PageError):
        page.wait_for_selector(still, state="attached", timeout=STEP)
        page.wait_for_timeout(500)
    if not page.locator(still).count():
        return []
    job = re.search(r"analysis=([0-9a-f]{16})", page.url)
    said = HEADLINE.search(page.inner_text("body", timeout=START))
    if job is None or said is None or not page.locator(still).count():
        return []
    visitor.did["headlines checked"] += 1
    pair = [(said[k], int(said[k + 1])) for k in (1, 3)]
    numbers = []
    for path in app.cache.glob(f"visitors/*/jobs/{job[1]}/result"):
        made = files.load(path)
        if set(pair) <= set(made.layers):
            a, b = (made.layers.index(layer) for layer in pair)
            numbers.append(float(made.rsa[a, b]))
    same = any(abs(number - float(said[5])) <= 0.0051 for number in numbers)
    return [] if same else [f"{said[0]}) for {numbers}"]


def test_made_up_use(browser: Browser, shared: App, tmp_path: Path) -> None:
    minutes, seed = float(os.environ.get("MINUTES", "3")), int(os.environ.get("SEED", "0"))
    names = ("first-visitor", "second-visitor")
    visitors = [
        Visitor(
            name,
            fresh_page(browser),
            files_of(name, tmp_path / name),
            random.Random(f"{seed}{name}"),
        )
        for name in names
    ]
    for visitor in visitors:
        visitor.page.on("dialog", lambda dialog: dialog.accept())
        visitor.page.goto(shared.url)
    server = psutil.Process(shared.process)
    failures: list[str] = []
    refused: Counter[str] = Counter()
    log = (tmp_path / "steps.txt").open("w")
    steps, most, end = 0, 0.0, time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        visitor = visitors[steps % 2]
        other = names[1 - steps % 2]
        steps += 1
        try:
            said = visitor.step(shared.url)
        except PageError as error:
            # What was to be clicked may be gone or covered by then: that is use, too.
            refused[re.sub(r"\d+", "N", str(error).splitlines()[0])] += 1
            said = "gave up"
        print(f"{steps} {visitor.name}: {said}", file=log, flush=True)
        visitor.page.wait_for_timeout(visitor.rng.randint(50, 1500))
        if found := wrong(visitor, other, shared, tmp_path / "cache"):
            failures.append(f"{steps} {visitor.name}: {said}: {found} at {visitor.page.url}")
            visitor.page.screenshot(path=tmp_path / f"wrong-{steps}.png")
            visitor.page.goto(shared.url)
        most = max(most, server.memory_info().rss / 2**30)
    print(
        f"\n{steps} steps, {[dict(one.did) for one in visitors]}, "
        f"gave up {dict(refused)}, {most:.2f} GB"
    )
    for visitor in visitors:
        visitor.page.context.close()
    time.sleep(5)
    left = [p.cmdline() for p in server.children(recursive=True) if p.cpu_percent(1.0) > 50]
    assert not failures, "\n".join(failures)
    assert not left, left
    assert most < 4

"""An analysis as one HTML page: it opens alone, offline, in two browsers, whatever it is called."""

import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers.browser import SCRIPT, TAG, chosen_pair, see
from helpers.inputs import in_files, words
from PIL import Image
from playwright.sync_api import expect

from mlem_core import Store, run
from mlem_core.extensions.web_page.page import write_page
from mlem_core.figures.plots import FigureContext, FigureOptions

pytestmark = pytest.mark.browser
LAST = ("one", 1), ("two", 1)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages with and without the stimuli, whose names and texts a careless page would run."""
    folder = tmp_path_factory.mktemp("page")
    table, rng = words(20), np.random.default_rng(0)
    table["note"] = [TAG if row % 2 else SCRIPT for row in range(len(table))]
    table["sentence"] = table["sentence"].str.replace("0", "</script>", n=1)
    kinds = np.eye(6)[np.arange(len(table)) % 3]
    layers = {k: kinds * k + rng.standard_normal(kinds.shape) for k in range(2)}
    store = Store(folder / "store")
    made = run(in_files(folder, table, {"one": layers, "two": layers}), store)
    context = FigureContext(made, made.select(), store, drawing=FigureOptions(LAST))
    paths = folder / "with.html", folder / "without.html"
    for path, stimuli in zip(paths, (True, False), strict=True):
        write_page(context, path, f"{TAG} & mine", stimuli=stimuli)
    return paths


@pytest.fixture
def page(browser, pages):
    """The page in a window that has no network."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.goto(pages[0].as_uri())
    page.wait_for_selector("html[data-ready]")
    yield page
    assert wrong == [] and {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}
    context.close()


def test_any_two_layers_are_explained_in_every_view(page):
    assert chosen_pair(page) == ["one layer 1", "two layer 1"]
    first = page.locator("h1").inner_text()
    assert first.startswith("These two layers are") and page.locator(".row").count() > 2
    matrix = see(page, "Similarity heatmap").locator("canvas")
    matrix.focus()
    for key in ("ArrowUp", "Enter"):
        page.keyboard.press(key)
    page.wait_for_function("text => document.querySelector('h1').innerText !== text", arg=first)
    assert chosen_pair(page) == ["one layer 0", "two layer 1"]
    for view in ("Layer map", "Importance profiles", "Importance scatter"):
        expect(see(page, view).get_by_role("img")).to_be_visible()
    # What is seldom read is folded, and opens.
    page.get_by_text("Tables", exact=True).click()
    with page.expect_download() as kept:
        page.get_by_role("button", name="importance.csv").click()
    assert kept.value.path().read_text().startswith("model,layer,fold,feature,importance")
    assert page.title().endswith("& mine")


def test_it_has_no_fault_that_axe_finds_and_prints(page):
    for view in ("Layer map", "Importance profiles", "Importance scatter", "Similarity heatmap"):
        see(page, view)
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, (view, found.generate_report())
    assert page.pdf().startswith(b"%PDF")


def test_stimuli_can_be_left_out(browser, pages):
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto(pages[1].as_uri())
        page.wait_for_selector("html[data-ready]")
        said = page.evaluate("text('content')")
    assert "stimulus 1" in said and words(20)["sentence"][0] not in said


@pytest.fixture
def until_drawn():
    """The address of a server, and what it was told.

    Firefox takes its picture when a document is loaded. An image from here is not loaded before the
    page says that it is drawn.
    """
    drawn = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/drawn":
                drawn.set()
            else:
                drawn.wait(90)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            """Nothing is written of a request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", drawn
        server.shutdown()


@pytest.mark.skipif(not shutil.which("firefox-esr"), reason="no Firefox is installed")
def test_firefox_draws_it(pages, until_drawn, tmp_path):
    address, drawn = until_drawn
    held = f"""<img src="{address}/held"><script>
      new MutationObserver(() => {{ new Image().src = "{address}/drawn"; }})
        .observe(document.documentElement, {{attributes: true, attributeFilter: ["data-ready"]}});
    </script></body>"""
    page, picture = tmp_path / "held.html", tmp_path / "seen.png"
    text = pages[0].read_text("utf-8").replace("img-src", f"img-src {address}", 1)
    page.write_text(text.replace("</body>", held), "utf-8")
    subprocess.run(
        ["firefox-esr", "--headless", f"--profile={tmp_path}", "--window-size=1280,900"]
        + [f"--screenshot={picture}", page.as_uri()],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=True,
        timeout=120,
    )
    assert drawn.is_set()
    seen = np.asarray(Image.open(picture).convert("RGB"), dtype=int)
    # The blue of the matrix and of the bars is on it.
    assert ((seen[..., 2] - seen[..., 0]) > 60).sum() > 2_000

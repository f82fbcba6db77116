"""What only a browser shows: a story, clicks, Back, keys, windows, twice the size, the focus."""

import re
from pathlib import Path

import numpy as np
import pytest
from helpers.browser import (
    FOCUSED,
    START,
    canvas,
    fresh_page,
    go,
    keyed,
    names,
    run,
    settled,
    sound,
    traces,
    until_shown,
    upload,
)
from helpers.inputs import words
from playwright.sync_api import Route, expect

from mlem_core.figures.matrix import grid
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses
from mlem_core.tasks.examples import example

pytestmark = pytest.mark.browser


def test_from_an_upload_over_why_to_a_saved_file(app, page, small_csv, tmp_path):
    rng, table = np.random.default_rng(0), words(20)
    coded = table[["noun", "length"]].to_numpy(float) * [3.0, 1.0]
    layers = {f"layer_{k:02d}": coded + rng.standard_normal(coded.shape) for k in range(2)}
    np.savez(tmp_path / "brain.npz", **layers)
    go(page, "New analysis")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    keyed(page, "step-read").click()
    settled(page)
    upload(page, small_csv)
    keyed(page, "step-models").click()
    settled(page)
    # By keys: the five models that are chosen go, one after the other.
    models = page.get_by_role("combobox", name="Models").first
    for _ in range(5):
        models.press("Backspace")
        settled(page)
    models.press("Escape")
    upload(page, tmp_path / "brain.npz")
    run(page)
    # It opens what it has found.
    page.wait_for_url(re.compile(r"/\?"), timeout=START)
    expect(canvas(page).locator("h1")).to_contain_text("brain layer 0 and brain layer 1 are")
    job = page.url.partition("analysis=")[2].partition("&")[0]
    assert analyses.find(job, Store(app.cache)) is not None
    # Intervals and maps of the two layers arrive by themselves.
    expect(canvas(page).locator(".chip")).to_contain_text("95 % CI", timeout=START)
    expect(canvas(page).locator(".wait:visible")).to_have_count(0, timeout=START)
    page.get_by_role("link", name=re.compile(r"^\d+ words")).click()
    assert {"noun", "length", "note"} <= names(page)
    # What stands in the cells is text.
    assert page.evaluate("window.hacked") is None
    assert page.locator('img[src="x"]').count() == 0
    go(page, "Importance profiles")
    keyed(page, "export-profiles").click()
    page.get_by_role("radio", name="CSV", exact=True).click()
    download = keyed(page, "download-profiles")
    expect(download).to_contain_text("CSV")
    settled(page)
    with page.expect_download() as waiting:
        download.click()
    assert waiting.value.suggested_filename == "profiles.csv"
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert lines[0] == "model,layer,fold,feature,importance"
    assert {line.split(",")[0] for line in lines[1:]} == {"brain"}
    # The server has loaded no model: that is for the processes of the runs.
    maps = Path(f"/proc/{app.process}/maps")
    if maps.exists():  # only Linux tells
        assert "numpy" in maps.read_text() and "libtorch" not in maps.read_text()


def cell(page, figure, row, column):
    """Where the cell of two layers of the example is in the window."""
    made = example()
    placed = grid(made.layers, "model", made.rsa)
    low, high = placed.span
    at = [made.layers.index(layer) for layer in (column, row)]
    x, y = (placed.centres[at] - low) / (high - low)
    plot = page.locator(".js-plotly-plot").nth(figure)
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    return box["x"] + float(x) * box["width"], box["y"] + float(y) * box["height"]


def click_cell(page, figure, row, column):
    """Click the cell as one does: the mouse rests before."""
    at = cell(page, figure, row, column)
    page.mouse.move(*at)
    page.wait_for_timeout(500)
    page.mouse.click(*at)


def test_a_click_on_a_cell_chooses_its_two_layers(app, page):
    page.set_viewport_size({"width": 1440, "height": 1000})
    choose_example(page)
    go(page, "Similarity heatmaps")
    traces(page, 1)
    settled(page)
    click_cell(page, 0, ("minilm", 1), ("mini-bert", 3))
    page.wait_for_url(re.compile("a=minilm%3A1.*b=mini-bert%3A3"))


# Where in a matrix the tooltip names these two layers, as the pointer finds it.
SOUGHT = """([one, other]) => {
  const all = [...document.querySelectorAll('*')];
  const host = all.find(e => e.shadowRoot?.querySelector('.canvas')).shadowRoot;
  const matrix = host.querySelector('canvas.matrix'), frame = matrix.getBoundingClientRect();
  const tip = host.querySelector('.tip');
  const at = (x, y) => {
    const where = {clientX: frame.x + x, clientY: frame.y + y};
    matrix.dispatchEvent(new PointerEvent('pointermove', where));
    return tip.hidden ? [] : [...tip.children].map(line => line.textContent);
  };
  for (let y = 2; y < frame.height; y += 2)
    for (let x = 2; x < frame.width; x += 2) {
      const [row, column] = at(x, y);
      if (row === undefined) continue;
      if (row !== one) break;
      if (column === other) return [frame.x + x + 2, frame.y + y + 2];
    }
}"""


def test_the_canvas_answers_hover_click_keys_and_back(app, page):
    page.set_viewport_size({"width": 1440, "height": 900})
    choose_example(page)
    shown = canvas(page)
    # All that matters is in sight without scrolling: the bars, and half of both maps.
    for part in (shown.locator("h1"), shown.locator(".rows")):
        expect(part).to_be_in_viewport(ratio=1)
    for at in range(2):
        expect(shown.locator(".field").nth(at)).to_be_in_viewport(ratio=0.5)
    x, y = page.evaluate(SOUGHT, ["mini-mamba layer 3", "mini-gpt2 layer 3"])
    page.mouse.click(x, y)
    page.wait_for_url(re.compile("analysis=example.*a=mini-mamba%3A3.*b=mini-gpt2%3A3"))
    expect(shown.locator("h1")).to_contain_text("mini-mamba layer 3 and mini-gpt2 layer 3 are")
    shown.locator("[data-term=tense]").hover()
    expect(shown.locator(".legend")).to_contain_text("past")
    shown.locator("[data-term=tense]").click()
    page.mouse.move(0, 0)
    expect(shown.locator(".legend")).to_contain_text("past")
    shown.get_by_role("searchbox").fill("plays")
    expect(shown.get_by_role("status")).to_contain_text("plays")
    expect(shown.locator(".said mark")).to_have_text("plays")
    expect(shown.locator(".near li")).to_have_count(6)
    shown.get_by_role("slider", name="Layer of mini-gpt2").press("ArrowRight")
    page.wait_for_url(re.compile("b=mini-gpt2%3A6"))
    expect(shown.locator("h1")).to_contain_text("mini-gpt2 layer 6 are")
    shown.get_by_role("button", name="Details").click()
    expect(page.get_by_text("Pairs of stimuli").first).to_be_visible()
    page.go_back()
    expect(shown.locator("h1")).to_contain_text("mini-gpt2 layer 3 are")


@pytest.mark.slow
def test_back_forward_and_reload_show_what_the_address_showed(app, page):
    """One press a step: whether a choice, a link or a button led there."""
    show_example(page)
    addresses = [page.url]
    for name in ("tense", "question"):
        page.get_by_role("button", name=name, exact=True).click()
        until_shown(page, {"number"}, {name})
        page.wait_for_url(lambda url: url not in addresses)
        settled(page)
        addresses.append(page.url)
    go(page, "Confidence")
    page.wait_for_url(re.compile(r"/trust\?.*analysis="))
    assert len({*addresses, page.url}) == 4
    for address in reversed(addresses):
        page.go_back()
        page.wait_for_url(address)
        settled(page)
    until_shown(page, {"tense", "question"}, set())
    page.go_forward()
    until_shown(page, {"question"}, {"tense"})
    settled(page)
    assert page.url == addresses[1]
    page.reload()
    until_shown(page, {"question"}, {"tense"})
    # The widgets too: what is ticked off can be ticked on again.
    settled(page)
    page.get_by_role("button", name="tense", exact=True).click()
    until_shown(page, {"tense", "question"}, set())


def choose_example(page):
    """On Why, where another test may have chosen what it had run."""
    if keyed(page, "open-example").is_enabled():
        keyed(page, "open-example").click()
        settled(page)


def show_example(page):
    """The profiles of the example, with all its features."""
    choose_example(page)
    go(page, "Importance profiles")
    until_shown(page, {"tense", "question", "number"}, set())
    settled(page)


def tab_to(page, what, most=80):
    """Press Tab until the focus is on a control whose name matches."""
    seen = []
    for _ in range(most):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        if re.search(what, seen[-1]):
            return
    raise AssertionError(f"Tab does not come to {what!r}; it came to {[s[:40] for s in seen]}")


@pytest.mark.slow
def test_features_a_pair_and_export_by_keyboard(app, page):
    show_example(page)
    tab_to(page, "^word length")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    until_shown(page, {"tense"}, {"gender"})
    settled(page)
    assert "gender" in page.evaluate(FOCUSED)  # the focus stays where it was
    tab_to(page, r"^download\s+Export")
    page.keyboard.press("Enter")
    expect(page.get_by_role("radio", name="CSV", exact=True)).to_be_visible()
    settled(page)
    tab_to(page, "^PDF")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(keyed(page, "download-profiles")).to_contain_text("CSV")
    settled(page)
    tab_to(page, r"^download\s+Download CSV")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    text = Path(waiting.value.path()).read_text()
    assert "part_of_speech" in text and "gender" not in text
    page.keyboard.press("Escape")
    go(page, "Similarity heatmaps")
    tab_to(page, "First layer.*combobox")
    page.keyboard.type("mini-bert layer 1")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("a=mini-bert%3A1"))


LIGHTNESS = """selector => { const s = getComputedStyle(document.querySelector(selector));
  return [s.backgroundColor, s.color].map(c =>
    c.match(/[0-9.]+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0) / 3) }"""


@pytest.mark.slow
def test_a_narrow_and_dark_window(app, browser):
    """Panels stand below each other, and are drawn in light on dark."""
    page = fresh_page(browser, color_scheme="dark", viewport={"width": 600, "height": 900})
    page.goto(f"{app.url}/profiles?analysis=example")
    across = """n => { const plot = document.querySelector('.js-plotly-plot');
      const axes = Object.entries(plot && plot._fullLayout || {}).filter(([k]) => /^xaxis/.test(k));
      return new Set(axes.map(([, axis]) => axis.domain[0].toFixed(2))).size === n }"""
    page.wait_for_function(across, arg=2)
    settled(page)
    behind, text = page.evaluate(LIGHTNESS, '[data-testid="stApp"]')
    assert behind < 60 and text > 180
    drawn = page.evaluate("() => document.querySelector('.js-plotly-plot .xtick text').style.fill")
    assert sum(map(int, re.findall(r"\d+", drawn)[:3])) / 3 > 140, drawn
    wide = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"() => {{ const e = {wide}; return e.scrollWidth <= e.clientWidth + 1 }}")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function(across, arg=3)
    sound(page, app)
    page.context.close()


@pytest.mark.slow
def test_a_file_on_its_way_is_lost_by_no_step_and_waited_for(app, browser, small_csv):
    """A slow line: each file arrives when the test lets it."""
    held: list[Route] = []
    page = fresh_page(browser)
    page.route("**/_stcore/upload_file/**", lambda route: held.append(route))

    def let_go():
        # The page says that a file is coming before the browser asks to send it.
        while not held:
            page.wait_for_timeout(50)
        held.pop().continue_()

    page.goto(f"{app.url}/new?models=mini-bert")
    run_button = page.get_by_role("button", name="Run", exact=True)
    expect(run_button).to_be_enabled()
    page.locator('input[type="file"]').set_input_files(small_csv)
    # The click comes before the browser shows the file.
    keyed(page, "step-roles").click()
    expect(page.get_by_role("combobox", name="Role of tense")).to_be_visible()
    coming = page.locator(".st-key-form-coming")
    expect(coming).to_be_visible()
    expect(run_button).to_have_count(0)
    settled(page)
    let_go()
    expect(page.get_by_role("combobox", name="Role of note")).to_be_visible()
    expect(coming).to_be_hidden()
    sound(page, app)
    page.context.close()


# What goes out of the window on the right or on the left, once it has been scrolled to.
OUTSIDE = """() => {
  const wide = document.documentElement.clientWidth, outside = [];
  for (const element of document.querySelectorAll(
      'button, a[href], input, [role=combobox], [role=tab], summary')) {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!box.width || style.visibility === 'hidden') continue;
    if (element.closest('.js-plotly-plot, [data-testid=stSidebar], details:not([open])')) continue;
    element.scrollIntoView({block: 'center', inline: 'nearest'});
    const now = element.getBoundingClientRect();
    if (now.left < -1 || now.right > wide + 1)
      outside.push(`${element.tagName} ${element.innerText || element.ariaLabel}: `
        + `${Math.round(now.left)} to ${Math.round(now.right)} of ${wide}`);
  }
  const main = document.querySelector('[data-testid=stMain]');
  if (main.scrollWidth > main.clientWidth + 1)
    outside.push(`the page: ${main.scrollWidth} of ${main.clientWidth}`);
  return outside;
}"""
# What the browser tells a screen reader of a control that has no name.
NAMELESS = re.compile(
    r"^\s*- (button|checkbox|combobox|link|radio|slider|tab|textbox)( \[.*\])?:?$"
)
# How what has the focus looks, without it too, once the page has been painted.
LOOKS = """async () => {
  const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  await painted(); await painted();
  let inner = document.activeElement;
  while (inner.shadowRoot?.activeElement) inner = inner.shadowRoot.activeElement;
  const at = window.looked ??= inner, said = [];
  for (let one = at, up = 0; one && up < 6; one = one.parentElement, up++) {
    const s = getComputedStyle(one);
    said.push(s.outlineStyle, s.outlineColor, s.boxShadow, s.borderTopColor, s.backgroundColor);
  }
  return said.join();
}"""
# Figures are drawn, and have their buttons, but those that are to have none.
COMPLETE = """() => !document.querySelector('[data-testid=stSkeleton]')
  && [...document.querySelectorAll('[data-testid=stPlotlyChart]')].every(chart => {
    const plot = chart.querySelector('.js-plotly-plot');
    return plot && plot._fullLayout
      && (plot._context.displayModeBar === false || plot.querySelector('.modebar-btn'));
  })"""
AT_ONCE = "* { transition: none !important; animation: none !important; }"


@pytest.fixture
def zoomed(browser):
    """A window of 1280 × 800 at 200 %: one of 640 × 400 with twice the pixels."""
    size = {"width": 640, "height": 400}
    page = fresh_page(browser, viewport=size, device_scale_factor=2, reduced_motion="reduce")
    yield page
    page.context.close()


PROFILES = "profiles"
NEW = ("new", "new?step=roles", "new?step=models")


@pytest.mark.slow
@pytest.mark.parametrize("view", ["", *NEW, PROFILES, "heatmaps", "layers", "trust", "report"])
def test_at_200_percent_all_is_in_reach_and_has_a_name(app, zoomed, view):
    page = zoomed
    opened(page, app, view)
    assert page.evaluate(OUTSIDE) == []
    # The sidebar is folded away and comes over the page.
    page.get_by_test_id("stExpandSidebarButton").click()
    sidebar = page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_role("link", name="Importance profiles")).to_be_in_viewport(ratio=1)
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stSidebar]').getBoundingClientRect().x === 0"
    )
    for control in sidebar.locator("a, button, input").all():
        box = control.bounding_box()
        if box is not None:  # it is not in what is folded away
            assert box["x"] >= 0 and box["x"] + box["width"] <= 640
    said = page.locator("body").aria_snapshot().splitlines()
    assert [line for line in said if NAMELESS.match(line)] == []
    sound(page, app)


def opened(page, app, view):
    page.goto(f"{app.url}/{view}{'&' if '?' in view else '?'}analysis=example")
    page.locator("h1").first.wait_for()
    settled(page)
    page.wait_for_function(COMPLETE)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["", "new?step=models", PROFILES])
def test_what_has_the_focus_looks_like_it(app, page, view):
    opened(page, app, view)
    page.add_style_tag(content=AT_ONCE)
    unseen = []
    for _ in range(50):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        if page.evaluate("['MAIN', 'CANVAS'].includes(document.activeElement.tagName)"):
            continue  # what scrolls
        page.evaluate("window.looked = null")
        focused, name = page.evaluate(LOOKS), page.evaluate(FOCUSED)
        page.evaluate("window.looked.blur()")
        if page.evaluate(LOOKS) == focused:
            unseen.append(name)
        page.evaluate("window.looked.focus()")
    assert unseen == []

"""What only a browser shows: a story, clicks, Back, keys, windows, twice the size, the focus."""

import re
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers.browser import (
    FOCUSED,
    START,
    canvas,
    chosen_pair,
    fresh_page,
    go,
    keyed,
    run,
    see,
    settled,
    sound,
    until_shown,
    upload,
)
from helpers.inputs import words
from playwright.sync_api import Route, expect

from mlem_core.figures.print_layout import Paper
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses

pytestmark = pytest.mark.browser


def test_from_an_upload_over_its_finding_to_a_saved_file(app, page, small_csv, tmp_path):
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
    expect(page.get_by_label("Model of layer A")).to_have_value("brain")
    expect(canvas(page).locator("h1")).to_contain_text("These two layers are")
    assert chosen_pair(page) == ["brain layer 0", "brain layer 1"]
    job = page.url.partition("analysis=")[2].partition("&")[0]
    assert analyses.find(job, Store(app.cache)) is not None
    # Intervals and maps of the two layers arrive by themselves.
    expect(canvas(page).locator(".chip").first).to_contain_text("95 % CI", timeout=START)
    expect(page.locator(".wait:visible")).to_have_count(0, timeout=START)
    until_shown(page, {"noun", "length", "note"}, set())
    # What stands in the cells is text.
    open_drawer(page, "Words")
    assert page.evaluate("window.hacked") is None
    assert page.locator('img[src="x"]').count() == 0
    # Three clicks: the view, what is below it, and the file.
    see(page, "Importance profiles")
    settled(page)
    page.locator(".canvas.views .save").click()
    page.get_by_role("radio", name="CSV", exact=True).click()
    download = keyed(page, "download-profiles")
    expect(download).to_contain_text("CSV")
    settled(page)
    with page.expect_download() as waiting:
        download.click()
    assert waiting.value.suggested_filename == "profiles.csv"
    lines = Path(waiting.value.path()).read_text().splitlines()
    # With its intervals, as they have arrived.
    assert lines[0] == "model,layer,quantity,feature,value,lower,upper,p,p_corrected"
    assert {line.split(",")[0] for line in lines[1:]} == {"brain"}
    # The server has loaded no model: that is for the processes of the runs.
    maps = Path(f"/proc/{app.process}/maps")
    if maps.exists():  # only Linux tells
        assert "numpy" in maps.read_text() and "libtorch" not in maps.read_text()


def open_drawer(page, name):
    """Open a drawer of the two layers, or close it."""
    page.get_by_role("radio", name=name, exact=True).or_(
        page.get_by_role("button", name=name, exact=True)
    ).first.click()
    settled(page)


def test_each_view_is_one_click_and_moves_a_or_b(app, page):
    page.set_viewport_size({"width": 1440, "height": 900})
    shown = canvas(page)
    # All that matters is in sight without scrolling: the finding, its bars, and what all layers do.
    for part in (shown.locator("h1"), shown.locator(".rows"), page.locator("canvas.matrix")):
        expect(part).to_be_in_viewport(ratio=0.9)
    assert page.locator(".st-key-explore .js-plotly-plot").count() == 0  # the drawers are closed
    address = page.url
    matrix = see(page, "Similarity heatmap")
    box = matrix.locator("canvas").bounding_box()
    at = box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(*at)
    said = page.locator(".canvas.views > .tip > div").all_inner_texts()
    page.mouse.click(*at)
    page.wait_for_url(re.compile("a=.*b="))
    canvas(page)
    assert chosen_pair(page) == [title.replace(", layer", " layer") for title in said[:2]]
    layers = see(page, "Layer map")
    # By RSA no map is drawn whose stress is above .2; the nearest layers of A and of B are listed.
    page.wait_for_url(re.compile("view=map"))
    expect(layers.locator("ol.nearest")).to_have_count(2)
    nearest = layers.locator("ol.nearest").first.get_by_role("button").first
    title = nearest.inner_text()
    nearest.click()
    expect(page.locator(".canvas.maps .layer").nth(1)).to_contain_text(title)
    canvas(page)
    settled(page)
    layers.get_by_role("button", name="by feature importance").click()
    page.get_by_role("button", name="A", exact=True).click()
    before = chosen_pair(page)
    layers.locator(".path:not(.a):not(.b) .dot").first.click()
    canvas(page)
    after = chosen_pair(page)
    assert after[0] != before[0] and after[1] == before[1]
    profiles = see(page, "Importance profiles")
    page.wait_for_url(re.compile("view=profiles"))
    settled(page)
    page.get_by_role("button", name="B", exact=True).click()
    profiles.locator(".target").nth(1).click(position={"x": 3, "y": 20})
    canvas(page)
    assert chosen_pair(page) == [after[0], "mini-bert, seed 1 layer 0"]
    scatter = see(page, "Importance scatter")
    page.wait_for_url(re.compile("view=scatter"))
    settled(page)
    expect(scatter.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("of 8 features in .* and in mini-bert, seed 1, layer 0")
    )
    scatter.locator(".point[data-term=tense]").click()
    expect(page.locator(".canvas .legend")).to_contain_text("past")
    # Back undoes one click each.
    page.go_back()
    page.wait_for_url(
        re.compile("view=profiles.*b=mini-bert%40seed1%3A0|b=mini-bert%40seed1%3A0.*view=profiles")
    )
    expect(profiles).to_be_visible()
    while page.url != address:
        page.go_back()
        settled(page)
    expect(matrix).to_be_visible()


@pytest.mark.slow
def test_no_click_is_lost_while_the_page_is_drawn(app, page):
    cells = page.locator("canvas.matrix")
    for key, layer in (("ArrowDown", "0"), ("ArrowUp", "6")) * 3:
        for name in ("Importance scatter", "Similarity heatmap"):
            page.get_by_role("tab", name=name).click()
        cells.press(key)
        cells.press("Enter")
        page.wait_for_url(re.compile(rf"view=heatmap&a=mini-gpt2%40seed\d%3A{layer}&b="))
        canvas(page)


def test_the_canvas_answers_hover_search_keys_and_drawers(app, page):
    shown, maps = canvas(page), canvas(page, "maps")
    shown.locator("[data-term=tense]").hover()
    expect(maps.locator(".legend")).to_contain_text("past")
    shown.locator("[data-term=tense]").click()
    page.mouse.move(0, 0)
    expect(maps.locator(".legend")).to_contain_text("past")
    maps.get_by_role("searchbox").fill("plays")
    expect(maps.get_by_role("status")).to_contain_text("plays")
    expect(maps.locator(".said mark")).to_have_text("plays")
    expect(maps.locator(".near li")).to_have_count(6)
    strip = canvas(page, "strip")
    before = chosen_pair(page)
    strip.get_by_role("slider").nth(1).press("ArrowLeft")
    canvas(page)
    settled(page)
    after = chosen_pair(page)
    assert after[0] == before[0] and after[1] != before[1]
    # What is unexplained leads to the pairs of words behind it, the chip to the checks.
    shown.locator("[data-term=unexplained]").click()
    page.wait_for_url(re.compile("detail=pairs"))
    settled(page)
    shown.locator(".chip").first.click()
    page.wait_for_url(re.compile("detail=checks"))
    expect(page.get_by_test_id("stTable").first).to_be_visible()
    open_drawer(page, "Checks")
    expect(page.get_by_test_id("stTable")).to_have_count(0)
    page.go_back()
    page.wait_for_url(re.compile("detail=checks"))


@pytest.mark.slow
def test_back_forward_and_reload_show_what_the_address_showed(app, page):
    """One press a step: whether a choice, a link or a button led there."""
    addresses = [page.url]
    for name in ("tense", "question"):
        choose_feature(page, name)
        until_shown(page, {"number"}, {name})
        page.wait_for_url(lambda url: url not in addresses)
        settled(page)
        addresses.append(page.url)
    go(page, "Report")
    page.wait_for_url(re.compile(r"/report\?.*analysis="))
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
    choose_feature(page, "tense")
    until_shown(page, {"tense", "question"}, set())


def choose_feature(page, name):
    """Tick a feature on or off, in the strip."""
    page.get_by_role("button", name=re.compile(r"^(\d of )?\d features")).click()
    page.get_by_role("button", name=name, exact=True).click()
    settled(page)
    page.keyboard.press("Escape")


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
    tab_to(page, "^8 features")
    page.keyboard.press("Enter")
    tab_to(page, "^word length$")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    until_shown(page, {"tense"}, {"gender"})
    settled(page)
    page.keyboard.press("Escape")
    tab_to(page, "Model of layer A")
    page.keyboard.type("minilm")
    page.wait_for_url(re.compile("a=minilm"))
    tab_to(page, "^Similarity heatmap")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("view=profiles"))
    settled(page)
    tab_to(page, "^Export this figure|⤓ Export")
    page.keyboard.press("Enter")
    expect(page.get_by_role("radio", name="CSV", exact=True)).to_be_visible()
    settled(page)
    # The preview is laid out as wide as the print is, whatever it is shown as.
    printed = page.locator(".st-key-printed-profiles .main-svg").first.get_attribute("width")
    assert float(printed) == pytest.approx(Paper().width, abs=3)
    page.get_by_role("radio", name="PDF", exact=True).focus()
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


LIGHTNESS = """selector => { const s = getComputedStyle(document.querySelector(selector));
  return [s.backgroundColor, s.color].map(c =>
    c.match(/[0-9.]+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0) / 3) }"""


@pytest.mark.slow
def test_a_narrow_and_dark_window(app, browser):
    """All layers stand below the two, and are drawn in light on dark."""
    page = fresh_page(browser, color_scheme="dark", viewport={"width": 600, "height": 900})
    page.goto(f"{app.url}/?view=profiles&analysis=example")
    two, views = canvas(page), canvas(page, "views")
    settled(page)
    behind, text = page.evaluate(LIGHTNESS, '[data-testid="stApp"]')
    assert behind < 60 and text > 180
    drawn = views.locator("svg .title").first.evaluate("text => getComputedStyle(text).fill")
    assert sum(map(int, re.findall(r"\d+", drawn)[:3])) / 3 > 140, drawn
    wide = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"() => {{ const e = {wide}; return e.scrollWidth <= e.clientWidth + 1 }}")
    assert two.bounding_box()["y"] < views.bounding_box()["y"]
    # Where layers have no room a cell is of two families, whose layers a click opens.
    page.set_viewport_size({"width": 400, "height": 900})
    matrix = see(page, "Similarity heatmap")
    cells, back = matrix.locator("canvas"), matrix.get_by_role("button", name="◂ All families")
    expect(cells).to_have_attribute("aria-label", re.compile(r"RSA of \d families"))
    cells.press("ArrowUp")
    cells.press("Enter")
    expect(cells).to_have_attribute("aria-label", re.compile(r"RSA of \d+ layers"))
    back.click()
    expect(back).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function(
        "all => all[0].getBoundingClientRect().right < all[1].getBoundingClientRect().left",
        arg=[views.element_handle(), two.element_handle()],
    )
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
  const all = root => [...root.querySelectorAll('*')].flatMap(
    each => [each, ...(each.shadowRoot ? all(each.shadowRoot) : [])]);
  for (const element of all(document)) {
    if (!element.matches('button, a[href], input, [role=combobox], [role=tab], summary')) continue;
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
AT_ONCE = "* { transition: none !important; animation: none !important; }"


@pytest.fixture
def zoomed(browser):
    """A window of 1280 × 800 at 200 %: one of 640 × 400 with twice the pixels."""
    size = {"width": 640, "height": 400}
    page = fresh_page(browser, viewport=size, device_scale_factor=2, reduced_motion="reduce")
    yield page
    page.context.close()


# What axe finds in tables, images and headings that Streamlit draws.
OF_STREAMLIT = {
    "empty-table-header", "heading-order", "presentation-role-conflict",
}  # fmt: skip
SHOWN = ("?view=map&detail=pairs", "?view=profiles&detail=checks", "?view=scatter&detail=stimuli")
NEW = ("new", "new?step=roles", "new?step=models")


@pytest.mark.slow
@pytest.mark.parametrize("view", ["", *NEW, *SHOWN, "systems", "report"])
def test_at_200_percent_all_is_in_reach_and_axe_finds_no_more(app, zoomed, view):
    page = zoomed
    opened(page, app, view)
    assert page.evaluate(OUTSIDE) == []
    settled(page)
    expect(page.locator("[data-stale=true], [data-testid=stSpinner]")).to_have_count(0)
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert {each["id"] for each in found.response["violations"]} <= OF_STREAMLIT
    # The navigation is folded away and comes over the page.
    page.get_by_test_id("stExpandSidebarButton").click()
    link = page.get_by_test_id("stSidebar").get_by_role("link", name="Report")
    expect(link).to_be_in_viewport(ratio=1)
    sound(page, app)


def opened(page, app, view):
    page.goto(f"{app.url}/{view}{'&' if '?' in view else '?'}analysis=example")
    settled(page)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["", "new?step=models", SHOWN[1]])
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

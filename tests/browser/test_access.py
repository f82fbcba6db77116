"""All of it without a mouse, and at twice the size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from driving import START, App, picture, settled, traces
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

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
FOCUSED = """() => { const at = document.activeElement; return [
  at.getAttribute('aria-label'), at.innerText, at.value, at.getAttribute('role'),
  at.closest('label') && at.closest('label').innerText ].filter(Boolean).join(' | ') }"""

# What the browser tells a screen reader of a control that has no name.
NAMELESS = re.compile(
    r"^\s*- (button|checkbox|combobox|link|radio|slider|tab|textbox)( \[.*\])?:?$"
)
# How what has the focus looks, without it too, once the page has been painted.
LOOKS = """async () => {
  const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  await painted(); await painted();
  const at = window.looked ??= document.activeElement, said = [];
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


def tab_to(page: Page, what: str, most: int = 80) -> None:
    """Press Tab until the focus is on a control whose name matches."""
    seen = []
    for _ in range(most):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        if re.search(what, seen[-1]):
            return
    came = [one[:40] for one in seen]
    raise AssertionError(f"Tab does not come to {what!r}; it came to {came}")


@pytest.mark.parametrize("view", ["", "new", "profiles", "explore", "compare", "trust"])
def test_at_200_percent_nothing_is_out_of_reach(app: App, browser: Browser, view: str) -> None:
    # A window of 1280 × 800 at 200 % is one of 640 × 400 with twice the pixels.
    context = browser.new_context(
        viewport={"width": 640, "height": 400}, device_scale_factor=2, reduced_motion="reduce"
    )
    context.set_default_timeout(START)
    page = context.new_page()
    page.goto(f"{app.url}/{view}?analysis=example")
    if view != "new":
        traces(page)
    else:
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    settled(page)
    picture(page, f"zoom-{view or 'home'}")
    assert page.evaluate(OUTSIDE) == []
    # The sidebar is folded away and comes over the page.
    page.get_by_test_id("stExpandSidebarButton").click()
    sidebar = page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_role("link", name="Explore")).to_be_in_viewport(ratio=1)
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stSidebar]').getBoundingClientRect().x === 0"
    )
    for control in sidebar.locator("a, button, input").all():
        box = control.bounding_box()
        if box is not None:  # it is not in what is folded away
            assert box["x"] >= 0 and box["x"] + box["width"] <= 640
    picture(page, f"zoom-{view or 'home'}-sidebar")
    context.close()


def test_a_narrow_window_has_fewer_panels_a_row(app: App, page: Page) -> None:
    across = """n => { const plot = document.querySelector('.js-plotly-plot');
      const axes = Object.entries(plot && plot._fullLayout || {}).filter(([k]) => /^xaxis/.test(k));
      return new Set(axes.map(([, axis]) => axis.domain[0].toFixed(2))).size === n }"""
    page.set_viewport_size({"width": 600, "height": 900})
    page.goto(f"{app.url}/profiles?analysis=example")
    page.wait_for_function(across, arg=2)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function(across, arg=3)


def test_features_layers_and_export_by_keyboard(app: App, page: Page) -> None:
    page.goto(f"{app.url}/profiles?analysis=example")
    traces(page)
    settled(page)
    tab_to(page, "^word length")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.wait_for_function(
        "() => !document.querySelector('.js-plotly-plot').data.some(t => t.name === 'gender')"
    )
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
    expect(page.get_by_role("button", name="Download CSV")).to_be_visible()
    settled(page)
    picture(page, "keyboard-export")
    tab_to(page, r"^download\s+Download CSV")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    text = Path(waiting.value.path()).read_text()
    assert "part_of_speech" in text and "gender" not in text


def test_a_pair_of_layers_by_keyboard(app: App, page: Page) -> None:
    page.goto(f"{app.url}/compare?analysis=example")
    traces(page)
    settled(page)
    tab_to(page, "First layer.*combobox")
    page.keyboard.type("mini-bert layer 1")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("a=mini-bert%3A1"))
    settled(page)
    tab_to(page, "Second layer.*combobox")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("b="))
    expect(page.get_by_text("FI in mini-bert layer 1")).to_be_visible()
    picture(page, "keyboard-pair")


def opened(page: Page, app: App, view: str) -> None:
    page.goto(f"{app.url}/{view}{'&' if '?' in view else '?'}analysis=example")
    page.locator("h1").first.wait_for()
    settled(page)
    page.wait_for_function(COMPLETE)


def test_every_control_has_a_name(app: App, page: Page) -> None:
    for view in ("", "new", "new?step=roles", "new?step=models", "profiles", "explore", "report"):
        opened(page, app, view)
        said = page.locator("body").aria_snapshot().splitlines()
        assert [line for line in said if NAMELESS.match(line)] == [], view


@pytest.mark.parametrize("view", ["", "new?step=models", "profiles"])
def test_what_has_the_focus_looks_like_it(app: App, page: Page, view: str) -> None:
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

"""All of it at twice the size, for a screen reader, and with the focus in sight."""

import re

import pytest
from driving import FOCUSED, fresh_page, settled, sound
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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


@pytest.fixture
def zoomed(browser):
    """A window of 1280 × 800 at 200 %: one of 640 × 400 with twice the pixels."""
    size = {"width": 640, "height": 400}
    page = fresh_page(browser, viewport=size, device_scale_factor=2, reduced_motion="reduce")
    yield page
    page.context.close()


PROFILES, FEATURES = "explore?tab=profiles", "explore?look=features"
NEW = ("new", "new?step=roles", "new?step=models")


@pytest.mark.parametrize("view", ["", *NEW, PROFILES, "explore", FEATURES, "trust", "report"])
def test_at_200_percent_all_is_in_reach_and_has_a_name(app, zoomed, view):
    page = zoomed
    opened(page, app, view)
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
    said = page.locator("body").aria_snapshot().splitlines()
    assert [line for line in said if NAMELESS.match(line)] == []
    sound(page, app)


def opened(page, app, view):
    page.goto(f"{app.url}/{view}{'&' if '?' in view else '?'}analysis=example")
    page.locator("h1").first.wait_for()
    settled(page)
    page.wait_for_function(COMPLETE)


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

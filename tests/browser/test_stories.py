"""What a researcher does, from beginning to end; each story leaves a screenshot."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from driving import (
    SHOWN,
    App,
    fresh_page,
    how_computed,
    picture,
    ran,
    run,
    served,
    settled,
    traces,
    upload,
)
from playwright.sync_api import Browser, Page, expect

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.typing import Layer
from mlem_core.data import datasets
from mlem_core.figures.matrix import grid
from mlem_core.tasks.examples import example

pytestmark = pytest.mark.browser

# Clicks a button and waits until the figure's data have, or have no longer, a trace of its name.
CLICK_TO_FIGURE = """name => new Promise((done, failed) => {
  const drawn = () => {
    const plot = document.querySelector('.js-plotly-plot');
    if (!plot || !plot.data || !plot.querySelector('.scatterlayer .trace')) return null;
    return plot.data.some(trace => trace.name === name);
  };
  const before = drawn(), began = performance.now();
  [...document.querySelectorAll('button')].find(b => b.innerText.trim() === name).click();
  const look = () => {
    const now = drawn();
    if (now !== null && now !== before) done();
    else if (performance.now() - began > 60000) failed('the figure did not change');
    else setTimeout(look, 4);
  };
  look();
})"""


def place(page: Page, figure: int, x: float, y: float) -> tuple[float, float]:
    """Where a point of a figure's first panel, in shares of its sides, is in the window."""
    plot = page.locator(".js-plotly-plot").nth(figure)
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def cell_of(row: Layer, column: Layer) -> tuple[float, float]:
    """Where the cell of two layers of the example is in its matrix, in shares of its sides."""
    made = example()
    placed = grid(made.layers, "model", made.rsa)
    low, high = placed.span
    at = [made.layers.index(layer) for layer in (column, row)]
    x, y = (placed.centres[at] - low) / (high - low)
    return float(x), float(y)


def test_first_visit(app: App, page: Page) -> None:
    page.goto(app.url)
    finding = re.compile(
        "mini-gpt2@seed1 layer 6 and mini-mamba@seed1 layer 11 are alike .RSA 0.* of it"
    )
    expect(page.get_by_role("heading", name="MLEM Explorer")).to_be_visible()
    expect(page.get_by_text(finding)).to_be_visible()
    expect(page.get_by_text("holds in 5 of 5 checks").first).to_be_visible()
    expect(
        page.get_by_text(re.compile("their RSA between 0.* and 0.*95 % intervals"))
    ).to_be_visible()
    assert "terms" in {trace["name"] for trace in traces(page, 0)}  # the waterfall
    assert "heatmap" in {trace["type"] for trace in traces(page, 1)}
    expect(page.get_by_text("Example: probing, 11 models").last).to_be_visible()
    settled(page)
    picture(page, "story-first-visit")
    # One click leads to why, of the same two layers.
    page.get_by_role("button", name="Explore these two").click()
    page.wait_for_url(re.compile("/explore.*a=mini-gpt2%40seed1%3A6.*b=mini-mamba%40seed1%3A11"))
    expect(page.get_by_text(finding)).to_be_visible()
    expect(page.get_by_text("The pairs of stimuli behind it")).to_be_visible()
    page.get_by_role("link", name="Home").click()
    page.get_by_role("button", name="Analyse your own").click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()


def test_a_cell_changes_the_finding_or_says_why_there_is_none(app: App, page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.goto(app.url)
    traces(page, 1)
    settled(page)
    cell = place(page, 1, *cell_of(("mini-mamba", 3), ("mini-gpt2", 3)))
    page.mouse.move(*cell)
    page.wait_for_timeout(500)
    page.mouse.click(*cell)
    expect(
        page.get_by_text(re.compile("mini-mamba layer 3 and mini-gpt2 layer 3 are alike"))
    ).to_be_visible()
    page.wait_for_url(re.compile("analysis=example.*a=mini-mamba%3A3.*b=mini-gpt2%3A3"))
    settled(page)
    # mini-bert layer 1 and smollm2 layer 11 share the first word, and little else.
    page.mouse.click(*place(page, 1, *cell_of(("smollm2", 11), ("mini-bert", 1))))
    expect(
        page.get_by_text("No finding about smollm2 layer 11 and mini-bert layer 1.")
    ).to_be_visible()
    expect(
        page.get_by_text(re.compile("does not stand up.*without position 0 RSA is 0.* instead"))
    ).to_be_visible()
    assert page.get_by_text("are alike (RSA").count() == 0
    settled(page)
    picture(page, "story-no-finding")
    page.reload()
    expect(
        page.get_by_text("No finding about smollm2 layer 11 and mini-bert layer 1.")
    ).to_be_visible()


def test_home_of_a_fresh_server(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as app:
        page = fresh_page(browser)
        page.goto(app.url)
        expect(page.get_by_text("holds in 5 of 5 checks").first).to_be_visible()
        traces(page, 1)
        expect(page.get_by_role("button", name="Shown")).to_be_visible()
        page.context.close()


def test_the_tour_leads_through_three_views(app: App, page: Page) -> None:
    page.goto(app.url)
    page.get_by_role("button", name="Two-minute tour").click()
    for number, (view, says, on) in enumerate(
        (
            ("explore.*tab=profiles", "What shapes each layer", "Next: Why alike"),
            ("explore", "Why two layers are alike", "Next: Trust"),
            ("trust", "Whether to believe it", "Analyse your own"),
        ),
        start=1,
    ):
        page.wait_for_url(re.compile(f"/{view}"))
        expect(page.get_by_text(f"Tour, {number} of 3").first).to_be_visible()
        expect(page.get_by_text(says, exact=False).first).to_be_visible()
        traces(page)
        settled(page)
        picture(page, f"story-tour-{number}")
        page.get_by_role("button", name=on).first.click()
    page.wait_for_url(re.compile("/new"))
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    expect(page.get_by_text(re.compile("Tour, "))).to_have_count(0)


@pytest.mark.parametrize("address", ["analysis?", "?"])
def test_old_addresses_of_the_form_lead_to_it(app: App, page: Page, address: str) -> None:
    page.goto(f"{app.url}/{address}models=minilm&layers=0,3&stimuli=relative-clauses")
    expect(page.get_by_text("Runs minilm on relative-clauses")).to_be_visible()
    page.wait_for_url(re.compile("/new.*layers=0"))


def test_what_runs_is_seen_on_every_page_and_leads_to_its_finding(
    app: App, page: Page, done: str
) -> None:
    page.goto(f"{app.url}/new?{done}&seed=7")
    run(page)
    expect(page.get_by_text(re.compile("(Waiting|Running|Done):"))).to_have_count(1)
    for view in ("Home", "Explore", "Trust"):
        page.get_by_role("link", name=view, exact=True).click()
        expect(page.get_by_text(re.compile("(Waiting|Running|Done):"))).to_have_count(1)
        settled(page)
    expect(page.get_by_text(re.compile("Done: small_set.* minilm .*seed 7"))).to_be_visible()
    picture(page, "story-bar-done")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_text(re.compile("Done:"))).to_have_count(0)
    expect(page.get_by_text(re.compile("minilm layer . and minilm layer ."))).to_be_visible()
    expect(page.get_by_text("not checked yet").first).to_be_visible()
    expect(page.get_by_role("button", name="Audit every layer")).to_be_visible()
    settled(page)
    picture(page, "story-own-finding")
    # Another browser finds it in the list.
    other = fresh_page(page.context.browser)
    other.goto(app.url)
    expect(other.get_by_text(re.compile("^small_set .*seed 7"))).to_be_visible()
    other.context.close()


def test_a_csv_with_a_mistake_is_mended_run_cancelled_and_run_again(
    app: App, page: Page, tmp_path: Path
) -> None:
    rows = [
        f"{who} {what},{word},{kind}"
        for who in ("cats", "dogs", "children", "birds", "men", "women")
        for what in ("sleep", "sing", "run")
        for word, kind in ((who, "noun"), (what, "verb"))
    ]
    path = tmp_path / "animals.csv"
    path.write_text("\n".join(["text,target,kind", *rows, "cats eat,fish,noun"]))
    page.goto(app.url + "/new?models=minilm&folds=3")
    upload(page, path)
    wrong = page.get_by_text(re.compile("the word .*fish.* in row 37 .* does not occur"))
    expect(wrong).to_be_visible()
    picture(page, "story-mistake")
    mended = tmp_path / "animals mended.csv"
    mended.write_text("\n".join(["text,target,kind", *rows]))
    upload(page, mended)
    expect(
        page.get_by_text("36 stimuli (words in their sentences), 1 features: kind")
    ).to_be_visible()
    page.get_by_role("button", name="2 Roles").click()
    expect(page.get_by_text("Nothing in the stimuli stands in the way")).to_be_visible()
    picture(page, "story-mended")
    run(page)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled:")).to_be_visible()
    run(page)
    expect(page.get_by_text("Done:")).to_be_visible()
    picture(page, "story-run-again")


def test_ticking_a_feature_redraws(app: App, page: Page) -> None:
    page.goto(f"{app.url}/profiles?analysis=example")
    traces(page)
    settled(page)
    page.evaluate(CLICK_TO_FIGURE, "part of speech")
    settled(page)
    assert "part of speech" not in {trace["name"] for trace in traces(page)}
    page.get_by_role("button", name="minilm", exact=True).click()
    page.wait_for_function(
        "() => !document.querySelector('.js-plotly-plot').layout.annotations"
        ".some(a => a.text === 'minilm')"
    )
    picture(page, "story-toggled")


def test_ticking_features_on_forty_layers(app: App, page: Page, tmp_path: Path) -> None:
    stimuli = datasets.load("probing")
    rng = np.random.default_rng(0)
    seen = (
        pd.get_dummies(stimuli.table[[f.name for f in stimuli.features]]).fillna(0).to_numpy(float)
    )
    mixed = [seen @ rng.standard_normal((seen.shape[1], 32)) for _ in range(2)]
    files = []
    for name, signal in zip(("early", "late"), mixed, strict=True):
        layers = {
            f"layer_{k:02d}": (signal + k * rng.standard_normal(signal.shape)).astype(np.float32)
            for k in range(20)
        }
        np.savez(tmp_path / f"{name}.npz", **layers)
        files.append((name, str(tmp_path / f"{name}.npz")))
    job = ran(AnalysisSpec("probing", representations=tuple(files)), app)
    page.goto(f"{app.url}/profiles?analysis={job.id}")
    traces(page)
    settled(page)
    names = ("gender", "tense", "person", "number", "question")
    # In this order (Gray's code) no set of features comes twice: nothing is known from before.
    for step in range(1, 21):
        name = names[(step & -step).bit_length() - 1]
        page.evaluate(CLICK_TO_FIGURE, name)
        settled(page)
    assert "number" not in {trace["name"] for trace in traces(page)}
    picture(page, "story-forty-layers")


def test_a_pair_is_followed_to_its_stimuli(app: App, page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.goto(f"{app.url}/similarity?analysis=example")
    traces(page, 1)
    settled(page)
    cell = place(page, 0, *cell_of(("minilm", 1), ("mini-bert", 3)))
    page.mouse.move(*cell)
    page.wait_for_timeout(500)
    page.mouse.click(*cell)
    # Beside the matrices, which stay where they are.
    said = "No finding about minilm layer 1 and mini-bert layer 3"
    expect(page.get_by_text(said)).to_be_visible()
    page.wait_for_url(re.compile("a=minilm%3A1.*b=mini-bert%3A3"))
    settled(page)
    assert place(page, 0, *cell_of(("minilm", 1), ("mini-bert", 3))) == cell
    picture(page, "story-pair")
    page.get_by_role("radio", name="Stimuli").last.click()
    expect(page.locator(".js-plotly-plot")).to_have_count(3)
    settled(page)
    page.mouse.move(*place(page, 1, 0.3, 0.3))
    page.mouse.down()
    for corner in ((0.7, 0.3), (0.7, 0.7), (0.3, 0.7), (0.3, 0.32)):
        page.mouse.move(*place(page, 1, *corner), steps=6)
    page.mouse.up()
    expect(page.get_by_text(re.compile(r"\d+ stimuli are marked"))).to_be_visible()
    # Both maps show the marked ones.
    page.wait_for_function(
        "() => [1, 2].every(n => document.querySelectorAll('.js-plotly-plot')[n]"
        ".data.some(trace => trace.marker.opacity && trace.marker.opacity.length !== undefined "
        "|| typeof trace.marker.opacity === 'object'))"
    )
    settled(page)
    picture(page, "story-stimuli")


def test_a_baseline_beside_the_profiles(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    traces(page)
    settled(page)
    page.get_by_text("The same layers by other methods").click()
    page.get_by_role("button", name="Compute it").click()
    expect(page.get_by_text("The same layers by another method.")).to_be_visible()
    how_computed(page, 1, "Accuracy of a linear classifier for each feature")
    below = {trace["name"]: trace["n"] for trace in traces(page, 1)}
    assert all(below[name] >= 7 for name in SHOWN & below.keys())
    assert {"tense", "part of speech"} <= below.keys()
    # A feature has the colour that it has above.
    assert page.evaluate(
        """() => { const [a, b] = [...document.querySelectorAll('.js-plotly-plot')].map(p =>
          p._fullData.find(t => t.name === 'part of speech').line.color); return a === b }"""
    )
    page.get_by_text("The same layers by another method.").scroll_into_view_if_needed()
    picture(page, "story-baseline")
    # What is computed is kept: it is there at once, after another visit too.
    page.reload()
    traces(page)
    page.get_by_text("The same layers by other methods").click()
    traces(page, 1)
    assert page.get_by_role("button", name="Compute it").count() == 0


def test_a_slow_estimator_is_computed_once(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}&fit=spearman")
    expect(page.get_by_text("takes about a second a layer")).to_be_visible()
    assert {trace["name"] for trace in traces(page)} >= SHOWN
    how_computed(page, 0, "Fitted with estimator spearman")
    page.reload()
    assert {trace["name"] for trace in traces(page)} >= SHOWN
    expect(page.get_by_text("takes about a second a layer")).to_have_count(0)
    picture(page, "story-spearman")


def test_missing_values_are_treated_otherwise(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}&cells=level")
    traces(page)
    how_computed(page, 0, "missing values are a value of their own")


def test_two_users_at_once(app: App, page: Page, browser: Browser, done: str) -> None:
    other = fresh_page(browser)
    for one, name in ((page, "tense"), (other, "word length")):
        one.goto(f"{app.url}/profiles?{done}")
        traces(one)
        settled(one)
        one.get_by_role("button", name=name, exact=True).click()
    for one, name, kept in ((page, "tense", "word length"), (other, "word length", "tense")):
        one.wait_for_function(
            "name => !document.querySelector('.js-plotly-plot').data.some(t => t.name === name)",
            arg=name,
        )
        assert kept in {trace["name"] for trace in traces(one)}
    other.context.close()


def test_the_relative_clauses_can_be_chosen(app: App, page: Page) -> None:
    page.goto(app.url + "/new?stimuli=relative-clauses")
    expect(page.get_by_text("stimuli (whole sentences)")).to_be_visible()
    settled(page)
    picture(page, "story-relative-clauses")

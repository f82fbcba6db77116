"""Each page says what it should, whatever it is given."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from driving import (
    SHOWN,
    START,
    TAG,
    App,
    explore,
    how_computed,
    picture,
    run,
    settled,
    traces,
    upload,
)
from playwright.sync_api import Page, expect

from mlem_core.data.stimulus_csv import read_csv

pytestmark = pytest.mark.browser
VIEWS = ("profiles", "similarity", "compare", "why", "stimuli")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens_on_the_example(app: App, page: Page, view: str) -> None:
    page.goto(f"{app.url}/{view}")
    expect(page.get_by_text("Example: probing, 11 models · 2,040 stimuli")).to_be_visible()
    page.wait_for_url(re.compile("/explore"))
    traces(page)
    page.wait_for_url(re.compile("analysis=example"))
    settled(page)
    picture(page, f"example-{view}")


def test_the_form_offers_sets_and_models(app: App, page: Page) -> None:
    page.goto(f"{app.url}/new")
    expect(page.get_by_text("2,040 stimuli (words")).to_be_visible()
    picture(page, "form")
    page.get_by_role("button", name="3 Models").click()
    for name in ("mini-bert", "mini-gpt2", "mini-mamba", "minilm", "smollm2"):
        expect(page.get_by_text(re.compile(f"{name}: ")).first).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    picture(page, "form-models")


def test_unknown_analysis_is_a_sentence(app: App, page: Page) -> None:
    page.goto(f"{app.url}/profiles?analysis=../../etc")
    expect(page.get_by_text("is not on this machine")).to_be_visible()


def test_profiles_draw_what_was_run(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    names = {trace["name"] for trace in traces(page)}
    assert {
        *SHOWN,
        "note",
        "prediction accuracy<br>(held-out ρ)",
        "best possible<br>(ceiling)",
    } <= names
    assert max(trace["n"] for trace in traces(page)) >= 7  # MiniLM's layers
    picture(page, "profiles")


def test_dropping_a_feature_needs_no_run(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/profiles?{done}")
    assert "tense" in {trace["name"] for trace in traces(page)}
    jobs = list((app.cache / "jobs").glob("*/spec.json"))
    settled(page)
    page.get_by_role("button", name="tense", exact=True).click()
    page.wait_for_function(
        "() => !document.querySelector('.js-plotly-plot').data.some(t => t.name === 'tense')"
    )
    assert "word length" in {trace["name"] for trace in traces(page)}
    assert list((app.cache / "jobs").glob("*/spec.json")) == jobs
    page.wait_for_url(re.compile("features=word_length"))
    # The choice goes along to the next page, and from its address to another browser.
    page.get_by_role("radio", name="Pairs of layers").click()
    page.get_by_role("radio", name="Features").click()
    page.wait_for_url(re.compile(r"/explore\?.*features=.*look=features"))
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length === 2")
    assert "tense" not in {trace["name"] for trace in traces(page, 1)}
    address = page.url
    other = page.context.browser.new_context().new_page()
    other.set_default_timeout(START)
    other.goto(address)
    scattered = {trace["name"] for trace in traces(other, 1)}
    assert "tense" not in scattered and "word length" in scattered
    other.context.close()


def test_similarity_has_both_matrices(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/similarity?{done}")
    heat = [trace for trace in traces(page) if trace["type"] == "heatmap"]
    assert [trace["n"] for trace in heat] == [8, 8]  # the edges of 7 cells
    picture(page, "similarity")
    explore(page, "All layers")
    assert any(trace["name"] == "minilm" for trace in traces(page))


def test_compare_keeps_its_choice_in_the_address(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/compare?{done}&a=minilm:1&b=minilm:5&colour=note")
    assert {*SHOWN, "note"} <= {trace["name"] for trace in traces(page, 1)}
    expect(page.get_by_text("FI in minilm layer 5")).to_be_visible()
    settled(page)
    picture(page, "compare")
    pair = page.get_by_role("radiogroup").filter(has_text="Why alike")
    pair.get_by_role("radio", name="Stimuli").click()
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=START)
    settled(page)
    # The values of the feature are in the map's legend, letter by letter.
    text = page.locator(".js-plotly-plot").nth(1).inner_text()
    assert TAG in text
    picture(page, "compare-maps")


def test_cells_with_html_are_text(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/stimuli?{done}")
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    settled(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator('img[src="x"]').count() == 0
    assert {trace["name"] for trace in traces(page)} >= {*SHOWN, "note"}
    picture(page, "stimuli")


def test_a_bad_csv_loses_nothing_and_nothing_else_is_run(
    app: App, page: Page, done: str, tmp_path: Path
) -> None:
    page.goto(f"{app.url}/new?{done}")
    run_button = page.get_by_role("button", name="Run", exact=True)
    expect(page.get_by_text("Runs minilm on small_set.csv")).to_be_visible()
    expect(run_button).to_be_enabled()
    bad = tmp_path / "bad.csv"
    bad.write_text("sentence,word_index,kind\nthe cat sleeps,0,a\nthe dog barks,7,b\n")
    jobs = sorted((app.cache / "jobs").glob("*/spec.json"))
    upload(page, bad)
    error = page.get_by_text(re.compile("Run waits, see step 2: .*word_index in row 2 is .?7"))
    expect(error).to_be_visible()
    expect(run_button).to_be_disabled()
    settled(page)
    picture(page, "bad-csv")
    assert sorted((app.cache / "jobs").glob("*/spec.json")) == jobs
    # What was chosen before is still there.
    page.get_by_role("button", name="Back to small_set.csv").click()
    expect(page.get_by_text("Runs minilm on small_set.csv")).to_be_visible()
    expect(run_button).to_be_enabled()
    explore(page, "Profiles")
    assert "tense" in {trace["name"] for trace in traces(page)}


def test_a_csv_as_excel_writes_it_is_read(app: App, page: Page, tmp_path: Path) -> None:
    rows = [f"der Müller ruft n{i};1;{i},5;{'Nom' if i % 2 else 'Akk'}" for i in range(12)]
    rows[3] = rows[3].replace("3,5", "NA")
    excel = tmp_path / "excel.csv"
    text = "\r\n".join(["sentence;word_index;Häufigkeit;Kasus", *rows])
    excel.write_bytes(text.encode("cp1252"))
    page.goto(f"{app.url}/?models=minilm")
    upload(page, excel)
    said = "12 stimuli (words in their sentences), 2 features: Häufigkeit, Kasus"
    expect(page.get_by_text(said)).to_be_visible()
    picture(page, "excel-csv")


def test_unreachable_model_is_left_out(app: App, page: Page, done: str) -> None:
    query = re.sub(r"&?(analysis|models)=[^&]*", "", done)
    page.goto(f"{app.url}/new?{query}&models=minilm&models=gpt2&layers=0,6&step=models")
    expect(page.get_by_text("cannot be reached now")).to_be_visible()
    run(page)
    expect(page.get_by_text(re.compile("gpt2 was left out"))).to_be_visible(timeout=START)
    expect(page.get_by_text("Done:")).to_be_visible()
    picture(page, "left-out")


def test_representations_from_a_file(
    app: App, page: Page, done: str, small_csv: Path, tmp_path: Path
) -> None:
    n = len(read_csv(small_csv))
    layers = {f"layer_{i:02}": np.random.default_rng(i).normal(size=(n, 8)) for i in range(3)}
    np.savez(tmp_path / "brain.npz", **layers)
    page.goto(f"{app.url}/new?{done}&step=models")
    _add_representations(page, "brain", tmp_path / "brain.npz")
    run(page)
    expect(page.get_by_text(re.compile("Done: small_set.* minilm, brain"))).to_be_visible(
        timeout=START
    )
    explore(page, "All layers")
    assert {"minilm", "brain"} <= {trace["name"] for trace in traces(page)}


def test_wrong_representations_are_not_run(app: App, page: Page, done: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "short.npz", layer_00=np.zeros((3, 8)))
    page.goto(f"{app.url}/new?{done}&step=models")
    _add_representations(page, "short", tmp_path / "short.npz")
    expect(page.get_by_text("array layer_00 of short.npz has 3 rows")).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Take away").click()
    expect(page.get_by_text("Runs minilm on small_set.csv")).to_be_visible()


def test_precomputed_distances_and_other_start_tokens(
    app: App, page: Page, done: str, small_csv: Path, tmp_path: Path
) -> None:
    n = len(read_csv(small_csv))
    points = np.random.default_rng(0).normal(size=(n, 3))
    square = np.linalg.norm(points[:, None] - points, axis=2)
    np.savetxt(tmp_path / "apart.csv", square, delimiter=",")
    page.goto(f"{app.url}/new?{done}&step=models&distance=precomputed&special_tokens=none")
    _add_representations(page, "apart", tmp_path / "apart.csv")
    expect(page.get_by_text("goes with representations files only")).to_be_visible(timeout=START)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    models = page.get_by_role("combobox", name="Models").first
    models.press("Backspace")
    models.press("Escape")
    settled(page)
    run(page)
    text = re.compile("Done: small_set.* apart .*precomputed.*none")
    expect(page.get_by_text(text)).to_be_visible(timeout=START)
    explore(page, "Profiles")
    assert "tense" in {trace["name"] for trace in traces(page)}


def test_a_run_that_fails_loses_nothing(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/new?{done}&layers=99")
    run(page)
    expect(page.get_by_text("Not done:")).to_be_visible(timeout=START)
    expect(page.get_by_text("has none of the layers 99")).to_be_visible()
    picture(page, "failed")
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(page.get_by_text("did not finish")).to_be_visible()
    settled(page)
    page.get_by_role("button", name=re.compile("^Open ")).click()
    explore(page, "Profiles")
    assert "tense" in {trace["name"] for trace in traces(page)}


def _add_representations(page: Page, name: str, file: Path) -> None:
    upload(page, file)
    expect(page.get_by_text(f"{file.name}").first).to_be_visible()
    settled(page)
    field = page.get_by_role("textbox", name="Name")
    field.fill(name)
    field.press("Enter")
    settled(page)


def test_bad_layers_are_a_sentence(app: App, page: Page, done: str) -> None:
    page.goto(f"{app.url}/new?{done}&layers=three")
    waits = page.get_by_text("Run waits, see step 3: found the layers 'three'")
    expect(waits).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()


def test_cancel_stops_the_run(app: App, page: Page) -> None:
    page.goto(f"{app.url}/new?models=smollm2")
    expect(page.get_by_text("2,040 stimuli (words")).to_be_visible()
    run(page)
    cancel = page.get_by_role("button", name="Cancel")
    expect(page.get_by_text("Running:")).to_be_visible(timeout=START)
    cancel.click()
    expect(page.get_by_text("Cancelled:")).to_be_visible(timeout=START)
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(page.get_by_text("was cancelled")).to_be_visible()


def test_torch_stays_out_of_the_server(app: App, page: Page, done: str) -> None:
    maps = Path(f"/proc/{app.process}/maps")
    if not maps.exists():
        pytest.skip("only Linux tells what a process has loaded")
    page.goto(f"{app.url}/explore?{done}&look=maps")
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=START)
    settled(page)
    assert "numpy" in maps.read_text()  # it does tell
    assert "libtorch" not in maps.read_text()


def test_the_example_says_why_two_layers_are_alike_and_how_sure_that_is(
    app: App, page: Page
) -> None:
    page.goto(f"{app.url}/why?analysis=example")
    expect(page.get_by_text(re.compile("are alike .RSA 0.* which makes .* of it"))).to_be_visible()
    expect(
        page.get_by_text(re.compile("How sure: other sentences and other words"))
    ).to_be_visible()
    traces(page, 1)
    how_computed(page, 1, "blocks of each left out in turn")
    picture(page, "example-why-sure")
    page.goto(f"{app.url}/compare?analysis=example")
    expect(page.get_by_text(re.compile("95 %: 0.* to 0.*")).first).to_be_visible()
    page.get_by_role("link", name="Trust", exact=True).click()
    page.get_by_text("Where the two chosen layers differ").click()
    expect(page.get_by_text(re.compile("family of 8 differences of importance"))).to_be_visible()


def test_tests_are_corrected_as_the_user_chooses(app: App, page: Page) -> None:
    page.goto(f"{app.url}/profiles?analysis=example")
    traces(page)
    how_computed(page, 0, "importances; Benjamini-Hochberg")
    page.get_by_role("link", name="Trust", exact=True).click()
    page.get_by_text("Importances and scores").click()
    # A list that opens while the part is still being drawn closes again.
    settled(page)
    page.get_by_role("combobox", name=re.compile("Correction for many tests")).click()
    page.get_by_role("option", name=re.compile("Bonferroni")).click()
    expect(page.get_by_text(re.compile("importances; Bonferroni")).first).to_be_visible()
    page.wait_for_url(re.compile("correction=bonferroni"))
    explore(page, "Profiles")
    traces(page)
    how_computed(page, 0, "importances; Bonferroni")
    # Other features have no intervals yet: the bands are named as what they are.
    page.goto(f"{app.url}/profiles?analysis=example&features=tense&features=number")
    traces(page)
    how_computed(page, 0, "one standard deviation over folds")
    expect(page.get_by_role("button", name="Add confidence intervals and tests")).to_be_visible()

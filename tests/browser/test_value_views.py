"""The coding of values: chosen in the form, switched in the sidebar, seen in the views."""

from __future__ import annotations

import re

import pytest
from driving import START, App, how_computed, picture, run, settled, traces
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_values_are_told_apart_in_the_form_and_switched_in_the_sidebar(
    app: App, page: Page
) -> None:
    page.goto(app.url + "/new?step=models&models=minilm&layers=0,6")
    expect(page.get_by_text("probing, 2,040 stimuli").first).to_be_visible(timeout=START)
    settled(page)
    page.get_by_text("More options").click()
    expect(
        page.get_by_text("Every two of their values have a distance of their own")
    ).to_be_visible()
    run(page)
    expect(page.get_by_text("Done:")).to_be_visible(timeout=START)
    query = page.url.partition("?")[2]
    page.goto(f"{app.url}/profiles?{query}")
    traces(page)
    coded = r"coded by which values of part of speech differ \(others:"
    how_computed(page, 0, coded)
    settled(page)
    page.get_by_text("Values told apart", exact=True).click()
    expect(page.get_by_text("Values that lie close together are represented alike")).to_be_visible()
    how_computed(page, 2, "Metric MDS of the values of")
    heat = [trace for trace in traces(page, 1) if trace["type"] == "heatmap"]
    assert [trace["n"] for trace in heat] == [6]
    assert {trace["name"] for trace in traces(page, 2)} == {"spread", "values"}
    assert "Noun / Verb" in {trace["name"] for trace in traces(page, 3)}
    picture(page, "values")
    page.goto(f"{app.url}/compare?{query}&a=minilm:0&b=minilm:6")
    page.get_by_text("Values told apart", exact=True).click()
    expect(page.get_by_text("How far apart every two values are in the two")).to_be_visible()
    how_computed(page, 2, "In blue and named")
    # An estimator that cannot tell them apart is a sentence, before anything runs.
    page.goto(f"{app.url}/profiles?{query}&fit=spearman")
    expect(page.get_by_text("cannot tell apart the values of part_of_speech")).to_be_visible()
    # The papers' coding, and what there would be to see.
    page.goto(f"{app.url}/profiles?{query}&apart=no")
    traces(page)
    how_computed(page, 0, "coded by whether and by how much they differ")
    how_computed(page, 0, "it knows nothing of which values differ")
    settled(page)
    page.get_by_text("Values told apart", exact=True).click()
    button = page.get_by_role("button", name="Tell apart the values of part of speech")
    expect(button).to_be_visible()
    button.click()
    page.wait_for_url(re.compile(r"^(?!.*apart=no)"))
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    traces(page)
    how_computed(page, 0, coded)

"""A vector and an RDM as features, from the form to the figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from driving import START, App, picture, run, settled, traces, upload
from inputs import words
from playwright.sync_api import Browser, expect
from scipy.spatial.distance import pdist, squareform

from mlem_core.data.stimulus_csv import write_csv

pytestmark = pytest.mark.browser


def test_columns_become_a_vector_and_a_file_a_feature(
    app: App, browser: Browser, tmp_path: Path
) -> None:
    table = words(40)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(table), 2))
    table = table.assign(s1=vectors[:, 0], s2=vectors[:, 1])
    write_csv(table, tmp_path / "with vectors.csv")
    hidden = rng.standard_normal((len(table), 3))
    np.save(tmp_path / "ratings.npy", squareform(pdist(hidden)))
    np.save(tmp_path / "wrong.npy", np.zeros((3, 4)))
    np.save(tmp_path / "brain.npy", hidden @ rng.standard_normal((3, 8)))
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(START)
    page = context.new_page()
    page.goto(app.url + "/new?models=none")
    upload(page, tmp_path / "with vectors.csv")
    page.get_by_role("button", name="Next: Roles").click()
    page.get_by_text("Features given by distances").click()
    settled(page)
    columns = page.get_by_role("combobox", name="Ordered columns that are one vector")
    for name in ("s1", "s2"):
        columns.click()
        page.get_by_role("option", name=name, exact=True).click()
    page.get_by_label("Name of the vector").fill("semantics")
    page.get_by_role("button", name="Make one feature").click()
    expect(page.get_by_text("A part of the vector semantics.")).to_have_count(2)
    upload(page, tmp_path / "wrong.npy")
    expect(page.get_by_text("the RDM wrong.npy is of shape 3 × 4")).to_be_visible()
    picture(page, "given-wrong")
    page.get_by_role("button", name="Take away").last.click()
    expect(page.get_by_text("the RDM wrong.npy")).to_have_count(0)
    upload(page, tmp_path / "ratings.npy")
    expect(page.get_by_text("RDM (added)")).to_be_visible()
    expect(page.get_by_text("vector (added)")).to_be_visible()
    picture(page, "given-roles")
    page.get_by_role("button", name="Next: Models").click()
    settled(page)
    upload(page, tmp_path / "brain.npy")
    run(page)
    expect(page.get_by_role("button", name="Look")).to_be_visible(timeout=START)
    job = page.url.partition("analysis=")[2].partition("&")[0]
    spec = json.loads((app.cache / "jobs" / job / "spec.json").read_text())
    assert spec["vectors"] == [["semantics", ["s1", "s2"]]]
    assert [name for name, _ in spec["rdms"]] == ["ratings"]
    page.goto(f"{app.url}/explore?analysis={job}&tab=profiles")
    settled(page)
    assert {"semantics", "ratings"} <= {trace["name"] for trace in traces(page)}
    picture(page, "given-profiles")
    page.goto(f"{app.url}/explore?analysis={job}&tab=stimuli")
    settled(page)
    assert page.locator('[data-testid="stException"]').count() == 0
    picture(page, "given-stimuli")
    context.close()

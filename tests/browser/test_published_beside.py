"""The numbers of the first paper stand beside those of models that have its models' names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from driving import App, picture, ran, settled, traces
from inputs import in_files, words
from playwright.sync_api import Page, expect

from mlem_core.analysis.published import MODELS

pytestmark = pytest.mark.browser


def test_published_numbers_stand_beside_ours_and_go_into_the_report(
    app: App, page: Page, tmp_path: Path
) -> None:
    table, rng = words(), np.random.default_rng(0)
    coded = table[["noun", "length"]].to_numpy(float) * [3.0, 1.0]
    made_up = {
        model: {n: coded * n + rng.standard_normal(coded.shape) for n in (4, 8)} for model in MODELS
    }
    (tmp_path / "state-spaces").mkdir()
    spec = in_files(tmp_path, table, made_up)
    job = ran(spec, app)
    results = job.analysis().results()
    page.goto(f"{app.url}/explore?analysis={job.id}")
    expect(page.get_by_text("Beside the first paper", exact=True)).to_be_visible()
    settled(page)
    has = "p => (p._fullData || []).some(t => t.name == 'published')"
    page.wait_for_function(f"() => [...document.querySelectorAll('.js-plotly-plot')].some({has})")
    at = page.locator(".js-plotly-plot").evaluate_all(f"all => all.findIndex({has})")
    assert {"published", "here"} <= {trace["name"] for trace in traces(page, at)}
    values = (
        page.locator(".js-plotly-plot")
        .nth(at)
        .evaluate("p => p._fullData.filter(t => t.mode == 'markers').map(t => Array.from(t.x))")
    )
    tau = results.similarity_profiles
    expected = [
        results.agreement,
        tau.loc["gpt2:8", f"{MODELS[0]}:4"],
        tau.loc[f"{MODELS[2]}:8", f"{MODELS[0]}:4"],
    ]
    assert values[0] == [0.69, 0.77, -0.24] and values[1] == pytest.approx(expected)
    page.locator(".js-plotly-plot").nth(at).scroll_into_view_if_needed()
    picture(page, "published")
    page.get_by_text("The same in numbers").click()
    settled(page)
    picture(page, "published-numbers")

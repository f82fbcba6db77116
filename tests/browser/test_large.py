"""100,000 words with a file of representations: uploaded, started, watched, cancelled, finished."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from driving import START, App, explore, how_computed, picture, run, settled, traces, upload
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
N, A_SENTENCE = 100_000, 10
PAIRS = 10_000_000


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sentences of made-up words; layers that know the kind and, more or less, the length."""
    folder = tmp_path_factory.mktemp("story")
    rng = np.random.default_rng(0)
    words = np.array([f"w{k}" for k in range(3_000)])
    drawn = rng.integers(0, len(words), (N // A_SENTENCE, A_SENTENCE))
    kind = rng.choice(["noun", "verb", "other"], len(words))[drawn.ravel()]
    length = rng.integers(2, 12, len(words))[drawn.ravel()]
    table = pd.DataFrame(
        {
            "sentence": np.repeat([" ".join(row) for row in words[drawn]], A_SENTENCE),
            "word_index": np.tile(np.arange(A_SENTENCE), len(drawn)),
            "kind": kind,
            "length": length,
        }
    )
    table.to_csv(folder / "story.csv", index=False)
    layers = {}
    for number in range(2):
        rows = rng.standard_normal((N, 16)).astype(np.float32)
        rows[:, 0] += 3 * (kind == "noun")
        rows[:, 1] += length / (4 - 2 * number)
        layers[f"layer_{number:02d}"] = rows
    np.savez(folder / "brain.npz", **layers)
    return folder / "story.csv", folder / "brain.npz"


def test_a_run_of_many_stimuli(app: App, page: Page, story: tuple[Path, Path]) -> None:
    page.set_default_timeout(2 * START)
    table, layers = story
    page.goto(f"{app.url}/new?pairs={PAIRS}&models=none")
    upload(page, table)
    said = "100,000 stimuli (words in their sentences), 2 features: kind, length"
    expect(page.get_by_text(said)).to_be_visible(timeout=2 * START)
    picture(page, "large-read")
    page.get_by_role("button", name="3 Models").click()
    settled(page)
    upload(page, layers)
    expect(page.get_by_text("brain.npz: layers 0, 1")).to_be_visible()
    settled(page)
    run(page)
    # Watched: what is done shows before the end.
    expect(page.get_by_text("Running:")).to_be_visible(timeout=2 * START)
    expect(page.get_by_text(re.compile(r"Pair tables: \d of 2 layers"))).to_be_visible()
    picture(page, "large-running")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled:")).to_be_visible(timeout=START)
    page.get_by_role("link", name="New analysis").click()
    expect(page.get_by_text(re.compile("Runs .* on story.csv"))).to_be_visible()
    run(page)
    expect(page.get_by_text(re.compile("Done: story"))).to_be_visible(timeout=4 * START)
    explore(page, "Profiles")
    assert {"kind", "length"} <= {trace["name"] for trace in traces(page)}
    how_computed(page, 0, r"100,000 stimuli, [\d,]+ of 4,999,950,000 pairs")
    picture(page, "large-profiles")
    # No figure has more points than can be told apart.
    explore(page, "Stimuli")
    figures = page.locator(".js-plotly-plot").count()
    assert figures and all(
        trace["n"] <= 5_000 for figure in range(figures) for trace in traces(page, figure)
    )
    picture(page, "large-stimuli")

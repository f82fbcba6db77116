"""Forty features, one feature, long names, Arabic and Chinese: every screen draws, text is kept."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from driving import App, explore, picture, ran, settled, traces
from playwright.sync_api import Page, expect

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses

pytestmark = pytest.mark.browser
N = 120
ARABIC = "الكلب الكبير يجري في الحديقة"
CHINESE = "大狗在公园里跑步"


def made(app: App, folder: Path, features: dict[str, np.ndarray], models: list[str]) -> str:
    """The id of an analysis of sentences in two scripts, by systems from files."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "sentence": [f"{(ARABIC, CHINESE)[row % 2]} {row}" for row in range(N)],
            **features,
        }
    )
    table.to_csv(folder / "scripts.csv", index=False)
    seen = pd.get_dummies(table[list(features)].astype(str)).to_numpy(float)
    files = []
    for number, name in enumerate(models):
        signal = seen @ rng.standard_normal((seen.shape[1], 16))
        layers = {f"layer_{k:02d}": signal + k * rng.standard_normal(signal.shape) for k in (0, 2)}
        path = folder / f"{number}.npz"
        np.savez(path, **layers)
        files.append((name, str(path)))
    spec = AnalysisSpec(str(folder / "scripts.csv"), representations=tuple(files), folds=3)
    job = ran(spec, app)
    return job.id


def look_at_all(app: App, page: Page, job: str, name: str) -> None:
    """Home, every tab of Explore and of the pair, Trust and Report; each draws or says why not."""
    page.goto(f"{app.url}/?analysis={job}")
    expect(page.get_by_role("heading", name=re.compile("alike"))).to_be_visible()
    traces(page)
    settled(page)
    picture(page, f"extreme-{name}-home")
    page.goto(f"{app.url}/explore?analysis={job}")
    for tab in ("Pairs of layers", "Profiles", "All layers", "Stimuli"):
        explore(page, tab)
        traces(page)
        settled(page)
        picture(page, f"extreme-{name}-{tab.partition(' ')[0].lower()}")
    for look in ("features", "maps"):
        page.goto(f"{app.url}/explore?analysis={job}&look={look}")
        traces(page, 1)
        settled(page)
        picture(page, f"extreme-{name}-{look}")
    page.goto(f"{app.url}/trust?analysis={job}")
    expect(page.get_by_role("button", name="Add confidence intervals and tests")).to_be_visible()
    page.goto(f"{app.url}/report?analysis={job}")
    expect(page.get_by_role("heading", name="Report")).to_be_visible()
    assert page.locator('[data-testid="stAlertContentError"]').count() == 0


def test_forty_features_with_long_names_in_two_scripts(
    app: App, page: Page, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    names = [f"a_feature_with_quite_a_long_name_that_differs_at_its_end_{k:02d}" for k in range(38)]
    features = {name: rng.choice(["yes", "no"], N) for name in [*names, "الجنس", "词类"]}
    models = ["a-laboratory/a-model-with-a-long-name-trained-for-one-epoch", "نموذج", "模型"]
    look_at_all(app, page, made(app, tmp_path, features, models), "forty")
    page.goto(f"{app.url}/stimuli?analysis={analyses.recent(Store(app.cache))[0].id}")
    drawn = {trace["name"] for trace in traces(page)}
    assert any("词类" in name for name in drawn) and any("الجنس" in name for name in drawn)


def test_one_feature(app: App, page: Page, tmp_path: Path) -> None:
    features = {"colour": np.where(np.arange(N) % 3 == 0, "red", "blue")}
    look_at_all(app, page, made(app, tmp_path, features, ["one", "other"]), "one")

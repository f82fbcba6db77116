"""Explore shows groups of models where an analysis has some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from driving import App, explore, picture, ran, settled, traces
from inputs import in_files, words
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_groups_have_their_profiles_and_universality(app: App, page: Page, tmp_path: Path) -> None:
    table, rng = words(), np.random.default_rng(0)
    coded = table[["noun", "length"]].to_numpy(float) * [3.0, 1.0]
    members = {name: [f"{name}{seed}" for seed in range(3)] for name in ("f", "g")}
    made_up = {
        member: {n: coded + rng.standard_normal(coded.shape) for n in range(2)}
        for group in members.values()
        for member in group
    }
    spec = in_files(tmp_path, table, made_up, groups=members)
    job = ran(spec, app)
    page.goto(f"{app.url}/explore?analysis={job.id}")
    explore(page, "All layers")
    expect(page.get_by_role("heading", name="Groups of models")).to_be_visible()
    expect(page.get_by_text("Groups: f (3 members) and g (3 members).")).to_be_visible()
    settled(page)
    drawn = traces(page, 0)
    # A line and a band for each of two groups and three features.
    assert len(drawn) == 12
    assert [trace["type"] for trace in traces(page, 1)] == ["heatmap"]
    assert [trace["type"] for trace in traces(page, 2)] == ["bar"]
    picture(page, "groups")


def test_training_is_drawn_over_its_steps(app: App, page: Page, tmp_path: Path) -> None:
    table, rng = words(), np.random.default_rng(0)
    coded = table[["noun", "length"]].to_numpy(float) * [3.0, 1.0]
    members = [f"s{seed}@step{step}" for seed in range(2) for step in (0, 10, 100)]
    made_up = {
        member: {n: coded + rng.standard_normal(coded.shape) for n in range(2)}
        for member in members
    }
    spec = in_files(tmp_path, table, made_up, trajectories={"run": members})
    job = ran(spec, app)
    page.goto(f"{app.url}/explore?analysis={job.id}&depth=1")
    explore(page, "All layers")
    expect(page.get_by_role("heading", name="Training")).to_be_visible()
    expect(page.get_by_text("3 steps of training (0 to 100), 2 seeds a step")).to_be_visible()
    expect(page.get_by_role("heading", name="Groups of models")).to_have_count(0)
    settled(page)
    # A line and a band of three features and the score.
    assert len(traces(page, 0)) == 8
    expect(page.get_by_role("combobox", name="Depth")).to_be_visible()

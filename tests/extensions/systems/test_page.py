"""Many models in the app: a table of them, groups, systems."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, words
from helpers.screens import Screen, ran, store, window

from mlem_core import write_csv
from mlem_core.extensions.systems import summary
from mlem_core.extensions.systems.halves import HALVES
from mlem_core.extensions.systems.summary import GroupSummary
from mlem_core.storage.store import Store

__all__ = ["store", "window"]  # fixtures


def systems(folder, names, layers=(0, 1), **more):
    """An analysis of words by systems that know what a noun is and, less, how long it is."""
    table, rng = words(), np.random.default_rng(0)
    coded = table[["noun", "length"]].to_numpy(float) * [3.0, 1.0]
    made_up = {
        name: {n: coded * max(n, 1) + rng.standard_normal(coded.shape) for n in layers}
        for name in names
    }
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return in_files(folder, table, made_up, **more)


def test_groups_have_their_profiles_and_universality(store, tmp_path):
    members = {name: [f"{name}{seed}" for seed in range(3)] for name in ("f", "g")}
    spec = systems(tmp_path, [*members["f"], *members["g"]], groups=members)
    screen = Screen(analysis=ran(spec, store).id, view="map").unfold("folded groups")
    assert "Models per group: f 3 and g 3" in screen.said
    # A line and a band for each of two groups and three features, and two noise ceilings.
    assert len(screen.figures["group-profiles"]["data"]) == 14
    kinds = {name: {one["type"] for one in f["data"]} for name, f in screen.figures.items()}
    assert kinds["group-similarity"] == {"heatmap"} and kinds["universality"] == {"bar"}


@pytest.mark.slow
def test_systems_are_compared_and_two_of_them_are_chosen(store, tmp_path, monkeypatch):
    members = {name: [f"{name}{seed}" for seed in range(2)] for name in "fghi"}
    names = [one for own in members.values() for one in own]
    labels = {one: ["kind:" + "xy"[one[0] == "f"], f"size:{n}"] for n, one in enumerate(names)}
    spec = systems(tmp_path, names, groups=members, labels=labels)
    job = ran(spec, store)
    analysis, other = job.analysis(), Store(tmp_path / "other")
    here = GroupSummary.from_analysis(analysis, other)
    HALVES.get(here)
    expected = here.distance_table
    # The run has kept all of it, so that the page only reads.
    for measure in ("profile", "similarity", "best_match"):
        monkeypatch.setattr(summary, f"{measure}_distances", None)
    monkeypatch.setattr(summary, "second_level", None)
    pd.testing.assert_frame_equal(replace(here, store=store, memory={}).distance_table, expected)
    screen = Screen("systems", analysis=job.id, measure="rsa")
    drawn = {"distances", "map", "importance", "profiles", "alignment"}
    assert {*screen.figures} == {f"system-{one}" for one in drawn} and screen.errors == []
    assert "8 systems" in screen.said
    nearest = next(name for name in screen.buttons if re.match(r"[f-i]\d · ", name))
    screen.press(nearest)
    assert screen.address["system_b"] == [nearest.partition(" ")[0]] and screen.errors == []


def test_a_table_of_systems_becomes_the_choices_of_the_form(store, tmp_path):
    csv = tmp_path / "mine.csv"
    write_csv(words(20), csv)
    np.savez(tmp_path / "brain.npz", V1=np.random.default_rng(0).normal(size=(len(words(20)), 4)))
    table = tmp_path / "systems.csv"
    rows = [
        "system,group,date,size,_note",
        "mini-gpt2,gpt,2024-07,1,x",
        "mini-gpt2@seed1,gpt,,200,",
    ]
    table.write_text("\n".join([*rows, "brain.npz,,2024-08,,"]))
    screen = Screen("new", models="minilm", layers="0").upload(csv).press("step models")
    screen.upload(table, to="systems")
    (error,) = screen.errors
    assert "systems.csv, row 3, column 'system'" in error and "brain.npz" in error
    screen.upload(tmp_path / "brain.npz", to="representations").upload(table, to="systems")
    assert screen.errors == [] and not screen.buttons["Run"].disabled
    assert screen.address["models"] == ["mini-gpt2", "mini-gpt2@seed1"]
    assert screen.address["groups"] == ["gpt=mini-gpt2,mini-gpt2@seed1"]
    # What is said of a model goes with it.
    screen.choose("form models", ["mini-gpt2"], "multiselect")
    labels = "mini-gpt2=date:2024-07,size:1; brain=date:2024-08"
    assert not screen.buttons["Run"].disabled and screen.address["labels"] == [labels]

"""Slow fits are computed once, a layer at a time, and are the same as without the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from inputs import in_files, noise, probing

from mlem_core.analysis import cached_fits
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.base.typing import Progress
from mlem_core.storage.store import Store

FEATURES = ["tense", "number"]
LAYERS = [("brain", 0), ("brain", 1)]
ASKED: dict[str, Any] = {"features": FEATURES, "estimator": "spearman", "interactions": False}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Store]:
    folder = tmp_path_factory.mktemp("input")
    table = probing(60)
    layers = noise(len(table), units=4)
    spec = in_files(
        folder, table, {"brain": layers}, features=("tense", "number", "part_of_speech")
    )
    store = Store(folder / "store")
    return run(spec, store), store


def test_kept_fits_are_the_fits_and_are_computed_once(
    found: tuple[Analysis, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis, store = found
    assert cached_fits.find(analysis, store, analysis.select(layers=LAYERS, **ASKED)) is None
    reports: list[Progress] = []
    made = cached_fits.make(
        analysis, store, analysis.select(layers=LAYERS, **ASKED), reports.append
    )
    assert [(r.done, r.total) for r in reports] == [(0, 2), (1, 2), (2, 2)]
    expected = analysis.results(FEATURES, LAYERS, "spearman", False)
    for name in ("scores", "importance", "weights", "layer_map"):
        pd.testing.assert_frame_equal(getattr(made, name), getattr(expected, name))

    def never(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(cached_fits, "fitted", never)
    # Each layer by itself too.
    again = cached_fits.find(analysis, store, analysis.select(layers=LAYERS[1:], **ASKED))
    assert again is not None
    own = expected.scores[expected.scores["layer"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(again.scores, own)


@pytest.mark.parametrize(
    "other", [{"estimator": "frrsa"}, {"interactions": True}, {"features": ["tense"]}]
)
def test_other_choices_are_other_fits(found: tuple[Analysis, Store], other: dict[str, Any]) -> None:
    analysis, store = found
    cached_fits.make(analysis, store, analysis.select(layers=LAYERS, **ASKED))
    assert (
        cached_fits.find(analysis, store, analysis.select(layers=LAYERS, **{**ASKED, **other}))
        is None
    )


def test_another_missing_policy_is_another_fit(found: tuple[Analysis, Store]) -> None:
    analysis, store = found
    cached_fits.make(analysis, store, analysis.select(layers=LAYERS, **ASKED))
    other = run(replace(analysis.spec, missing="level"), store)
    assert cached_fits.find(other, store, other.select(layers=LAYERS, **ASKED)) is None

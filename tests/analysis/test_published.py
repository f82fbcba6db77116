"""The numbers of the first paper stand only beside an analysis of its models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlem_core.analysis.published import MODELS, beside_published
from mlem_core.models.registry import on_hub
from mlem_core.tasks.examples import example


def test_published_numbers_stand_beside_those_of_the_same_layers() -> None:
    layers = [(model, n) for model in MODELS for n in (4, 8)]
    names = [f"{model}:{n}" for model, n in layers]
    square = np.random.default_rng(0).uniform(-1, 1, (6, 6))
    tau = pd.DataFrame(square, index=names, columns=names)
    of = replace(example().results(), layers=layers, similarity_profiles=tau, agreement=0.5)
    found = beside_published(of)
    assert list(found["published"]) == [0.69, 0.77, -0.24]
    expected = [
        0.5,
        tau.loc["gpt2:8", f"{MODELS[0]}:4"],
        tau.loc[f"{MODELS[2]}:8", f"{MODELS[0]}:4"],
    ]
    assert list(found["here"]) == pytest.approx(expected)
    fewer = [name for name in names if name != "gpt2:8"]
    few = replace(of, similarity_profiles=tau.loc[fewer, fewer])
    assert list(np.isnan(beside_published(few)["here"])) == [False, True, False]


def test_other_models_have_no_published_numbers() -> None:
    assert set(MODELS) == set(on_hub())
    results = example().results()
    assert beside_published(results) is None
    two = [layer for layer in results.layers if layer[0] == "mini-gpt2"]
    assert beside_published(replace(results, layers=two)) is None

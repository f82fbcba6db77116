"""The estimate of what a run takes, beside what a real run leaves on the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import probing

from mlem_core.analysis.cost import cost_of
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import from_frame, write_csv
from mlem_core.models.offer import Shape, look_up
from mlem_core.storage.store import Store


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_the_disk_that_a_run_takes(tmp_path):
    write_csv(probing(150), tmp_path / "words.csv")
    names = ("mini-bert", "mini-mamba")
    spec = AnalysisSpec(str(tmp_path / "words.csv"), models=names, layers=(0, 3, 6))
    stimuli = spec.load_stimuli()
    found = lint(stimuli, spec)
    shapes = {name: look_up(name).shape for name in names}
    assert shapes == {"mini-bert": Shape(6, 128), "mini-mamba": Shape(11, 128, recurrent=True)}
    cost = cost_of(spec, stimuli, found.n_cells, shapes)
    store = Store(tmp_path / "store", overlays=())
    analysis = run(spec, store, progress=False)
    assert cost.n_layers == len(analysis.layers) == 6
    assert len(analysis.tables.counts) == found.n_cells
    representations = on_disk(store.root / "representations")
    tables = on_disk(store.root / "pair-tables")
    # What is not tables is exact but for a few kB of facts; tables are kept twice.
    exact = sum((shape.blocks + 1) * (4 * len(stimuli) * shape.width + 128) for shape in
                shapes.values())  # fmt: skip
    assert 0 <= representations - exact < 10_000
    assert 0.5 < (cost.n_bytes - exact) / (2 * tables) < 2
    assert cost.seconds > 0


def test_more_takes_more(tmp_path):
    spec = AnalysisSpec(models=("a",))
    stimuli = spec.load_stimuli()
    small = cost_of(spec, stimuli, 1000, {"a": Shape(6, 128)})
    slow = cost_of(spec, stimuli, 1000, {"a": Shape(6, 128, recurrent=True)})
    wide = cost_of(spec, stimuli, 1000, {"a": Shape(6, 768)}, n_fetched=7)
    unknown = cost_of(spec, stimuli, 1000, {"a": None})
    files = cost_of(spec, stimuli, 1000, {}, files=[2, 3])
    products = cost_of(replace(spec, interactions=True), stimuli, 10**6, {}, files=[2, 3])
    assert products.seconds > 10 * cost_of(spec, stimuli, 10**6, {}, files=[2, 3]).seconds
    assert small.seconds < slow.seconds and small.n_bytes == slow.n_bytes
    assert small.seconds < wide.seconds < unknown.seconds
    assert wide.n_fetched == 7 and small.n_layers == 7
    assert files.n_layers == 5 and files.seconds < small.seconds
    assert pytest.approx(small.n_bytes, rel=0.2) == 7 * 4 * 2040 * 128


def many_columns(n_stimuli: int, n_features: int) -> StimulusSet:
    rng = np.random.default_rng(0)
    columns = {f"f{f}": rng.choice(["a", "b"], n_stimuli) for f in range(n_features)}
    sentences = [f"sentence {i} here" for i in range(n_stimuli)]
    return from_frame(pd.DataFrame({"sentence": sentences, **columns}), "many")


@pytest.mark.parametrize(
    ("n_stimuli", "n_features", "interactions", "says"),
    [
        (66, 35, True, "the 35 features make a model of 630 weights; expected at most 600"),
        (66, 601, False, "the 601 features make a model of 601 weights"),
        (500, 200, False, "the 200 features tell the pairs .* in more than 83,886 ways"),
    ],
)
def test_more_features_than_can_be_fitted_are_refused_before_anything_runs(
    tmp_path, n_stimuli, n_features, interactions, says
):
    stimuli = many_columns(n_stimuli, n_features)
    spec = AnalysisSpec(models=("mini-bert",), interactions=interactions)
    with pytest.raises(InputError, match=says):
        lint(stimuli, spec)
    store = Store(tmp_path / "store", overlays=())
    with pytest.raises(InputError, match=says):
        run(spec, store, progress=False, stimuli=stimuli)
    assert not on_disk(store.root)


def test_as_many_features_as_can_be_fitted_are_looked_at():
    assert lint(many_columns(66, 34), AnalysisSpec(interactions=True)).n_cells == 66 * 65 // 2

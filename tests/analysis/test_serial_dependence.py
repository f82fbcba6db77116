"""Serial dependence: measured where it was made, and nowhere else; claims on noise that drifts."""

import numpy as np
import pandas as pd
import pytest

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.serial_dependence import serial_dependence
from mlem_core.base.errors import InputError
from mlem_core.inference.importance_null import IMPORTANCE_CHANCE, SCORE_CHANCE
from mlem_core.representations.arrays import from_file
from mlem_core.stimuli.roles import read_csv

N = 200


def autoregression(rng, strength, n=N):
    steps = rng.standard_normal((n, 20))
    if strength == 1:
        return np.cumsum(steps, axis=0)
    rows = steps.copy()
    for row in range(1, n):
        rows[row] = strength * rows[row - 1] + np.sqrt(1 - strength**2) * steps[row]
    return rows


def made(folder, rng, strength, design="blocks", planted=1.0, **columns):
    """Stimuli with a topic, and a layer with its patterns over noise."""
    topic = np.repeat(rng.permutation(np.arange(N // 10) % 4), 10)
    topic = {"blocks": topic, "trials": rng.permutation(topic), "sorted": np.sort(topic)}[design]
    rows = autoregression(rng, strength) + planted * rng.standard_normal((4, 20))[topic]
    frame = pd.DataFrame({"stimulus": [f"s{row}" for row in range(N)], "size": rng.random(N)})
    frame = frame.assign(topic=np.array(list("abcd"))[topic], **columns)
    frame.to_csv(folder / "s.csv", index=False)
    np.savez(folder / "m.npz", V1=rows)
    return folder / "s.csv", folder / "m.npz"


def dependence_of(folder, rng, strength, design="blocks", **columns):
    stimuli_path, path = made(folder, rng, strength, design, **columns)
    stimuli = read_csv(stimuli_path)
    return serial_dependence(from_file(path, stimuli, name="brain"), stimuli)


@pytest.mark.parametrize("design", ["blocks", "trials", "sorted"])
def test_independent_trials_are_not_named_however_they_are_sorted(tmp_path, design):
    for seed in range(10):
        dependence = dependence_of(tmp_path, np.random.default_rng(seed), 0.0, design)
        assert not dependence.is_there and dependence.sentence == ""


@pytest.mark.parametrize("design", ["blocks", "trials", "sorted"])
@pytest.mark.parametrize(("strength", "least", "most"), [(0.5, 2, 6), (0.9, 6, 16), (1, 15, 20)])
def test_a_drift_is_named_with_blocks_that_are_as_long_as_it_lasts(
    tmp_path, design, strength, least, most
):
    for seed in range(4):
        dependence = dependence_of(tmp_path, np.random.default_rng(seed), strength, design)
        assert dependence.is_there
        assert least <= dependence.block_length <= most
        assert f"--blocks {dependence.block_length}" in dependence.sentence


def test_distances_are_looked_up_and_runs_are_compared_inside(tmp_path):
    rng = np.random.default_rng(0)
    stimuli_path, path = made(tmp_path, rng, 0.6, run=np.repeat(["a", "b"], 100))
    stimuli, rows = read_csv(stimuli_path), np.load(path)["V1"]
    np.savez(tmp_path / "d.npz", V1=np.linalg.norm(rows[:, None] - rows, axis=2))
    distances = from_file(tmp_path / "d.npz", stimuli, name="brain", distances=True)
    of_rows = serial_dependence(from_file(path, stimuli, name="brain"), stimuli)
    np.testing.assert_allclose(
        serial_dependence(distances, stimuli).nearness, of_rows.nearness, atol=1e-6
    )


def test_an_analysis_says_it_and_blocks_of_the_length_make_it_silent(tmp_path):
    stimuli, path = made(tmp_path, np.random.default_rng(0), 0.8)
    spec = AnalysisSpec(str(stimuli), representations={"brain": str(path)}, values=())
    analysis = run(spec, Store(tmp_path / "store"), False)
    (notice,) = [notice for notice in analysis.notices if "Neighbours are alike" in notice]
    length = notice.split("--blocks ")[1].removesuffix(").")
    again = AnalysisSpec(
        str(stimuli), representations={"brain": str(path)}, values=(), blocks=int(length)
    )
    grouped = run(again, Store(tmp_path / "store"), False)
    assert not [notice for notice in grouped.notices if "Neighbours are alike" in notice]


def p_values(folder, rng, strength, planted, **columns):
    stimuli, path = made(folder, rng, strength, "blocks", planted, **columns)
    spec = AnalysisSpec(
        str(stimuli), representations={"b": str(path)}, values=(), estimator="ridge"
    )
    store = Store(folder / "store")
    context = SelectionContext.from_analysis(run(spec, store, False), store)
    importances = IMPORTANCE_CHANCE.get(context, permutations=39).set_index("feature")
    return importances.loc["topic", "p"], SCORE_CHANCE.get(context, permutations=39)["p"].iloc[0]


@pytest.mark.slow
def test_a_random_walk_is_nothing_in_order_and_a_planted_topic_is_something(tmp_path):
    order = {"trial": np.arange(1, N + 1)}
    as_rows = [p_values(tmp_path, np.random.default_rng(seed), 1, 0.0) for seed in range(4)]
    in_order = [
        p_values(tmp_path, np.random.default_rng(seed), 1, 0.0, **order) for seed in range(4)
    ]
    assert np.all(np.array(as_rows) <= 0.05)
    assert np.mean(np.array(in_order) <= 0.05) <= 0.125
    planted = [
        p_values(tmp_path, np.random.default_rng(seed), 0.3, 2.0, **order) for seed in (0, 1)
    ]
    assert np.all(np.array(planted) <= 0.05)


def test_a_lag_leaves_out_pairs_and_is_said(tmp_path):
    stimuli, path = made(tmp_path, np.random.default_rng(0), 0.8, trial=np.arange(1, N + 1))
    spec = AnalysisSpec(str(stimuli), representations={"b": str(path)}, values=(), lag="10")
    analysis = run(spec, Store(tmp_path / "store"), False)
    n_near = sum(N - lag for lag in range(1, 10))
    (notice,) = [notice for notice in analysis.notices if "no pair" in notice]
    assert f"{n_near:,} of {N * (N - 1) // 2:,}" in notice
    blocks = np.ones(analysis.pairs.moments.n_blocks, dtype=bool)
    assert analysis.pairs.moments.within(blocks).n_pairs == N * (N - 1) // 2 - n_near
    seconds = AnalysisSpec(str(stimuli), representations={"b": str(path)}, values=(), lag="10s")
    assert run(seconds, Store(tmp_path / "store"), False).rsa.tolist() == analysis.rsa.tolist()


@pytest.mark.parametrize(
    ("lag", "says"),
    [
        ("ten", "found the lag 'ten'; expected a number of stimuli such as 10"),
        ("8s", "no column of s.csv says when a stimulus came"),
        ("60", "fold 0 is left with 0 pairs of stimuli that came further apart than 60"),
    ],
)
def test_a_lag_that_cannot_be_is_refused_in_one_sentence(tmp_path, lag, says):
    stimuli, path = made(tmp_path, np.random.default_rng(0), 0.0, block=np.arange(N) // 10)
    with pytest.raises(InputError, match=says):
        spec = AnalysisSpec(str(stimuli), representations={"b": str(path)}, values=(), lag=lag)
        run(spec, Store(tmp_path / "store"), False)

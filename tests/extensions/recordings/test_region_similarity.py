"""Layers beside regions: by SciPy on explicit pairs, by planted layers, and 0 for noise."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import RIDGE
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr, rankdata, spearmanr
from scipy.stats import t as tdist

from mlem_core import AnalysisSpec, InputError, Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.extensions.recordings import region_similarity
from mlem_core.extensions.recordings.region_similarity import (
    DRAWS,
    REGION_SIMILARITY,
    find_recordings,
)
from mlem_core.pairs.resampling_units import StimulusUnits, draw_halves
from mlem_core.stimuli.roles import read_csv

N, LAYERS, REGIONS, SUBJECTS, K = 40, 4, 3, 3, 39


def build_context(folder, model, brain, times=None, **more):
    """Context of an analysis of arrays: (n_layers, n, units), (n_regions, [subjects,] n, units).

    times : (n,) when the stimuli came; None where they are not in time
    """
    n = model.shape[1]
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sentence": [f"s{k}" for k in range(n)], "kind": rng.choice([*"ab"], n)})
    if times is not None:
        table["seconds"] = times
        more |= {"roles": (("seconds", "order"),)}
    table.to_csv(folder / "stimuli.csv", index=False)
    np.savez(folder / "net.npz", **{f"layer_{k}": rows for k, rows in enumerate(model)})
    np.savez(folder / "brain.npz", **{f"V{k}": rows for k, rows in enumerate(brain)})
    files = tuple((name, str(folder / f"{name}.npz")) for name in ("net", "brain"))
    more = {"axes": "brain=region"} | ({"subjects": "brain=all"} if brain.ndim > 3 else {}) | more
    spec = AnalysisSpec(str(folder / "stimuli.csv"), representations=files, **RIDGE | more)
    store = Store(folder / "store", overlays=())
    return SelectionContext.from_analysis(run(spec, store), store)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Layers, and regions of three subjects: V0 has layer 2, V1 layer 0, and V2 none."""
    rng = np.random.default_rng(1)
    model = rng.standard_normal((LAYERS, N, 6))
    brain = 1.5 * rng.standard_normal((REGIONS, SUBJECTS, N, 6))
    brain[0] += model[2]
    brain[1] += model[0]
    return model, brain, build_context(tmp_path_factory.mktemp("planted"), model, brain)


def correlate(first, second, rows=slice(None)):
    return np.array([[spearmanr(pdist(a[rows]), pdist(b[rows]))[0] for b in second] for a in first])


def test_tables_are_those_of_explicit_pairs(planted):
    model, brain, context = planted
    analysis = context.analysis
    result = REGION_SIMILARITY.get(context, permutations=K)
    rsa = np.stack([correlate(model, brain[:, s]) for s in range(SUBJECTS)])
    table = result.layers.pivot(index="layer", columns="region", values=["rsa", "p"])
    np.testing.assert_allclose(table["rsa"], rsa.mean(axis=0), atol=1e-9)
    # The same permutations, stimulus by stimulus.
    units = StimulusUnits.from_stimuli(analysis.stimuli, analysis.folds)
    rng = np.random.default_rng(analysis.spec.seed)
    labels = units.permuted(K, rng)
    draws = [rsa.mean(axis=0)]
    draws += [
        np.mean([correlate(model[:, row], brain[:, s]) for s in range(SUBJECTS)], axis=0)
        for row in labels
    ]
    far = (draws - np.mean(draws, axis=0)) / np.std(draws, axis=0, ddof=1)
    p = np.mean(far.max(axis=(1, 2))[:, None, None] >= far[0] - 1e-9, axis=0)
    np.testing.assert_allclose(table["p"], p, atol=1e-12)
    # Chosen by the mean of the subjects in a half, and what it has in the other.
    held_out, chosen = [], []
    for _ in range(DRAWS):
        halves = draw_halves(units.together, analysis.folds, N, rng)
        both = [
            np.mean([correlate(model, brain[:, s], rows) for s in range(SUBJECTS)], axis=0)
            for rows in halves
        ]
        for here, there in (both, both[::-1]):
            chosen.append(here.argmax(axis=0))
            held_out.append(there[chosen[-1], range(REGIONS)])
    best = result.best
    np.testing.assert_allclose(best["rsa"], np.mean(held_out, axis=0), atol=1e-9)
    counts = np.stack([np.bincount(column, minlength=LAYERS) for column in np.transpose(chosen)])
    np.testing.assert_array_equal(best["layer"], counts.argmax(axis=1))
    np.testing.assert_allclose(best["share"], counts.max(axis=1) / (2 * DRAWS))
    np.testing.assert_allclose(best["p"], p.min(axis=0))


def test_planted_layers_are_chosen_and_significant(planted):
    best = REGION_SIMILARITY.get(planted[-1], permutations=K).best
    assert best["layer"].tolist()[:2] == [2, 0] and (best["share"][:2] > 0.9).all()
    assert (best["p"] < 0.05).tolist() == [True, True, False]
    assert (best["lower"] > 0).tolist() == [True, True, False]
    assert ((best["lower"] < best["rsa"]) & (best["rsa"] < best["upper"])).all()
    (recording,) = find_recordings(planted[-1].analysis)
    assert recording.name == "brain" and recording.layers == (0, 1, 2)
    assert recording.subjects == ("brain@subject1", "brain@subject2", "brain@subject3")


def test_intervals_of_one_subject_are_those_of_leaving_stimuli_out(tmp_path):
    rng = np.random.default_rng(2)
    model = rng.standard_normal((2, 60, 6))
    brain = model[:1] + 1.5 * rng.standard_normal((1, 60, 6))
    table = REGION_SIMILARITY.get(build_context(tmp_path, model, brain), permutations=20).layers
    left = [correlate(model, brain, np.delete(np.arange(60), k)) for k in range(60)]
    error = np.std(left, axis=0)[:, 0] * np.sqrt(59)
    reach = (table["upper"] - table["lower"]) / 2 / 2.001
    np.testing.assert_allclose(reach, error, rtol=0.1)


def test_pairs_within_a_lag_are_in_no_sum(tmp_path):
    """Spearman by SciPy of ranks among all pairs, over the pairs that came 1.5 s apart."""
    rng = np.random.default_rng(3)
    model = rng.standard_normal((LAYERS, N, 6))
    brain = model[:REGIONS] + rng.standard_normal((REGIONS, N, 6))
    times = rng.permutation(N) / 2
    context = build_context(tmp_path, model, brain, times, lag="1.5s", blocks=4)
    far = pdist(times[:, None]) >= 1.5
    assert 0.85 < far.mean() < 1
    result = REGION_SIMILARITY.get(context, permutations=K)
    rsa = result.layers.pivot(index="layer", columns="region", values="rsa").to_numpy()
    np.testing.assert_allclose(rsa, correlate_far(model, brain, far), atol=1e-9)
    assert (result.best["layer"].to_numpy() == np.arange(REGIONS)).all()
    assert (result.best["p"] < 0.05).all()
    # Without a block of neighbours, as from explicit pairs without it.
    blocks = context.analysis.stimuli.groups
    left = []
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks != block)
        far_of_rows = pdist(times[rows, None]) >= 1.5
        left.append(correlate_far(model[:, rows], brain[:, rows], far_of_rows))
    n = len(left)
    error = np.std(left, axis=0) * np.sqrt(n - 1)
    table = result.layers.pivot(index="layer", columns="region", values=["lower", "upper"])
    reach = (table["upper"] - table["lower"]).to_numpy() / 2
    np.testing.assert_allclose(np.median(reach / error), tdist.ppf(0.975, n - 1), rtol=0.2)


def correlate_far(first, second, far):
    """Correlations of ranks among all pairs, over some pairs."""
    ranks = [[rankdata(pdist(rows))[far] for rows in arrays] for arrays in (first, second)]
    return np.array([[pearsonr(a, b)[0] for b in ranks[1]] for a in ranks[0]])


def test_ranks_lose_what_the_time_between_two_stimuli_explains():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"stimulus": range(N), "kind": [*"ab"] * (N // 2), "run": [*"xxxy"] * 10})
    order = rng.permutation(N)
    table = frame.assign(trial=order).to_csv(index=False).encode()
    stimuli = read_csv(table, name="s.csv", roles={"stimulus": "stimulus", "trial": "order"})
    counts = rng.random(N * (N - 1) // 2) < 0.9
    ranks = rng.random((2, counts.sum()))
    first, second = (ends[counts] for ends in np.triu_indices(N, 1))
    place = frame.assign(trial=order).sort_values(["run", "trial"]).reset_index()
    place = place.sort_values("index").index.to_numpy()
    keys = [abs(place[first] - place[second]), (frame["run"][first].values == frame["run"][second])]
    for before, after in zip(
        ranks, region_similarity._less_time(ranks, stimuli, counts), strict=True
    ):
        means = pd.Series(before).groupby([np.asarray(key) for key in keys]).transform("mean")
        np.testing.assert_allclose(after, before - means, atol=1e-12)


@pytest.mark.slow
def test_layers_that_drift_as_regions_do_are_seldom_claimed(tmp_path):
    """Random walks in both: all would be claimed, were time not taken out of the distances."""
    claims = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model, brain = (rng.standard_normal((3, 80, 5)).cumsum(axis=1) for _ in range(2))
        folder = tmp_path / str(seed)
        folder.mkdir()
        context = build_context(folder, model, brain, np.arange(80))
        claims += REGION_SIMILARITY.get(context, permutations=39).best["p"].min() < 0.05
    assert claims <= 8, claims


@pytest.mark.slow
def test_regions_that_drift_claim_no_layer_of_topics(tmp_path):
    """Random walks beside topics of ten trials each: as stimuli in no order all are claimed."""
    n, claims = 120, {"in time": 0, "in no order": 0}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        topics = np.repeat(rng.integers(0, 4, n // 10), 10)
        model = rng.standard_normal((3, 4, 5))[:, topics] + rng.normal(0, 0.5, (3, n, 5))
        brain = rng.standard_normal((3, n, 5)).cumsum(axis=1)
        for name, times in (("in time", np.arange(n)), ("in no order", None)):
            folder = tmp_path / f"{name} {seed}"
            folder.mkdir()
            context = build_context(folder, model, brain, times)
            claims[name] += REGION_SIMILARITY.get(context, permutations=39).best["p"].min() < 0.05
    assert claims["in time"] <= 4 and claims["in no order"] > 25, claims


@pytest.mark.slow
def test_the_best_layer_of_noise_has_no_similarity_in_the_other_half(tmp_path, monkeypatch):
    monkeypatch.setattr(region_similarity, "DRAWS", 2)
    held_out, largest, claims = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shape = N, 5
        folder = tmp_path / str(seed)
        folder.mkdir()
        arrays = rng.standard_normal((12, *shape)), rng.standard_normal((4, *shape))
        result = REGION_SIMILARITY.get(build_context(folder, *arrays), permutations=39)
        held_out.append(result.best["rsa"].mean())
        largest.append(result.layers.groupby("region")["rsa"].max().mean())
        claims.append(result.best["p"].min() < 0.05)
    error = np.std(held_out) / np.sqrt(len(held_out))
    assert abs(np.mean(held_out)) < 3 * error < 0.03 < np.mean(largest)
    assert np.sum(claims) <= 6  # 2 on average


def test_without_an_axis_or_a_model_there_is_nothing_to_compare(tmp_path):
    arrays = np.random.default_rng(0).standard_normal((2, 2, 20, 3))
    context = build_context(tmp_path, *arrays, axes=())
    with pytest.raises(InputError, match=r"found none; say .* --axis NAME=region"):
        REGION_SIMILARITY.get(context)
    context = build_context(tmp_path, *arrays, axes=(("brain", "region"), ("net", "region")))
    with pytest.raises(InputError, match="found no layer"):
        REGION_SIMILARITY.get(context)

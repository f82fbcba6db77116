"""Importances over time and onsets: by hand, by planted onsets, and none in noise."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import RIDGE
from scipy.stats import multivariate_t

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.cli.commands import main
from mlem_core.extensions.recordings.time_course import (
    TIME_COURSE,
    find_onset,
    simultaneous_p,
    time_of_half,
)
from mlem_core.inference.importance_null import IMPORTANCE_NULL, ImportanceNull
from mlem_core.inference.intervals import Left
from mlem_core.inference.layer_intervals import LAYER_INTERVALS

N, TIMES, ONSET, SUBJECTS = 60, np.arange(-50, 300, 25), 150, 3


def build_context(folder, subjects=SUBJECTS, onset=ONSET, unit=":ms"):
    """Context of subjects whose time points carry the tone from an onset on, never the size."""
    rng = np.random.default_rng(3)
    tone, size = rng.integers(0, 2, (2, N))
    texts = [f"tone {k}" for k in range(N)]
    table = {"sentence": texts, "tone": [f"t{x}" for x in tone], "size": [f"s{x}" for x in size]}
    pd.DataFrame(table).to_csv(folder / "tones.csv", index=False)
    along, noise, arrays = rng.standard_normal(12), 0.0, {}
    for ms in TIMES:
        noise = 0.8 * noise + 0.6 * rng.standard_normal((subjects, N, 12))
        arrays[f"{ms} ms"] = noise + 1.2 * (ms >= onset) * np.outer(tone - 0.5, along)
    single = {at: rows[0] for at, rows in arrays.items()}
    np.savez(folder / "meg.npz", **single if subjects == 1 else arrays)
    more = {"subjects": "meg=all"} if subjects > 1 else {}
    files = (("meg", str(folder / "meg.npz")),)
    spec = AnalysisSpec(
        str(folder / "tones.csv"), representations=files, axes=f"meg=time{unit}", **RIDGE | more
    )
    store = Store(folder / "store", overlays=())
    return SelectionContext.from_analysis(run(spec, store), store)


def test_a_planted_onset_is_recovered_and_a_feature_without_one_has_none(tmp_path):
    context = build_context(tmp_path)
    course = TIME_COURSE.get(context, permutations=39)
    table = course.importance.pivot(index="time", columns="feature", values=["importance", "p"])
    np.testing.assert_array_equal(table.index, TIMES)
    at = table["p"]["tone"] < 0.05
    np.testing.assert_array_equal(at, TIMES >= ONSET)
    assert (table["p"]["size"] > 0.05).all()
    results = context.analysis.results().importance
    means = results.groupby(["layer", "feature"])["importance"].mean().unstack()
    np.testing.assert_allclose(table["importance"]["tone"], means["tone"], atol=1e-9)
    tone, size = (course.onsets.set_index("feature").loc[name] for name in ("tone", "size"))
    assert tone["significant_from"] == ONSET
    assert ONSET - 25 < tone["onset"] < ONSET and tone["lower"] < tone["onset"] < tone["upper"]
    assert np.isnan(size[["significant_from", "onset", "lower", "upper"]].astype(float)).all()
    # What is known of all layers answers for those of the recording.
    assert IMPORTANCE_NULL.find(context, permutations=39) is not None


def test_intervals_and_p_of_one_recording_are_those_of_its_layers(tmp_path):
    context = build_context(tmp_path, subjects=1)
    table = TIME_COURSE.get(context, permutations=20).importance
    intervals = LAYER_INTERVALS.get(context)
    for name in ("lower", "upper"):
        expected = getattr(intervals, f"scores_{name}")[:, 1:]
        np.testing.assert_allclose(table[name], expected.ravel(), atol=1e-9)
    draws = IMPORTANCE_NULL.find(context, permutations=20).draws
    spread = draws.std(axis=0, ddof=1)
    far = (draws - draws.mean(axis=0)) / np.where(spread > 1e-12, spread, np.inf)
    p = np.mean(far.max(axis=(1, 2))[:, None, None] >= far[0] - 1e-9, axis=0)
    np.testing.assert_allclose(table["p"], p.T.ravel())


def test_p_of_subjects_is_of_their_mean_and_unknown_chance_has_none():
    draws = np.random.default_rng(0).standard_normal((40, 2, 6))
    chance = [0.0, np.nan] * 6
    null = ImportanceNull(pd.DataFrame({"chance": chance}), draws)
    means = draws[:, 0].reshape(40, 2, 3).mean(axis=1)
    far = (means - means.mean(axis=0)) / means.std(axis=0, ddof=1)
    expected = np.mean(far.max(axis=1)[:, None] >= far[0], axis=0)
    p = simultaneous_p(null, 2)
    np.testing.assert_allclose(p[:, 0], expected)
    assert np.isnan(p[:, 1]).all()


@pytest.mark.parametrize(
    ("curve", "start", "expected"),
    [
        ([0, 0, 1, 2, 2], 3, 20.0),  # half is 1
        ([0, 0, 0, 2, 2], 3, 25.0),
        ([0, 3, 0, 2, 4], 4, 30.0),  # an earlier peak is not looked at
        ([0, 0.5, 1.5, 1, 2], 2, 15.0),
        ([2, 2, 2, 2, 2], 0, np.nan),
    ],
)
def test_time_of_half_the_maximum(curve, start, expected):
    time = time_of_half(np.arange(5) * 10.0, np.array(curve, float), start)
    np.testing.assert_allclose(time, expected)


def test_interval_of_an_onset_is_that_of_curves_with_errors_of_stimuli_and_subjects():
    rng = np.random.default_rng(0)
    times, n = np.arange(0.0, 100.0, 10.0), 6
    curves = np.clip((times - rng.normal(40, 6, (n, 1))) / 30, 0, 1)
    p = np.where(times > 50, 0.01, 1.0)
    still = Left(np.repeat(curves.mean(axis=0)[None], 20, axis=0), (20,))
    onset = find_onset(times, curves, still, p)
    mean = curves.mean(axis=0)
    assert onset["onset"] == pytest.approx(time_of_half(times, mean, 6))
    assert onset["significant_from"] == 60
    # The errors of subjects are a multivariate t with their covariance, by SciPy.
    covariance = np.cov(curves.T) / n
    drawn = multivariate_t(mean, covariance, df=n - 1, allow_singular=True, seed=1).rvs(4_000)
    expected = np.nanpercentile([time_of_half(times, c, c.argmax()) for c in drawn], [2.5, 97.5])
    np.testing.assert_allclose([onset["lower"], onset["upper"]], expected, atol=0.6)
    # What stimuli change comes on top of it.
    moved = Left(mean + 0.05 * rng.standard_normal((20, 10)), (20,))
    wider = find_onset(times, curves, moved, p)
    assert wider["lower"] < onset["lower"] and onset["upper"] < wider["upper"]
    assert wider["onset"] == onset["onset"]
    # Significant from the first time point on: it begins before.
    flat = find_onset(times, np.ones((1, 10)), Left(np.ones((20, 10)), (20,)), np.zeros(10))
    assert flat["significant_from"] == 0 and np.isnan(flat["onset"])


@pytest.mark.slow
def test_tables_are_written_and_onsets_are_told(tmp_path, monkeypatch, capsys):
    build_context(tmp_path)
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    rows = np.load(tmp_path / "meg.npz")["200 ms"].mean(axis=0)
    np.savez(tmp_path / "net.npz", layer_0=rows[::-1], layer_1=rows)
    files = [f"--representations={name}={tmp_path / f'{name}.npz'}" for name in ("meg", "net")]
    more = ["--subject=meg=all", "--axis=meg=time:ms", "--estimator=ridge", "--values=none"]
    more += ["--chance=20", "--bootstrap=1", f"--out={tmp_path / 'out'}"]
    assert main(["analyze", f"--stimuli={tmp_path / 'tones.csv'}", *files, *more]) == 0
    tables = {path.name: pd.read_csv(path) for path in (tmp_path / "out").glob("*.csv")}
    best = tables["best_layers.csv"]
    assert best.loc[best["region"] == TIMES.tolist().index(200), "layer"].tolist() == [1]
    assert len(tables["region_similarity.csv"]) == 2 * len(TIMES) == 2 * len(best)
    assert len(tables["region_importance.csv"]) == 2 * len(TIMES)
    (onset,) = tables["onsets.csv"]["onset"].dropna()
    told = capsys.readouterr().out
    assert f"the importance of tone reaches half of its maximum at {onset:.4g} ms" in told
    assert "(over subjects and sentences). It exceeds permuted labels from 150 ms on." in told
    assert "meg: no onset of size, which at no time exceeds permuted labels." in told


def test_regions_have_importances_and_no_onset(tmp_path):
    course = TIME_COURSE.get(build_context(tmp_path, subjects=1, unit=""), permutations=20)
    assert course.onsets.empty and course.importance["time"].isna().all()
    assert len(course.importance) == 2 * len(TIMES)

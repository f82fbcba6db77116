"""Models beside a group of subjects: values of rsatoolbox, planted models, files and figures."""

from contextlib import redirect_stderr
from io import StringIO
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from rsatoolbox.inference import eval_dual_bootstrap, eval_fixed
from rsatoolbox.model import ModelFixed
from rsatoolbox.rdm import RDMs
from scipy.spatial.distance import pdist, squareform
from scipy.stats import false_discovery_control, rankdata, spearmanr, t

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.subjects import subject_layers
from mlem_core.cli.commands import main
from mlem_core.extensions.recordings.figures import model_bars
from mlem_core.extensions.recordings.model_comparison import compare_models
from mlem_core.extensions.recordings.noise_ceilings import NOISE_CEILINGS, SUBJECT_CEILINGS
from mlem_core.extensions.recordings.rdms import RDMS, matrices
from mlem_core.extensions.web_page.page import _figures
from mlem_core.figures.context import FIGURES, FigureContext, FigureOptions
from mlem_core.figures.naming import naming
from mlem_core.inference.group_means import mean_estimate
from mlem_core.inference.intervals import Left, family_of_tests
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.pairs.resampling_units import StimulusUnits

N, SUBJECTS, NOISE = 40, 6, (0.5, 0.5, 3.0)


@pytest.fixture(scope="module")
def brain(tmp_path_factory):
    """A folder with stimuli, distances of six subjects and of three models, the first two alike."""
    folder, rng = tmp_path_factory.mktemp("brain"), np.random.default_rng(5)
    kinds = rng.choice(list("abc"), N)
    table = {"stimulus": [f"s{k}" for k in range(N)], "kind": kinds, "size": rng.choice(4, N)}
    pd.DataFrame(table).to_csv(folder / "stimuli.csv", index=False)
    means = dict(zip("abc", 1.5 * rng.standard_normal((3, 8)), strict=True))
    shared = rng.standard_normal((N, 8)) + np.stack([means[kind] for kind in kinds])
    subjects = [
        pdist(shared * np.exp(0.3 * rng.standard_normal(8)) + rng.standard_normal((N, 8)))
        for _ in range(SUBJECTS)
    ]
    models = [pdist(shared + scale * rng.standard_normal((N, 8))) for scale in NOISE]
    np.savez(folder / "it.npz", IT=np.stack(subjects))
    np.savez(folder / "models.npz", RDMs=np.stack(models), names=["near", "as near", "far"])
    return folder, np.stack(subjects), np.stack(models)


@pytest.fixture(scope="module")
def compared(brain, tmp_path_factory):
    folder, *_ = brain
    store = Store(tmp_path_factory.mktemp("store"))
    files = (("it", str(folder / "it.npz")), ("m", str(folder / "models.npz")))
    spec = AnalysisSpec(
        str(folder / "stimuli.csv"),
        representations=files,
        precomputed=("it", "m"),
        subjects=(("m", "none"),),
        estimator="ridge",
        values="none",
    )
    context = SelectionContext.from_analysis(run(spec, store), store)
    stages = [stage.get(context) for stage in (NOISE_CEILINGS, LAYER_INTERVALS, SUBJECT_CEILINGS)]
    return context, stages, compare_models(context, *stages)


def rsatoolbox_models(models):
    return [ModelFixed(str(k), RDMs(rdm[None])) for k, rdm in enumerate(models)]


def test_values_and_ceilings_are_those_of_rsatoolbox(brain, compared):
    _, subjects, models = brain
    *_, found = compared
    theirs = eval_fixed(rsatoolbox_models(models), RDMs(subjects), method="spearman")
    rows = found.models[found.models["model"] == "m"]
    assert [*rows["layer"]] == [0, 1, 2]
    np.testing.assert_allclose(rows["rsa"], theirs.get_means(), atol=1e-9)
    lower, upper = theirs.get_noise_ceil()
    np.testing.assert_allclose(
        found.ceilings[["lower", "upper"]].iloc[0], (lower, upper), atol=1e-9
    )
    np.testing.assert_allclose(rows["to_ceiling"], lower - rows["rsa"], atol=1e-9)
    pairs = found.differences.query("model_a == 'm'")
    at = pairs["layer_a"].to_numpy(int), pairs["layer_b"].to_numpy(int)
    assert [*zip(*at, strict=True)] == [(0, 1), (0, 2), (1, 2)]
    expected = np.subtract(*(theirs.get_means()[layers] for layers in at))
    np.testing.assert_allclose(pairs["difference"], expected, atol=1e-9)


@pytest.mark.slow
def test_standard_errors_are_near_those_of_rsatoolbox(brain, compared):
    _, subjects, models = brain
    *_, found = compared
    np.random.seed(0)  # noqa: NPY002
    no_ceiling = patch("rsatoolbox.inference.evaluate.boot_noise_ceiling", return_value=(0.0, 0.0))
    with redirect_stderr(StringIO()), no_ceiling:
        theirs = eval_dual_bootstrap(
            rsatoolbox_models(models), RDMs(subjects), method="spearman", N=300
        )
    rows, pairs = found.models.query("model == 'm'"), found.differences.query("model_a == 'm'")
    widths = rows["rsa_upper"] - rows["rsa_lower"], pairs["upper"] - pairs["lower"]
    errors = theirs.get_sem(), np.sqrt(theirs.diff_var)
    for width, error in zip(widths, errors, strict=True):
        np.testing.assert_allclose(width / 2, error * t.ppf(0.975, SUBJECTS - 1), rtol=0.5)


def test_two_equal_models_do_not_differ_and_one_that_is_farther_does(compared):
    *_, found = compared
    pairs = found.differences.query("model_a == 'm'").set_index(["layer_a", "layer_b"])
    equal, other = pairs.loc[(0, 1)], pairs.loc[(0, 2)]
    assert equal["lower"] < 0 < equal["upper"] and equal["p_corrected"] > 0.05
    assert other["lower"] > 0 and other["p_corrected"] < 0.01
    rows = found.models.set_index(["model", "layer"])
    assert rows.loc[("m", 2), "to_ceiling_p_corrected"] < 0.01
    assert rows.loc[("m", 0), "to_ceiling_lower"] < 0.05
    (line,) = found.sentences
    assert "of 4 RSAs with it" in line and "of 6 differences" in line and line.endswith("Holm).")


def test_lower_ceilings_of_subjects_without_a_stimulus(brain, compared):
    _, subjects, _ = brain
    context, (ceilings, intervals, of_subjects), _ = compared
    np.testing.assert_allclose(of_subjects.table["lower"].mean(), ceilings["lower"], atol=1e-9)
    assert of_subjects.sizes == intervals.sizes == (N,)
    # The jackknife's spread of what is computed again without each stimulus.
    again = []
    units = StimulusUnits.from_stimuli(context.analysis.stimuli, context.analysis.folds)
    for stimulus in units.blocks().weights.argmin(axis=1):
        kept = np.delete(np.arange(N), stimulus)
        some = [squareform(squareform(rdm)[np.ix_(kept, kept)]) for rdm in subjects]
        ranks = [pd.Series(rdm).rank().to_numpy() for rdm in some]
        again.append([spearmanr(own, sum(ranks) - own)[0] for own in ranks])
    np.testing.assert_allclose(np.std(again, axis=0), of_subjects.without.std(axis=0), rtol=0.2)
    means = np.mean(again, axis=1), of_subjects.without.mean(axis=1)
    assert np.corrcoef(means)[0, 1] > 0.95


def test_a_mean_over_subjects_and_stimuli_has_the_variance_of_both_once():
    rng, n, blocks, draws = np.random.default_rng(0), 8, 60, 400
    inside, errors = 0, []
    for _ in range(draws):
        # A subject, the stimuli, and how the stimuli are in this subject: means of many.
        own, both = rng.standard_normal(n), rng.standard_normal((blocks, n))
        cells = 0.3 * own + 3 * rng.standard_normal((blocks, 1)) / 2 + 3 * both
        values, left = cells.mean(axis=0), (cells.sum(axis=0) - cells) / (blocks - 1)
        found = mean_estimate(values[:, None], Left(left[..., None], (blocks,)), counted_once=True)
        inside += found.lower[0] <= 0 <= found.upper[0]
        errors.append((found.upper[0] - found.lower[0]) / 2)
        assert (found.p[0] < 0.05) == (not found.lower[0] <= 0 <= found.upper[0])
    true = np.sqrt(0.09 / n + 2.25 / blocks + 9 / (n * blocks))
    assert 0.93 <= inside / draws <= 0.98
    np.testing.assert_allclose(np.mean(errors), true * t.ppf(0.975, 30), rtol=0.15)


def test_p_is_corrected_by_holm_or_for_false_discoveries():
    p = np.array([0.01, 0.04, 0.03, 0.005, np.nan, 0.9])
    table = pd.DataFrame({"p": p})
    holm = family_of_tests(table, "tests", any_error=True)
    assert holm.family == "5 tests (Holm)"
    np.testing.assert_allclose(holm.table["p_corrected"], [0.04, 0.09, 0.09, 0.025, np.nan, 0.9])
    known = ~np.isnan(p)
    found = family_of_tests(table, "tests").table["p_corrected"]
    np.testing.assert_allclose(found[known], false_discovery_control(p[known]))


@pytest.mark.slow
def test_the_command_writes_a_row_a_model(brain, tmp_path, monkeypatch):
    folder, *_ = brain
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    files = [
        f"--representations={name}={folder / file}.npz"
        for name, file in (("it", "it"), ("m", "models"))
    ]
    asked = ["--precomputed=it,m", "--subject=m=none", "--estimator=ridge", "--values=none"]
    stimuli = f"--stimuli={folder / 'stimuli.csv'}"
    for more in ([], ["--bootstrap=100"]):
        out = tmp_path / f"out{len(more)}"
        assert main(["analyze", stimuli, *files, *asked, *more, f"--out={out}"]) == 0
        models = pd.read_csv(out / "model_ceilings.csv")
        assert [*models["model"]] == ["features", "m", "m", "m"]
        assert models["rsa"].notna().all() and models["rsa_p"].isna().all() == (not more)
        assert (out / "model_differences.csv").exists() == bool(more)
    pairs = pd.read_csv(out / "model_differences.csv")
    assert len(pairs) == 6 and pairs["p_corrected"].notna().all()


def test_subjects_of_another_group_are_no_models(brain, tmp_path):
    folder, *_ = brain
    files = tuple((name, str(folder / "it.npz")) for name in ("human", "monkey"))
    spec = AnalysisSpec(
        str(folder / "stimuli.csv"),
        representations=files,
        precomputed=("human", "monkey"),
        estimator="ridge",
        values="none",
    )
    store = Store(tmp_path)
    context = SelectionContext.from_analysis(run(spec, store), store)
    assert len(subject_layers(context.analysis)) == 2
    found = compare_models(context, NOISE_CEILINGS.get(context))
    assert [*found.models["model"]] == ["features", "features"]
    few = context.reselect(layers=tuple(context.analysis.layers[:3]))
    assert compare_models(few, NOISE_CEILINGS.get(context)) is None


def test_bars_ceilings_and_lines_are_those_of_the_tables(compared):
    context, _, found = compared
    shown = FigureContext(context.analysis, context.selection, context.store)
    with naming(shown.names):
        drawn = FIGURES["model_comparison"].draw(shown)
    bars = [trace for trace in drawn.figure.data if trace.type == "bar"]
    assert [[*trace.x] for trace in bars] == [[0], [1, 2, 3]]
    for trace in bars:
        rows = found.models.iloc[[*trace.x]]
        np.testing.assert_allclose(trace.y, rows["rsa"])
        ends = trace.y - trace.error_y.arrayminus, trace.y + trace.error_y.array
        np.testing.assert_allclose(ends, rows[["rsa_lower", "rsa_upper"]].T)
    band, ceiling = drawn.figure.data[0], found.ceilings.iloc[0]
    assert [*band.y] == [ceiling["lower"]] * 2 + [ceiling["upper"]] * 2
    assert [*drawn.figure.layout.xaxis.ticktext] == ["features", "near", "as near", "far"]
    # A line a model that others are below of, over all of these.
    order = {-1: 0, 0: 1, 1: 2, 2: 3}
    below: dict[int, set[int]] = {}
    pairs = found.differences.fillna({"layer_a": -1, "layer_b": -1})
    for row in pairs.query("p_corrected < 0.05").to_dict("records"):
        ends = order[row["layer_a"]], order[row["layer_b"]]
        higher, lower = ends if row["difference"] > 0 else ends[::-1]
        below.setdefault(higher, set()).add(lower)
    marked = [
        trace for trace in drawn.figure.data if trace.type != "bar" and trace.mode == "markers"
    ]
    points = [trace.x[0] for trace in marked if trace.marker.size == 6]
    ticks = [{*trace.x} for trace in marked if trace.marker.symbol == "line-ns"]
    assert below and dict(zip(points, ticks, strict=True)) == below
    assert "Holm" in drawn.caption and "subjects and stimuli" in drawn.caption
    # Without intervals bars alone, without subjects nothing.
    bare = compare_models(context, NOISE_CEILINGS.get(context))
    assert [trace.type for trace in model_bars(bare, shown.names).data] == ["scatter", "bar", "bar"]
    assert FIGURES["model_comparison"].draw(shown.reselect(layers=(("m", 0), ("m", 1)))) is None


def test_matrices_are_ranked_distances_in_the_order_of_a_feature(brain, compared):
    _, subjects, models = brain
    context, *_ = compared
    rdms = RDMS.get(context)
    assert rdms.layers[:2] == (("it", 0), ("m", 0)) and rdms.n_groups == 1
    mean = rankdata([rankdata(rdm) for rdm in subjects], axis=1).sum(axis=0)
    np.testing.assert_allclose(rdms.ranks[0], rankdata(mean) / mean.size)
    np.testing.assert_allclose(rdms.ranks[1], rankdata(models[0]) / mean.size)
    drawing = FigureOptions(options={"feature": "kind"})
    shown = FigureContext(context.analysis, context.selection, context.store, drawing=drawing)
    with naming(shown.names):
        drawn = FIGURES["group_rdms"].draw(shown)
    table = context.analysis.stimuli.table
    order = table["kind"].sort_values(kind="stable").index
    square = squareform(rdms.ranks[1])[np.ix_(order, order)]
    np.testing.assert_allclose(np.nan_to_num(drawn.figure.data[1].z), square)
    assert drawn.figure.data[1].hovertext[0][1].startswith(f"s{order[0]} (a)<br>s{order[1]} (a)")
    # The page of the analysis has it where stimuli may be seen.
    for stimuli in (True, False):
        on_page = [each["title"] for each in _figures(shown, stimuli)]
        assert (
            on_page[1:]
            == ["Models beside the subjects", FIGURES["group_rdms"].title][: 1 + stimuli]
        )
    titles = [note.text for note in drawn.figure.layout.annotations]
    assert titles == ["IT", "near", "as near", "far"] and not drawn.figure.layout.images
    assert [*drawn.figure.layout.yaxis.ticktext] == ["a", "b", "c"]
    assert drawn.figure.layout.yaxis.title.text == "kind"


def test_images_stand_beside_the_rows_that_they_stand_for():
    n = 20
    ranks = np.random.default_rng(0).random((1, n * (n - 1) // 2))
    values, uris = pd.Series([*"ba"] * 10, name="kind"), [f"data:{k}" for k in range(n)]
    drawn = matrices(ranks, ["it"], values, [*map(str, range(n))], uris)
    images, order = drawn.layout.images, values.sort_values(kind="stable").index
    assert len(images) == 8 and images[0].x == -0.5
    np.testing.assert_allclose(images[-1].x + images[-1].sizex, n - 0.5)
    for image in images:
        middle = image.x + 0.5 + image.sizex / 2
        assert image.source == f"data:{order[int(middle)]}"

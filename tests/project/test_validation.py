"""The studies of docs/validation, planted truths and all; `make gpu` where there is no GPU."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import weightedtau

from benchmarks import gpu, gpu_models
from benchmarks.device import Device
from benchmarks.timing import Table
from mlem_core.representations.loading import open_model
from mlem_core.representations.registry import ModelUnavailable
from validation import (
    choice,
    chosen,
    in_time,
    noisy_profiles,
    populations,
    second_level,
    similarity_terms,
    simulations,
    subjects,
    work,
)
from validation.report import TABLES
from validation.work import Task, execute, read

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def test_representations_have_the_planted_distances_where_these_are_euclidean():
    features, matrix, rows = simulations.stimuli("Euclidean", 0)
    i, j = np.triu_indices(len(rows), 1)
    values = features.to_numpy()
    apart = (values[i] != values[j]).astype(float)
    expected = np.einsum("pf,fg,pg->p", apart, matrix, apart)
    np.testing.assert_allclose(pdist(rows) ** 2, expected, atol=1e-6)


def test_the_planted_metric_is_found_where_there_is_no_noise():
    names = (simulations.PLANTED, *simulations.FAST)
    found = pd.DataFrame(simulations.simulate("Euclidean", 0, 0.0, names)).set_index("estimator")
    # The scaling stops a little short: what is tied in truth is ranked by its rounding.
    assert found.loc[simulations.PLANTED, "rho"] == pytest.approx(1.0, abs=1e-4)
    assert found.loc["spearman-I", "frobenius"] < 0.02
    # Its weights are at least 0, and half of the planted ones are below.
    assert found.loc["ridge-I", "frobenius"] > 0.2


def test_agreement_under_noise_is_that_of_explicit_matrices():
    rng, terms = np.random.default_rng(0), ("x", "y", "x × y")
    names, matrices, profiles = noisy_profiles.ESTIMATORS, {}, {}
    rows = []
    for name in names:
        matrix = rng.random((2, 2))
        matrix = (matrix + matrix.T) / np.linalg.norm(matrix + matrix.T)
        matrices[name], profiles[name] = matrix, rng.random(3)
        weights = matrix[[0, 1, 0], [0, 1, 1]]
        rows += [
            {"estimator": name, "noise": 0.5, "fold": 0, "term": term, "weight": w, "importance": i}
            for term, w, i in zip(terms, weights, profiles[name], strict=True)
        ]
    (found,) = noisy_profiles.agreement(pd.DataFrame(rows)).to_dict("records")
    one, other = (matrices[name] for name in names)
    assert found["frobenius"] == pytest.approx(np.linalg.norm(one - other))
    expected = weightedtau(*profiles.values()).statistic
    assert found["tau"] == pytest.approx(expected)


def row(value):
    if value < 0:
        raise ValueError("not now")
    return [{"value": value}, {"value": value + 1}]


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "ProcessPoolExecutor", lambda n, **_: ThreadPoolExecutor(1))
    path = tmp_path / "study.csv"
    with pytest.raises(ValueError, match="not now"):
        execute(path, [Task("b", row, (3,)), Task("c", row, (-1,))])
    assert set(read(path)["part"]) <= {"b"}
    # What is done already is not called again: it would fail.
    pd.DataFrame([{"value": 7, "part": "c"}]).to_csv(path, index=False)
    table = execute(path, [Task("a", row, (1,)), Task("c", row, (-1,))])
    assert table["value"].tolist() == [1, 2, 7]
    assert table["part"].tolist() == ["a", "a", "c"]


@pytest.mark.parametrize(
    ("study", "name", "columns"),
    [
        (populations, "populations", ["within", "between", "universality"]),
        (similarity_terms, "similarity-terms", ["truth", "held", "width over that of 95 %"]),
        (chosen, "chosen", list(chosen.WAYS.values())),
        (choice, "choice", ["stimuli", "data sets", *choice.WAYS.values()]),
        (subjects, "subjects", ["held, ours", "held, rsatoolbox"]),
    ],
)
def test_a_study_of_intervals_or_levels_gives_its_table(study, name, columns, monkeypatch):
    if study is similarity_terms:
        monkeypatch.setattr(study, "QUICK", 2)
        monkeypatch.setattr(study, "STIMULI", 40)
    if study is chosen:
        monkeypatch.setattr(study, "QUICK", 1)
        monkeypatch.setattr(study, "POPULATION", 200)
    if study is subjects:
        monkeypatch.setattr(study, "REPLICATES", 10)
    tasks = study.tasks(True)
    rows = [{**row, "part": task.name} for task in tasks for row in task.call(*task.arguments)]
    (found,) = TABLES[name](pd.DataFrame(rows)).values()
    assert found.columns.tolist()[: len(columns)] == columns
    of_shares = {"similarity-terms": 1, "choice": -1}.get(name, 0)
    shares = found.iloc[:, of_shares].str.extract(r"([\d.]+)%")[0]
    assert shares.astype(float).between(0, 100).all() and len(found) >= 2
    every = study.tasks(False)
    assert len({task.name for task in every}) == len(every) > len(tasks)


def test_differences_of_models_are_those_of_rsatoolbox(monkeypatch):
    from rsatoolbox.rdm import RDMs, compare

    monkeypatch.setattr(subjects, "REPLICATES", 10)
    own_of_models = (1.0, subjects.OWN_OF_SECOND[subjects.APART])
    distances = subjects.drawn(0.6, 5, 20, [0], own_of_models)
    first, second = compare(RDMs(distances[:2]), RDMs(distances[2:]), "spearman").mean(axis=1)
    apart, lower, upper, p = subjects.our_difference(distances)
    assert apart == pytest.approx(first - second) and lower < apart < upper and 0 < p < 1
    # Theirs is the mean of their draws.
    assert subjects.their_difference(distances, 0)[0] == pytest.approx(apart, abs=0.1)
    tasks = [task for task in subjects.difference_tasks(True) if "80" not in task.name]
    rows = [row for task in tasks for row in task.call(*task.arguments)]
    (table,) = TABLES["model-differences"](pd.DataFrame(rows)).values()
    assert table.columns.tolist()[:2] == ["held, ours", "held, rsatoolbox"] and len(table) == 8


def test_groups_of_subjects_in_time_give_their_table():
    groups = {task.name: task for task in in_time.group_tasks(False)}
    assert len(groups) == len(in_time.group_tasks(False))
    names = (f"4 subjects, AR .6, single trials, order, {planted}, 0" for planted in (0.0, 0.75))
    rows = [row for name in names for row in groups[name].call(*groups[name].arguments)]
    (table,) = TABLES["groups-in-time"](pd.DataFrame(rows)).values()
    assert table.loc["planted topic, AR .6, 4 subjects", "order"] == "1 of 1"


def test_the_study_of_systems_gives_its_tables():
    every = second_level.tasks(False)
    assert len({task.name for task in every}) == len(every)
    few = [
        task
        for task in second_level.tasks(True)
        if "8 in 4" in task.name or "15 in 4 d" in task.name
    ]
    rows = [{**row, "part": task.name} for task in few for row in task.call(*task.arguments)]
    found = TABLES["second-level"](pd.DataFrame(rows))
    assert found["level where family matters"].columns.tolist()[1:3] == ["date", "date, by models"]
    assert found["confounded properties"]["warned"].tolist() == ["100%", "100%"]
    assert len(found) == 9 and all(len(table) for table in found.values())


CPU = Device("cpu")


def test_differences_are_found():
    layers = [np.arange(6.0).reshape(2, 3), np.ones((2, 3))]
    assert gpu_models.difference(layers, [layers[0], layers[1] * 2]) == 0.5


def test_a_section_that_fails_does_not_stop_the_others(monkeypatch, tmp_path):
    def broken(*_):
        raise RuntimeError("no kernel image\nis available")

    for name in ("extraction", "kernels"):
        monkeypatch.setattr(gpu_models, name, broken)
    table = Table()
    gpu.measure(table, CPU, 4, 1)
    failed = [row for row in table.rows if row[1] == "failed"]
    assert failed[0][:3] == ("extraction, minilm", "failed", "RuntimeError: no kernel image")
    assert len(failed) == len(gpu.MODELS) + 2 == len(table.rows)
    table.write(tmp_path / "gpu.md", gpu.heading(CPU, 1))
    written = (tmp_path / "gpu.md").read_text("utf-8")
    assert "Nothing here has run on CUDA" in written and written.count("skipped") == 1


def test_a_model_that_cannot_be_had_is_measured_with_random_weights(monkeypatch, tmp_path):
    def unavailable(name):
        raise ModelUnavailable(f"no network for {name}")

    assert gpu_models.openable("mini-bert", tmp_path) == ("mini-bert", "mini-bert")
    monkeypatch.setattr(gpu_models, "locate", unavailable)
    label, source = gpu_models.openable("minilm", tmp_path)
    loaded = open_model(source, "cpu")
    assert label == "minilm with random weights"
    assert (loaded.n_layers, loaded.model.config.hidden_size) == (6, 384)


def test_kernels_that_cannot_be_imported_are_skipped(monkeypatch):
    monkeypatch.setattr(
        gpu_models, "installed_kernels", lambda: dict.fromkeys(gpu_models.KERNELS, "1")
    )
    monkeypatch.setitem(sys.modules, "mamba_ssm", None)
    table = Table()
    gpu_models.kernels(table, Device("cuda"), "mini-mamba", 4, 1)
    assert table.rows[0][1] == "skipped"
    assert table.rows[0][2].startswith("installed, but no import: ModuleNotFoundError")

"""The studies of docs/validation: planted truths, their tables, and going on after a stop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from validation import mrqap, populations, similarity_terms, simulations, work
from validation.report import TABLES, filled, markdown
from validation.work import Task, carry_out, read

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", simulations.TRUTHS)
def test_planted_metrics_are_positive_definite_with_norm_1(kind):
    for seed in range(3):
        matrix = simulations.planted(kind, seed)
        assert np.linalg.eigvalsh(matrix).min() > 0
        assert np.linalg.norm(matrix) == pytest.approx(1.0)


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


def row(value: int) -> list[dict[str, int]]:
    if value < 0:
        raise ValueError("not now")
    return [{"value": value}, {"value": value + 1}]


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "ProcessPoolExecutor", lambda n, **_: ThreadPoolExecutor(1))
    path = tmp_path / "study.csv"
    with pytest.raises(ValueError, match="not now"):
        carry_out(path, [Task("b", row, (3,)), Task("c", row, (-1,))])
    assert set(read(path)["part"]) <= {"b"}
    # What is done already is not called again: it would fail.
    pd.DataFrame([{"value": 7, "part": "c"}]).to_csv(path, index=False)
    table = carry_out(path, [Task("a", row, (1,)), Task("c", row, (-1,))])
    assert table["value"].tolist() == [1, 2, 7]
    assert table["part"].tolist() == ["a", "a", "c"]


def test_tables_are_put_between_their_marks():
    table = pd.DataFrame({"x": [1]}, index=pd.Index(["one"], name="name"))
    once = filled("Before.\n\n<!-- t -->\nold\n<!-- end of t -->\n\nAfter.", "t", markdown(table))
    assert once == (
        "Before.\n\n<!-- t -->\n| name | x |\n| --- | --- |\n| one | 1 |\n<!-- end of t -->"
        "\n\nAfter."
    )
    assert filled(once, "t", markdown(table)) == once


@pytest.mark.parametrize(
    ("study", "name", "columns"),
    [
        (populations, "populations", ["within", "between", "universality"]),
        (mrqap, "mrqap", [f"effect {effect:g}" for effect in mrqap.DATA_SETS]),
        (similarity_terms, "similarity-terms", ["truth", "held", "width over that of 95 %"]),
    ],
)
def test_a_study_of_intervals_or_levels_gives_its_table(study, name, columns, monkeypatch):
    if study is similarity_terms:
        monkeypatch.setattr(study, "QUICK", 2)
        monkeypatch.setattr(study, "STIMULI", 40)
    tasks = study.tasks(True)
    rows = [{**row, "part": task.name} for task in tasks for row in task.call(*task.arguments)]
    table = pd.DataFrame(rows)
    (found,) = TABLES[name](table).values()
    assert found.columns.tolist()[: len(columns)] == columns
    shares = found.iloc[:, 1 if name == "similarity-terms" else 0].str.extract(r"([\d.]+)%")[0]
    assert shares.astype(float).between(0, 100).all() and len(found) >= 2
    # Any part alone gives the same, and parts are as many as they say.
    task = tasks[-1]
    again = pd.DataFrame(task.call(*task.arguments))
    own = table[table["part"] == task.name].drop(columns="part").reset_index(drop=True)
    pd.testing.assert_frame_equal(again, own[list(again)])
    every = study.tasks(False)
    assert len({task.name for task in every}) == len(every) > len(tasks)


def test_planted_similarities_of_models_are_what_they_say():
    rng = np.random.default_rng(0)
    n = 400
    drawn = np.mean([populations.drawn(rng, 3)[0][0] for _ in range(n)], axis=0)
    same = np.repeat(np.arange(3), 3)[:, None] == np.repeat(np.arange(3), 3)
    off = ~np.eye(9, dtype=bool)
    assert drawn[same & off].mean() == pytest.approx(populations.TRUTH[0], abs=0.03)
    assert drawn[~same].mean() == pytest.approx(populations.TRUTH[1], abs=0.03)
    factors, group_of = mrqap.labelled("crossed")
    found = np.mean([mrqap.similarities(rng, factors, group_of, 0.2) for _ in range(n)], axis=0)
    family, objective = (mrqap.same_label(factors[name]) > 0 for name in ("family", "objective"))
    assert found[objective & ~family].mean() == pytest.approx(0.2, abs=0.02)
    assert found[~objective & ~family].mean() == pytest.approx(0.0, abs=0.02)
    assert found[family & objective].mean() > 0.45

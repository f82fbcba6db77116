from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from validation import simulations
from validation.report import filled, markdown
from validation.work import Task, carry_out, read


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


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "study.csv"
    with pytest.raises(ValueError, match="not now"):
        carry_out(path, [Task("b", row, (3,)), Task("c", row, (-1,))])
    kept = read(path)
    assert set(kept["part"]) <= {"b"}
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

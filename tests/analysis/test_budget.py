"""A budget of pairs: near the numbers of all pairs, with the errors that are stated."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.inputs import finished, in_files, words

from mlem_core import explain, run, with_intervals
from mlem_core.analysis.context import SelectionContext
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.inference import layer_pairs
from mlem_core.inference.explanation import with_chance
from mlem_core.inference.importance_null import score_above_chance
from mlem_core.inference.layer_pairs import LayerPairs, sampled_rows
from mlem_core.pairs.designs import n_pairs

BUDGET = 40_000
A, B, C = (("m", layer) for layer in range(3))


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """Layers with noun (0), noun and length (1), and nothing (2) in them."""
    folder, table, rng = tmp_path_factory.mktemp("budget"), words(140), np.random.default_rng(0)
    base = rng.standard_normal((3, len(table), 6)) * 0.7
    noun = table["noun"].to_numpy(float)[:, None] * 2.0
    length = table["length"].to_numpy(float)[:, None] / 2
    base[0, :, :1] += noun
    base[1, :, :2] += np.hstack((noun, length))
    layers = dict(enumerate(base))
    return finished(folder, in_files(folder, table, {"m": layers}, folds=4, pairs=BUDGET), layers)


@pytest.fixture(scope="module")
def every(some):
    """The analysis of all pairs."""
    return run(replace(some.spec, pairs=0), some.store, progress=False)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Samples as small as the analysis."""
    monkeypatch.setattr(layer_pairs, "PERMUTED", 200)


def test_numbers_are_near_those_of_all_pairs(some, every):
    """Each within five of the standard errors that are stated of it."""
    n, whole = some.analysis.pairs.n_pairs, n_pairs(len(some.analysis.stimuli))
    assert 0.9 * BUDGET < n < 1.1 * BUDGET < whole == every.pairs.n_pairs
    errors = some.analysis.pair_errors
    assert set(errors["measure"]) == {"rho", "ceiling", "importance", "rsa", "contribution"}
    errors = errors.set_index(["measure", "layer", "feature"])["error"]
    found, truth = some.analysis.results(), every.results()
    for layer in range(3):
        rho = [r.scores[r.scores["layer"] == layer]["rho"].mean() for r in (found, truth)]
        assert abs(rho[0] - rho[1]) < 5 * errors.loc["rho", layer, ""].item() + 1e-4
        for feature in some.analysis.pairs.features:
            values = [
                r.importance.groupby(["layer", "feature"])["importance"].mean()[layer, feature]
                for r in (found, truth)
            ]
            error = errors.loc["importance", layer, feature].item()
            assert abs(values[0] - values[1]) < 5 * error + 1e-3
    rsa = some.analysis.pair_errors.query("measure == 'rsa'").set_index(["layer", "layer_b"])
    for (a, b), error in rsa["error"].items():
        value, of_all = (own.pairs.moments.rsa[a, b] for own in (some.analysis, every))
        assert abs(value - of_all) < 5 * error
        # As the correlation of so many pairs has it.
        known = (1 - of_all**2) / np.sqrt(n)
        assert 0.3 < error / known < 3
    parts = some.analysis.pair_errors.query("measure == 'contribution'")
    for (a, b), own in parts.groupby(["layer", "layer_b"]):
        split = [explain(one, ("m", a), ("m", b)).terms for one in (some.analysis, every)]
        np.testing.assert_allclose(own["value"], split[0]["value"], atol=1e-12)
        assert own["feature"].tolist() == split[0]["term"].tolist()
        off = np.abs(split[0]["value"] - split[1]["value"]).to_numpy()
        assert (off < 5 * own["error"] + 1e-3).all()
    means = found.importance.groupby(["layer", "feature"])["importance"].mean()
    assert means[0].idxmax() == "noun" and means[1, "length"] > 0.05 > abs(means[2]).max()


def test_intervals_come_from_a_sample_around_what_the_compared_pairs_give(some, every):
    analysis, store = some.analysis, some.store
    pairs = LayerPairs.from_analysis(analysis, analysis.select(layers=[A, B]), store)
    assert 150 < pairs.statistics.moments.n_stimuli <= 210
    assert pairs.statistics.n_pairs == n_pairs(pairs.statistics.moments.n_stimuli)
    why = with_intervals(explain(analysis, A, B), analysis, store)
    truth = with_chance(explain(every, A, B), SelectionContext.from_analysis(every, store))
    assert why.value == pytest.approx(analysis.pairs.moments.rsa[0, 1])
    # What any labels of a word contribute is of other stimuli there, with an error of its own.
    tables = [table[table["term"] != "word identity"] for table in (why.terms, truth.terms)]
    for table, of_all in (tables, (why.whole, truth.whole)):
        assert table["value"].between(table["lower"], table["upper"]).all()
        assert of_all["value"].between(table["lower"], table["upper"]).all()
    noun = why.terms.iloc[0]
    assert noun["term"] == "noun" and noun["lower"] > 0 and noun["value"] > noun["chance"]


def test_labels_are_permuted_in_whole_sentences_of_every_fold(some):
    analysis = some.analysis
    rows, groups = sampled_rows(analysis, 200), analysis.stimuli.groups
    assert 150 < len(rows) <= 210
    assert set(np.flatnonzero(np.isin(groups, groups[rows]))) == set(rows)
    pairs = LayerPairs.from_analysis(analysis, analysis.select(layers=[A, C]), some.store)
    table = score_above_chance(pairs, RidgeSolver(), n_permutations=99)
    assert table["p"][0] == 0.01 and table["p"][1] > 0.01

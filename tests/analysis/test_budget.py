"""A budget of pairs, and bins: near the numbers of all pairs, with the errors that are stated."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import finished, in_files, index_of, noise, sums_and_ranks, words

from mlem_core import RidgeMLEM, Store, explain, run, with_intervals
from mlem_core.analysis.pair_errors import DesignScores, together
from mlem_core.analysis.similarities import pair_cells
from mlem_core.data.folds import group_folds
from mlem_core.inference import layer_pairs
from mlem_core.inference.explanation import with_chance
from mlem_core.inference.importance_chance import score_above_chance
from mlem_core.inference.layer_pairs import LayerPairs, sampled_rows
from mlem_core.measures.importance import mean_scores
from mlem_core.pairs import designs
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.similarities import SIMILARITIES

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
    """Parts and samples as small as the analysis."""
    monkeypatch.setattr(designs, "RESAMPLED", BUDGET // 3)
    monkeypatch.setattr(layer_pairs, "PERMUTED", 200)


def test_numbers_are_near_those_of_all_pairs(some, every):
    """Each within five of the standard errors that are stated of it."""
    n, whole = some.analysis.tables.n_pairs, n_pairs(len(some.analysis.stimuli))
    assert 0.9 * BUDGET < n < 1.1 * BUDGET < whole == every.tables.n_pairs
    errors = some.analysis.pair_errors
    assert set(errors["measure"]) == {"rho", "ceiling", "importance", "rsa", "contribution"}
    errors = errors.set_index(["measure", "layer", "feature"])["error"]
    found, truth = some.analysis.results(), every.results()
    for layer in range(3):
        rho = [r.scores[r.scores["layer"] == layer]["rho"].mean() for r in (found, truth)]
        assert abs(rho[0] - rho[1]) < 5 * errors.loc["rho", layer, ""].item() + 1e-4
        for feature in some.analysis.tables.features:
            values = [
                r.importance.groupby(["layer", "feature"])["importance"].mean()[layer, feature]
                for r in (found, truth)
            ]
            error = errors.loc["importance", layer, feature].item()
            assert abs(values[0] - values[1]) < 5 * error + 1e-3
    rsa = some.analysis.pair_errors.query("measure == 'rsa'").set_index(["layer", "layer_b"])
    for (a, b), error in rsa["error"].items():
        assert abs(some.analysis.rsa[a, b] - every.rsa[a, b]) < 5 * error
        # As the correlation of so many pairs has it.
        known = (1 - every.rsa[a, b] ** 2) / np.sqrt(some.analysis.tables.n_pairs)
        assert 0.3 < error / known < 3
    parts = some.analysis.pair_errors.query("measure == 'contribution'")
    for (a, b), own in parts.groupby(["layer", "layer_b"]):
        split = [explain(one, ("m", a), ("m", b)).terms for one in (some.analysis, every)]
        np.testing.assert_allclose(own["value"], split[0]["value"], atol=1e-12)
        assert own["feature"].tolist() == split[0]["term"].tolist()
        off = np.abs(split[0]["value"] - split[1]["value"]).to_numpy()
        assert (off < 5 * own["error"] + np.abs(own["bias"]) + 1e-3).all()
    means = found.importance.groupby(["layer", "feature"])["importance"].mean()
    assert means[0].idxmax() == "noun" and means[1, "length"] > 0.05 > abs(means[2]).max()


def test_intervals_resample_a_part_around_what_all_of_its_pairs_give(some, every):
    analysis, store = some.analysis, some.store
    pairs = LayerPairs.of(analysis, [A, B], store)
    assert len(pairs.cells) == pairs.design.n_pairs < analysis.tables.n_pairs
    why = with_intervals(explain(analysis, A, B), analysis, store)
    truth = with_chance(explain(every, A, B), every, store)
    assert why.value == pytest.approx(analysis.rsa[0, 1])
    # What any labels of a word contribute is of other stimuli there, with an error of its own.
    both = [one[one["term"] != "word identity"] for one in (why.terms, truth.terms)]
    for table, of_all in (both, (why.whole, truth.whole)):
        assert table["value"].between(table["lower"], table["upper"]).all()
        assert of_all["value"].between(table["lower"], table["upper"]).all()
    noun = why.terms.iloc[0]
    assert noun["term"] == "noun" and noun["lower"] > 0 and noun["value"] > noun["chance"]


def test_labels_are_permuted_in_whole_sentences_of_every_fold(some):
    analysis = some.analysis
    rows, groups = sampled_rows(analysis, 200), analysis.stimuli.groups
    assert 150 < len(rows) <= 210
    assert set(np.flatnonzero(np.isin(groups, groups[rows]))) == set(rows)
    pairs = LayerPairs.of_sample(analysis, [A, C], some.store)
    assert pairs.design.is_complete and len(pairs.folds) == len(rows)
    table = score_above_chance(pairs, RidgeMLEM().cross_validate, n_permutations=99)
    assert table["p"][0] == 0.01 and table["p"][1] > 0.01


N, CHOSEN = 300, 12_000


def chosen_pairs(seed):
    """Stimuli with two features that matter and one that does not; a choice of their pairs."""
    rng = np.random.default_rng(3)
    features = pd.DataFrame({"a": rng.choice(list("xyz"), N), "b": rng.integers(0, 5, N) * 1.0})
    features["nothing"] = rng.choice(list("uv"), N)
    rows = rng.standard_normal((N, 6))
    rows[:, 0] += 2.5 * (features["a"] == "x")
    rows[:, 1] += 0.8 * features["b"]
    folds = group_folds(np.arange(N) // 3, 5, 0)
    return index_of(features, folds, design=PairDesign.of(folds, CHOSEN, seed)), rows


def stated(seed):
    """What is stated of a choice of the pairs, and the tables of each of its designs."""
    index, rows = chosen_pairs(seed)
    scores, (tables, _, designs) = DesignScores("ridge", False), sums_and_ranks(index, [rows])
    scores.keep(0, scores.of(designs[0]))
    return scores.table([A], [0], tables, np.ones((1, 1)), np.ones((8, 1, 1))), designs[0]


def test_errors_are_those_of_halves_by_hand():
    table, of_designs = stated(0)
    whole, off = mean_scores(together(of_designs))[0], []
    for row in range(1, 8):
        for odd in (0, 1):
            # Sylvester's matrix, by the parity of the bits that row and column have in common.
            half = [own for k, own in enumerate(of_designs) if (row & k).bit_count() % 2 == odd]
            off.append(mean_scores(together(half))[0] - whole)
    np.testing.assert_allclose(table["error"], np.sqrt(np.mean(np.square(off), axis=0)))
    biases = np.mean(off, axis=0)
    biases[1] = (np.mean([mean_scores(own)[0, 1] for own in of_designs]) - table["value"][1]) / 7
    np.testing.assert_allclose(table["bias"], biases)
    assert list(table["feature"]) == ["", "", "a", "b", "nothing"]


def test_what_bins_cost_is_measured_and_their_cells_are_found_again(tmp_path, monkeypatch):
    table = words()
    layers = noise(len(table))
    layers[1][:, 0] += 3 * table["length"]
    spec = in_files(tmp_path, table, {"one": layers})
    monkeypatch.setattr("mlem_core.pairs.patterns.TABLE_BYTES", 2**18)
    analysis = run(spec, Store(tmp_path / "bins"), progress=False)
    monkeypatch.undo()
    exact = run(spec, Store(tmp_path / "exact"), progress=False)
    assert len(analysis.tables.counts) < len(exact.tables.counts)
    (said,) = [notice for notice in analysis.notices if "change held-out" in notice]
    assert said in analysis.manifest["notices"] and not any("bins" in n for n in exact.notices)
    # There are so few stimuli and layers that all are measured.
    binned, plain = (one.results().scores["rho"].mean() for one in (analysis, exact))
    value = re.search(r"by ([+−]\d\.\d+)", said)
    assert value and float(value[1].replace("−", "-")) == pytest.approx(binned - plain, abs=6e-5)
    assert abs(binned - plain) > 1e-4
    assert pair_cells(analysis, SIMILARITIES.named("cka")).n_cells == len(analysis.tables.counts)
    pairs = LayerPairs.of(analysis, analysis.layers, Store(tmp_path / "bins"))
    assert pairs.cells.max() + 1 == len(pairs.tables.counts)

"""Differences of two analyses: nothing between equals, and explicit loops over what is left out."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import explicit
from helpers.inputs import in_files, words
from scipy.stats import spearmanr, t

from mlem_core import run
from mlem_core.extensions.replication import comparison as two
from mlem_core.extensions.replication.comparison import replication
from mlem_core.inference.resample import standard_error
from mlem_core.pairs.resampling_units import StimulusUnits


def stimuli(n_sentences):
    """Words with three features whose ranges no block of them takes away."""
    table = words(n_sentences)
    table["long"] = table.pop("length") > 3
    return table


def analysed(folder, store, table, place, **more):
    """Of two layers in which places are apart by so much, and nouns always are."""
    folder.mkdir()
    planted = np.column_stack((table["noun"], place * table["position"]))
    rng = np.random.default_rng(5)
    made = {k: planted + 0.6 * rng.standard_normal((len(table), 2)) for k in range(2)}
    return run(in_files(folder, table, {"m": made}, **more), store, progress=False), made


@pytest.fixture(scope="module")
def both(store, tmp_path_factory):
    """Places are apart in the first, and hardly in the second."""
    folder, table = tmp_path_factory.mktemp("both"), stimuli(30)
    return analysed(folder / "1", store, table, 1.0), analysed(folder / "2", store, table, 0.1)


@pytest.fixture(scope="module")
def intervals(both, store):
    return two.Paired.get(both[0][0], both[1][0], store)


@pytest.fixture(scope="module")
def results(both):
    return both[0][0].results(), both[1][0].results()


@pytest.mark.slow
def test_an_analysis_differs_from_itself_by_nothing_for_sure(both, results, store):
    one, twice = both[0][0], (results[0], results[0])
    made = two.Paired.get(one, one, store)
    table = two.importance_differences(twice, made).table
    assert (table[["difference", "lower", "upper"]] == 0).all(axis=None)
    assert (table["p"] == 1).all()
    square = two.similarity_differences(twice, made).table
    ends = [f"rsa_{end}" for end in ("difference", "lower", "upper")]
    assert (square[["weighted_tau_difference", *ends]] == 0).all(axis=None)
    assert two.differences_in_words(one, one).startswith("Both analyses are of the same")


def left_out(both):
    """The stimuli that each block leaves, one block after the other."""
    blocks = StimulusUnits.from_stimuli(both[0][0].stimuli, both[0][0].folds).blocks()
    assert len(blocks.sizes) == 3  # sentences, words, and both
    return [np.flatnonzero(row) for row in blocks.weights]


def by_hand(value, without, sizes):
    """Lower and upper bounds, from the formula: V of sentences + V of words - V of both."""
    parts = np.split(without, np.cumsum(sizes)[:-1])
    v = [(len(p) - 1) / len(p) * ((p - p.mean(axis=0)) ** 2).sum(axis=0) for p in parts]
    error = np.sqrt(np.maximum(v[0] + v[1] - v[2], np.maximum(v[0], v[1])))
    reach = t.ppf(0.975, min(sizes) - 1) * error
    return np.stack((value - reach, value + reach))


def test_the_interval_of_rsa_is_that_of_correlations_of_what_is_left(both, results, intervals):
    def rsa(rows):
        first, second = (
            spearmanr(*(explicit.squared(layers[k][rows]) for k in (0, 1))).statistic
            for _, layers in both
        )
        return first - second

    value = rsa(np.arange(len(both[0][0].stimuli)))
    without = np.array([rsa(rows) for rows in left_out(both)])
    (row,) = two.similarity_differences(results, intervals).table.to_dict("records")
    assert row["rsa_difference"] == pytest.approx(value, abs=1e-6)
    lower, upper = by_hand(np.array(value), without, intervals.first.sizes)
    # By influence it is nearly as wide as by stimuli that are left out.
    assert row["rsa_upper"] - row["rsa_lower"] == pytest.approx(upper - lower, rel=0.15)


def test_a_planted_difference_is_found_in_its_interval(results, intervals, store, tmp_path):
    table = two.importance_differences(results, intervals).table.set_index(["layer", "feature"])
    # Of many more stimuli of the same kind.
    many = [
        analysed(tmp_path / str(place), store, stimuli(250), place)[0].results()
        for place in (1.0, 0.1)
    ]
    truth = two.importance_differences((many[0], many[1]), None).table
    assert truth[["lower", "upper", "p"]].isna().all(axis=None)
    truth = truth.set_index(["layer", "feature"])["difference"]
    for layer in (0, 1):
        row = table.loc[(layer, "position")]
        assert row["lower"] <= truth.loc[layer, "position"] <= row["upper"]
        assert row["lower"] > 0 and row["p_corrected"] < 0.05


@pytest.mark.slow
def test_other_folds_leave_out_the_same_blocks(both, results, store):
    one = both[0][0]
    other = run(replace(one.spec, folds=4), store, progress=False)
    blocks = [
        StimulusUnits.from_stimuli(each.stimuli, each.folds).blocks().weights
        for each in (one, other)
    ]
    np.testing.assert_array_equal(*blocks)
    assert two.Paired.find(one, other, store) is None
    made = two.Paired.get(one, other, store)
    # RSA has nothing to do with folds: without the same blocks it is the same.
    both_without = made.first.values_without, made.second.values_without
    np.testing.assert_allclose(*both_without, atol=1e-6)
    kept = two.Paired.find(one, other, store)
    table = two.similarity_differences((results[0], other.results()), kept).table
    ends = table[["rsa_difference", "rsa_lower", "rsa_upper"]].to_numpy(float)
    np.testing.assert_allclose(ends, 0, atol=1e-6)
    said = two.differences_in_words(one, other)
    assert said == "The first and the second differ in folds (5; 4)."


def test_of_other_stimuli_the_variances_add_up(both, results, store, tmp_path):
    one, few = both[0][0], stimuli(25)
    other, _ = analysed(tmp_path / "fewer", store, few, 1.0, features=("noun", "long"))
    assert two.Paired.find(one, other, store) is None
    assert two.common_layers(one, other) == tuple(one.layers)
    table = two.importance_differences((results[0], other.results()), None).table
    assert len(table) == 4 and table["difference"].notna().all()
    made = two.Paired.get(one, other, store)
    assert two.Paired.find(one, other, store) is not None and "independent" in made.over
    (row,) = two.similarity_differences((results[0], other.results()), made).table.to_dict(
        "records"
    )
    errors = [standard_error(own.values_without[:, 0, 1], own.sizes) for own in made[:2]]
    reach = t.ppf(0.975, min(*made.first.sizes, *made.second.sizes) - 1) * np.hypot(*errors)
    assert row["rsa_upper"] - row["rsa_difference"] == pytest.approx(reach)
    said = two.differences_in_words(one, other)
    assert said == "The first and the second differ in stimuli and features."


def test_the_interval_of_an_importance_is_of_the_difference_without_each_block(results, intervals):
    first, second = intervals.first, intervals.second
    assert first.sizes == second.sizes
    value = first.scores[:, 1:] - second.scores[:, 1:]
    without = first.scores_without[..., 1:] - second.scores_without[..., 1:]
    table = two.importance_differences(results, intervals).table
    assert table["difference"].to_numpy() == pytest.approx(value.ravel(), abs=1e-6)
    lower, upper = by_hand(value, without, first.sizes)
    assert table["lower"].to_numpy() == pytest.approx(lower.ravel(), abs=1e-6)
    assert table["upper"].to_numpy() == pytest.approx(upper.ravel(), abs=1e-6)


def correlation_by_hand(tables, made):
    """The correlation of two sets of importances, and its bounds from explicit correlations."""
    one, other = (table["importance"].to_numpy() for table in tables)
    left = [own.scores_without[:, :, 1:].reshape(len(own.scores_without), -1) for own in made[:2]]
    r = [[np.corrcoef(x, other)[0, 1] for x in left[0]]]
    r.append([np.corrcoef(one, y)[0, 1] for y in left[1]])
    sizes = made.first.sizes, made.second.sizes
    error = np.hypot(*(standard_error(np.array(a), b) for a, b in zip(r, sizes, strict=True)))
    reach = t.ppf(0.975, min(*sizes[0], *sizes[1]) - 1) * error
    value = np.corrcoef(one, other)[0, 1]
    return np.clip([value, value - reach, value + reach], -1, 1)


@pytest.mark.slow
def test_halves_of_a_planted_set_replicate_and_another_planted_feature_does_not(store, tmp_path):
    """Nouns are far apart in one set, places in the other; of each there are two halves."""
    table, rng, specs = stimuli(80), np.random.default_rng(6), []
    for feature in ("noun", "position"):
        planted = 4.0 * table[[feature]].to_numpy(float)
        layers = {k: planted + rng.standard_normal((len(table), 3)) for k in range(3)}
        (tmp_path / feature).mkdir()
        specs.append(in_files(tmp_path / feature, table, {"m": layers}))
    first, other = specs
    halves = [
        run(replace(spec, half=half), store, progress=False)
        for spec, half in ((first, "first"), (first, "second"), (other, "second"))
    ]
    rows = [set(half.rows.tolist()) for half in halves[:2]]
    assert not rows[0] & rows[1] and len(rows[0] | rows[1]) == len(table)
    sentences = [set(half.stimuli.table["sentence"]) for half in halves[:2]]
    assert not sentences[0] & sentences[1]
    for pair, replicates in (((0, 1), True), ((0, 2), False)):
        both = halves[pair[0]], halves[pair[1]]
        results, made = (both[0].results(), both[1].results()), two.Paired.get(*both, store)
        said, tables = replication(both, results, made)
        assert ("does not replicate" not in said[0]) == replicates and "noun" in said[0]
        means = [
            one.importance.groupby(["model", "layer", "feature"], sort=False, as_index=False)[
                "importance"
            ].mean()
            for one in results
        ]
        found = tables["correlations"].iloc[0][["value", "lower", "upper"]].to_numpy(float)
        np.testing.assert_allclose(found, correlation_by_hand(means, made), atol=1e-3)

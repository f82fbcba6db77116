"""Patterns of pairs, of designs, in bins and of given features: those of the explicit pairs."""

import itertools
import re

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, refused, sums_of
from scipy.spatial.distance import squareform

from mlem_core import RidgeMLEM, from_frame, with_rdm, with_vector
from mlem_core.analysis import pair_errors as module
from mlem_core.analysis.pair_errors import half_samples
from mlem_core.estimators.normal_equations import held_out_correlations, moments, training_blocks
from mlem_core.pairs.columns import (
    coding,
    feature_columns,
    resolved_columns,
)
from mlem_core.pairs.designs import PairDesign, n_pairs, places_of
from mlem_core.pairs.patterns import block_numbers, bytes_of_cell

N = 200
BUDGET = 8_000


@pytest.mark.parametrize("missing", ["ignore", "level"])
@pytest.mark.parametrize("budget", [None, BUDGET])
def test_the_index_of_a_design_is_that_of_its_pairs(budget, missing):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    design = PairDesign.of(folds, budget)
    index = index_of(features, folds, missing=missing, design=design)
    i, j = design.ends(np.arange(design.n_pairs))
    expected = explicit.feature_distances(features, missing)[places_of(i, j, N)]
    np.testing.assert_allclose(index.patterns[index.pair_pattern], expected, atol=1e-12)
    blocks = block_numbers(folds)[1][folds[i], folds[j]]
    np.testing.assert_array_equal(index.cell_block[index.cell], blocks)
    np.testing.assert_array_equal(index.counts, np.bincount(index.cell))
    assert index.counts.min() > 0
    # Where it is not kept, as in what has travelled, the cell of a pair is looked up.
    np.testing.assert_array_equal(vars(index).pop("cell"), index.cell)


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_the_index_is_the_same_by_any_number_of_threads(budget, monkeypatch):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    design = PairDesign.of(folds, budget)
    monkeypatch.setattr("mlem_core.pairs.designs.cores", lambda: 3)
    one = index_of(features, folds, design=design)
    assert len(design.shares()) == 1
    monkeypatch.setattr("mlem_core.pairs.designs.SHARE", 100)
    many = index_of(features, folds, design=design)
    assert len(design.shares()) == 3
    for name in ("codes", "cell", "counts", "cell_block", "cell_pattern"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name))
    # More patterns than are allowed: in the threads' own counts, and only in all together.
    for limit in (one.n_patterns // 4, one.n_patterns - 1):
        binned = index_of(features, folds, most_cells=limit, design=design)
        assert binned.n_patterns <= limit and binned.notes


def test_many_patterns_are_binned_and_said():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(
        {"a": rng.random(300), "b": rng.random(300), "c": rng.choice(["x", "y"], 300)}
    )
    exact, binned = index_of(features), index_of(features, most_cells=2500)
    assert not exact.notes and exact.n_patterns > 40_000
    assert binned.n_patterns <= 2500
    assert len(binned.notes) == 1 and "'a' into" in binned.notes[0]
    true, coarse = (
        np.stack([level[i.codes[:, f]] for f, level in enumerate(i.levels)], 1)[i.pair_pattern]
        for i in (exact, binned)
    )
    assert 0 < np.abs(true - coarse)[:, 0].max() <= binned.coded[0].error * 1.01
    np.testing.assert_array_equal(true[:, 2], coarse[:, 2])


@pytest.mark.parametrize("n_features", [30, 70])
def test_many_nominal_features(n_features):
    rng = np.random.default_rng(0)
    features = pd.DataFrame({f"f{k}": rng.choice(["a", "b"], 40) for k in range(n_features)})
    index = index_of(features)
    patterns = np.stack([level[index.codes[:, f]] for f, level in enumerate(index.levels)], 1)
    np.testing.assert_array_equal(
        patterns[index.pair_pattern], explicit.feature_distances(features)
    )


def test_more_patterns_than_can_be_kept_and_an_unknown_policy(monkeypatch):
    with refused("drop", "ignore", "level"):
        index_of(explicit.random_features(10), missing="drop")
    monkeypatch.setattr("mlem_core.pairs.patterns.HARD_LIMIT", 100)
    features = pd.DataFrame(np.random.default_rng(0).choice(["a", "b"], (60, 12)))
    with refused("100"):
        index_of(features, most_cells=50)


DESIGNED = 300


def ends(design):
    return design.ends(np.arange(design.n_pairs))


@pytest.fixture(scope="module")
def folds():
    return explicit.random_folds(DESIGNED)


@pytest.fixture(scope="module")
def design(folds):
    return PairDesign.of(folds, 16_000)


def test_all_pairs_where_they_are_within_the_budget(folds):
    for budget in (None, n_pairs(DESIGNED)):
        design = PairDesign.of(folds, budget)
        assert design.is_complete and design.n_pairs == n_pairs(DESIGNED)
        np.testing.assert_array_equal(ends(design), np.triu_indices(DESIGNED, 1))


def test_each_design_is_balanced_and_has_no_pair_twice(folds, design):
    assert not design.is_complete and design.n_designs == 8
    assert design.n_pairs == pytest.approx(16_000, rel=0.05)
    for k in range(8):
        own = design.only(k, k + 1)
        i, j = ends(own)
        assert (i != j).all()
        assert len(np.unique(places_of(i, j, DESIGNED))) == own.n_pairs
        times = np.bincount(np.concatenate((i, j)), minlength=DESIGNED)
        assert times.min() > 0 and np.ptp(times) <= 7
    # Every two folds have the share of the pairs that they have among all.
    blocks, share = block_numbers(folds)[1], design.n_pairs / n_pairs(DESIGNED)
    i, j = ends(design)
    found = np.bincount(blocks[folds[i], folds[j]], minlength=15)
    all_i, all_j = np.triu_indices(DESIGNED, 1)
    expected = np.bincount(blocks[folds[all_i], folds[all_j]]) * share
    np.testing.assert_allclose(found, expected, rtol=0.1)


def test_designs_are_parts_of_the_whole_and_differ(design):
    i, j = ends(design)
    parts = [ends(design.only(k, k + 1)) for k in range(8)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), (i, j))
    sets = [set(places_of(a, b, DESIGNED).tolist()) for a, b in parts]
    share = len(sets[0]) / n_pairs(DESIGNED)
    assert len(sets[0] & sets[1]) < 3 * share * len(sets[0]) + 10


@pytest.mark.parametrize("budget", [None, 16_000])
def test_pairs_among_some_stimuli(folds, budget):
    design = PairDesign.of(folds, budget)
    stimuli = np.flatnonzero(folds == 2)
    places, among = design.among(stimuli)
    i, j = ends(design)
    inside = np.isin(i, stimuli) & np.isin(j, stimuli)
    np.testing.assert_array_equal(places, np.flatnonzero(inside))
    np.testing.assert_array_equal(stimuli[np.array(ends(among))], (i[inside], j[inside]))
    assert among.n_designs == design.n_designs and among.n_stimuli == len(stimuli)


def test_a_budget_too_small_says_how_many(folds):
    with refused("2,000", "2,400"):
        PairDesign.of(folds, 2_000)


def test_means_over_halves_vary_as_the_mean_of_all_does(monkeypatch):
    """The oracle is the variance between designs, over their number."""
    values = np.random.default_rng(0).standard_normal(8)
    monkeypatch.setattr(module, "together", np.mean)
    halves = np.array(list(half_samples(values)))
    assert ((halves - values.mean()) ** 2).mean() == pytest.approx(values.var(ddof=1) / 8)
    assert halves.mean() == pytest.approx(values.mean())


BINNED, MOST = 130, 6_500


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    kinds = rng.choice(np.array([*"abcd", None], dtype=object), BINNED)
    features = pd.DataFrame({"kind": kinds, "number": rng.integers(0, 3, BINNED).astype(float)})
    features["gender"] = rng.choice(np.array(["f", "m", None], dtype=object), BINNED)
    features["position"] = rng.integers(0, 30, BINNED).astype(float)
    features["length"] = rng.exponential(size=BINNED).round(2)
    folds = explicit.random_folds(BINNED)
    index = index_of(features, folds, resolved=["kind", "gender"], most_cells=MOST)
    return features, folds, index, explicit.random_layer(features.assign(length=3.0))


def bins_said(index):
    """The number of bins and the correlation that are said of each feature."""
    found = re.findall(r"'(.+?)' into (\d+) \(r (0\.\d+)\)", " ".join(index.notes))
    return {name: (int(n_bins), float(r)) for name, n_bins, r in found}


def test_each_feature_has_bins_of_its_own_and_as_many_as_fit(case):
    features, folds, index, _ = case
    said = bins_said(index)
    assert index.n_cells <= MOST and set(said) == {"position", "length"}
    exact = explicit.feature_distances(features)
    found = index.patterns[index.pair_pattern]
    np.testing.assert_allclose(found[:, :3], exact[:, :3])
    for f, (occupied, correlation) in zip((3, 4), (said["position"], said["length"]), strict=True):
        # The largest distance is in the middle of the last bin.
        n_bins = round(0.5 / (1 - found[:, f].max()))
        middle = (np.ceil(np.round(exact[:, f] * n_bins, 9)) - 0.5) / n_bins
        np.testing.assert_allclose(found[:, f], np.where(exact[:, f] > 0, middle, 0.0))
        assert len(np.unique(found[:, f])) - 1 == occupied <= n_bins
        between = np.corrcoef(exact[:, f] ** 2, found[:, f] ** 2)[0, 1]
        assert correlation == pytest.approx(between, abs=1e-4) and between < 1
    more = {"resolved": ["kind", "gender"]}
    np.testing.assert_array_equal(
        index_of(features, folds, most_cells=index.n_cells, **more).codes, index.codes
    )
    assert index_of(features, folds, most_cells=index.n_cells - 1, **more).n_cells < index.n_cells
    np.testing.assert_array_equal(index_of(features, folds, like=index, **more).cell, index.cell)
    whole = index_of(features, folds, **more)
    assert not whole.notes and whole.n_cells > MOST


def test_normal_equations_are_those_of_the_explicit_pairs_in_bins(case):
    features, folds, index, layer = case
    tables = sums_of(index, [layer])
    distances, (i, j) = index.patterns[index.pair_pattern], explicit.pairs(BINNED)
    columns = []
    for f, name in enumerate(features):
        texts = ["(missing)" if pd.isna(value) else value for value in features[name]]
        if name not in ("kind", "gender"):
            columns.append(distances[:, f] ** 2)
            continue
        values = [*sorted(set(texts) - {"(missing)"}), "(missing)"]
        sides = [(texts[a], texts[b]) for a, b in zip(i, j, strict=True)]
        apart = itertools.combinations(values, 2)
        columns += [[float({*one} == {*two}) for one in sides] for two in apart]
        columns += [[float(one.count(value)) for one in sides] for value in values]
    x, use = np.array(columns, dtype=float).T, explicit.training(folds, 1)
    found = moments(tables, training_blocks(tables, [(1,)]))
    centred, y = x[use] - x[use].mean(axis=0), explicit.scaled(explicit.squared(layer)[use])
    np.testing.assert_allclose(found.gram[0], centred.T @ centred, atol=1e-8)
    np.testing.assert_allclose(found.moment[0, 0], centred.T @ (y - y.mean()), atol=1e-8)
    np.testing.assert_allclose(found.x_mean[0], x[use].mean(axis=0), atol=1e-12)
    # Predictions that are all alike are at no correlation, whatever rounding makes of them.
    own = [name.startswith("kind") and "/" not in name for name in tables.columns.names]
    assert held_out_correlations(tables, np.where(own, 0.1, 0.0)[None, None], 2)[0, 0] == 0.0


def test_the_tables_take_no_more_bytes_than_they_may(case, monkeypatch):
    features, folds, _, layer = case
    monkeypatch.setattr("mlem_core.pairs.patterns.TABLE_BYTES", 2**19)
    monkeypatch.setattr("mlem_core.pairs.patterns.TABLE_LAYERS", 2)
    index = index_of(features, folds, resolved=["kind"])
    tables = sums_of(index, [layer, layer[:, ::-1]], train_ranks=True)
    names = ("target_sums", "rank_sums", "within_sums", "training_ranks")
    n_bytes = sum(getattr(tables, name).nbytes for name in names)
    assert n_bytes == 2 * index.n_cells * bytes_of_cell(5) <= 2**19 and index.notes


GIVEN = 60


def frame():
    vectors = np.random.default_rng(5).integers(0, 4, (GIVEN, 3)).astype(float)
    named = {f"s{k}": vectors[:, k] for k in range(3)}
    sentences = [f"number {row}" for row in range(GIVEN)]
    return explicit.random_features(GIVEN).assign(sentence=sentences, **named)


@pytest.fixture(scope="module")
def given():
    """A vector with equal and missing values, and distances that no vector has."""
    table = frame()
    table.loc[[4, 9], "s1"] = np.nan
    apart = squareform(np.random.default_rng(6).random(GIVEN * (GIVEN - 1) // 2))
    return with_rdm(with_vector(from_frame(table, "made up"), "vec", "s*"), "own", apart), apart


def column_of(stimuli, name, *spans):
    return next(one for one in feature_columns(stimuli, *spans) if one.name == name)


def expected_distances(apart, missing):
    table = frame()
    table.loc[[4, 9], "s1"] = np.nan
    plain = explicit.feature_distances(table[["kind", "length", "gender", "frequency"]], missing)
    vectors = table[["s0", "s1", "s2"]].to_numpy()
    i, j = explicit.pairs(len(table))
    of_vectors = np.sqrt(((vectors[i] - vectors[j]) ** 2).sum(axis=1))
    gone = np.isnan(vectors).any(axis=1)
    level = (gone[i] != gone[j]) & (missing == "level")
    scaled = of_vectors / np.nanmax(of_vectors)
    of_vectors = np.where(gone[i] | gone[j], level, scaled)
    return np.column_stack([plain, of_vectors, apart[i, j] / apart.max()])


@pytest.mark.parametrize("missing", ["ignore", "level"])
def test_patterns_are_those_of_the_explicit_pairs(given, missing):
    stimuli, apart = given
    index = index_of(stimuli, explicit.random_folds(GIVEN), missing=missing)
    assert index.kinds[-2:] == ("vector", "rdm") and not index.notes
    assert coding(index.kinds[-1:], []) != coding(index.kinds[:1], [])
    expected = expected_distances(apart, missing)
    np.testing.assert_allclose(index.patterns[index.pair_pattern], expected, atol=1e-11)


@pytest.mark.parametrize("interactions", [False, True])
def test_weights_are_those_of_ridge_on_the_explicit_pairs(given, interactions):
    stimuli, apart = given
    layer = explicit.random_layer(frame())
    model = RidgeMLEM(alphas=[1.0], interactions=interactions).fit(stimuli, layer)
    x = expected_distances(apart, "ignore")
    terms = explicit.products(x) if interactions else x**2
    expected = explicit.ridge(terms, explicit.scaled(explicit.squared(layer)), 1.0)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(stimuli), expected.predict(terms), atol=1e-6)


def test_more_patterns_than_there_may_be_are_put_into_bins_and_said(given):
    stimuli, apart = given
    index = index_of(
        stimuli.select(["kind", "own"]), np.zeros(GIVEN, dtype=np.int64), most_cells=300
    )
    exact = (apart / apart.max())[explicit.pairs(GIVEN)]
    off = np.abs(index.patterns[index.pair_pattern][:, 1] - exact).max()
    assert index.n_patterns <= 300 and 0 < off <= 0.5 / 64 + 1e-9
    assert "'own' into 64" in index.notes[0]


def test_a_few_values_can_be_told_apart(given):
    table = from_frame(frame(), "made up").table.assign(
        item=[f"i{row % 3}" for row in range(GIVEN)]
    )
    apart = np.array([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]])
    found = with_rdm(from_frame(table, "made up"), "own", apart, ["i0", "i1", "i2"])
    index = index_of(found.select(["own"]), resolved=["own"])
    np.testing.assert_allclose(index.levels[0], [0, 0.5, 1, 0, 0.75, 0])
    assert index.value_names == (("i0", "i1", "i2"),)
    with refused("'own'", "too many"):
        resolved_columns(given[0], ["own"])


def test_scales_are_those_of_the_stimuli_that_were_fitted(given):
    stimuli, apart = given
    fitted = RidgeMLEM().fit(stimuli[:30], explicit.random_layer(frame())[:30])
    assert fitted.spans_["own"] == (0.0, apart[:30, :30].max())
    assert column_of(stimuli[30:], "own", fitted.spans_).span == fitted.spans_["own"]

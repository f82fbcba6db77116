"""Pair tables: every sum is that of the explicit pairs, kept in files, with folds over both."""

import itertools
from dataclasses import fields, replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, refused, sums_and_ranks, sums_of, tables_of
from scipy.stats import rankdata, spearmanr
from sklearn.model_selection import GroupKFold

from mlem_core import RidgeMLEM, from_frame
from mlem_core.analysis.pair_errors import together
from mlem_core.data.folds import FOLDS_OVER, fold_pairs, in_training, stimulus_folds
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.build import load_pair_tables, pack, save_pair_tables, unpack
from mlem_core.pairs.crossfit import fold_ceilings
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.layer_sums import layer_sums
from mlem_core.pairs.patterns import left_out
from mlem_core.pairs.tables import PairTables

N = 60
LARGER = 200


@pytest.fixture(scope="module", params=["ignore", "level"])
def case(request):
    """Layers, one with equal stimuli, the index of their pairs, and the tables."""
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    layers[1][7] = layers[1][8]
    index = index_of(features, explicit.random_folds(N), missing=request.param)
    return layers, index, sums_of(index, layers, train_ranks=True), request.param


def test_sums_are_those_of_the_explicit_pairs(case):
    layers, index, tables, missing = case
    expected = explicit.feature_distances(explicit.random_features(N), missing)
    np.testing.assert_allclose(tables.patterns[index.pair_pattern], expected, atol=1e-12)
    assert len(np.unique(tables.patterns, axis=0)) == len(tables.patterns)
    for layer, rows in enumerate(layers):
        target = explicit.squared(rows)
        explicit.hold_sums(tables, layer, target, index.cell, explicit.random_folds(N))


def test_summing_features_out_equals_leaving_them_out(case):
    layers, _, tables, missing = case
    features = explicit.random_features(N)[["length", "gender"]]
    fewer = index_of(features, explicit.random_folds(N), missing=missing)
    expected = sums_of(fewer, layers, train_ranks=True)
    found = tables.of_features(["gender", "length"])
    assert found.features == expected.features
    both = (found, expected)
    order, other = (np.lexsort(t.patterns.T) for t in both)
    np.testing.assert_allclose(found.patterns[order], expected.patterns[other], atol=1e-12)
    sums = [
        {name: getattr(t, name) for name in ("counts", "target_sums", "rank_sums", "within_sums")}
        | {fold: t.training_ranks[:, fold] for fold in range(5)}
        for t in both
    ]
    for name in sums[0]:
        dense = [np.zeros((2, 15, len(t.patterns))) for t in both]
        for array, t, own in zip(dense, both, sums, strict=True):
            array[:, t.cell_block, t.cell_pattern] = own[name]
        np.testing.assert_allclose(dense[0][..., order], dense[1][..., other], atol=1e-6)


@pytest.fixture(scope="module", params=["ignore", "level"])
def designed(request):
    """An incomplete design: its tables, those of each part, the targets and the ranks of pairs."""
    features, folds = explicit.random_features(LARGER), explicit.random_folds(LARGER)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    # Whole numbers make many ties.
    layers[1] = layers[1].round(0)
    design = PairDesign.of(folds, 6_000)
    index = index_of(features, folds, missing=request.param, design=design)
    tables, ranks, parts = sums_and_ranks(index, layers)
    ends = design.ends(np.arange(design.n_pairs))
    exact = [rows.astype(np.float64) for rows in layers]
    targets = [((own[ends[0]] - own[ends[1]]) ** 2).sum(axis=1).round(9) for own in exact]
    part = np.zeros(design.n_pairs, dtype=int)
    for k, (start, end) in enumerate(itertools.pairwise(design.starts[design.parts])):
        part[start:end] = k
    return folds, design, index.cell, ends, part, targets, tables, parts, ranks


def hold_part(found, case, layer, own):
    """Sums of a part of the pairs, in which cells without pairs are left out."""
    folds, _, cell, ends, part, targets, tables, _, _ = case
    its, its_own = (t.cell_block * t.n_patterns + t.cell_pattern for t in (tables, found))
    at = np.searchsorted(its_own, its[cell[own]])
    ends = tuple(end[own] for end in ends)
    explicit.hold_sums(found, 0, targets[layer][own], at, folds, ends, 1e-5, part[own])
    assert found.n_layers == 1


def test_sums_of_a_design_and_of_its_parts_are_those_of_their_pairs(designed):
    folds, design, cell, ends, part, targets, tables, parts, ranks = designed
    assert tables.n_pairs == design.n_pairs < n_pairs(LARGER)
    assert [len(own) for own in parts.values()] == [8, 8]
    of_parts = ranks.rsa(design.starts[design.parts])
    whole = [rankdata(target) for target in targets]
    for layer, target in enumerate(targets):
        explicit.hold_sums(tables, layer, target, cell, folds, ends, 1e-5)
    for k in range(8):
        own = part == k
        for layer in range(2):
            hold_part(parts[layer][k], designed, layer, own)
        assert of_parts[k, 0, 1] == pytest.approx(np.corrcoef(whole[0][own], whole[1][own])[0, 1])
    np.testing.assert_allclose(ranks.rsa()[0, 1], spearmanr(*targets)[0])


@pytest.mark.parametrize("chosen", [[3], [2, 3], [0, 2, 5, 7], list(range(8))])
def test_sums_of_some_designs_together_are_those_of_their_pairs(designed, chosen):
    parts, part = designed[-2], designed[4]
    own = [parts[1][k] for k in chosen]
    hold_part(together(own), designed, 1, np.isin(part, chosen))
    plain = together([replace(one, train_sums=None, train_squares=None) for one in own])
    assert plain.train_sums is None and plain.train_squares is None


SWEPT = 100


def distances(kind):
    """Squared distances of all pairs: without ties, with short ones, with a long one."""
    values = np.random.default_rng(0).random(n_pairs(SWEPT))
    if kind == "short ties":
        return values.round(3)
    if kind == "a long tie":
        values[: len(values) // 2] = 0.5
    return values


KINDS = ["no ties", "short ties", "a long tie"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n_folds", [5, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_gives_the_ranks_of_scipy(kind, n_folds, threads):
    squared = distances(kind)
    folds = explicit.random_folds(SWEPT, n_folds)
    index = index_of(explicit.random_features(SWEPT), folds, missing="level")
    given = squared.copy()
    sums, doubled = layer_sums(index, squared, True, threads=threads)
    np.testing.assert_array_equal(squared, given)
    np.testing.assert_array_equal(doubled, 2 * rankdata(squared))
    np.testing.assert_allclose(sums.target_sums, np.bincount(index.cell, squared))
    block = index.cell_block[index.cell]

    def hold(found, squares, pairs, own=slice(None)):
        expected, own_squares = explicit.cell_sums(squared, pairs, index.cell, index.n_cells)
        np.testing.assert_array_equal(found[own], expected[own])
        assert squares == pytest.approx(own_squares)

    hold(sums.rank_sums, sums.rank_squares, np.ones(len(squared), dtype=bool))
    out = left_out(n_folds, index.n_blocks)
    only = out.sum(axis=0) == 1
    for fold in range(n_folds):
        hold(sums.train_sums[fold], sums.train_squares[fold], ~out[fold, block])
        inside = out[fold] & only
        within = sums.within_sums, sums.within_squares[fold]
        hold(*within, inside[block], inside[index.cell_block])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("train_ranks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_the_same_without_the_ranks_of_pairs(kind, train_ranks, threads, monkeypatch):
    squared = distances(kind)
    folds = explicit.random_folds(SWEPT, 5)
    index = index_of(explicit.random_features(SWEPT), folds, missing="level")
    sums, _ = layer_sums(index, squared, train_ranks)
    alone, doubled = layer_sums(index, squared, train_ranks, ranks=False, threads=threads)
    assert doubled is None
    for name in vars(sums):
        np.testing.assert_array_equal(getattr(alone, name), getattr(sums, name))
    # Sums of targets in parts: by any number of threads the same, and the ends of blocks exact.
    monkeypatch.setattr("mlem_core.pairs.layer_sums.TOGETHER", 1000)
    parts = [layer_sums(index, squared, threads=n)[0] for n in (1, 3)]
    for own in parts:
        np.testing.assert_array_equal(own.target_sums, parts[0].target_sums)
        np.testing.assert_allclose(own.target_sums, sums.target_sums, rtol=1e-12)
        np.testing.assert_array_equal(own.target_low, sums.target_low)
        np.testing.assert_array_equal(own.target_high, sums.target_high)


KEPT = 90


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(1)
    layers = [rng.standard_normal((KEPT, 6)), rng.integers(0, 3, (KEPT, 2)).astype(float)]
    features, folds = explicit.random_features(KEPT), explicit.random_folds(KEPT)
    # Some stimuli stand between two folds.
    folds = np.where(np.arange(KEPT) % 7 == 0, -1 - folds, folds)
    return tables_of(features, layers, folds, train_ranks=True)


def test_numbers_of_every_size_come_back():
    rng = np.random.default_rng(0)
    for bits in (0, 1, 7, 8, 15, 16, 31, 32, 47, 62):
        numbers = rng.integers(-(2**bits), 2**bits, 200)
        np.testing.assert_array_equal(unpack(pack(numbers)), numbers)
    ends = np.array([-(2**63), 2**63 - 1, 0, -1])
    np.testing.assert_array_equal(unpack(pack(ends)), ends)
    assert pack(np.arange(-128, 128)).shape == (1, 256)
    assert unpack(pack(np.empty(0, dtype=np.int64))).shape == (0,)


@pytest.mark.parametrize("compress", [False, True])
def test_ranks_come_back_to_the_last_bit_and_targets_as_known(tables, tmp_path, compress):
    save_pair_tables(tables, tmp_path / "tables.npz", compress=compress)
    kept = load_pair_tables(tmp_path / "tables.npz")
    for field in fields(PairTables):
        one, other = getattr(kept, field.name), getattr(tables, field.name)
        if field.name not in ("levels", "target_sums", "train_sums"):
            np.testing.assert_array_equal(one, other, err_msg=field.name)
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    np.testing.assert_array_equal(kept.training_ranks, tables.training_ranks)
    np.testing.assert_array_equal(kept.patterns, tables.patterns)
    np.testing.assert_allclose(kept.target_sums, tables.target_sums, rtol=1e-11, atol=0)
    assert tables.within_sums.any() and tables.training_ranks.any()
    save_pair_tables(kept, tmp_path / "again.npz", compress=compress)
    again, once = ((tmp_path / name).read_bytes() for name in ("again.npz", "tables.npz"))
    assert again == once


def test_ranks_of_training_pairs_are_read_when_they_are_asked_for_and_stay(tables, tmp_path):
    save_pair_tables(tables, tmp_path / "tables.npz")
    kept = load_pair_tables(tmp_path / "tables.npz")
    (tmp_path / "tables.npz").unlink()
    assert kept.training_ranks is kept.training_ranks
    fewer = kept.of_layers([1]).of_features(["gender"])
    assert fewer.training_ranks.shape == (1, 5, len(fewer.counts))


@pytest.mark.parametrize("compress", [False, True])
def test_a_damaged_file_is_a_plain_error(tables, tmp_path, compress):
    path = tmp_path / "tables.npz"
    save_pair_tables(tables, path, compress=compress)
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"no table", data[:300] + b"x" * 99 + data[399:]):
        path.write_bytes(damaged)
        with pytest.raises((ValueError, KeyError, OSError)):
            load_pair_tables(path)
    path.write_bytes(data)
    with np.load(path) as kept:
        arrays = dict(kept)
    np.savez(path, **{name: array for name, array in arrays.items() if name != "train_03"})
    with refused("run it again"):
        _ = load_pair_tables(path).training_ranks


def test_tables_without_ranks_among_training_pairs_have_none_on_the_disk(tables, tmp_path):
    plain = replace(tables, train_sums=None, train_squares=None)
    save_pair_tables(plain, tmp_path / "plain.npz")
    assert load_pair_tables(tmp_path / "plain.npz").train_sums is None
    assert plain.of_layers([1]).of_features(["gender"]).train_sums is None


N_SENTENCES, N_FORMS, LENGTH, K = 36, 20, 3, 3
N_WORDS = N_SENTENCES * LENGTH
ALPHAS = (1e-3, 1.0, 100.0)


def made_up():
    rng = np.random.default_rng(0)
    forms = [rng.choice(N_FORMS, LENGTH, replace=False) for _ in range(N_SENTENCES)]
    sentences = [" ".join([*(f"w{w}" for w in own), f"x{k}"]) for k, own in enumerate(forms)]
    features = explicit.random_features(N_WORDS)
    features.insert(0, "sentence", np.repeat(sentences, LENGTH))
    features.insert(1, "word_index", np.tile(np.arange(LENGTH), N_SENTENCES))
    return from_frame(features, "words")


@pytest.fixture(scope="module")
def over_both():
    """Stimuli, features' distances, layers, folds, those of sentence and word, index and tables."""
    stimuli = made_up()
    features = stimuli.table[[feature.name for feature in stimuli.features]]
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    folds = stimulus_folds(stimuli, "both", K, 0)
    index = index_of(stimuli, folds)
    # The fold of each stimulus's sentence and that of its word.
    division = GroupKFold(K, shuffle=True, random_state=0)
    apart = np.full((N_WORDS, 2), -1)
    for column, own in enumerate((stimuli.sentences, stimuli.words)):
        number = pd.factorize(np.array(own))[0]
        for fold, (_, test) in enumerate(division.split(own, groups=number)):
            apart[test, column] = fold
    x = explicit.feature_distances(features)
    return stimuli, x, layers, folds, apart, index, sums_of(index, layers, train_ranks=True)


def test_held_out_pairs_have_no_sentence_and_no_word_of_training(over_both):
    stimuli, *_, folds, apart, _, _ = over_both
    words, sentences = np.array(stimuli.words), np.array(stimuli.sentences)
    for fold in range(K):
        test, train = folds == fold, in_training(folds, fold)
        np.testing.assert_array_equal(test, (apart == fold).all(axis=1))
        np.testing.assert_array_equal(train, (apart != fold).all(axis=1))
        assert test.sum() >= 3 and train.sum() > N_WORDS / 4
        assert not set(words[test]) & set(words[train])
        assert not set(sentences[test]) & set(sentences[train])
    np.testing.assert_array_equal(fold_pairs(folds), np.sort(apart, axis=1))
    assert (folds < 0).any() and folds.max() == K - 1


def test_sums_over_both_are_those_of_the_explicit_pairs(over_both):
    _, x, layers, _, apart, index, tables = over_both
    assert tables.n_folds == K and tables.counts.sum() == N_WORDS * (N_WORDS - 1) / 2
    np.testing.assert_allclose(index.patterns[index.pair_pattern], x, atol=1e-12)
    for layer, rows in enumerate(layers):
        target = explicit.squared(rows)
        explicit.hold_sums(tables, layer, target, index.cell, apart)


@pytest.mark.parametrize("target_of", ["distance", "rank"])
def test_models_and_scores_are_those_of_the_explicit_pairs(over_both, target_of):
    _, x, layers, _, apart, _, tables = over_both
    fits = RidgeMLEM(ALPHAS, target=target_of).cross_validate(tables)
    target = explicit.squared(layers[1])
    for fold in range(K):
        explicit.hold_ridge(fits, 1, fold, x**2, target, apart, ALPHAS, target_of)


def test_terms_and_ceilings_are_those_of_explicit_loops(over_both):
    _, x, layers, _, apart, _, tables = over_both
    targets = [explicit.squared(layer) for layer in layers]
    a, b = map(rankdata, targets)
    orders = [explicit.priority(x, ranks, apart) for ranks in (a, b)]
    expected = explicit.cross_fitted(x, a, b, apart, range(4), orders)
    assert decompose(tables, np.eye(2)).terms[:, 0, 1].sum() == pytest.approx(expected, abs=1e-9)
    for fold in range(K):
        expected = explicit.ceiling(x, targets[0], apart, fold)
        assert fold_ceilings(tables)[0, fold] == pytest.approx(expected, abs=1e-9)


def test_folds_that_cannot_be_are_refused():
    stimuli = made_up()
    with refused("at most 10", "sentences", "items"):
        stimulus_folds(stimuli, "both", 11, 0)
    with refused("of 8 over both", "tests"):
        stimulus_folds(stimuli, "both", 8, 0)
    once = stimuli.take(np.flatnonzero(~pd.Series(stimuli.words).duplicated().to_numpy()))
    for over in FOLDS_OVER[1:]:
        with refused("only choice", "sentences"):
            stimulus_folds(once, over, 3, 0)

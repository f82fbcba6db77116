"""Folds over sentences and words at once, held against explicit pairs of sentences and words."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata
from sklearn.model_selection import GroupKFold

from mlem_core.base.errors import InputError
from mlem_core.data.folds import FOLDS_OVER, fold_pairs, in_training, stimulus_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.base import FoldFits
from mlem_core.estimators.ridge import ALPHAS, RidgeMLEM
from mlem_core.estimators.spearman import training_objective
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs import tables_io
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.crossfit import fold_ceilings
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables

N_SENTENCES, N_FORMS, LENGTH, K = 36, 20, 3, 3
N = N_SENTENCES * LENGTH


def stimuli_of(
    n_sentences: int = N_SENTENCES, n_forms: int = N_FORMS, seed: int = 0
) -> StimulusSet:
    rng = np.random.default_rng(seed)
    forms = [rng.choice(N_FORMS, LENGTH, replace=False) for _ in range(N_SENTENCES)]
    sentences = [" ".join([*(f"w{w}" for w in own), f"x{k}"]) for k, own in enumerate(forms)]
    features = explicit.random_features(N)
    features.insert(0, "sentence", np.repeat(sentences, LENGTH))
    features.insert(1, "word_index", np.tile(np.arange(LENGTH), N_SENTENCES))
    return from_frame(features, "words")


@pytest.fixture(scope="module")
def case():
    stimuli = stimuli_of()
    features = stimuli.table[[feature.name for feature in stimuli.features]]
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    folds = stimulus_folds(stimuli, "both", K, 0)
    index = PairIndex.build(feature_columns(stimuli), folds)
    tables = pair_tables(index, [lambda x=x: x for x in layers], train_ranks=True)
    # The fold of each stimulus's sentence and that of its word.
    division = GroupKFold(K, shuffle=True, random_state=0)
    apart = np.full((N, 2), -1)
    for column, own in enumerate((stimuli.sentences, stimuli.words)):
        number = pd.factorize(np.array(own))[0]
        for fold, (_, test) in enumerate(division.split(own, groups=number)):
            apart[test, column] = fold
    return stimuli, layers, folds, apart, index, tables


def test_held_out_pairs_have_no_sentence_and_no_word_of_training(case):
    stimuli, _, folds, apart, *_ = case
    words, sentences = np.array(stimuli.words), np.array(stimuli.sentences)
    for fold in range(K):
        test, train = folds == fold, in_training(folds, fold)
        np.testing.assert_array_equal(test, (apart == fold).all(axis=1))
        np.testing.assert_array_equal(train, (apart != fold).all(axis=1))
        assert test.sum() >= 3 and train.sum() > N / 4
        assert not set(words[test]) & set(words[train])
        assert not set(sentences[test]) & set(sentences[train])
    np.testing.assert_array_equal(fold_pairs(folds), np.sort(apart, axis=1))
    assert (folds < 0).any() and folds.max() == K - 1


def test_numbers_below_zero_stand_for_every_two_folds():
    found = fold_pairs(-1 - np.arange(45))
    assert sorted(map(tuple, found)) == list(combinations(range(10), 2))
    np.testing.assert_array_equal(fold_pairs(np.arange(4)), np.arange(4).repeat(2).reshape(4, 2))


def test_sums_are_those_of_the_explicit_pairs(case):
    stimuli, layers, _, apart, index, tables = case
    assert tables.n_folds == K and tables.counts.sum() == N * (N - 1) / 2
    pattern = index.pair_pattern
    for layer, rows in enumerate(layers):
        target = explicit.squared(rows)
        for fold in range(K):
            inside, training = explicit.held_out(apart, fold), explicit.training(apart, fold)
            at = tables.held_out(fold)
            ranks = rankdata(target[inside]) - (inside.sum() + 1) / 2
            expected = np.bincount(pattern[inside], ranks, index.n_patterns)
            np.testing.assert_allclose(
                tables.within_sums[layer, at], expected[tables.cell_pattern[at]], atol=1e-9
            )
            assert tables.counts[at].sum() == inside.sum()
            assert tables.within_squares[layer, fold] == pytest.approx(ranks @ ranks)
            ranks = rankdata(target[training]) - (training.sum() + 1) / 2
            expected = np.bincount(pattern[training], ranks, index.n_patterns)
            own = tables.training_ranks[layer, fold]
            found = np.bincount(tables.cell_pattern, own, index.n_patterns)
            np.testing.assert_allclose(found, expected, atol=1e-6)
            assert tables.train_squares[layer, fold] == pytest.approx(ranks @ ranks)
            objective = training_objective(tables, layer, "rho")
            weights = np.abs(np.random.default_rng(fold).standard_normal((K, 4)))
            x = explicit.feature_distances(_features(stimuli))[training] ** 2
            expected = explicit.rho(x @ weights[fold], target[training])
            assert objective.exact(weights[:, None])[fold, 0] == pytest.approx(expected, abs=1e-9)


def _features(stimuli: StimulusSet) -> pd.DataFrame:
    return stimuli.table[[feature.name for feature in stimuli.features]]


@pytest.mark.parametrize("target_of", ["distance", "rank"])
def test_models_and_scores_are_those_of_the_explicit_pairs(case, target_of):
    stimuli, layers, _, apart, _, tables = case
    x = explicit.feature_distances(_features(stimuli)) ** 2
    fits: FoldFits = RidgeMLEM(target=target_of).cross_validate(tables)
    for layer in range(2):
        target = explicit.squared(layers[layer])
        for k in range(K):
            use, test = explicit.training(apart, k), explicit.held_out(apart, k)
            ranks = np.full(len(target), np.nan)
            ranks[use] = rankdata(target[use]) / use.sum()

            def y(own, ranks=ranks, target=target):
                return ranks[own] if target_of == "rank" else explicit.scaled(target[own])

            alpha = explicit.best_alpha(x, target, apart, k, ALPHAS, y)
            assert fits.alpha[layer, k] == alpha
            weights = explicit.ridge(x[use], y(use), alpha).coef_
            np.testing.assert_allclose(fits.weights[layer, k], weights, atol=1e-6)
            rho = explicit.rho(x[test] @ fits.weights[layer, k], target[test])
            assert fits.rho[layer, k] == pytest.approx(rho, abs=1e-9)


def test_terms_and_ceilings_are_those_of_explicit_loops(case):
    stimuli, layers, _, apart, _, tables = case
    x = explicit.feature_distances(_features(stimuli))
    a, b = (rankdata(explicit.squared(layer)) for layer in layers)
    orders = [explicit.priority(x, ranks, apart) for ranks in (a, b)]
    expected = explicit.cross_fitted(x, a, b, apart, range(4), orders)
    found = decompose(tables, np.eye(2)).terms[:, 0, 1].sum()
    assert found == pytest.approx(expected, abs=1e-9)
    for fold in range(K):
        inside = np.flatnonzero(explicit.held_out(apart, fold))
        outside = np.flatnonzero(explicit.training(apart, fold))
        means = []
        for pair in inside:
            for size in range(4, -1, -1):
                same = np.isclose(x[outside][:, orders[0][:size]], x[pair, orders[0][:size]])
                if same.all(axis=1).any():
                    means.append(a[outside][same.all(axis=1)].mean() - a[outside].mean())
                    break
        ranks = rankdata(a[inside])
        share = np.mean(means * (ranks - ranks.mean())) / ranks.std() / a.std()
        ceiling = fold_ceilings(tables)[0, fold]
        assert ceiling == pytest.approx(np.sqrt(max(share, 0)), abs=1e-9)


def test_tables_survive_the_disk(case, tmp_path):
    tables = case[-1]
    tables_io.save(tables, tmp_path / "tables.npz")
    kept = tables_io.load(tmp_path / "tables.npz")
    for field in fields(PairTables):
        one, other = getattr(tables, field.name), getattr(kept, field.name)
        if field.name == "target_sums":
            np.testing.assert_allclose(other, one, rtol=1e-11)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(other, one, err_msg=field.name)
    np.testing.assert_array_equal(kept.training_ranks, tables.training_ranks)


def test_what_cannot_be_is_one_sentence():
    with pytest.raises(InputError, match="at most 10, or folds over sentences or items"):
        stimulus_folds(stimuli_of(), "both", 11, 0)
    with pytest.raises(InputError, match=r"fold \d of 8 over both .* tests [0-2] items? in"):
        stimulus_folds(stimuli_of(), "both", 8, 0)
    whole = stimuli_of()
    once = whole.take(np.flatnonzero(~pd.Series(whole.words).duplicated().to_numpy()))
    for over in FOLDS_OVER[1:]:
        with pytest.raises(InputError, match="the only choice is sentences"):
            stimulus_folds(once, over, 3, 0)

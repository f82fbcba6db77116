"""Folds over sentences and words at once, held against explicit pairs of sentences and words."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, refused, sums_of
from scipy.stats import rankdata
from sklearn.model_selection import GroupKFold

from mlem_core.data.folds import FOLDS_OVER, fold_pairs, in_training, stimulus_folds
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.estimators.spearman import training_objective
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.crossfit import fold_ceilings

N_SENTENCES, N_FORMS, LENGTH, K = 36, 20, 3, 3
N = N_SENTENCES * LENGTH
ALPHAS = (1e-3, 1.0, 100.0)


def made_up():
    rng = np.random.default_rng(0)
    forms = [rng.choice(N_FORMS, LENGTH, replace=False) for _ in range(N_SENTENCES)]
    sentences = [" ".join([*(f"w{w}" for w in own), f"x{k}"]) for k, own in enumerate(forms)]
    features = explicit.random_features(N)
    features.insert(0, "sentence", np.repeat(sentences, LENGTH))
    features.insert(1, "word_index", np.tile(np.arange(LENGTH), N_SENTENCES))
    return from_frame(features, "words")


@pytest.fixture(scope="module")
def case():
    """Stimuli, features' distances, layers, folds, those of sentence and word, index and tables."""
    stimuli = made_up()
    features = stimuli.table[[feature.name for feature in stimuli.features]]
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    folds = stimulus_folds(stimuli, "both", K, 0)
    index = index_of(stimuli, folds)
    # The fold of each stimulus's sentence and that of its word.
    division = GroupKFold(K, shuffle=True, random_state=0)
    apart = np.full((N, 2), -1)
    for column, own in enumerate((stimuli.sentences, stimuli.words)):
        number = pd.factorize(np.array(own))[0]
        for fold, (_, test) in enumerate(division.split(own, groups=number)):
            apart[test, column] = fold
    x = explicit.feature_distances(features)
    return stimuli, x, layers, folds, apart, index, sums_of(index, layers, train_ranks=True)


def test_held_out_pairs_have_no_sentence_and_no_word_of_training(case):
    stimuli, *_, folds, apart, _, _ = case
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


def test_sums_and_objectives_are_those_of_the_explicit_pairs(case):
    _, x, layers, _, apart, index, tables = case
    assert tables.n_folds == K and tables.counts.sum() == N * (N - 1) / 2
    np.testing.assert_allclose(index.patterns[index.pair_pattern], x, atol=1e-12)
    for layer, rows in enumerate(layers):
        target = explicit.squared(rows)
        explicit.hold_sums(tables, layer, target, index.cell, apart)
        objective = training_objective(tables, layer)
        weights = np.abs(np.random.default_rng(0).standard_normal((K, 4)))
        found = objective.exact(weights[:, None])[:, 0]
        for fold in range(K):
            use = explicit.training(apart, fold)
            expected = explicit.rho_a(x[use] ** 2 @ weights[fold], target[use])
            assert found[fold] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("target_of", ["distance", "rank"])
def test_models_and_scores_are_those_of_the_explicit_pairs(case, target_of):
    _, x, layers, _, apart, _, tables = case
    fits = RidgeMLEM(ALPHAS, target=target_of).cross_validate(tables)
    target = explicit.squared(layers[1])
    for fold in range(K):
        explicit.hold_ridge(fits, 1, fold, x**2, target, apart, ALPHAS, target_of)


def test_terms_and_ceilings_are_those_of_explicit_loops(case):
    _, x, layers, _, apart, _, tables = case
    targets = [explicit.squared(layer) for layer in layers]
    a, b = map(rankdata, targets)
    orders = [explicit.priority(x, ranks, apart) for ranks in (a, b)]
    expected = explicit.cross_fitted(x, a, b, apart, range(4), orders)
    found = decompose(tables, np.eye(2)).terms[:, 0, 1].sum()
    assert found == pytest.approx(expected, abs=1e-9)
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

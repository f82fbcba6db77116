"""Folds that keep sentences, items or both together: those of scikit-learn, and refusals."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import refused
from sklearn.model_selection import GroupKFold

from mlem_core.stimuli.folds import FOLDS_OVER, fold_pairs, group_folds, is_training, stimulus_folds
from mlem_core.stimuli.stimulus_csv import from_frame


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_folds_split_no_group_and_are_those_of_scikit_learn(seed):
    groups = 3 * np.random.default_rng(seed).integers(0, 40, 200)
    expected = np.empty(200, dtype=np.int64)
    splitter = GroupKFold(5, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(splitter.split(groups, groups=groups)):
        expected[test] = fold
    found = group_folds(groups, 5, seed)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(group_folds(groups, splitter, None), expected)
    assert all(len(set(found[groups == group])) == 1 for group in groups)
    assert (found != group_folds(groups, 5, seed + 1)).any()


def test_too_few_groups_or_folds():
    with refused("5 folds", "4 sentences"):
        group_folds(np.arange(4), 5, 0)
    with refused("a fold with 2"):
        group_folds(np.arange(10), 5, 0)


N_SENTENCES, N_FORMS, LENGTH, K = 36, 20, 3, 3
N_WORDS = N_SENTENCES * LENGTH


def made_up():
    """Sentences of three words and an end of their own; a feature that says nothing."""
    rng = np.random.default_rng(0)
    forms = [rng.choice(N_FORMS, LENGTH, replace=False) for _ in range(N_SENTENCES)]
    sentences = [" ".join([*(f"w{w}" for w in own), f"x{k}"]) for k, own in enumerate(forms)]
    frame = pd.DataFrame({"sentence": np.repeat(sentences, LENGTH)})
    indices = np.tile(np.arange(LENGTH), N_SENTENCES)
    return from_frame(frame.assign(word_index=indices, size=rng.integers(0, 4, N_WORDS)), "words")


def test_held_out_pairs_have_no_sentence_and_no_word_of_training():
    stimuli = made_up()
    folds = stimulus_folds(stimuli, "both", K, 0)
    # The fold of each stimulus's sentence and that of its word.
    division = GroupKFold(K, shuffle=True, random_state=0)
    apart = np.full((N_WORDS, 2), -1)
    for column, own in enumerate((stimuli.sentences, stimuli.words)):
        number = pd.factorize(np.array(own))[0]
        for fold, (_, test) in enumerate(division.split(own, groups=number)):
            apart[test, column] = fold
    words, sentences = np.array(stimuli.words), np.array(stimuli.sentences)
    for fold in range(K):
        test, train = folds == fold, is_training(folds, fold)
        np.testing.assert_array_equal(test, (apart == fold).all(axis=1))
        np.testing.assert_array_equal(train, (apart != fold).all(axis=1))
        assert test.sum() >= 3 and train.sum() > N_WORDS / 4
        assert not set(words[test]) & set(words[train])
        assert not set(sentences[test]) & set(sentences[train])
    np.testing.assert_array_equal(fold_pairs(folds), np.sort(apart, axis=1))
    assert (folds < 0).any() and folds.max() == K - 1


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

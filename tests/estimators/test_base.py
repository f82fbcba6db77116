"""Estimators and stimulus sets in scikit-learn's hands."""

from __future__ import annotations

from typing import Any

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import words
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, ShuffleSplit, cross_val_score, train_test_split

from mlem_core.base.errors import InputError
from mlem_core.data.folds import group_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.base import MetricModel
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.estimators.soft_rank import SoftRankMLEM
from mlem_core.estimators.spearman import FRRSA, SpearmanMLEM


@pytest.fixture(scope="module")
def stimuli() -> StimulusSet:
    return from_frame(words(), "words")


@pytest.fixture(scope="module")
def rows(stimuli: StimulusSet) -> np.ndarray:
    """Representations that follow the features."""
    values = np.stack([stimuli.values(name) == "True" for name in ("noun",)], axis=1)
    lengths = np.stack([stimuli.values(name) for name in ("length", "position")], axis=1)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((len(stimuli), 3))
    return np.hstack([values, lengths.astype(float)]) + 0.5 * noise


def test_a_stimulus_set_is_indexed_like_an_array(stimuli: StimulusSet) -> None:
    n = len(stimuli)
    assert stimuli.shape == (n, 3)
    for at in (np.array([4, 1, 7]), slice(3, 9), [0, 2], 5, np.arange(n) % 2 == 0):
        part = stimuli[at]
        expected = np.atleast_1d(np.arange(n)[at])
        assert part.sentences == [stimuli.sentences[i] for i in expected]
        assert part.digest == stimuli.take(expected).digest
    with pytest.raises(IndexError):
        stimuli[n]


def test_cross_val_score_splits_stimulus_sets_by_groups(
    stimuli: StimulusSet, rows: np.ndarray
) -> None:
    for model in (RidgeMLEM(cv=3), SpearmanMLEM()):
        scores = cross_val_score(model, stimuli, rows, groups=stimuli.groups, cv=GroupKFold(4))
        expected = []
        for train, test in GroupKFold(4).split(rows, groups=stimuli.groups):
            model.fit(stimuli[train], rows[train])
            expected.append(model.score(stimuli[test], rows[test]))
        np.testing.assert_allclose(scores, expected, atol=1e-12)
        assert scores.min() > 0.2
    train, test = train_test_split(stimuli, random_state=0)
    assert isinstance(train, StimulusSet) and len(train) + len(test) == len(stimuli)


def test_cv_is_a_number_or_a_splitter(stimuli: StimulusSet, rows: np.ndarray) -> None:
    number = RidgeMLEM(cv=4, random_state=3).fit(stimuli, rows)
    splitter = GroupKFold(4, shuffle=True, random_state=3)
    same = RidgeMLEM(cv=splitter).fit(stimuli, rows)
    assert same.alpha_ == number.alpha_
    np.testing.assert_array_equal(same.coef_, number.coef_)
    groups = stimuli.groups
    folds = group_folds(groups, GroupKFold(5), None)
    for fold, (_, test) in enumerate(GroupKFold(5).split(groups, groups=groups)):
        np.testing.assert_array_equal(np.flatnonzero(folds == fold), test)
    with pytest.raises(InputError, match="not exactly once; choose one whose test sets"):
        RidgeMLEM(cv=ShuffleSplit(3, random_state=0)).fit(stimuli, rows)


def test_alpha_has_the_highest_mean_score_over_the_splits() -> None:
    features = explicit.random_features(60)
    layer = explicit.random_layer(features)
    # Ordered features would keep their range over all stimuli in one and in the other not.
    features = features[["kind", "gender"]]
    folds = explicit.random_folds(60, 4)
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(4)]
    for target in ("distance", "rank"):
        model = RidgeMLEM(target=target, cv=splits).fit(features, layer)
        rho = []
        for alpha in model.alphas:
            fixed = [
                RidgeMLEM([alpha], target=target)
                .fit(features.iloc[train], layer[train])
                .score(features.iloc[test].reset_index(drop=True), layer[test])
                for train, test in splits
            ]
            rho.append(np.mean(fixed))
        best = int(np.argmax(np.array(rho) >= max(rho) - 1e-12))
        assert model.alpha_ == model.alphas[best]


@pytest.mark.parametrize(
    "model",
    [
        RidgeMLEM((1.0,), interactions=True),
        SpearmanMLEM(interactions=True),
        FRRSA(interactions=True),
        SoftRankMLEM(interactions=True, batch_size=200),
    ],
)
def test_fitted_names(model: MetricModel, stimuli: StimulusSet, rows: np.ndarray) -> None:
    calls: list[Any] = [lambda: model.W_, model.get_feature_names_out]
    calls += [lambda: model.predict(stimuli), lambda: model.score(stimuli, rows)]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()
    before = model.get_params()
    assert model.fit(stimuli, rows) is model and model.get_params() == before
    names = model.get_feature_names_out()
    assert list(names) == [
        "noun",
        "length",
        "position",
        "noun × length",
        "noun × position",
        "length × position",
    ]
    assert model.coef_.shape == names.shape and model.W_.shape == (3, 3)
    assert model.W_[0, 2] == model.W_[2, 0] == model.coef_[4]
    frame = pd.DataFrame({name: stimuli.values(name) for name in ("noun", "length", "position")})
    np.testing.assert_allclose(model.predict(stimuli), model.predict(frame))

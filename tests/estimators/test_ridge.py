"""Ridge metrics: nested loops over scikit-learn on explicit pairs, and planted weights."""

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import for_each, refused, statistics_of, words_over_both
from scipy.stats import rankdata, sem
from sklearn.linear_model import LinearRegression

from mlem_core.analysis import planning
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.estimators.base import RidgeMLEM
from mlem_core.estimators.ridge_solver import ALPHAS, RidgeSolver, inner_scores
from mlem_core.measures.importance import fitted
from mlem_core.stimuli.folds import fold_pairs
from mlem_core.stimuli.stimulus_csv import from_frame

N = 60
FEATURES, FOLDS = explicit.random_features(N), explicit.random_folds(N)
LAYERS = [explicit.random_layer(FEATURES, seed) for seed in range(2)]


@for_each(
    "target, missing, interactions",
    ("distance", "ignore", False),
    ("rank", "level", False),
    ("distance", "level", True),
)
@pytest.mark.filterwarnings("ignore:The lbfgs solver did not converge")
def test_nested_cross_validation_equals_the_slow_way(target, missing, interactions):
    pairs = statistics_of(FEATURES, LAYERS, FOLDS, missing=missing, interactions=interactions)
    distances = explicit.feature_distances(FEATURES, missing)
    x = explicit.products(distances) if interactions else distances**2
    model = RidgeMLEM(ALPHAS[::2], target=target)
    fits, inner_rho = model.cross_validate(pairs), model.solve(pairs, range(5)).inner_rho
    for layer, fold in ((0, 0), (1, 4)):
        squared = explicit.squared(LAYERS[layer])
        best = explicit.hold_ridge(fits, layer, fold, x, squared, FOLDS, ALPHAS[::2], target)
        np.testing.assert_allclose(inner_rho[:, layer, fold], best, atol=1e-6)


@pytest.mark.parametrize("target", ["distance", "rank"])
def test_with_folds_over_both_it_does_too(target):
    """Stimuli between two folds train where neither is tested, and two of one item test none."""
    made = words_over_both(0, 30, 20)
    pairs = statistics_of(made.features, made.layers, made.folds, items=made.items)
    fits = RidgeMLEM(ALPHAS[::4], target=target).cross_validate(pairs)
    x, apart = explicit.feature_distances(made.features) ** 2, fold_pairs(made.folds)
    squared = explicit.squared(made.layers[1])
    for fold in range(3):
        explicit.hold_ridge(fits, 1, fold, x, squared, apart, ALPHAS[::4], target, made.items)


def test_ranks_are_those_among_all_pairs():
    pairs = statistics_of(FEATURES, LAYERS, FOLDS)
    found = RidgeMLEM([1e-9], target="rank").solve(pairs, [2])
    use = explicit.training(FOLDS, 2)
    ranks = rankdata(explicit.squared(LAYERS[0])) / len(use)
    x = explicit.feature_distances(FEATURES) ** 2
    expected = LinearRegression(positive=True).fit(x[use], ranks[use])
    np.testing.assert_allclose(found.coef[0, 0], expected.coef_, atol=1e-7)
    # Ranks run to 1; half a pair before the first is 0.
    assert found.intercept[0, 0] == pytest.approx(expected.intercept_ - 0.5 / len(use), abs=1e-7)


def test_a_refit_keeps_the_strengths_that_were_chosen():
    for resolved in ((), ("kind",)):
        model, pairs = RidgeSolver(), statistics_of(FEATURES, LAYERS, FOLDS, resolved)
        solution = model.solve(pairs, range(5))
        np.testing.assert_allclose(model.refit(pairs, solution), solution.coef, atol=1e-12)
        other = statistics_of(FEATURES, LAYERS[::-1], FOLDS, resolved)
        every = [RidgeMLEM([alpha], betas=()).solve(other, range(5)).coef for alpha in ALPHAS]
        if not resolved:
            refit = model.refit(other, solution)
            for (layer, fold), choice in np.ndenumerate(solution.choice):
                np.testing.assert_allclose(refit[layer, fold], every[choice][layer, fold])


def test_ridge_with_interactions_equals_sklearn():
    x = explicit.products(explicit.feature_distances(FEATURES))
    for target in ("distance", "rank"):
        y = explicit.squared(LAYERS[0])
        y = rankdata(y) / len(y) - 0.5 / len(y) if target == "rank" else explicit.scaled(y)
        expected = explicit.ridge(x, y, 1.0)
        model = RidgeMLEM(alphas=[1.0], interactions=True, target=target).fit(FEATURES, LAYERS[0])
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
        assert model.intercept_ == pytest.approx(expected.intercept_, abs=1e-6)
        np.testing.assert_allclose(model.predict(FEATURES), expected.predict(x), atol=1e-5)
        np.testing.assert_allclose(model.W_, model.W_.T)


def planted(n):
    """Stimuli with binary features, represented so that D² = Σ w_f Δ_f² exactly; and w."""
    rng, weights = np.random.default_rng(0), np.array([3.0, 0.0, 1.0, 0.5])
    bits = rng.integers(0, 2, (n, len(weights)))
    features = pd.DataFrame(
        {f"f{k}": np.array(["no", "yes"])[bits[:, k]] for k in range(len(weights))}
    )
    turn = np.linalg.qr(rng.standard_normal((20, len(weights))))[0]
    return features, bits * np.sqrt(weights) @ turn.T + rng.standard_normal(20), weights


def test_planted_weights_come_back():
    features, layer, truth = planted(100)
    model = RidgeMLEM(alphas=[1e-8]).fit(features, layer)
    # The target is scaled to [0, 1]: the largest distance has all features different.
    np.testing.assert_allclose(model.coef_, truth / truth.sum(), atol=1e-8)
    assert model.intercept_ == pytest.approx(0, abs=1e-8)
    assert model.score(features, layer) == pytest.approx(1)


def test_twenty_numeric_features_have_the_score_of_explicit_pairs_and_planted_weights():
    """Ten of them count; nothing is cut into bins, and importances follow the weights."""
    n, rng = 160, np.random.default_rng(0)
    truth = np.r_[np.linspace(3.0, 0.3, 10), np.zeros(10)]
    values = rng.uniform(size=(n, 20))
    values = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    layer = values * np.sqrt(truth) @ np.linalg.qr(rng.standard_normal((20, 20)))[0]
    layer += 0.1 * rng.standard_normal(layer.shape)
    features, folds = pd.DataFrame(values).add_prefix("f"), explicit.random_folds(n)
    pairs = statistics_of(features, [layer], folds)
    assert not pairs.tests.is_grouped
    fits, importance = fitted(pairs)
    i, j = explicit.pairs(n)
    x = (values[i] - values[j]) ** 2
    for fold in range(5):
        test = explicit.held_out(folds, fold)
        expected = explicit.rho(x[test] @ fits.weights[0, fold], explicit.squared(layer)[test])
        assert fits.rho[0, fold] == pytest.approx(expected, abs=1e-9)
    mean, drop = fits.weights[0].mean(axis=0), importance[0].mean(axis=0)
    np.testing.assert_allclose(mean / mean.sum(), truth / truth.sum(), atol=0.015)
    assert np.corrcoef(drop, truth)[0, 1] > 0.95 and np.abs(drop[10:]).max() < 0.003


def test_estimator_chooses_alpha_and_scores_new_stimuli():
    features, layer, _ = planted(300)
    layer = layer + 0.3 * np.random.default_rng(0).standard_normal(layer.shape)
    model = RidgeMLEM(cv=4).fit(features[:200], layer[:200])
    assert model.alpha_ in ALPHAS
    assert model.coef_.argmax() == 0 and model.coef_[1] < 0.05
    x = explicit.feature_distances(features[200:].reset_index(drop=True)) ** 2
    expected = explicit.rho(x @ model.coef_, explicit.squared(layer[200:]))
    assert model.score(features[200:], layer[200:]) == pytest.approx(expected, abs=1e-9)


def test_ordered_features_keep_the_range_they_were_fitted_with():
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"x": np.arange(50.0), "y": rng.choice(["a", "b"], 50)})
    model = RidgeMLEM(alphas=[1e-8]).fit(features, rng.standard_normal((50, 3)))
    assert model.spans_["x"] == (0.0, 49.0)
    near = pd.DataFrame({"x": [0.0, 4.9], "y": ["a", "a"]})
    assert model.predict(near)[0] == pytest.approx(model.coef_[0] * 0.1**2 + model.intercept_)


def test_two_folds_leave_none_to_choose_by():
    pairs = statistics_of(FEATURES, LAYERS, explicit.random_folds(N, 2))
    with refused("2 folds", "at least 3"):
        RidgeMLEM().cross_validate(pairs)


def test_the_score_of_a_choice_is_the_mean_over_layers():
    by_value = statistics_of(FEATURES, LAYERS, FOLDS, ("kind",))
    plain = statistics_of(FEATURES, LAYERS, FOLDS)
    for target in ("distance", "rank"):
        scores = []
        for pairs in (by_value, plain):
            inner_rho = RidgeMLEM(target=target).solve(pairs, range(5)).inner_rho
            scores.append(inner_scores(pairs, ranked=target == "rank"))
            np.testing.assert_allclose(scores[-1], inner_rho.mean(axis=1), atol=1e-12)
        # Statistics by value hold those of the other coding.
        coarser = inner_scores(by_value, ranked=target == "rank", by_value=False)
        np.testing.assert_allclose(coarser, scores[1], atol=1e-9)


@pytest.mark.parametrize("resolved", [(), ("kind",)])
def test_stimuli_of_a_fold_have_no_part_in_its_choice(resolved):
    rng, test = np.random.default_rng(0), FOLDS == 2
    before, after = LAYERS, [layer.copy() for layer in LAYERS]
    for layer in after:
        layer[test] = rng.standard_normal(layer[test].shape)
    scores = [inner_scores(statistics_of(FEATURES, of, FOLDS, resolved)) for of in (before, after)]
    np.testing.assert_allclose(scores[0][:, 2], scores[1][:, 2], atol=1e-12)
    assert np.isnan(scores[0]).sum() == 5
    assert (np.abs(scores[0] - scores[1])[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])] > 0).sum() == 12


def test_each_fold_keeps_the_papers_choice_unless_another_gains_enough(monkeypatch):
    """More than the gain that is set, and than one standard error over its four inner folds."""
    sentences = pd.DataFrame({"sentence": [f"s {k}" for k in range(N)]})
    stimuli = from_frame(sentences.join(FEATURES), "made up")
    asked = AnalysisSpec(estimator="auto", values="auto")
    by_value = ("kind",)
    choices = [("ridge", ()), ("ridge", by_value), ("ridge-rank", ()), ("ridge-rank", by_value)]
    assert planning.possible_choices(asked, stimuli) == choices
    # (on ranks, by value): gain in the inner folds of each outer fold.
    rng, scores = np.random.default_rng(0), {(False, False): np.full((5, 5), 0.5)}
    gains = {(False, True): 0.02, (True, False): 0.0, (True, True): 0.03}
    for key, gain in gains.items():
        scores[key] = 0.5 + gain + rng.normal(0, 0.02, (5, 5))
    scores[False, True][:, 1] = 0.509  # certain, but too little
    scores[True, True][:, 1] = 0.5
    scores[True, False][:, 1] = np.array([0.4, np.nan, 0.75, 0.4, 0.6])  # large, but uncertain
    for score in scores.values():
        np.fill_diagonal(score, np.nan)
    monkeypatch.setattr(
        planning, "inner_scores", lambda pairs, *, ranked, by_value: scores[ranked, by_value]
    )
    best, record = planning.choose(asked, planning.possible_choices(asked, stimuli), None)
    expected = []
    for fold in range(5):
        inner = [k for k in range(5) if k != fold]
        of = [scores[k][inner, fold] for k in ((0, 0), (0, 1), (1, 0), (1, 1))]
        at = 0
        for other in (1, 2, 3):
            gain = of[other] - of[at]
            if gain.mean() > 0.01 and gain.mean() > sem(gain):
                at = other
        expected.append(choices[at])
    assert expected == planning.fold_choices({planning.CHOSEN: record})
    assert expected[1] == choices[0] and len({*expected}) > 1
    assert best == max(choices, key=expected.count)

"""Labels that are permuted, of scores and of features at their level: the explicit way, planted."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import in_files, layer_pairs, over_both, refused

from mlem_core import RidgeMLEM, Store, from_frame, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.captions import chance_sentence
from mlem_core.inference import permutation_null as chance
from mlem_core.inference.explanation import best_known, explain
from mlem_core.inference.importance_null import (
    IMPORTANCE_CHANCE,
    PermutedImportances,
    permuted_pairs,
    score_above_chance,
)
from mlem_core.inference.layer_intervals import LAYER_CHANCE
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import corrected_p, permutation_null
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.stimuli.levels import exchanges, stimulus_exchange

N = 60


@pytest.fixture(scope="module")
def case():
    """Sentences of one to three words, a layer with features in it, and one of noise."""
    features = explicit.random_features(N)
    rng = np.random.default_rng(0)
    layers = [explicit.random_layer(features, 1), rng.standard_normal((N, 5)).astype(np.float32)]
    groups = np.repeat(np.arange(N), rng.integers(1, 4, N))[:N]
    return features, layers, layer_pairs(features, layers, groups, groups % 3)


@pytest.fixture(scope="module")
def words():
    return over_both(0, 40, 15)


def test_sentences_change_labels_whole_and_inside_their_fold(case):
    *_, pairs = case
    found = pairs.units.permuted(50, np.random.default_rng(0))
    sizes = np.bincount(pairs.groups)
    for labels in found:
        assert sorted(labels) == list(range(N))
        assert (pairs.folds[labels] == pairs.folds).all()
        for group in np.unique(pairs.groups):
            members = np.flatnonzero(pairs.groups == group)
            (other,) = set(pairs.groups[labels[members]])
            assert sizes[other] == sizes[group] and (np.diff(labels[members]) == 1).all()
    assert len({tuple(labels) for labels in found}) == 50


def test_words_change_labels_whole_in_each_part_of_the_folds(words):
    *_, pairs = words
    for labels in pairs.units.permuted(2, np.random.default_rng(0)):
        assert (pairs.folds[labels] == pairs.folds).all()
        assert sorted(labels) == list(range(len(labels)))
        for item, fold in np.unique(np.column_stack((pairs.items, pairs.folds)), axis=0):
            members = (pairs.items == item) & (pairs.folds == fold)
            assert len(set(pairs.items[labels[members]])) == 1


@pytest.mark.parametrize("made", ["case", "words"])
def test_layers_of_permuted_labels_are_those_of_features_that_were_permuted(request, made):
    features, layers, pairs = request.getfixturevalue(made)
    labels = pairs.units.permuted(2, np.random.default_rng(1))
    found = permuted_pairs(pairs, 0, labels).statistics
    untested = pairs.items if made == "words" else None
    for number, row in enumerate(labels):
        permuted = features.iloc[row].reset_index(drop=True)
        anew = layer_pairs(permuted, layers[:1], pairs.groups, pairs.folds, items=untested)
        expected = anew.statistics.moments
        for fold in range(3):
            alone = found.moments.select_layers([number])
            for of_found, of_expected in (
                (alone.within(alone.training(fold)), expected.within(expected.training(fold))),
                (alone.inside_fold(fold), expected.inside_fold(fold)),
            ):
                for name, array in of_expected._asdict().items():
                    np.testing.assert_allclose(getattr(of_found, name), array, atol=1e-6)
        model = RidgeMLEM(alphas=[0.1, 1.0])
        fits = [model.cross_validate(own).rho for own in (found, anew.statistics)]
        np.testing.assert_allclose(fits[0][number], fits[1][0], atol=1e-9)


def test_with_a_lag_when_a_stimulus_came_goes_with_its_distances():
    features, rng = explicit.random_features(N), np.random.default_rng(0)
    layer, groups = explicit.random_layer(features, 1), np.arange(N) // 4
    times, folds = rng.permutation(N) / 5, groups // 5
    columns = PairColumns.from_features(feature_columns(features))

    def pairs_of(rows, when):
        squared = [explicit.squared(rows)]
        return LayerPairs.from_distances([("m", 0)], squared, columns, folds, groups, times=when)

    labels = rng.permutation(N)
    found = permuted_pairs(pairs_of(layer, times), 0, labels[None])
    place = np.argsort(labels)
    expected = pairs_of(layer[place], times[place])
    model = RidgeMLEM(alphas=[0.1, 1.0])
    fits = [model.cross_validate(own.statistics) for own in (found, expected)]
    np.testing.assert_allclose(fits[0].rho, fits[1].rho, atol=1e-9)
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-9)


@pytest.mark.parametrize(("planted", "n_sets"), [(0.0, 10), (2.0, 4)])
def test_over_both_a_planted_feature_is_above_chance_and_what_means_nothing_is_not(planted, n_sets):
    model, found = RidgeMLEM(alphas=[1.0]), []
    for seed in range(n_sets):
        *_, pairs = over_both(seed, 60, 24, planted)
        found.append(score_above_chance(pairs, model, n_permutations=39)["p"][0] <= 0.05)
    # In 5 of 100 data sets; in 10 rarely more than 2.
    assert np.mean(found) > 0.8 if planted else sum(found) <= 2


def in_sentences(seed, n_sentences=60, n_words=40, planted=0.0, shared=1.0):
    """Words in sentences, two layers that know which word it is, and features of each level."""
    rng = np.random.default_rng(seed)
    items = np.concatenate([rng.choice(n_words, 3, replace=False) for _ in range(n_sentences)])
    groups = np.repeat(np.arange(n_sentences), 3)
    rows = items.reshape(-1, 3)
    kind = rng.integers(0, 2, n_words)
    frame = pd.DataFrame(
        {
            "sentence": np.repeat([" ".join(f"w{i}" for i in row) for row in rows], 3),
            "word_index": np.tile([0, 1, 2], n_sentences),
            "kind": np.array(list("ab"))[kind[items]],
            "noise": rng.integers(0, 5, n_words).astype(float)[items],
            "clause": np.array(list("xy"))[rng.integers(0, 2, n_sentences)][groups],
            "token": rng.integers(0, 3, len(items)).astype(float),
        }
    )
    of_word = shared * rng.standard_normal((n_words, 4))
    of_word[:, 0] += planted * (kind == 0)
    layers = [
        (of_word[items] + 0.7 * rng.standard_normal((len(items), 4))).astype(np.float32)
        for _ in range(2)
    ]
    stimuli, folds = from_frame(frame, "words"), groups % 5
    pairs = layer_pairs(frame.iloc[:, 2:], layers, groups, folds)
    return stimuli, layers, replace(pairs, items=stimuli.items), frame.iloc[:, 2:]


def terms_of(pairs):
    return decompose(pairs.statistics.moments).pair(0, 1)


def test_scores_by_chance_are_those_of_estimators_that_are_fitted_to_single_pairs(case):
    *_, pairs = case
    table = score_above_chance(pairs, estimator_named("spearman").model(), n_permutations=19)
    assert table["p"][0] == 0.05 and table["p"][1] > 0.05


def test_chance_is_that_of_features_that_were_permuted():
    stimuli, layers, pairs, features = in_sentences(0, 20, 14)
    found = chance.chance_at_level(pairs, stimuli, 3, seed=4)
    assert found.units == ("word", "word", "sentence", "stimulus")
    rng = np.random.default_rng(4)
    for f, name in enumerate(features.columns):
        (exchange,) = exchanges(stimuli, pairs.folds, name)
        if exchange.moved(stimuli.values(name)) < 0.9:
            assert not found.known[f] and np.isnan(found.p[f]).all()
            continue
        givers = np.concatenate((np.arange(len(features))[None], exchange.draw(3, rng)))
        for draw, row in zip(found.draws[:, f], givers, strict=True):
            permuted = features.assign(**{name: features[name].to_numpy()[row]})
            anew = layer_pairs(permuted, layers, pairs.groups, pairs.folds).statistics.moments
            expected = explicit.beside_one(anew, [f])
            np.testing.assert_allclose(draw, expected, atol=1e-9)


def test_drawing_ends_early_where_p_is_clearly_large():
    values, ways = np.repeat([0.0, 1.0], 30), (stimulus_exchange(np.zeros(60, dtype=int)),)
    n_calls = []

    def statistic(givers, effect):
        n_calls.append(len(givers))
        moved = (givers != np.arange(60)).any(axis=1)
        return np.random.default_rng(len(n_calls)).standard_normal(len(givers)) + effect * ~moved

    for effect, n_drawn in ((0.0, 39), (9.0, 199)):
        n_calls.clear()
        of_effect = partial(statistic, effect=effect)
        null = permutation_null(ways, values, of_effect, 199, np.random.default_rng(0), of_effect)
        assert null.n_drawn == n_drawn and sum(n_calls) == 1 + n_drawn
        assert null.draws.shape == (200,) and null.unit == "stimulus" and not null.unknown
        np.testing.assert_array_equal(null.draws[1:40], null.draws[40:79]) if not effect else None
        p = corrected_p(null.draws[:, None], np.array([True]))
        assert p[0] == 0.005 if effect else p[0] > 0.2


def test_a_unit_with_few_labellings_gives_no_p():
    words = np.random.default_rng(0).choice(np.array(list("stuvwxyz")), (20, 3))
    sentences = [f"{' '.join(row)} {n}" for n, row in enumerate(words) for _ in range(3)]
    frame = pd.DataFrame({"sentence": sentences})
    frame["word_index"] = np.tile([0, 1, 2], 20)
    frame["place"] = np.tile(list("abc"), 20)
    stimuli = from_frame(frame, "words")
    layers = [np.random.default_rng(seed).standard_normal((60, 3)) for seed in (0, 1)]
    pairs = layer_pairs(frame[["place"]], layers, stimuli.groups, stimuli.groups % 3)
    found = chance.chance_at_level(pairs, stimuli, 20)
    assert found.units == ("place",) and not found.known[0] and np.isnan(found.p).all()
    assert "place (6 different labellings of the places, where 20 are needed)" in found.notes[0]


def test_the_true_labels_are_treated_as_the_permuted_ones_are():
    """The level of the maximum of exchangeable columns, skewed ones too, is that of the test."""
    for n_columns, skewed in ((8, False), (20, False), (20, True)):
        rng = np.random.default_rng(0)
        draws = rng.standard_normal((20, n_columns, 4000))
        p = corrected_p(np.exp(2 * draws) if skewed else draws, np.ones(n_columns, dtype=bool))
        # The largest of 20 rows is the first one in 1 of 20 data sets.
        assert np.mean(p.min(axis=0) <= 0.05) == pytest.approx(0.05, abs=0.011)


def test_contributions_beyond_chance_and_identities_add_up():
    stimuli, _, pairs, _ = in_sentences(1, 40, 30)
    raw, told = terms_of(pairs), []
    found = chance.chance_at_level(pairs, stimuli, 20, progress=lambda *done: told.append(done))
    assert told == [(20 * done, 80) for done in range(1, 5)]
    assert "(labels permuted 20 times)" in chance_sentence(found)
    beyond = found.subtract_chance(raw)
    assert list(beyond["term"][-3:]) == ["word identity", "sentence identity", UNEXPLAINED]
    assert beyond["value"].sum() == pytest.approx(raw["value"].sum(), abs=1e-12)
    identity = beyond.set_index("term")["value"]["word identity"]
    assert identity == pytest.approx(beyond["chance"][:2].sum()) and identity > 0.003


def test_contributions_to_all_layers_are_beyond_chance(tmp_path):
    stimuli, layers, *_ = in_sentences(3, 60, 40, planted=3.0)
    rng, items = np.random.default_rng(3), stimuli.items
    layers += [rows + 0.5 * rng.standard_normal(rows.shape) for rows in layers for _ in range(2)]
    layers.append(rng.standard_normal((items.max() + 1, 4))[items])  # of words, and nothing else
    store = Store(tmp_path / "store", overlays=())
    columns = ["sentence", "word_index", "kind", "noise", "clause"]
    spec = in_files(tmp_path, stimuli.table[columns], {"m": dict(enumerate(layers))}, folds=5)
    analysis = run(spec, store)
    every = SelectionContext.from_analysis(analysis, store)
    found = LAYER_CHANCE.get(every)
    split = decompose(analysis.pairs.moments)
    beyond = found.subtract_from_all(split)
    assert beyond.names == (*split.features, "word identity", "sentence identity", UNEXPLAINED)
    np.testing.assert_allclose(beyond.values.sum(axis=0), analysis.rsa, atol=1e-9)
    table = beyond.table(analysis.layers)
    planted = table[table["term"] == "kind"]
    of_words = planted["layer_b"] == len(layers) - 1
    assert (planted[~of_words]["p"] < 0.05).all() and (planted[of_words]["p"] > 0.05).all()
    assert (table[table["term"] == "noise"]["p"] > 0.05).mean() > 0.8
    assert table[table["term"] == "word identity"]["value"].mean() > 0.001
    # Two of them alone, by the same permutations.
    both = [("m", 1), ("m", 4)]
    kept = LAYER_CHANCE.find(SelectionContext(analysis, analysis.select(layers=both), store))
    alone = chance.chance_at_level(
        LayerPairs.from_analysis(analysis, analysis.select(layers=both), store), analysis.stimuli
    )
    n_drawn = 1 + int(alone.n_drawn.min())
    np.testing.assert_allclose(kept.draws[:n_drawn], alone.draws[:n_drawn], atol=1e-6)
    p = [kept.p[:, 0, 1], kept.subtract_chance(split.pair(1, 4))["p"]]
    np.testing.assert_allclose(p[0], p[1][:3])
    found = LAYER_CHANCE.find(every)
    why = best_known(explain(analysis, *both), every, chance=found)
    pd.testing.assert_frame_equal(
        why.terms, found.select_layers([1, 4]).subtract_chance(split.pair(1, 4))
    )
    assert why.sure["term"].tolist() == ["kind"]


@pytest.mark.parametrize("planted", [0.0, 3.0])
def test_noise_of_words_is_not_named_and_a_planted_feature_is(planted):
    n_sets, named, excess = 15, [], []
    for seed in range(n_sets):
        stimuli, _, pairs, _ = in_sentences(seed, planted=planted)
        raw = terms_of(pairs)["value"].to_numpy()
        found = chance.chance_at_level(pairs, stimuli, 39, seed)
        named.append(found.p[:, 0, 1] < 0.05)
        excess.append(raw[:-1] - found.mean[:, 0, 1])
    named, excess = np.array(named), np.array(excess)
    # In 5 of 100 data sets a feature that means nothing; in 15 rarely more than 3.
    assert named[:, 1:].any(axis=1).sum() <= 3
    np.testing.assert_allclose(excess[:, 1:].mean(axis=0), 0.0, atol=0.01)
    assert named[:, 0].mean() > 0.9 if planted else named[:, 0].sum() <= 2


def test_permuting_leaves_the_other_features_as_they_are():
    features = explicit.random_features(60)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    stimuli = from_frame(features.assign(sentence=[f"s {n}" for n in range(60)]), "words")
    pairs = layer_pairs(features, layers, np.arange(60), np.arange(60) % 3)
    found = chance.chance_at_level(pairs, stimuli, 30)
    assert set(found.units) == {"stimulus"} and found.known.all() and not found.notes
    p = found.subtract_chance(terms_of(pairs)).set_index("term")["p"]
    assert p["kind"] < 0.05 < p["gender"]


def test_importances_by_chance_are_those_of_models_fitted_anew(tmp_path):
    stimuli, layers, *_ = in_sentences(2, 40, 30)
    frame = stimuli.table[["sentence", "word_index", "kind", "noise", "token"]]
    made_up = {"m": dict(enumerate(layers))}
    store = Store(tmp_path / "store", overlays=())
    analysis = run(in_files(tmp_path, frame, made_up, folds=3), store)
    every = SelectionContext.from_analysis(analysis, store)
    found = IMPORTANCE_CHANCE.get(every, permutations=20)
    assert IMPORTANCE_CHANCE.find(every, permutations=20) is not None
    results = analysis.results().importance.groupby(["layer", "feature"])["importance"].mean()
    own = found.set_index(["layer", "feature"])["importance"]
    np.testing.assert_allclose(own.sort_index(), results.sort_index(), atol=1e-9)
    # The same permutations, a fit at a time, with the penalties of the true labels.
    pairs = LayerPairs.from_analysis(analysis, analysis.select(layers=[("m", 1)]), store)
    model = estimator_named("ridge").model()
    held = model.solve(pairs.statistics, range(3))
    drawn, f = [], 1
    (exchange,) = exchanges(analysis.stimuli, analysis.folds, "noise")
    for givers in exchange.draw(20, np.random.default_rng([f, 20])):
        again = frame.iloc[:, 2:].assign(noise=frame["noise"].to_numpy()[givers])
        anew = layer_pairs(again, [layers[1]], pairs.groups, pairs.folds).statistics
        drop = permutation_importance(anew.tests, model.refit(anew, held)).drop
        drawn.append(drop.mean(axis=1)[0, f])
    row = found[(found["layer"] == 1) & (found["feature"] == "noise")].iloc[0]
    assert row["unit"] == "word" and row["chance"] == pytest.approx(np.mean(drawn), abs=1e-6)
    with refused("at least 20"):
        IMPORTANCE_CHANCE.get(every, permutations=3)


@pytest.mark.parametrize("estimator", ["ridge-rank", "spearman"])
def test_importances_of_permuted_features_are_those_of_other_estimators_too(case, estimator):
    *_, pairs = case
    model = estimator_named(estimator).model()
    importances = PermutedImportances.from_pairs(pairs, model)
    true = permutation_importance(pairs.statistics.tests, importances.solution.coef).drop
    assert true.mean(axis=1).shape == (2, 4) and true[0, :, 0].mean() > 0.05
    identity = importances.feature_importances(0, np.arange(N)[None])
    np.testing.assert_allclose(identity[0], true.mean(axis=1)[:, 0], atol=1e-6)


@pytest.mark.slow
def test_p_of_importances_of_noise_are_uniform():
    """A feature that means nothing, beside one that means something, over many data sets."""
    above = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        features = pd.DataFrame({"a": rng.integers(0, 3, 60).astype(str), "b": rng.random(60)})
        layer = rng.standard_normal((60, 4))
        layer[:, 0] += 2.0 * (features["a"] == "0")
        pairs = layer_pairs(features, [layer], np.arange(60), np.arange(60) % 3)
        importances = PermutedImportances.from_pairs(pairs, RidgeMLEM())
        givers = np.stack([rng.permutation(60) for _ in range(19)])
        true, *drawn = importances.feature_importances(1, np.vstack([np.arange(60), *givers]))[:, 0]
        above.append((np.array(drawn) >= true - 1e-12).mean())
    # In a twentieth no permutation is above, in a half less than half of them are.
    assert sum(share == 0 for share in above) <= 8
    assert 18 <= sum(share < 0.5 for share in above) <= 42

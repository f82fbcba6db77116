"""Labels that are permuted, of scores and of features at their level: the explicit way, planted."""

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import in_files, layer_pairs, over_both, refused, tables_of
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.patterns import PairIndex

from mlem_core import RidgeMLEM, Store, from_frame, run
from mlem_core.data.levels import exchanges
from mlem_core.inference import chance
from mlem_core.inference.bootstrap import term_replicates
from mlem_core.inference.explanation import best_known, explain
from mlem_core.inference.importance_chance import (
    IMPORTANCE_CHANCE,
    importances_by_chance,
    permuted_tables,
    score_above_chance,
)
from mlem_core.inference.layer_intervals import chance_of_layers, known_layer_chance
from mlem_core.inference.layer_pairs import MOST_CELLS, LayerPairs, Relabelled
from mlem_core.inference.replicates import identity_reach, resampled_terms
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.ranks import correlations

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


@pytest.mark.parametrize("train_ranks", [False, True])
@pytest.mark.parametrize("made", ["case", "words"])
def test_tables_are_those_of_features_that_were_permuted(request, made, train_ranks):
    features, layers, pairs = request.getfixturevalue(made)
    labels = pairs.units.permuted(2, np.random.default_rng(1))

    def tables_of(own):
        index = PairIndex.build(feature_columns(own), pairs.folds)
        return pair_tables(index, [lambda: layers[0]], train_ranks=train_ranks)

    # The tables that the permuted ones stand in for must have these ranks too.
    found = permuted_tables(replace(pairs, tables=tables_of(features)), 0, labels, train_ranks)
    for d, permutation in enumerate(labels):
        expected = tables_of(features.iloc[permutation].reset_index(drop=True))
        np.testing.assert_array_equal(found.counts, expected.counts)
        np.testing.assert_allclose(found.target_sums[d], expected.target_sums[0], rtol=1e-5)
        np.testing.assert_allclose(found.within_sums[d], expected.within_sums[0])
        if train_ranks:
            np.testing.assert_allclose(found.training_ranks[d], expected.training_ranks[0])


@pytest.mark.parametrize(("planted", "n_sets"), [(0.0, 40), (2.0, 6)])
def test_over_both_a_planted_feature_is_above_chance_and_what_means_nothing_is_not(planted, n_sets):
    fit, found = RidgeMLEM(alphas=[1.0]).cross_validate, []
    for seed in range(n_sets):
        *_, pairs = over_both(seed, 60, 24, planted)
        found.append(score_above_chance(pairs, fit, n_permutations=39)["p"][0] <= 0.05)
    # In 5 of 100 data sets; in 40 rarely more than 5.
    assert np.mean(found) > 0.8 if planted else sum(found) <= 5


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
    ranks = np.stack([own - (len(pairs.cells) + 1.0) for own in pairs.ranks])
    return decompose(pairs.tables, correlations(ranks @ ranks.T)).pair(0, 1)


def added_along(tables, order, feature):
    """What a feature adds to those before it, each from tables of these features alone."""
    place, names = list(order).index(feature), np.array(tables.features)[order]
    sets = [tables.of_features(names[: place + k].tolist()) for k in (1, 0) if place + k]
    added = [decompose(some, np.eye(2)).terms.sum(axis=0) for some in sets]
    return added[0] - (added[1] if place else 0.0)


@pytest.mark.parametrize(
    ("few", "most_cells", "more"),
    [
        (chance.FEW_LAYERS, MOST_CELLS, 0),
        (chance.FEW_LAYERS, 0, 0),
        (0, MOST_CELLS, 0),
        pytest.param(0, MOST_CELLS, 9, marks=pytest.mark.slow),
    ],
    ids=["two layers", "sorted keys", "many layers", "13 features"],
)
def test_chance_is_that_of_features_that_were_permuted(monkeypatch, few, most_cells, more):
    monkeypatch.setattr("mlem_core.inference.layer_pairs.MOST_CELLS", most_cells)
    monkeypatch.setattr(chance, "FEW_LAYERS", few)
    stimuli, layers, pairs, features = in_sentences(0, 20, 14)
    if more:
        rng = np.random.default_rng(9)
        others = {f"x{k}": rng.integers(0, 2, 60).astype(float) for k in range(more)}
        features = features.assign(**others)
        stimuli = from_frame(stimuli.table[["sentence", "word_index"]].join(features), "words")
        pairs = replace(layer_pairs(features, layers, pairs.groups, pairs.folds), items=pairs.items)
    found = chance.chance_at_level(pairs, stimuli, 1, seed=4)
    assert found.levels[:4] == ("word", "word", "sentence", "stimulus")
    rng = np.random.default_rng(4)
    order = rng.permutation(4 + more) if more else None
    for f, name in enumerate(features.columns[:4]):
        (exchange,) = exchanges(stimuli, pairs.folds, name)
        if exchange.moved(stimuli.values(name)) < 0.9:
            assert not found.known[f] and np.isnan(found.p(np.ones((4 + more, 2, 2)))[f]).all()
            continue
        (givers,) = exchange.draw(1, rng)
        again = features.assign(**{name: features[name].to_numpy()[givers]})
        tables = layer_pairs(again, layers, pairs.groups, pairs.folds).tables
        if order is None:
            expected = decompose(tables, np.eye(2)).terms[f]
        else:
            expected = sum(added_along(tables, way, f) for way in (order, order[::-1])) / 2
        np.testing.assert_allclose(found.draws[0, f], expected, atol=1e-12)


def test_permuted_labels_without_a_block_are_those_of_the_other_stimuli():
    stimuli, layers, pairs, features = in_sentences(0, 20, 14)
    (exchange,) = exchanges(stimuli, pairs.folds, "noise")
    (givers,) = exchange.draw(1, np.random.default_rng(0))
    labelled, tables = Relabelled.of(pairs, 1).ranked(givers)
    weights = pairs.units.blocks().weights[[0, 7, 25, 40]]
    found = term_replicates(labelled.by_stimulus, tables, weights)[:, 1]
    again = features.assign(noise=features["noise"].to_numpy()[givers])
    priority = CrossFit.of(tables).priority
    for row, value in zip(weights > 0, found, strict=True):
        kept = again[row].reset_index(drop=True), [layer[row] for layer in layers]
        alone = layer_pairs(*kept, pairs.groups[row], pairs.folds[row])
        expected = decompose(alone.tables, np.eye(2), priority=priority).terms[1, 0, 1]
        assert value == pytest.approx(expected, abs=1e-12)
    by_chance = chance.chance_at_level(pairs, stimuli, 20)
    by_chance = by_chance._replace(reach=identity_reach(pairs, by_chance, stimuli))
    drawn = resampled_terms(pairs)
    bounds = drawn.around(drawn.value + by_chance.of_two).estimate()
    table = by_chance.bounded(terms_of(pairs), bounds).set_index("term")
    width = table["upper"] - table["value"]
    np.testing.assert_allclose(width, table["value"] - table["lower"])
    assert width["word identity"] >= by_chance.reach[0] > 0


def test_contributions_beyond_chance_and_identities_add_up():
    stimuli, _, pairs, _ = in_sentences(1, 40, 30)
    raw = terms_of(pairs)
    beyond = chance.chance_at_level(pairs, stimuli, 20).beyond(raw)
    assert list(beyond["term"][-3:]) == ["word identity", "sentence identity", UNEXPLAINED]
    assert beyond["value"].sum() == pytest.approx(raw["value"].sum(), abs=1e-12)
    identity = beyond.set_index("term")["value"]["word identity"]
    assert identity == pytest.approx(beyond["chance"][:2].sum()) and identity > 0.01


def test_contributions_to_all_layers_are_beyond_chance(tmp_path):
    stimuli, layers, *_ = in_sentences(3, 60, 40, planted=3.0)
    rng, items = np.random.default_rng(3), stimuli.items
    layers += [rows + 0.5 * rng.standard_normal(rows.shape) for rows in layers for _ in range(2)]
    layers.append(rng.standard_normal((items.max() + 1, 4))[items])  # of words, and nothing else
    store = Store(tmp_path / "store", overlays=())
    columns = ["sentence", "word_index", "kind", "noise", "clause"]
    spec = in_files(tmp_path, stimuli.table[columns], {"m": dict(enumerate(layers))}, folds=5)
    analysis = run(spec, store)
    found = chance_of_layers(analysis, store)
    split = decompose(*analysis.subset(analysis.select()))
    beyond = found.of_all(split)
    assert beyond.names == (*split.features, "word identity", "sentence identity", UNEXPLAINED)
    np.testing.assert_allclose(beyond.values.sum(axis=0), analysis.rsa, atol=1e-9)
    table = beyond.table(analysis.layers)
    planted = table[table["term"] == "kind"]
    of_words = planted["layer_b"] == len(layers) - 1
    assert (planted[~of_words]["p"] < 0.05).all() and (planted[of_words]["p"] > 0.05).all()
    assert (table[table["term"] == "noise"]["p"] > 0.05).mean() > 0.8
    assert table[table["term"] == "word identity"]["value"].mean() > 0.005
    # Two of them alone, by the same permutations and the way of a few layers.
    both = [("m", 1), ("m", 4)]
    kept = known_layer_chance(analysis, store, analysis.select(layers=both))
    alone = chance.chance_at_level(LayerPairs.of(analysis, both, store), analysis.stimuli)
    np.testing.assert_allclose(kept.draws, alone.draws, atol=2e-3)
    np.testing.assert_allclose(kept.mean, alone.mean, atol=2e-4)
    p = [kept.p(split.terms[:, [1, 4]][..., [1, 4]])[:, 0, 1], kept.beyond(split.pair(1, 4))["p"]]
    np.testing.assert_allclose(p[0], p[1][:3])
    found = known_layer_chance(analysis, store, analysis.select())
    why = best_known(explain(analysis, *both), analysis, analysis.select(), store, chance=found)
    pd.testing.assert_frame_equal(why.terms, found.of_layers([1, 4]).beyond(split.pair(1, 4)))
    assert why.sure["term"].tolist() == ["kind"]


@pytest.mark.parametrize("planted", [0.0, 3.0])
def test_noise_of_words_is_not_named_and_a_planted_feature_is(planted):
    n_sets, named, excess = 15, [], []
    for seed in range(n_sets):
        stimuli, _, pairs, _ = in_sentences(seed, planted=planted)
        raw = terms_of(pairs)["value"].to_numpy()
        found = chance.chance_at_level(pairs, stimuli, 39, seed)
        named.append(found.p(raw[:-1, None, None])[:, 0, 1] < 0.05)
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
    assert set(found.levels) == {"stimulus"} and found.known.all() and not found.notes
    p = found.beyond(terms_of(pairs)).set_index("term")["p"]
    assert p["kind"] < 0.05 < p["gender"]


def test_importances_by_chance_are_those_of_models_fitted_anew(tmp_path):
    stimuli, layers, *_ = in_sentences(2, 40, 30)
    frame = stimuli.table[["sentence", "word_index", "kind", "noise", "token"]]
    made_up = {"m": dict(enumerate(layers))}
    store = Store(tmp_path / "store", overlays=())
    analysis = run(in_files(tmp_path, frame, made_up, folds=3), store)
    found = importances_by_chance(analysis, store, n_permutations=20)
    assert analysis.kept(IMPORTANCE_CHANCE, store, permutations=20) is not None
    results = analysis.results().importance.groupby(["layer", "feature"])["importance"].mean()
    own = found.set_index(["layer", "feature"])["importance"]
    np.testing.assert_allclose(own.sort_index(), results.sort_index(), atol=1e-9)
    # The same permutations, a table and a fit at a time.
    own_pairs = LayerPairs.of(analysis, [("m", 1)], store)
    drawn, f = [], 1
    (exchange,) = exchanges(analysis.stimuli, analysis.folds, "noise")
    for givers in exchange.draw(20, np.random.default_rng([f, 20])):
        again = frame.iloc[:, 2:].assign(noise=frame["noise"].to_numpy()[givers])
        drawn.append(fitted(tables_of(again, [layers[1]], own_pairs.folds))[1].mean(axis=1)[0, f])
    row = found[(found["layer"] == 1) & (found["feature"] == "noise")].iloc[0]
    assert row["level"] == "word" and row["chance"] == pytest.approx(np.mean(drawn), abs=1e-6)
    with refused("at least 20"):
        importances_by_chance(analysis, store, n_permutations=3)

"""Two layers by another similarity than RSA: its value, terms and intervals, and refusals."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs, refused
from mlem_core.inference.replicates import Comparison
from mlem_core.pairs.layer_sums import PairCells, of_some
from scipy.stats import t

from mlem_core import Store, explain, from_frame, with_intervals
from mlem_core.analysis import similarities
from mlem_core.inference.intervals import similarity_table
from mlem_core.inference.layer_intervals import known_intervals, layer_intervals
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import t_quantile
from mlem_core.measures.decomposition import decompose, with_sums
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.pairs.similarities import SIMILARITIES, components
from mlem_core.robustness.audit import audit, find_audit
from mlem_core.robustness.flags import check

OTHERS, ALIGNED = ("cka", "neighbours"), ("procrustes", "cca")
N, N_ALIGNED = 60, 40
A, B = ("m", 0), ("m", 1)


@pytest.mark.parametrize("name", OTHERS)
def test_a_similarity_is_computed_once_and_divided_over_the_features(planted, name, tmp_path):
    whole, store = planted.analysis, Store(tmp_path, overlays=())
    assert similarities.kept_similarity(whole, name, store) is None
    found = similarities.compared(whole, name, store)
    kept = similarities.kept_similarity(whole, name, store)
    np.testing.assert_array_equal(kept.values, found.values)
    squared = [explicit.squared(layer) for layer in planted.layers.values()]
    division = similarities.pair_cells(whole, SIMILARITIES[name])
    given = SIMILARITIES[name], squared, division, np.ones(len(whole.stimuli), dtype=bool)
    np.testing.assert_allclose(found.values, of_some(*given)[1].similarity, atol=1e-9)
    assert found.values[0, 1] > 0.05 > abs(found.values[0, 2])
    chosen = found.of(whole, whole.select(["size"], [A, B]))
    assert chosen.tables.features == ("size",)
    np.testing.assert_array_equal(chosen.square, found.square.iloc[:2, :2])
    np.testing.assert_allclose(chosen.decomposed().values.sum(axis=0), chosen.values)


@pytest.mark.parametrize("name", ("rsa", *OTHERS))
def test_intervals_are_those_of_stimuli_left_out_and_compared_anew(name):
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    pairs = layer_pairs(features, layers, np.arange(N), explicit.random_folds(N, 3))
    squared = [explicit.squared(layer) for layer in layers]
    similarity = SIMILARITIES[name]
    compared = Comparison(pairs, similarity, squared)
    found = compared.interval()
    blocks = pairs.units.blocks()

    def similarity_of(kept):
        some = [explicit.squared(layer[kept]) for layer in layers]
        one = PairCells(np.zeros(len(some[0]), dtype=np.int64), 1, np.zeros(kept.sum(), int))
        return of_some(similarity, some, one, np.ones(kept.sum(), bool))[1].similarity[0, 1]

    without = np.array([similarity_of(row > 0) for row in blocks.weights])
    n = len(without)
    reach = t_quantile(n) * np.sqrt((n - 1) * without.var())
    at = len(pairs.tables.features) + 1
    value = similarity_of(np.ones(N, dtype=bool))
    assert found.lower[at] == pytest.approx(value - reach, abs=1e-9)
    assert found.upper[at] == pytest.approx(value + reach, abs=1e-9)
    # Terms: around those of all stimuli, as wide as those without each block say.
    _, sums = compared.sums()
    terms = decompose(with_sums(pairs.tables, sums), sums.similarity).values[:, 0, 1]
    np.testing.assert_allclose((found.lower + found.upper)[:at] / 2, terms, atol=1e-9)
    frame = features.assign(sentence=[f"s {n}" for n in range(N)])
    chance = compared.chance(from_frame(frame, "s"))
    assert set(chance.levels) == {"stimulus"} and (np.abs(chance.mean[:, 0, 1]) < 0.05).all()


@pytest.mark.parametrize("name", (*OTHERS, *ALIGNED))
def test_two_layers_are_explained_by_another_similarity(planted, name):
    whole, store = planted.analysis, planted.store
    alike = similarities.compared(whole, name, store)
    why = explain(whole, "m:0", "m:1", compared=alike)
    assert why.value == alike.values[0, 1] and why.whole["quantity"][0] == name
    found = with_intervals(why, whole, store)
    for part in (found.terms, found.whole):
        assert (part["lower"] <= part["value"] + 1e-9).all()
        assert (part["value"] <= part["upper"] + 1e-9).all()
    if name in ALIGNED:
        assert f"{why.value:.2f}"[1:] in found.headline and "unseen sentences" in found.headline
        return
    assert why.terms["value"].sum() == pytest.approx(why.value, abs=1e-12)
    colour = found.terms.set_index("term").loc["colour"]
    assert colour["lower"] > 0 and colour["value"] > colour["chance"]


def two(seed, shared=1.0):
    """Two layers that have so much in common, as Procrustes and CCA take them."""
    rng = np.random.default_rng(seed)
    common = shared * rng.standard_normal((N_ALIGNED, 3))
    return [components(common + rng.standard_normal((N_ALIGNED, 3))) for _ in range(2)]


def interval(name, layers, folds, sentences, words=None):
    tables = layer_pairs(pd.DataFrame({"f": list("ab" * 20)}), layers, sentences, folds).tables
    given = (A, B), tables, (), (), None, np.zeros(0, int), sentences, folds, words
    return Comparison(LayerPairs(*given), SIMILARITIES[name], layers).interval()


def by_hand(name, layers, folds, units):
    """The variance of the jackknife of one kind of unit, and the number of these."""
    left = []
    for unit in np.unique(units):
        kept = units != unit
        left.append(SIMILARITIES[name].aligned(*(one[kept] for one in layers), folds[kept]))
    n = len(left)
    return (n - 1) / n * np.sum((np.array(left) - np.mean(left)) ** 2), n


@pytest.mark.parametrize("name", ALIGNED)
def test_the_interval_of_an_alignment_is_the_jackknife_s_by_hand(name):
    layers, sentences = two(0), np.arange(N_ALIGNED) // 2
    folds, similarity = sentences % 4, SIMILARITIES[name]
    value, lower, upper, *_ = interval(name, layers, folds, sentences)
    variance, n = by_hand(name, layers, folds, sentences)
    assert value[0] == pytest.approx(similarity.aligned(*layers, folds))
    reach = t.ppf(0.975, n - 1) * np.sqrt(variance)
    np.testing.assert_allclose([lower[0], upper[0]], [value[0] - reach, min(1, value[0] + reach)])
    # Where words recur they are left out too.
    words = np.random.default_rng(0).permutation(np.arange(N_ALIGNED) % 12)
    lower = interval(name, layers, folds, sentences, words).lower
    both = np.unique(np.stack((sentences, words)), axis=1, return_inverse=True)[1].ravel()
    (s, n_s), (w, n_w), (b, _) = (
        by_hand(name, layers, folds, units) for units in (sentences, words, both)
    )
    error = np.sqrt(max(s + w - b, s, w))
    assert lower[0] == pytest.approx(value[0] - t.ppf(0.975, min(n_s, n_w) - 1) * error)


def test_few_sentences_are_refused():
    with refused("9 resampling units", "at least 10"):
        interval("cca", two(0), np.arange(N_ALIGNED) % 4, np.arange(N_ALIGNED) % 9)


@pytest.mark.parametrize("name", ["cka", "procrustes"])
def test_intervals_of_all_layers_and_audit_take_it_by_its_name(planted, name):
    whole, store = planted.analysis, planted.store
    values = similarities.compared(whole, name, store).values
    chosen = whole.select(similarity=name)
    every = layer_intervals(whole, store, chosen, n_replicates=20)
    of_rsa = known_intervals(whole, store, n_replicates=20)
    np.testing.assert_allclose(every.values, values, atol=1e-12)
    np.testing.assert_array_equal(every.scores, of_rsa.scores)
    assert known_intervals(whole, store, chosen, n_replicates=20).similarity == name
    compared = Comparison.of(whole, SIMILARITIES[name], whole.layers, chosen.features, store)
    _, sums = compared.sums(StimulusUnits.of(whole.stimuli, whole.folds).blocks().weights[3] > 0)
    np.testing.assert_allclose(every.values_without[3], sums.similarity, atol=1e-6)
    assert {name, f"{name}_lower", f"{name}_p"} <= set(similarity_table(every).table)
    audited = audit(whole, store, similarity=name)
    assert audited.pairs[f"{name}_before"][0] == pytest.approx(values[0, 1])
    # What depends on no distance stays as it is with another one.
    assert set(audited.pairs["variant"]) == {"without-outliers", "standardised"}
    assert find_audit(whole, store, name).similarity is check(audited, A, B).similarity

"""Two layers by another similarity than RSA: its value, terms and intervals, and refusals."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import explicit
from helpers.inputs import layer_pairs
from scipy.stats import t

from mlem_core import Store, explain, with_intervals
from mlem_core.analysis import similarities
from mlem_core.analysis.context import SelectionContext
from mlem_core.extensions.similarities.alignment import components
from mlem_core.inference.block_influence import ComparedLayers
from mlem_core.inference.intervals import similarity_table
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.inference.resample import jackknife
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.pairs.similarity_moments import similarity_moments

OTHERS, ALIGNED = ("cka", "neighbours"), ("procrustes", "cca")
N, N_ALIGNED = 60, 40
A, B = ("m", 0), ("m", 1)


@pytest.mark.parametrize("name", OTHERS)
def test_a_similarity_is_computed_once_and_divided_over_the_features(planted, name, tmp_path):
    whole, store = planted.analysis, Store(tmp_path, overlays=())
    assert (
        similarities.SIMILARITY.find(SelectionContext.from_analysis(whole, store), name=name)
        is None
    )
    found = similarities.compared(whole, name, store)
    kept = similarities.SIMILARITY.find(SelectionContext.from_analysis(whole, store), name=name)
    np.testing.assert_array_equal(kept.values, found.values)
    squared = [explicit.squared(layer) for layer in planted.layers.values()]
    expected = similarity_moments(
        SIMILARITIES[name],
        [partial(np.asarray, own) for own in squared],
        whole.pairs.columns,
        whole.folds,
    )
    np.testing.assert_allclose(found.values, expected.values, atol=1e-9)
    assert found.values[0, 1] > 0.05 > abs(found.values[0, 2])
    chosen = found.select(whole, whole.select(["size"], [A, B]))
    assert chosen.pairs.features == ("size",)
    np.testing.assert_array_equal(chosen.square, found.square.iloc[:2, :2])
    np.testing.assert_allclose(chosen.decomposed().values.sum(axis=0), chosen.values)


def compared_layers(name, layers):
    """Layers of random features, compared by a similarity that is a sum over pairs."""
    features, folds = explicit.random_features(N), explicit.random_folds(N, 3)
    pairs = layer_pairs(features, layers, np.arange(N), folds)
    squared = [explicit.squared(layer) for layer in layers]
    similarity = SIMILARITIES[name]
    columns = pairs.statistics.columns
    moments = similarity_moments(
        similarity, [lambda own=own: own for own in squared], columns, folds
    )
    in_place = moments.replace_ranks(pairs.statistics.moments)
    statistics = replace(pairs.statistics, moments=in_place)
    return ComparedLayers(similarity, statistics, pairs.units, squared)


@pytest.mark.parametrize("name", OTHERS)
def test_intervals_are_those_of_stimuli_left_out_and_compared_anew(name):
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    compared = compared_layers(name, layers)
    found, blocks = compared.without(), compared.units.blocks()
    terms = decompose(compared.statistics.moments).values
    np.testing.assert_allclose(found.terms, terms, atol=1e-12)
    for at, weights in enumerate(blocks.weights):
        rows = np.flatnonzero(weights)
        value, terms = explicit_terms(name, features, layers, compared.units.folds, rows)
        np.testing.assert_allclose(found.values_without[at], value, atol=1e-9)
        np.testing.assert_allclose(found.terms_without[at], terms, atol=1e-9)
    np.testing.assert_allclose(found.terms_without.sum(axis=1), found.values_without, atol=1e-9)


def explicit_terms(name, features, layers, folds, rows):
    """The similarity of some stimuli alone, as if the others had never been there, and terms."""
    some = layer_pairs(features, layers, np.arange(N), folds).statistics.columns.select_stimuli(
        rows
    )
    squared = [explicit.squared(layer[rows]) for layer in layers]
    few = layer_pairs(features.iloc[rows], [layer[rows] for layer in layers], rows, folds[rows])
    moments = similarity_moments(
        SIMILARITIES[name], [lambda own=own: own for own in squared], some, folds[rows]
    )
    terms = decompose(moments.replace_ranks(few.statistics.moments)).values
    return moments.values, terms


@pytest.mark.parametrize("name", (*OTHERS, *ALIGNED))
def test_two_layers_are_explained_by_another_similarity(planted, name):
    whole, store = planted.analysis, planted.store
    alike = similarities.compared(whole, name, store)
    why = explain(whole, "m:0", "m:1", compared=alike)
    assert why.value == pytest.approx(alike.values[0, 1], abs=1e-12)
    assert why.whole["quantity"].tolist() == [name]
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


def aligned(name, layers, folds, sentences, words=None):
    """The similarity of layers and their interval, as `explain` has them."""
    units = StimulusUnits(folds, np.asarray(sentences), words)
    found = ComparedLayers(SIMILARITIES[name], None, units, layers).without()
    value, without = found.values[0, 1], found.values_without[:, 0, 1]
    return jackknife(value[None], without[:, None], found.sizes, (-1.0, 1.0))


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
    value, lower, upper, *_ = aligned(name, layers, folds, sentences)
    variance, n = by_hand(name, layers, folds, sentences)
    assert value[0] == pytest.approx(similarity.aligned(*layers, folds))
    reach = t.ppf(0.975, n - 1) * np.sqrt(variance)
    np.testing.assert_allclose([lower[0], upper[0]], [value[0] - reach, min(1, value[0] + reach)])
    # Where words recur they are left out too.
    words = np.random.default_rng(0).permutation(np.arange(N_ALIGNED) % 12)
    lower = aligned(name, layers, folds, sentences, words).lower
    both = np.unique(np.stack((sentences, words)), axis=1, return_inverse=True)[1].ravel()
    (s, n_s), (w, n_w), (b, _) = (
        by_hand(name, layers, folds, units) for units in (sentences, words, both)
    )
    error = np.sqrt(max(s + w - b, s, w))
    assert lower[0] == pytest.approx(value[0] - t.ppf(0.975, min(n_s, n_w) - 1) * error)


@pytest.mark.parametrize("name", ["cka", "procrustes"])
def test_intervals_of_all_layers_take_it_by_its_name(planted, name):
    whole, store = planted.analysis, planted.store
    values = similarities.compared(whole, name, store).values
    chosen = whole.select(similarity=name)
    every = LAYER_INTERVALS.get(SelectionContext(whole, chosen, store))
    of_rsa = LAYER_INTERVALS.find(SelectionContext.from_analysis(whole, store))
    np.testing.assert_allclose(every.values, values, atol=1e-12)
    np.testing.assert_array_equal(every.scores, of_rsa.scores)
    assert LAYER_INTERVALS.find(SelectionContext(whole, chosen, store)).similarity == name
    compared = ComparedLayers.from_analysis(whole, chosen, store)
    without = compared.among(compared.units.blocks().weights[3] > 0)[0]
    np.testing.assert_allclose(every.values_without[3], without, atol=1e-6)
    assert len(every.terms) == (3 if name == "cka" else 0)
    assert {name, f"{name}_lower", f"{name}_p"} <= set(similarity_table(every).table)

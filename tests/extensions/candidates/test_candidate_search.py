"""Candidates beyond the features: the explicit way, planted, and of noise."""

import itertools

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import arguments_of, in_files, layer_pairs
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from mlem_core import Store, from_frame, run
from mlem_core.cli.commands import main
from mlem_core.extensions.candidates.candidate_gains import (
    AugmentedFit,
    BaselineFit,
    explained_with_jackknife,
    stimulus_candidates,
)
from mlem_core.extensions.candidates.candidate_search import (
    common_share,
    explain_rest,
    score_candidates,
)
from mlem_core.inference.permuted_contributions import PermutedContributions
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.pair_columns import PairColumns

WORDS = 3


def table(n, rng, **columns):
    """Sentences of three of 12 words, each word a stimulus, with a feature and other columns."""
    words = np.concatenate([rng.choice(12, WORDS, replace=False) for _ in range(n // WORDS)])
    texts = [" ".join(f"w{word}" for word in row) for row in words.reshape(-1, WORDS)]
    sentences = np.repeat([f"{text}, end {at}." for at, text in enumerate(texts)], WORDS)
    frame = pd.DataFrame({"sentence": sentences, "word_index": np.arange(n) % WORDS})
    return frame.assign(kind=rng.choice(["noun", "verb"], n), **columns)


def columns(seed, n, count, most=9):
    """Columns that mean nothing: names of 2 to `most` values."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, most, count)
    return {f"_{at}": [f"v{v}" for v in rng.integers(0, k, n)] for at, k in enumerate(sizes)}


def case(seed, n, layers, **more):
    """Pairs of stimuli in two layers, and the stimuli."""
    rng = np.random.default_rng(seed)
    stimuli = from_frame(table(n, rng, **more), "made")
    groups = np.arange(n) // WORDS
    folds = rng.permutation(np.arange(n // WORDS) % 3)[groups]
    return layer_pairs(stimuli.table[["kind"]], layers, groups, folds), stimuli.select(["kind"])


def explained(x, layers, folds):
    """What all columns explain of the RSA of the first and the last layer, from explicit pairs."""
    ranks = np.stack([rankdata(explicit.squared(layer)) for layer in layers])
    return explicit.contributions(x, [{0}] * x.shape[1], ranks, folds)[0, 0, -1]


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_gains_are_those_of_explicit_pairs(kind):
    n, rng = 36, np.random.default_rng(1)
    names = [f"v{k}" for k in rng.integers(0, 26, n)]
    other = rng.integers(0, 5, n).astype(float) if kind == "numbers" else names
    layers = [rng.standard_normal((n, 4)) for _ in range(2)]
    pairs, stimuli = case(1, n, layers, _c=other)
    (candidate,) = [one for one in stimulus_candidates(stimuli) if one.name == "_c"]
    fit = AugmentedFit.from_pairs(pairs, stimuli, candidate, "ignore")
    baseline = BaselineFit.from_pairs(pairs, pairs.units.blocks(3))
    moments = fit.pairs.statistics.moments
    z = moments.columns.pair_values(*explicit.pairs(n))
    expected = explained(z, layers, pairs.folds)
    gain = baseline.gain(fit, np.zeros(2))[0]
    assert baseline.explained + gain == pytest.approx(expected, abs=1e-5)
    # Permuted: the columns of other labels in their place, less what the features explain.
    givers = np.stack([np.arange(n), rng.permutation(n)])
    permuted = PermutedContributions.from_moments(moments, fit.pairs.ranks, beyond_all=True)
    draws = permuted.feature_contributions([1], givers)[:, 0, -1]
    features = stimuli.table[["kind"]]
    for draw, row in zip(draws, givers, strict=True):
        columns = features.assign(c=np.array(other)[row])
        by_value = [] if kind == "numbers" else ["c"] * (len({*names}) <= 24)
        own = PairColumns.from_features(feature_columns(columns, resolved=by_value))
        of_labels = explained(own.pair_values(*explicit.pairs(n)), layers, pairs.folds)
        assert draw == pytest.approx(of_labels - baseline.explained, abs=1e-5)


def test_without_a_block_is_nearly_what_the_other_stimuli_give():
    n, rng = 120, np.random.default_rng(1)
    layers = [rng.standard_normal((n, 4)) for _ in range(2)]
    pairs, _ = case(1, n, layers)
    moved = layers[0] + 0.5 * layers[1]
    pairs, _ = case(1, n, [layers[0], moved])
    blocks = pairs.units.blocks(8)
    value, without = explained_with_jackknife(pairs, blocks)
    kept = blocks.weights[0] > 0
    features = pd.DataFrame({"kind": case(1, n, layers)[1].values("kind")})
    z = explicit.feature_distances(features[kept].reset_index(drop=True)) ** 2
    expected = explained(z, [layers[0][kept], moved[kept]], pairs.folds[kept])
    assert without[0] == pytest.approx(expected, abs=max(2e-3, 0.3 * abs(value)))


def test_a_planted_column_comes_first_in_python_and_on_the_command_line(
    tmp_path, capsys, monkeypatch
):
    n, rng = 90, np.random.default_rng(0)
    hidden = rng.choice(["a", "b", "c"], n)
    frame = table(n, rng, _hidden=hidden, _noise=rng.choice(["x", "y"], n), _one="same")
    rows = [rng.standard_normal((n, 5)) + 3 * np.eye(5)[np.unique(hidden, return_inverse=True)[1]]]
    rows += [rows[0] + rng.standard_normal((n, 5))]
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    spec = in_files(tmp_path, frame, {"m": dict(enumerate(rows))}, features=("kind",))
    store = Store()
    found = explain_rest(run(spec, store), "m:0,m:1", store, n_permutations=39)
    first = found.table.iloc[0]
    assert (first["candidate"], first["unit"], first["p"]) == ("_hidden", "stimulus", 0.025)
    assert first["lower"] > 0.1 and list(found.table)[2:6] == ["gain", "lower", "upper", "p"]
    assert (found.table["p"].iloc[1:] > 0.05).sum() >= len(found.table) - 2
    assert "_one was left out: it has the same value for all stimuli." in found.notes
    out, given = tmp_path / "out.csv", [*arguments_of(spec), "--features=kind", "--chance=39"]
    assert main(["what-else", "m:0", "m:1", *given, f"--out={out}"]) == 0
    assert found.sentences[0] in capsys.readouterr().out
    assert pd.read_csv(out)["candidate"].tolist() == found.table["candidate"].tolist()


def test_two_planted_columns_explain_more_together_and_one_layer_is_explained_alone():
    n, rng = 150, np.random.default_rng(5)
    hidden = {name: rng.choice(["a", "b"], n) for name in ("_first", "_second")}
    noise = {"_noise": rng.choice(["x", "y"], n), "_copy": hidden["_first"]}
    moved = [np.eye(6)[2 * k + (own == "a")] for k, own in enumerate(hidden.values())]
    rows = [4 * moved[0] + 3 * moved[1] + rng.standard_normal((n, 6)) for _ in range(2)]
    pairs, stimuli = case(5, n, rows, **hidden, **noise)
    asked = [one for one in stimulus_candidates(stimuli) if one.name in {**hidden, **noise}]
    found = score_candidates(pairs, stimuli, asked, n_permutations=39)
    # A copy adds nothing to what it copies.
    assert [*found.together["candidates"]] in (
        ["_first", "_first, _second"],
        ["_copy", "_copy, _second"],
    )
    assert found.together["gain"].iloc[1] > found.table["gain"].max() + 0.03
    assert (found.together["lower"] > 0).all() and len(found.sentences) > 1
    alone, stimuli = case(5, n, rows[:1], **hidden)
    whole = score_candidates(alone, stimuli, asked[:2], n_permutations=39)
    assert whole.rsa == 1.0 and [*whole.sure["candidate"]] == ["_first", "_second"]
    baseline = BaselineFit.from_pairs(alone, alone.units.blocks(3))
    fit = AugmentedFit.from_pairs(alone, stimuli, asked[0], "ignore")
    x = fit.pairs.statistics.columns.pair_values(*explicit.pairs(n))
    expected = explained(x, rows[:1], alone.folds)
    assert baseline.explained + baseline.gain(fit, np.zeros(2))[0] == pytest.approx(
        expected, abs=1e-4
    )


def test_reach_is_that_of_explicit_disjoint_pairs_and_finds_what_words_share():
    rng = np.random.default_rng(2)

    def squares(*layers):
        return [squareform(rankdata(pdist(layer)) - 0.5) for layer in layers]

    units = np.repeat(np.arange(6), 3)[:-1]
    kept = np.arange(len(units)) != 4
    rows = rng.standard_normal((2, len(units), 4))
    a, b = squares(rows[0], rows[0] + 0.5 * rows[1])
    of = [np.flatnonzero(kept & (units == k)) for k in range(6)]
    common = both = means = total = 0.0
    for u, w in itertools.combinations(of, 2):
        quads = [(i, k, j, m) for i in u for k in u for j in w for m in w if i != k and j != m]
        weight = len(u) * len(w)
        common += weight * np.mean([a[i, j] * b[k, m] for i, k, j, m in quads])
        both += (a * b)[np.ix_(u, w)].sum()
        means += np.array([a[np.ix_(u, w)].sum(), b[np.ix_(u, w)].sum()])
        total += weight
    off = np.prod(means) / total
    assert common_share([a, b], units, kept) == pytest.approx(
        (common - off) / (both - off), abs=1e-9
    )

    def share(of_words, of_stimuli):
        units = np.repeat(np.arange(40), 4)
        words = rng.standard_normal((40, 30))[units]
        own = rng.standard_normal((160, 30))
        layers = [
            of_words * words + of_stimuli * own + 0.2 * rng.standard_normal((160, 30)) for _ in "ab"
        ]
        return common_share(squares(*layers), units, np.ones(160, dtype=bool))

    # Of squared distances of sums of two vectors as long, either explains a quarter.
    assert (
        share(1, 0) > 0.95
        and abs(share(0, 1)) < 0.1
        and share(1, 1) == pytest.approx(0.25, abs=0.08)
    )


@pytest.mark.slow
def test_noise_earns_nothing():
    n, count, gains, first = 60, 10, [], []
    candidates = [f"_{at}" for at in range(count)]
    for seed in range(40):
        rng = np.random.default_rng([seed, 1])
        layers = [rng.standard_normal((n, 4))]
        layers += [layers[0] + 0.5 * rng.standard_normal((n, 4))]
        pairs, stimuli = case(seed, n, layers, **columns(seed, n, count))
        asked = [one for one in stimulus_candidates(stimuli) if one.name in candidates]
        found = score_candidates(pairs, stimuli, asked, n_permutations=59)
        gains.append(found.table["gain"].mean())
        first.append(found.table["p"].min() <= 0.05)
    assert abs(np.mean(gains)) < 3 * np.std(gains) / np.sqrt(len(gains)) + 1e-3
    assert np.mean(first) < 0.15

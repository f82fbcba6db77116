"""Candidates beyond the features: the explicit way, planted, and of noise."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, in_files, layer_pairs
from scipy.stats import rankdata

from mlem_core import Store, from_frame, run
from mlem_core.cli.commands import main
from mlem_core.data.candidates import CANDIDATES, as_feature, candidates_of
from mlem_core.inference.what_else import _Beside, _without_each, explain_rest, rest_of
from mlem_core.pairs.crossfit import CrossFit, explained_alone

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


def v(x, layers, folds, kept=None):
    """What all features explain of two layers, from explicit pairs of the stimuli that stay."""
    ranks = [rankdata(explicit.squared(layer)) for layer in layers]
    order = [explicit.priority(x, own, folds) for own in ranks]
    if kept is not None:
        i, j = explicit.pairs(len(folds))
        x, folds = x[kept[i] & kept[j]], folds[kept]
        ranks = [rankdata(explicit.squared(layer[kept])) for layer in layers]
    return explicit.cross_fitted(x, *ranks, folds, range(x.shape[1]), order)


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_gains_are_those_of_explicit_pairs(kind):
    n, rng = 36, np.random.default_rng(1)
    names = [f"v{k}" for k in rng.integers(0, 26, n)]
    other = rng.integers(0, 5, n).astype(float) if kind == "numbers" else names
    layers = [rng.standard_normal((n, 4)) for _ in range(2)]
    pairs, stimuli = case(1, n, layers, _c=other)
    (candidate,) = [one for one in candidates_of(stimuli) if one.name == "_c"]
    found = _Beside.of(pairs, stimuli, candidate, "ignore")
    givers = np.stack([np.arange(n), rng.permutation(n)])
    features = stimuli.table[["kind"]]
    of = [explicit.feature_distances(features.assign(c=np.array(other)[row])) for row in givers]
    expected = [v(x, layers, pairs.folds) for x in of]
    np.testing.assert_allclose(
        found.permuted(explained_alone(CrossFit.of(pairs.tables), [0]), givers), expected, atol=1e-9
    )
    kept = np.arange(n) >= 6
    without = _without_each(found.ranked.by_stimulus, found.tables, kept[None].astype(np.uint8))
    assert without[0] == pytest.approx(v(of[0], layers, pairs.folds, kept), abs=1e-9)


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
    found = explain_rest(run(spec, store), "m:0", "m:1", store, 39)
    first = found.table.iloc[0]
    assert (first["candidate"], first["level"], first["p"]) == ("_hidden", "stimulus", 0.025)
    assert first["lower"] > 0.1 and list(found.table)[2:] == ["gain", "lower", "upper", "p"]
    assert (found.table["p"].iloc[1:] > 0.05).sum() >= len(found.table) - 2
    assert "the same value" in found.left_out["_one"]
    out, given = tmp_path / "out.csv", [*arguments_of(spec), "--features=kind", "--chance=39"]
    assert main(["what-else", "m:0", "m:1", *given, f"--out={out}"]) == 0
    assert found.sentence in capsys.readouterr().out
    assert pd.read_csv(out)["candidate"].tolist() == found.table["candidate"].tolist()


def test_candidates_follow_from_words_and_sentences():
    sentence = "Dogs (the old) ran, ran."
    stimuli = from_frame(
        pd.DataFrame({"sentence": sentence, "word_index": range(5), "x": list("ababa")}), "made"
    )
    made = {one.name: one for one in candidates_of(stimuli)}
    found = {name: made[name].values(stimuli) for name in CANDIDATES if name != "frequency"}
    assert found["next_word"] == ["the", "old", "ran", "ran", "(none)"]
    assert found["previous_word"] == ["(none)", "dogs", "the", "old", "ran"]
    assert found["last_two_letters"] == ["gs", "he", "ld", "an", "an"]
    assert found["punctuation"] == [" ", "( ", " )", " ,", " ."]
    assert as_feature(stimuli, made["word_form"]).values("word_form").tolist()[-1] == "ran"


@pytest.mark.slow
def test_noise_earns_nothing():
    n, count, gains, first = 60, 10, [], []
    candidates = [f"_{at}" for at in range(count)]
    for seed in range(40):
        rng = np.random.default_rng([seed, 1])
        layers = [rng.standard_normal((n, 4))]
        layers += [layers[0] + 0.5 * rng.standard_normal((n, 4))]
        pairs, stimuli = case(seed, n, layers, **columns(seed, n, count))
        asked = [one for one in candidates_of(stimuli) if one.name in candidates]
        found = rest_of(pairs, stimuli, asked, n_permutations=59)
        gains.append(found.table["gain"].mean())
        first.append(found.table["p"].min() <= 0.05)
    assert abs(np.mean(gains)) < 3 * np.std(gains) / np.sqrt(len(gains)) + 1e-3
    assert np.mean(first) < 0.15

"""Two layers by Procrustes and CCA: how sure, by leaving stimuli out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, three_layers
from scipy.stats import t

from mlem_core.analysis import similarities
from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.inference.aligned import Together, aligned_interval, alignment, with_interval
from mlem_core.pairs.alignments import components
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.storage.store import Store

BOTH = ("procrustes", "cca")
N = 40


def two(seed: int, shared: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    common = shared * rng.standard_normal((N, 3))
    return [components(common + rng.standard_normal((N, 3))) for _ in range(2)]


def by_hand(name: str, layers: list[np.ndarray], folds, units) -> tuple[float, float]:
    """The variance of the jackknife of one kind of unit, and the number of these."""
    left = []
    for unit in np.unique(units):
        kept = units != unit
        left.append(SIMILARITIES[name].aligned(*(one[kept] for one in layers), folds[kept]))
    n = len(left)
    return (n - 1) / n * np.sum((np.array(left) - np.mean(left)) ** 2), n


@pytest.mark.parametrize("name", BOTH)
def test_the_interval_is_the_jackknife_s_by_hand(name):
    layers, sentences, folds = two(0), np.arange(N) // 2, (np.arange(N) // 2) % 4
    value, (lower, upper) = aligned_interval(SIMILARITIES[name], layers, Together(folds, sentences))
    variance, n = by_hand(name, layers, folds, sentences)
    assert value[0] == SIMILARITIES[name].aligned(*layers, folds)
    reach = t.ppf(0.975, n - 1) * np.sqrt(variance)
    np.testing.assert_allclose([lower[0], upper[0]], [value[0] - reach, min(1, value[0] + reach)])


@pytest.mark.parametrize("name", BOTH)
def test_where_words_recur_they_are_left_out_too(name):
    layers, sentences, folds = two(1), np.arange(N) // 2, (np.arange(N) // 2) % 4
    words = np.random.default_rng(0).permutation(np.arange(N) % 12)
    value, (lower, _) = aligned_interval(
        SIMILARITIES[name], layers, Together(folds, sentences, words)
    )
    both = np.unique(np.stack((sentences, words)), axis=1, return_inverse=True)[1].ravel()
    (s, n_s), (w, n_w), (b, _) = (
        by_hand(name, layers, folds, units) for units in (sentences, words, both)
    )
    error = np.sqrt(max(s + w - b, s, w))
    assert lower[0] == pytest.approx(value[0] - t.ppf(0.975, min(n_s, n_w) - 1) * error)


@pytest.mark.parametrize("name", BOTH)
def test_what_is_shared_is_above_0_and_what_is_not_hardly_ever(name):
    above = dict.fromkeys((0.0, 2.0), 0)
    for shared, seed in ((shared, seed) for shared in above for seed in range(30)):
        folds = np.random.default_rng(seed).permutation(np.arange(N) % 4)
        layers = two(100 + seed, shared)
        together = Together(folds, np.arange(N))
        bounds = aligned_interval(SIMILARITIES[name], layers, together).interval
        above[shared] += int(bounds.lower[0] > 0)
    assert above[2.0] >= 28 and above[0.0] <= 3, above


def test_few_sentences_are_refused():
    folds = np.arange(N) % 4
    with pytest.raises(InputError, match="found 9 sentences; intervals over them need at least 10"):
        aligned_interval(SIMILARITIES["cca"], two(0), Together(folds, np.arange(N) % 9))


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligned")
    spec, _ = three_layers(folder)
    store = Store(folder / "cache")
    return run(spec, store), store, folder


@pytest.mark.parametrize("name", BOTH)
def test_two_layers_of_an_analysis_in_words(analysis, name):
    whole, store, _ = analysis
    compared, layers = similarities.compared(whole, name, store), (("m", 0), ("m", 1))
    found = alignment(whole, layers, compared)
    assert found.whole["value"].tolist() == [compared.values[0, 1]] and not found.how_sure
    told = []
    sure = with_interval(found, whole, store, progress=lambda *done: told.append(done))
    assert told[-1] == (50, 50)
    row = sure.whole.iloc[0]
    assert row["lower"] < row["value"] == compared.values[0, 1] < row["upper"]
    assert sure.how_sure.startswith("How sure: other sentences of this kind would put it between ")
    value = f"{row['value']:.2f}"
    assert f"of m layer 0 and m layer 1 is {value}: one is turned onto" in sure.headline
    assert "compared on others (unseen sentences)" in sure.headline
    assert sure.text.endswith("RSA, CKA and overlap have some.") and repr(sure) == sure.text
    assert "<table" in sure._repr_html_()
    with pytest.raises(InputError, match="the RSA correlation has terms by feature"):
        alignment(whole, layers, similarities.compared(whole, "rsa", store))
    with pytest.raises(InputError, match="m:7"):
        alignment(whole, (("m", 0), ("m", 7)), compared)


def test_the_command_line_says_it_with_its_interval(analysis, capsys, monkeypatch):
    whole, store, folder = analysis
    monkeypatch.setenv("MLEM_CACHE", str(store.root))
    out = folder / "why.csv"
    asked = ["why", "m:0", "m:1", *arguments_of(whole.spec)]
    asked += ["--layers", "0,1,2", "--similarity", "procrustes"]
    assert main([*asked, "--bootstrap", "50", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "How sure: other sentences" in said.out and "no terms by feature" in said.out
    table = pd.read_csv(out)
    assert list(table) == ["quantity", "value", "lower", "upper"]
    values = similarities.compared(whole, "procrustes", store).values
    assert table["value"][0] == pytest.approx(values[0, 1], abs=1e-6)
    assert table["lower"][0] < table["value"][0] < table["upper"][0]
    assert not list(folder.glob("why_*"))
    # Without intervals it is the value alone.
    assert main(asked) == 0
    assert "How sure" not in capsys.readouterr().out

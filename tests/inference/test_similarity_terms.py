from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, layer_pairs

from mlem_core.analysis import similarities
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.inference.jackknife import REFITS, t_quantile
from mlem_core.inference.similarity_terms import similarity_intervals
from mlem_core.measures.decomposition import UNEXPLAINED, decompose, with_sums
from mlem_core.pairs.similarities import SIMILARITIES, of_some
from mlem_core.storage.store import Store

OTHERS = ("cka", "neighbours")
N = 60


def table_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sentence": [f"word {i} of {i}" for i in range(n)],
            "colour": rng.choice(["red", "blue"], n),
            "size": rng.integers(0, 5, n),
        }
    )


def spec_of(folder, n=120, **changes):
    """An analysis of two layers that have the features in common, and one that has none."""
    rng, table = np.random.default_rng(1), table_of(n)
    table.to_csv(folder / "s.csv", index=False)
    shared = np.column_stack((4.0 * (table["colour"] == "red"), 0.5 * table["size"]))
    layers = {f"layer_{k:02d}": shared + rng.standard_normal((n, 2)) for k in range(2)}
    layers["layer_02"] = rng.standard_normal((n, 3))
    np.savez(folder / "m.npz", **layers)
    files = (("m", str(folder / "m.npz")),)
    return AnalysisSpec(stimuli=str(folder / "s.csv"), representations=files, **changes), layers


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("similarities")
    spec, layers = spec_of(folder)
    store = Store(folder / "cache")
    return run(spec, store), store, layers


def test_rsa_of_an_analysis_is_one_of_its_similarities(analysis):
    whole, store, layers = analysis
    found = similarities.compared(whole, "rsa", store)
    np.testing.assert_array_equal(found.square, whole.results().similarity_rsa)
    assert found.square.columns.name == "rsa"
    # The general way gives what the pass over the pairs gives.
    index, rsa = similarities.pair_index(whole), SIMILARITIES["rsa"]
    squared = [explicit.squared(layer) for layer in layers.values()]
    kept = np.ones(len(whole.stimuli), dtype=bool)
    counts, sums = of_some(rsa, squared, index.cell, index.n_cells, kept)
    np.testing.assert_array_equal(counts, whole.tables.counts)
    np.testing.assert_allclose(sums.sums, whole.tables.rank_sums, atol=1e-6)
    np.testing.assert_allclose(sums.similarity, whole.rsa, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_a_similarity_of_an_analysis_is_computed_once_and_divided_over_its_features(analysis, name):
    whole, store, layers = analysis
    assert similarities.find(whole, name, store) is None
    told = []
    found = similarities.compared(whole, name, store, lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]
    kept = similarities.find(whole, name, store)
    assert kept is not None
    np.testing.assert_array_equal(kept.values, found.values)
    index = similarities.pair_index(whole)
    squared = [explicit.squared(layer) for layer in layers.values()]
    everything = np.ones(len(whole.stimuli), dtype=bool)
    given = SIMILARITIES[name], squared, index.cell, index.n_cells, everything
    np.testing.assert_allclose(found.values, of_some(*given)[1].similarity, atol=1e-9)
    assert found.values[0, 1] > 0.1 > abs(found.values[0, 2])
    chosen = found.of(whole, whole.select(["size"], [("m", 0), ("m", 1)]))
    assert chosen.tables.features == ("size",)
    np.testing.assert_array_equal(chosen.square, found.square.iloc[:2, :2])
    split = chosen.decomposed()
    np.testing.assert_allclose(split.values.sum(axis=0), chosen.values)
    # Other choices are other entries.
    assert (
        similarities.find(replace(whole, spec=replace(whole.spec, missing="level")), name, store)
        is None
    )


def test_a_similarity_is_of_the_distance_that_its_name_says(tmp_path):
    spec, layers = spec_of(tmp_path, distance="cosine")
    store = Store(tmp_path / "cache")
    cosine = run(spec, store)
    euclidean = run(replace(spec, distance="euclidean"), store)
    cka, near = (
        [similarities.compared(one, name, store).values for one in (cosine, euclidean)]
        for name in OTHERS
    )
    np.testing.assert_allclose(*cka, atol=1e-12)
    assert abs(near[0] - near[1]).max() > 0.01
    # Of a file that holds distances there is nothing else.
    square = np.zeros((120, 120))
    square[np.triu_indices(120, 1)] = np.sqrt(explicit.squared(layers["layer_00"]))
    np.savez(tmp_path / "d.npz", layer_00=square + square.T)
    files = (*spec.representations, ("d", str(tmp_path / "d.npz")))
    both = run(replace(spec, representations=files, precomputed=("d",), layers=(0,)), store)
    assert similarities.compared(both, "cka", store).values[0, 1] == pytest.approx(1.0)


def test_what_cannot_be_compared_is_said_in_a_sentence(tmp_path, monkeypatch):
    store = Store(tmp_path / "cache")
    some = run(spec_of(tmp_path, pairs=2_000)[0], store)
    with pytest.raises(InputError, match=r"of the 7,140 pairs.*needs all pairs.*--sample"):
        similarities.compared(some, "cka", store)
    with pytest.raises(InputError, match="needs all pairs"):
        why = explain(some, "m:0", "m:1")
        with_intervals(replace(why, similarity=SIMILARITIES["cka"]), some, store)
    all_of_them = run(spec_of(tmp_path)[0], store)
    large = replace(all_of_them, spec=replace(all_of_them.spec, memory=1e-5))
    with pytest.raises(InputError, match=r"do not fit.*--memory"):
        similarities.compared(large, "neighbours", store)
    with monkeypatch.context() as patch, pytest.raises(InputError, match="of disk in"):
        patch.setattr(similarities, "IN_MEMORY_BYTES", 0)
        patch.setattr("mlem_core.storage.room.free_disk", lambda _: 10_000)
        similarities.compared(all_of_them, "cka", store)
    with pytest.raises(InputError, match="did you mean cka"):
        similarities.compared(some, "ckaa", store)
    few = run(spec_of(tmp_path, n=11, folds=3)[0], Store(tmp_path / "few"))
    with pytest.raises(InputError, match=r"found 11 stimuli.*needs at least 12"):
        similarities.compared(few, "neighbours", store)


@pytest.mark.parametrize("name", ("rsa", *OTHERS))
def test_intervals_are_those_of_stimuli_left_out_and_compared_anew(name):
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    folds = explicit.random_folds(N, 3)
    pairs = layer_pairs(features, layers, np.arange(N), folds)
    squared = [explicit.squared(layer) for layer in layers]
    similarity = SIMILARITIES[name]
    told = []
    found = similarity_intervals(pairs, similarity, squared, 0, lambda *done: told.append(done))
    blocks = pairs.blocks(REFITS, np.random.default_rng(0))
    assert told[-1] == (len(blocks.weights),) * 2

    def similarity_of(kept):
        some = [explicit.squared(layer[kept]) for layer in layers]
        cells = np.zeros(len(some[0]), dtype=np.int64)
        return of_some(similarity, some, cells, 1, np.ones(kept.sum(), bool))[1].similarity[0, 1]

    without = np.array([similarity_of(row > 0) for row in blocks.weights])
    n = len(without)
    reach = t_quantile(n) * np.sqrt((n - 1) * without.var())
    at = len(pairs.tables.features) + 1
    value = similarity_of(np.ones(N, dtype=bool))
    assert found.interval.lower[at] == pytest.approx(value - reach, abs=1e-9)
    assert found.interval.upper[at] == pytest.approx(value + reach, abs=1e-9)
    # Terms: around those of all stimuli, as wide as those without each block say.
    cells = len(pairs.tables.counts)
    _, sums = of_some(similarity, squared, pairs.cells, cells, np.ones(N, dtype=bool))
    terms = decompose(with_sums(pairs.tables, sums), sums.similarity).values[:, 0, 1]
    middle = (found.interval.lower + found.interval.upper)[:at] / 2
    np.testing.assert_allclose(middle, terms, atol=1e-9)
    assert len(found.chance) == at - 1 and (found.chance > 0).all()


@pytest.mark.parametrize("name", OTHERS)
def test_two_layers_are_explained_by_another_similarity(analysis, name):
    whole, store, _ = analysis
    alike = similarities.compared(whole, name, store)
    why = explain(whole, "m:0", "m:1", compared=alike)
    assert why.value == alike.values[0, 1] and why.whole["quantity"][0] == name
    assert why.terms["value"].sum() == pytest.approx(why.value, abs=1e-12)
    found = with_intervals(why, whole, store)
    for part in (found.terms, found.whole):
        assert (part["lower"] <= part["value"] + 1e-9).all()
        assert (part["value"] <= part["upper"] + 1e-9).all()
    colour = found.terms.set_index("term").loc["colour"]
    assert colour["lower"] > 0 and colour["value"] > colour["chance"]
    assert f"The {why.similarity.called} of m layer 0 and m layer 1" in found.sentence
    assert why.similarity.short in found.headline and "RSA" not in found.text
    assert "their " + why.similarity.short in found.how_sure
    only = explain(whole, "m:0", "m:1", ["size"], compared=alike)
    assert only.terms["term"].tolist() == ["size", UNEXPLAINED]
    with pytest.raises(InputError, match="at least 10"):
        similarity_intervals(
            layer_pairs(
                explicit.random_features(9), [np.eye(9)] * 2, np.arange(9), np.arange(9) % 3
            ),
            SIMILARITIES["cka"],
            [explicit.squared(np.eye(9))] * 2,
        )


@pytest.mark.parametrize("name", OTHERS)
def test_the_command_line_explains_by_another_similarity(
    analysis, name, tmp_path, capsys, monkeypatch
):
    whole, store, _ = analysis
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    inputs = arguments_of(whole.spec)
    out = tmp_path / "why.csv"
    arguments = ["why", "m:0", "m:1", *inputs, "--similarity", name, "--out", str(out)]
    assert main(arguments) == 0
    alike = similarities.compared(whole, name, store)
    found = explain(whole, "m:0", "m:1", compared=alike)
    printed = capsys.readouterr().out
    assert f"{found.similarity.short} (their sum)" in printed and found.sentence in printed
    assert pd.read_csv(out)["value"].sum() == pytest.approx(found.value, abs=1e-9)
    assert main([*arguments, "--bootstrap", "30"]) == 0
    assert list(pd.read_csv(out).columns) == ["term", "value", "lower", "upper", "chance"]
    assert main([*arguments[:-3], "svcca"]) == 2
    assert "unknown similarity 'svcca'" in capsys.readouterr().err


def test_an_analysis_is_written_with_its_other_similarities(
    analysis, tmp_path, monkeypatch, capsys
):
    whole, store, _ = analysis
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    inputs = arguments_of(whole.spec)
    out = tmp_path / "out"
    command = ["analyze", *inputs, "--out", str(out), "--similarities"]
    assert main([*command, "cka,neighbours"]) == 0
    for name in OTHERS:
        found = similarities.compared(whole, name, store)
        written = pd.read_csv(out / f"similarity_{name}.csv", index_col="layer")
        np.testing.assert_allclose(written, found.square, atol=1e-9)
        terms = pd.read_csv(out / f"why_layers_{name}.csv")
        sums = terms.groupby(["layer_a", "layer_b"])["value"].sum()
        for (a, b), value in sums.items():
            assert value == pytest.approx(found.values[a, b], abs=1e-9)
        assert set(terms["term"]) == {"colour", "size", UNEXPLAINED}
    assert main([*command, "svcca"]) == 2
    assert "unknown similarity 'svcca'" in capsys.readouterr().err

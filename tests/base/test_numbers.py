"""Numbers against SciPy; registries, threads, bars; names, lists and counts as they are shown."""

import json
import threading

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, noise, refused, words
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.stats import t
from threadpoolctl import threadpool_info, threadpool_limits

from mlem_core import AnalysisSpec, RidgeMLEM, explain, from_frame
from mlem_core.base.labels import Names, shortened, width
from mlem_core.base.numbers import nonnegative_quadratic, student_quantile
from mlem_core.base.parallel import each, map_in_order
from mlem_core.base.parameters import join_names, split_names
from mlem_core.base.text import listed, many
from mlem_core.base.typing import layer_name, parse_layer, parse_layers
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.pairs.distances import DISTANCES
from mlem_core.pairs.similarities import SIMILARITIES


def test_equals_nnls_on_random_problems():
    rng = np.random.default_rng(0)
    rows, target = rng.standard_normal((200, 30, 8)), rng.standard_normal((200, 30))
    gram = np.einsum("irj,irk->ijk", rows, rows)
    found = nonnegative_quadratic(gram, np.einsum("irj,ir->ij", rows, target))
    expected = np.array([nnls(a, b)[0] for a, b in zip(rows, target, strict=True)])
    assert (expected == 0).any(axis=1).all()
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_copies_and_empty_columns_reach_the_minimum():
    rows = np.random.default_rng(1).standard_normal((40, 5))
    rows[:, 3] = rows[:, 1]
    rows[:, 4] = 0
    target = rows[:, 1] * 2 + rows[:, 0]
    found = nonnegative_quadratic(rows.T @ rows, rows.T @ target)
    assert found[4] == 0 and (found >= 0).all()
    np.testing.assert_allclose(rows @ found, target, atol=1e-6)


def test_the_quantile_is_that_of_the_distribution():
    degrees = np.array([1.0, 1.7, 2.0, 9.0, 49.0, 1e6])
    np.testing.assert_allclose(student_quantile(degrees), t.ppf(0.975, degrees), rtol=1e-9)
    assert isinstance(student_quantile(14), float)


@pytest.mark.parametrize("registry", [ESTIMATORS, DISTANCES, SIMILARITIES])
def test_an_entry_is_never_replaced_by_another(registry):
    for name, entry in list(registry.items()):
        assert registry.named(name) is entry
        with pytest.raises(ValueError, match=f"{registry.kind} '{name}' already"):
            registry.register(entry)
        assert registry[name] is entry


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads):
    later = threading.Event()

    def call(item):
        # With several threads the first item is done after the second.
        if item == 0 and threads > 1:
            assert later.wait(60)
        if item == 1:
            later.set()
        return 2 * item

    assert list(map_in_order(call, range(40), threads)) == list(range(0, 80, 2))


def threads():
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_shared_out_work_has_one_thread_each_and_an_error_leaves_it_as_it_was():
    with threadpool_limits(3):
        assert each(lambda _: threads(), range(4), 2) == [{1}] * 4
        assert list(map_in_order(lambda _: threads(), range(4), 2)) == [{1}] * 4
        # A single thread may have them all.
        assert each(lambda _: threads(), range(2), 1) == [{3}] * 2
        assert threads() == {3}
        with pytest.raises(ZeroDivisionError):
            each(lambda n: 1 / n, [0, 1], 2)
        assert threads() == {3}


def test_lists_and_counts_as_text():
    assert [listed(list(parts)) for parts in ("", "ab")] == ["", "a and b"]
    assert listed(["a", "b", "c"], last="or") == "a, b or c"
    assert listed(["a", "b", "c"], most=3) == "a, b and c"
    assert listed(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
    assert [many(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


@given(
    st.lists(
        st.text(st.sampled_from("ab_1长ب "), min_size=1, max_size=40), max_size=12, unique=True
    ),
    st.integers(6, 20),
)
def test_no_two_long_names_become_alike(names, longest):
    lines = [" ".join(name.split()) for name in names]
    short = shortened(names, longest)
    assert len(set(short)) == len(set(lines))
    assert all(
        one == line if width(line) <= longest else width(one) <= longest
        for one, line in zip(short, lines, strict=True)
    )


def test_features_and_layers_are_called_as_a_user_says():
    names = Names(
        features={"pos": "part of speech", "a × b": "both"},
        models={"fmri": "brain"},
        layers={"fmri:0": "V1", "fmri:2": "IT"},
    )
    assert names.feature("pos × word_length") == "part of speech × word length"
    assert names.feature("a × b") == "both"
    assert names.feature("pos: a_noun/a_verb") == "part of speech: a_noun/a_verb"
    assert names.layer_title(("fmri", 0)) == "brain V1"
    assert names.layer_title(("minilm", 0)) == "minilm layer 0"
    table = pd.DataFrame({"model": ["fmri", "fmri", "minilm"], "layer": [2, 1, 2]})
    table = table.assign(layer_a=["fmri:0", "fmri:1", "minilm:0"], pos=["fmri", "pos", "x"])
    named = names.table(table.assign(term=["pos", "not explained", None]))
    assert named["layer"].tolist() == ["IT", 1, 2]
    assert named["layer_a"].tolist() == ["brain V1", "brain layer 1", "minilm layer 0"]
    assert named["term"].tolist()[:2] == ["part of speech", "not explained"]
    assert named["pos"].tolist() == ["fmri", "pos", "x"]


def test_runs_of_a_model_are_called_by_their_family_and_seed():
    names = Names(models={"mini-mamba": "Mamba"})
    models = ["mini-gpt2", "mini-gpt2@seed1", "mini-mamba@seed1", "mini-mamba@step64", "a@main"]
    called = ["mini-gpt2", "mini-gpt2, seed 1", "Mamba, seed 1", "Mamba, step 64", "a@main"]
    assert list(map(names.model, models)) == called
    assert names.model("org/a@step5@random2") == "org/a, step 5, random weights 2"
    assert names.layer_title(("mini-gpt2@seed1", 6)) == "mini-gpt2, seed 1, layer 6"
    layers = [("mini-gpt2@seed1", 3), ("mini-gpt2@seed1", 6), ("mini-gpt2", 1)]
    assert names.layers_title(layers) == "mini-gpt2, seed 1, layers 3 and 6; mini-gpt2 layer 1"
    assert names.families(models[:3]) == {
        "mini-gpt2": {"mini-gpt2": "seed 0", "mini-gpt2@seed1": "seed 1"},
        "Mamba": {"mini-mamba@seed1": "seed 1"},
    }
    seeds = ["b", "b@seed1", "b@seed2", "c", "d@step8", "d", "e@seed2"]
    title = "b (seeds 0 to 2), c, d (step 8 and trained) and e, seed 2"
    assert names.models_title(seeds) == title


@for_each(
    "given, kept",
    ({"models": "minilm"}, ("minilm",)),
    ({"models": ["minilm", "smollm2"]}, ("minilm", "smollm2")),
    ({"representations": "brain=b.npz"}, (("brain", "b.npz"),)),
    ({"representations": {"brain": "b.npz"}}, (("brain", "b.npz"),)),
    ({"layers": "3,0"}, (0, 3)),
    ({"layers": range(3)}, (0, 1, 2)),
    ({"layers": None}, None),
    ({"features": "tense, number"}, ("tense", "number")),
    ({"values": "none"}, ()),
    ({"roles": "note=ignore"}, (("note", "ignore"),)),
    ({"merge_rare": "length=4"}, (("length", 4),)),
    ({"na": "NA,-"}, ("NA", "-")),
)
def test_an_analysis_takes_one_or_several(given, kept):
    spec = AnalysisSpec(**given)
    assert getattr(spec, next(iter(given))) == kept
    assert AnalysisSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert hash(spec) == hash(AnalysisSpec.from_dict(spec.to_dict()))


def test_names_and_layers():
    assert split_names("tense") == ("tense",) == split_names(["tense"])
    for names in (("a, b", "c"), ('say "a"', "b"), ("a\nb", "c\rd"), ("tense",), ()):
        assert split_names(join_names(names)) == names == split_names(list(names))
    assert split_names('c, "a, b"') == ("c", "a, b")
    assert split_names("a\nb, c") == ("a", "b", "c")
    with refused("names with commas"):
        split_names("x" * 200_000)
    three = ("minilm", 3)
    for asked in ("minilm:3", three, ["minilm:3"], [three], (three,), ("minilm", np.int64(3))):
        assert parse_layers(asked) == (three,)
    assert parse_layers("minilm:3, a:b:0") == (three, ("a:b", 0))
    assert parse_layers((three, ("minilm", 4))) == (three, ("minilm", 4))
    assert layer_name(parse_layer("hub:org/model:12")) == "hub:org/model:12"
    for wrong in ("minilm", ":3", "minilm:", "minilm:x"):
        with refused("MODEL:LAYER"):
            parse_layer(wrong)


def test_results_explanations_and_stimuli_take_a_single_name(systems):
    analysis = systems.analysis
    one = analysis.results(features="noun", layers="one:1")
    assert one.layers == [("one", 1)] and set(one.importance["feature"]) == {"noun"}
    listed = analysis.results(features=["noun"], layers=[("one", 1)])
    assert one.importance.equals(listed.importance)
    why = explain(analysis, "one:0", ("one", 1), features="noun")
    assert list(why.features["term"]) == ["noun"] and why.layers == (("one", 0), ("one", 1))
    with refused("minilm:3"):
        explain(analysis, "one:0,one:1", "one:1")
    stimuli = analysis.stimuli
    assert [f.name for f in stimuli.select("length,position").features] == ["length", "position"]
    model = RidgeMLEM(values="noun").fit(stimuli, noise(len(stimuli))[0])
    assert list(model.value_names_) == ["noun"]


def test_fit_refuses_a_column_of_sentences():
    table, y = words(), noise(len(words()))[0]
    with refused("'sentence'", "from_frame"):
        RidgeMLEM().fit(table, y)
    fitted = RidgeMLEM().fit(table.drop(columns=["sentence", "word_index"]), y)
    np.testing.assert_array_equal(fitted.feature_names_in_, ["noun", "length", "position"])
    with refused("'sentence'"):
        fitted.predict(table)
    same = RidgeMLEM().fit(from_frame(table, "words"), y, groups=np.arange(len(table)))
    np.testing.assert_allclose(same.coef_, fitted.coef_)

"""Names, lists, counts, numbers, spans and layers as they are shown."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import refused

from mlem_core.base.labels import Names, distinct, initials, isolated, shortened, width
from mlem_core.base.text import listed, many, minus, number, span, stress_in_words
from mlem_core.base.typing import layer_name, parse_layer


@pytest.mark.parametrize(
    ("parts", "more", "expected"),
    [
        ([], {}, ""),
        (["a"], {}, "a"),
        (["a", "b"], {}, "a and b"),
        (["a", "b", "c"], {}, "a, b and c"),
        (["a", "b", "c"], {"last": "or"}, "a, b or c"),
        (["a", "b", "c"], {"most": 3}, "a, b and c"),
        (["a", "b", "c", "d"], {"most": 2}, "a, b and 2 more"),
    ],
)
def test_a_list(parts, more, expected):
    assert listed(parts, **more) == expected


def test_counts():
    assert [many(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([3], "3"), ([0, 1], "0 and 1"), ([0, 1, 2], "0 to 2"), ([0, 2, 3], "0, 2 and 3")],
)
def test_a_span(numbers, expected):
    assert span(numbers) == expected
    assert span([0, 1], 2) == "0 to 1"


def test_minus_signs_are_those_of_numbers():
    assert minus("mini-gpt2 sub-type (r = -0.30) [-1, -.5] 1e-05") == (
        "mini-gpt2 sub-type (r = −0.30) [−1, −.5] 1e−05"
    )


def test_numbers():
    assert [number(v) for v in (-0.126, 0.5, -0.001)] == ["−0.13", "0.50", "0.00"]
    assert number(-1.23456, 3) == "−1.235" and number(float("nan")) == "nan"


def test_layers_as_text():
    assert layer_name(("hub:org/model", 12)) == "hub:org/model:12"
    assert parse_layer("hub:org/model:12") == ("hub:org/model", 12)
    for wrong in ("minilm", ":3", "minilm:", "minilm:x"):
        with refused("MODEL:LAYER"):
            parse_layer(wrong)


@pytest.mark.parametrize(
    ("stress", "said"),
    [
        (0.0, "stress 0.00 (perfect)"),
        (0.03, "stress 0.03 (excellent)"),
        (0.07, "stress 0.07 (good)"),
        (0.14, "stress 0.14 (fair)"),
        (0.4, "stress 0.40 (poor)"),
        (float("nan"), ""),
    ],
)
def test_stress_has_the_nearest_of_kruskals_words(stress, said):
    assert stress_in_words(stress) == said


LONG = "the_animacy_of_the_subject_of_the_{}_relative_clause_in_words"


@pytest.mark.parametrize("longest", [8, 14, 26])
@pytest.mark.parametrize(
    "names",
    [
        [LONG.format("first"), LONG.format("second"), "tense"],
        [LONG.format(number) for number in range(40)],
        [LONG.format("x") + str(number) for number in range(40)],
        ["特征" * 20 + one for one in "甲乙丙"],
        ["عدد_الكلمات_في_الجملة_الطويلة_" + one for one in ("الأولى", "الثانية")],
    ],
)
def test_long_names_become_short_and_stay_different(names: list[str], longest: int) -> None:
    short = shortened(names, longest)
    assert len(set(short)) == len(names)
    assert max(map(width, short)) <= longest
    assert all("…" in one for one, name in zip(short, names, strict=True) if width(name) > longest)


def test_what_tells_long_names_apart_is_what_stays() -> None:
    first, second = shortened([LONG.format("first"), LONG.format("second")], 26)
    assert "first" in first and "second" in second
    assert first.startswith("the_") and second.startswith("the_")
    years = shortened([LONG.format(year) for year in (2018, 2019)], 26)
    assert "2018" in years[0] and "2019" in years[1]


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    (short,) = shortened(["EleutherAI/pythia-70m-deduped@step143000"], 20)
    assert short == "EleutherA…step143000"
    assert shortened(["tense", " of  two\nlines"], 12) == ["tense", "of two lines"]
    assert shortened(["a" * 30, "a" * 30], 9) == ["aaaa…aaaa"] * 2


@given(
    st.lists(
        st.text(st.sampled_from("ab_1长ب "), min_size=1, max_size=40), max_size=12, unique=True
    ),
    st.integers(6, 20),
)
def test_no_two_names_become_alike(names: list[str], longest: int) -> None:
    lines = [" ".join(name.split()) for name in names]
    short = shortened(names, longest)
    assert len(set(short)) == len(set(lines))
    assert all(
        one == line if width(line) <= longest else width(one) <= longest
        for one, line in zip(short, lines, strict=True)
    )


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert [width(text) for text in ("tense", "時制", "é", "e\u0301", "")] == [5, 4, 1, 1, 0]


@pytest.mark.parametrize(
    ("models", "letters"),
    [
        (["bert", "gpt2", "mamba"], "B G M"),
        (["mini-bert", "mini-gpt2", "mini-mamba", "minilm", "smollm2"], "B G M L S"),
        (["bert-base-uncased", "gpt2", "state-spaces/mamba-130m-hf"], "B G M"),
        (["x-bert", "x-gpt", "bert"], "Xb Xg B"),
        (["pythia@step1", "pythia@step10", "pythia@step1000"], "Pa Pb Pc"),
        (["gpt2", "gpt2-medium"], "Ga Gb"),
        (["7b", "13b"], "Ma Mb"),
        (["模型", "نموذج"], "模 ن"),
        (["a"], "A"),
    ],
)
def test_initials_are_short_and_different(models: list[str], letters: str) -> None:
    found = initials(models)
    assert list(found) == models and [*found.values()] == letters.split()


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=40))
def test_initials_are_always_different_and_end_in_no_digit(models: list[str]) -> None:
    found = initials(models)
    assert set(found) == set(models) and len(set(found.values())) == len(models)
    assert not any(letters[-1].isdigit() for letters in found.values())


def test_features_are_called_as_a_user_says_or_without_underscores() -> None:
    names = Names(features={"pos": "part of speech", "a × b": "both"}, models={"gpt2": "GPT-2"})
    assert names.feature("word_length") == "word length"
    assert names.feature("pos × word_length") == "part of speech × word length"
    assert names.feature("a × b") == "both"
    assert names.feature("pos: a_noun/a_verb") == "part of speech: a_noun/a_verb"
    assert (names.model("gpt2"), names.model("my_model")) == ("GPT-2", "my_model")
    assert names.layer("gpt2:11") == "GPT-2:11"


def test_layers_are_called_by_their_names_or_their_numbers() -> None:
    names = Names(models={"fmri": "brain"}, layers={"fmri:0": "V1", "fmri:2": "IT"})
    assert names.layer_title(("fmri", 0)) == "brain V1"
    assert names.layer_title(("fmri", 1)) == "brain layer 1"
    assert names.layer_title(("minilm", 0)) == "minilm layer 0"
    assert [names.layer(one) for one in ("fmri:2", "fmri:1")] == ["brain:IT", "brain:1"]
    table = pd.DataFrame(
        {"model": ["fmri", "fmri", "minilm"], "layer": [2, 1, 2], "rho": [0, 1, 2]}
    )
    named = names.table(table.assign(layer_a=["fmri:0", "fmri:1", "minilm:0"]))
    assert named["layer"].tolist() == ["IT", 1, 2] and named["rho"].tolist() == [0, 1, 2]
    assert named["layer_a"].tolist() == ["brain:V1", "brain:1", "minilm:0"]


def test_two_features_that_are_called_alike_keep_their_identifiers() -> None:
    assert distinct(["word_length", "word length", "c"], ["word length", "word length", "C"]) == [
        "word_length",
        "word length",
        "C",
    ]


def test_tables_are_named_where_they_have_names() -> None:
    names = Names(features={"f_1": "one"}, models={"m": "M"})
    table = pd.DataFrame(
        {
            "model": ["m", "n"],
            "layer": [0, 1],
            "layer_a": ["m:0", "n:1"],
            "feature": ["f_1", None],
            "term": ["f_1 × g_2", "not explained"],
            "f_1": ["m", "f_1"],
        }
    )
    kept = table.copy()
    named = names.table(table)
    assert named["model"].tolist() == ["M", "n"] and named["layer"].tolist() == [0, 1]
    assert named["layer_a"].tolist() == ["M:0", "n:1"]
    assert named["feature"][0] == "one" and pd.isna(named["feature"][1])
    assert named["term"].tolist() == ["one × g 2", "not explained"]
    assert named["f_1"].tolist() == ["m", "f_1"]
    pd.testing.assert_frame_equal(table, kept)


def test_only_text_from_right_to_left_is_isolated() -> None:
    assert isolated("tense 3") == "tense 3" and isolated("時制") == "時制"
    assert isolated("عدد") == "\u2068عدد\u2069"
    assert isolated("عدد، كلمات 3 a <שורש>") == ("\u2068عدد، كلمات\u2069 3 a <\u2068שורש\u2069>")

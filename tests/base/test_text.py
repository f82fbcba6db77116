"""Lists, counts, numbers, spans and layers as text."""

from __future__ import annotations

import pytest

from mlem_core.base.errors import InputError
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
        with pytest.raises(InputError, match="MODEL:LAYER"):
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

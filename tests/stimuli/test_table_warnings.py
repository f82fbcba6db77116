"""Doubts about tables, each with the choice that settles it, and tables that are beyond doubt."""

import pytest
from helpers.inputs import for_each, refused

from mlem_core import ReadAs, read_csv

TEXTS = ["the dog runs", "a cat sits", "my bird sings", "old men talk", "she waits", "he left"]


def table(name, cells, other="uvw"):
    """Sentences with a feature of these values, and another one."""
    rows = (f"{TEXTS[i % 6]} {i},{cell},{other[i % 3]}" for i, cell in enumerate(cells))
    return "\n".join([f"sentence,{name},g", *rows]).encode()


def doubts_of(name, cells, **more):
    return read_csv(table(name, cells), name="mine.csv", **more).doubts


NAMES = ("role", ("x=nominal",))
LEFT_OUT = ("role", ("x=ignore",))
CLASSES = [3, 0, 2, 1, 4] * 4


@for_each(
    "cells, option, values, facts",
    ([9007199254740993, 9007199254740992, 5], *NAMES, ("'9007199254740992' (row 2)",)),
    (["1.1", "1.2", "1.10"], *NAMES, ("'1.1' (row 1)", "'1.10' (row 3)")),
    ([20240131, 20240201, 20231231], *NAMES, ("'20240131' (row 1)", "dates")),
    ([1, 2, -99, 4, 7], "na", ("-99",), ("'-99' (row 3)", "1 to 7")),
    ([1.5, "-99.00", 4, 7], "na", ("-99.00",), ("'-99.00' (row 2)",)),
    ([1, "NA", 999, 4, 7], "na", ("NA,999",), ("'999' (row 3)",)),
    ([-99, 2.5, -88, 4, 7], "na", ("-88,-99",), ("'-88' (row 3)", "2.5 to 7")),
    (CLASSES, *NAMES, ("'x' has few whole numbers",)),
    (["3-4", "4-Mar", "5-6"], *LEFT_OUT, ("'4-Mar'", "row 2")),
    (["3-4", "Mrz 04", "5-6", "04. Dez"], *LEFT_OUT, ("'Mrz 04'", "rows 2 and 4")),
    (["007", "12", "13"], *NAMES, ("'007'",)),
)
def test_a_doubt_names_its_row_and_the_choice_that_settles_it(cells, option, values, facts):
    (doubt,) = doubts_of("x", cells)
    assert (doubt.option, doubt.values) == (option, values) and doubt.label
    assert not [fact for fact in facts if fact not in doubt.sentence], doubt.sentence
    if option == "role":
        column, _, role = values[0].partition("=")
        assert not doubts_of("x", cells, roles={column: role})
    else:
        assert not doubts_of("x", cells, read_as=ReadAs(missing=tuple(values[0].split(","))))


@for_each(
    "name, cells",
    ("x", ["1", "1.0", "2.50"]),
    ("x", [0.5, 0.25, 99, 60, 120]),
    ("x", [1, 5, 9, 12, 8]),
    ("x", [0, 1] * 9),
    ("x", ["1.2", "24.12", "3.10"]),
    ("word_length", CLASSES),
    ("nWords", CLASSES),
    ("Rating", CLASSES),
    ("x", [20240131, 123, 5555]),
    ("x", ["2024-01-31", "2024-02-01", "2023-12-31"]),
    ("x", ["may", "march", "must"]),
    ("x", [1, 2, 4]),
)
def test_values_that_are_beyond_doubt(name, cells):
    assert not doubts_of(name, cells)


@for_each(
    "name, cells",
    *((name, CLASSES) for name in ("language", "country", "upos", "word_order")),
    ("Datum", ["1.2", "24.12", "3.10"]),
)
def test_names_that_say_what_numbers_are_decide(name, cells):
    (doubt,) = doubts_of(name, cells)
    assert doubt.values == (f"{name}=nominal",)


@for_each(
    "text, fact",
    (table("x", [1, 2.5, 3, 4, 10.5]), "The last row, 'she waits 4', seems to be a sum"),
    (table("x", [1, 2.5, 3, 4, 9]) + b"\nTotal:,,u", "The last row, 'Total:', seems"),
    (table("x", [1, 2.5, 4]).replace(b"the dog", b"the [MASK] </s>"), "'[MASK]' (row 1)"),
    (table("end_idx", [8, 12, 9]), "The column 'end_idx' stands without start_idx"),
)
def test_what_is_said_of_a_table(text, fact):
    notes = read_csv(text, name="mine.csv").notes
    assert any(fact in note for note in notes), notes


@pytest.mark.parametrize("second", ["2", '"2"', "null"])
def test_a_key_twice_is_refused(second):
    rows = f'{{"sentence": "a b", "f": 1}}\n{{"sentence": "c", "f": 1, "f": {second}}}\n'
    with refused("row 2", "'f'", "more than once"):
        read_csv(rows.encode(), name="mine.jsonl")

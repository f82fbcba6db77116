from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.data import datasets
from mlem_core.data.roles import (
    ROLES,
    TEMPLATE,
    apply_roles,
    as_csv,
    guess_roles,
    read_table,
)
from mlem_core.data.stimulus_csv import read_csv

OTHER = """\
Text,target,Case,freq,note,constant,item
The dog sees a cat.,dog,subject,3.5,x,1,a
The dog sees a cat.,cat,object,2.1,y,1,a
Did she run?,she,subject,4.0,,1,b
"""


def test_a_table_of_other_names_is_recognised():
    table = read_table(OTHER.encode(), "other.csv")
    assert guess_roles(table) == {
        "Text": "text",
        "target": "word",
        "Case": "nominal",
        "freq": "ordered",
        "note": "nominal",
        "constant": "ignore",
        "item": "item",
    }
    stimuli = apply_roles(table, {"note": "ignore"}, "other.csv")
    assert stimuli.words == ["dog", "cat.", "she"] and stimuli.name == "other.csv"
    assert [(f.name, f.kind) for f in stimuli.features] == [
        ("Case", "nominal"),
        ("freq", "ordered"),
    ]
    np.testing.assert_array_equal(stimuli.groups, [0, 0, 1])
    assert list(stimuli.table["_note"].fillna("")) == ["x", "y", ""]
    assert "_constant" in stimuli.table


def test_stimuli_written_with_their_roles_are_read_back():
    table = read_table(OTHER.encode(), "other.csv")
    stimuli = apply_roles(table, {"freq": "nominal"}, "other.csv")
    again = read_csv(as_csv(stimuli), name="other.csv", nominal=("freq",))
    assert again.digest == stimuli.digest


def test_roles_of_stimuli_that_are_there():
    stimuli = datasets.load("probing")
    same = apply_roles(stimuli, {})
    assert same.features == stimuli.features and len(same) == len(stimuli)
    np.testing.assert_array_equal(same.word_index, stimuli.word_index)
    np.testing.assert_array_equal(same.groups, stimuli.groups)
    changed = apply_roles(stimuli, {"word_position": "nominal", "tense": "ignore"})
    by = {feature.name: feature.kind for feature in changed.features}
    assert by["word_position"] == "nominal" and "tense" not in by and len(by) == 7


def test_a_sentence_without_a_telling_name_is_the_longest_text():
    table = pd.DataFrame({"a": ["x", "y"], "b": ["one two three", "four five"]})
    assert guess_roles(table)["b"] == "text"
    assert "text" not in guess_roles(table[["a"]]).values()


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"Text": "nominal"}, "no column of other.csv is said to be the text; choose one of"),
        ({"note": "text"}, "'Text', 'note' of other.csv are all said to be the sentence"),
        ({"colour": "nominal"}, "unknown column 'colour'"),
        ({"note": "feature"}, "unknown role of a column 'feature'"),
        ({"Case": "ordered"}, "'subject' in row 1; an ordered feature needs a number"),
        ({"target": "ignore", "Case": "word"}, "'subject' in row 1 of the column 'Case' does not"),
        ({"constant": "nominal"}, "only the value '1'"),
    ],
)
def test_roles_that_cannot_be_are_said_in_a_sentence(roles, message):
    with pytest.raises(InputError) as error:
        apply_roles(read_table(OTHER.encode()), roles, "other.csv")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_word_that_is_there_twice_needs_its_number():
    table = read_table(b"text,word,f\nthe dog and the cat,the,a\na cat,cat,b\n")
    with pytest.raises(InputError, match="'the' in row 1 of the column 'word' occurs 2 times"):
        apply_roles(table, {})


def test_columns_without_a_name_of_their_own():
    with pytest.raises(InputError, match="column 2 of the CSV has no name"):
        read_table(b"text,,f\na,b,c\n")
    with pytest.raises(InputError, match="column 3 of x has the name 'f' twice"):
        read_table(b"text,f,f\na,b,c\n", "x")


def test_the_template_is_read_and_every_role_is_explained():
    stimuli = read_csv(TEMPLATE, name="template.csv")
    assert stimuli.level == "word" and {f.kind for f in stimuli.features} == {"ordered", "nominal"}
    assert {finding.kind for finding in lint(stimuli, AnalysisSpec(folds=3)).findings} >= {
        "few",
        "missing",
    }
    table = read_table(io.BytesIO(TEMPLATE))
    assert apply_roles(table, guess_roles(table)).features == stimuli.features
    assert set(guess_roles(table).values()) <= set(ROLES)

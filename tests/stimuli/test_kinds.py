"""One kind for a column, wherever it comes from: Python, Parquet, JSON Lines, a workbook or CSV."""

import io
import json
from decimal import Decimal

import numpy as np
import pandas as pd
from helpers.inputs import for_each

from mlem_core import RidgeMLEM, from_frame, read_csv
from mlem_core.pairs.columns import feature_columns
from mlem_core.stimuli.columns import feature_kind

NUMBERS, CODES = [3, 1, 2, 10], ["3", "1", "2", "10"]


@for_each(
    "column, kind",
    (pd.Series(NUMBERS), "ordered"),
    (pd.Series(NUMBERS, dtype=object), "ordered"),
    (pd.Series([3.5, None, np.nan, 1], dtype=object), "ordered"),
    (pd.Series(list(map(Decimal, CODES))), "ordered"),
    (pd.Series([*map(np.float32, NUMBERS)], dtype=object), "ordered"),
    (pd.Series([3, None, 2, 10], dtype="Int64"), "ordered"),
    (pd.Series([3, 1, "", 10], dtype=object), "ordered"),
    (pd.Series([3, 1, "2", 10], dtype=object), "ordered"),
    (pd.Series(CODES), "nominal"),
    (pd.Series(CODES, dtype="string"), "nominal"),
    (pd.Series(CODES, dtype=object), "nominal"),
    (pd.Series(NUMBERS, dtype="category"), "nominal"),
    (pd.Series(pd.Categorical(CODES, CODES, ordered=True)), "nominal"),
    (pd.Series([True, False, True, None], dtype=object), "nominal"),
    (pd.Series([3, 1, "two", 10], dtype=object), "nominal"),
)
def test_the_type_of_a_column_is_its_kind(column, kind):
    assert feature_kind(column) == kind
    table = pd.DataFrame({"x": column, "y": [1, 2, 3, 4], "stimulus": list("abcd")})
    feature, _ = from_frame(table, "mine").features
    (column,) = feature_columns(table[["x"]])
    assert feature.kind == column.kind == kind


def test_numbers_that_are_objects_are_fitted_as_numbers():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.integers(0, 9, 60), "kind": rng.choice(list("ab"), 60)})
    y = np.c_[table["size"], 0.5 * rng.standard_normal((60, 2))]
    scores = [RidgeMLEM([1.0]).fit(x, y).score(x, y) for x in (table, table.astype(object))]
    assert scores[0] == scores[1] > 0.9


def _json(table):
    lines = table.astype(object).to_dict("records")
    return "\n".join(map(json.dumps, lines)).encode()


def _excel(table):
    table.to_excel(file := io.BytesIO(), index=False)
    return file.getvalue()


def _parquet(table):
    table.astype({"grade": "category"}).to_parquet(file := io.BytesIO())
    return file.getvalue()


@for_each("write", _json, _excel, _parquet)
def test_text_of_a_file_that_has_types_stays_text(write):
    columns = {
        "sentence": [f"word {n}" for n in range(4)],
        "size": NUMBERS,
        "share": [0.5, 1, 2, 3],
    }
    stimuli = read_csv(write(pd.DataFrame(columns | {"grade": CODES})), name="mine")
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    assert kinds == {"size": "ordered", "share": "ordered", "grade": "nominal"}
    assert stimuli.values("grade").tolist() == CODES
    (note,) = (note for note in stimuli.notes if "'grade'" in note)
    assert "numbers as text" in note and "role ordered" in note
    # Who says so has numbers, and a CSV says nothing.
    again = read_csv(write(pd.DataFrame(columns | {"grade": CODES})), ordered=["grade"])
    assert again.values("grade").tolist() == NUMBERS
    text = pd.DataFrame(columns | {"grade": CODES}).to_csv(index=False).encode()
    assert {feature.kind for feature in read_csv(text).features} == {"ordered"}

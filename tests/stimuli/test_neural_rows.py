"""Rows of neural data: matched with the stimuli by the names that they have, or refused."""

import numpy as np
import pandas as pd
from helpers.inputs import for_each, refused

from mlem_core import from_frame
from mlem_core.stimuli.neural_rows import neural_rows

NAMES = [f"s{number}" for number in range(6)]
X = pd.DataFrame({"size": range(6)}, index=NAMES)
Y = pd.DataFrame({"a": range(6), "b": 0.5}, index=NAMES)
SET = from_frame(X.assign(stimulus=NAMES), "mine")
COUNTED, SOME = X.reset_index(drop=True), X.set_axis([3, 5, 8, 9, 20, 21])
SHUFFLED = [4, 1, 5, 0, 2, 3]
DISTANCES = pd.DataFrame(np.abs(np.subtract.outer(range(6), range(6))), NAMES, NAMES)


@for_each(
    "y, stimuli, first",
    (Y, X, [0, 1, 2, 3, 4, 5]),
    (Y.iloc[SHUFFLED], X, [0, 1, 2, 3, 4, 5]),
    (Y.iloc[SHUFFLED], SET, [0, 1, 2, 3, 4, 5]),
    (Y.iloc[SHUFFLED]["a"], X, [0, 1, 2, 3, 4, 5]),
    # Without names, or with the names of other rows of a table, the place counts.
    (Y.iloc[SHUFFLED].to_numpy(), X, SHUFFLED),
    (Y.iloc[SHUFFLED].reset_index(drop=True), X, SHUFFLED),
    (Y.iloc[SHUFFLED], COUNTED, SHUFFLED),
    (Y.iloc[SHUFFLED].set_axis(SOME.index), SET, SHUFFLED),
    (Y.iloc[SHUFFLED].set_axis(SOME.index), SOME, SHUFFLED),
)
def test_rows_are_in_the_order_of_the_stimuli(y, stimuli, first):
    rows = neural_rows(y, stimuli)
    assert (rows if rows.ndim == 1 else rows[:, 0]).tolist() == first


def test_distances_have_rows_and_columns_in_that_order():
    shuffled = DISTANCES.iloc[SHUFFLED, SHUFFLED[::-1]]
    np.testing.assert_array_equal(neural_rows(shuffled, X), DISTANCES.to_numpy())


@for_each(
    "y, stimuli, facts",
    (Y.set_axis([*NAMES[:5], "t5"]), X, ("no row named 's5'", "row 6")),
    (Y.set_axis(["s1", *NAMES[1:]]), X, ("y has two rows named 's1'",)),
    (Y.set_axis(["s1", *NAMES[1:]]), SET, ("y has two rows named 's1'",)),
    (Y.set_axis(list("abcdef")), SET, ("'a', 'b', 'c' and 3 more", "no column")),
    (Y.set_axis(SHUFFLED), COUNTED, ("another order", "row 1 is 4 in y and 0")),
    (Y.set_axis(SHUFFLED), SET, ("another order", "to_numpy()")),
    (Y.reset_index(), X.set_axis(SHUFFLED), ("another order",)),
    (np.ma.masked_equal(Y.to_numpy(), 4), X, ("1 masked values, the first in row 5",)),
    (Y + 1j, X, ("y, of the type DataFrame", "real numbers")),
    (Y.astype(str), X, ("real numbers",)),
    (Y.astype(str).astype(object), X, ("real numbers",)),
)
def test_rows_that_nobody_can_match_are_refused(y, stimuli, facts):
    with refused(*facts):
        neural_rows(y, stimuli)


def test_missing_values_of_pandas_are_not_a_number():
    whole = Y.convert_dtypes().astype({"a": "Int64"})
    whole.iloc[2, 0] = pd.NA
    rows = neural_rows(whole, X)
    assert rows.dtype == np.float64 and np.argwhere(np.isnan(rows)).tolist() == [[2, 0]]

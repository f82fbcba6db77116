"""Tables as a screen shows them."""

from __future__ import annotations

import pandas as pd


def without_minus_zero(table: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """The table for a screen that shows so many digits: what would be shown as -0 is 0."""
    numbers = table.select_dtypes("float")
    shown_as_zero = (numbers < 0) & (numbers > -0.5 * 10.0**-digits)
    return table.assign(**{name: numbers[name].mask(shown_as_zero[name], 0.0) for name in numbers})

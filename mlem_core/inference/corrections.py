"""Families of tests and the correction of their p-values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray

# A test is significant where its corrected p is below this.
SIGNIFICANT = 0.05
# Permutations of the labels of each feature: p of .048 at the least, corrected over the features.
PERMUTATIONS = 20
CORRECTIONS = {"bh": "Benjamini-Hochberg", "bonferroni": "Bonferroni", "none": "not corrected"}


class FamilyOfTests(NamedTuple):
    """A table of tests and the family that their p-values are corrected over, for its caption."""

    table: pd.DataFrame
    family: str


def check_permutations(n: int) -> None:
    """Raise InputError for too few permutations of the labels of a feature."""
    if n < PERMUTATIONS:
        raise InputError(f"found {n} permutations of a feature; expected at least {PERMUTATIONS}.")


def corrected(p: FloatArray, correction: str = "bh") -> FloatArray:
    """p-values (n,) corrected over the family that they make.

    Parameters
    ----------
    correction : "bh" (false discovery rate, Benjamini and Hochberg 1995), "bonferroni" or "none"

    Raises
    ------
    InputError
        An unknown correction.
    """
    from scipy.stats import false_discovery_control

    if correction not in CORRECTIONS:
        raise unknown("correction", correction, CORRECTIONS)
    if correction == "none" or not len(p):
        return p
    if correction == "bonferroni":
        return np.minimum(p * len(p), 1.0)
    adjusted: FloatArray = false_discovery_control(p)
    return adjusted


def family_of_tests(table: pd.DataFrame, what: str, correction: str, p: str = "p") -> FamilyOfTests:
    """Add corrected p-values to a table, and name the family.

    Parameters
    ----------
    what : is tested, in the plural
    p : the column of p-values; rows without one are not in the family. The new column is this name
        with "_corrected"
    """
    tested = table[p].notna()
    table = table.assign(**{f"{p}_corrected": np.nan})
    values = table.loc[tested, p].to_numpy(np.float64)
    table.loc[tested, f"{p}_corrected"] = corrected(values, correction)
    return FamilyOfTests(table, f"{tested.sum():,} {what} ({CORRECTIONS[correction]})")

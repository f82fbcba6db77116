"""Errors of results that come from the choice of the pairs, where not all were compared.

An incomplete design of the pairs is of several independent ones. RSA correlations and contributions
of each vary by as much more than those of all as they have fewer pairs. Scores and importances are
not so linear in the pairs: with an eighth of them another penalty is chosen and other weights are
0. They come from balanced halves of the designs instead; each is as far from the whole, in the mean
square, as this is from all pairs; the whole is then made as the halves are, of ranks within each
design. A number that fewer pairs make lower, as they do a ceiling (means by pattern come from fewer
pairs), is lower in a part than in the whole: a bias that goes with 1 / pairs is that difference for
halves, and 1 / (n - 1) of it for each of n designs, which comes nearer for ceilings
(`make validate`).

A half of the pairs, drawn as they were, differs from all of them as much as these do from another
draw, and a model is fitted to it nearly as to all of them: its penalty, and which weights are 0,
are those of about as many pairs. Of n designs a Hadamard matrix gives n - 1 ways to halve them in
which any two designs are as often in one half as apart, so that for a mean over the pairs the mean
squared difference of the halves from all is the variance between designs over n, with nothing lost.

Source: McCarthy (1969), Pseudo-replication: half samples (balanced half-samples).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.text import number

# The columns of the table, and of what type they are.
COLUMNS = {
    **{"measure": "str", "model": "str", "layer": "int64", "feature": "str"},
    **{"model_b": "str", "layer_b": "int64"},
    **dict.fromkeys(("value", "error", "bias"), "float64"),
}
# A ceiling that is too low by less is not spoken of.
LOW = 5e-4


def none() -> pd.DataFrame:
    """The table of an analysis of all pairs."""
    return pd.DataFrame({name: pd.Series([], dtype=kind) for name, kind in COLUMNS.items()})


def errors_sentence(errors: pd.DataFrame, n_pairs: int, n_all: int, n_designs: int) -> str:
    """The sentence on an analysis of some pairs; empty where it is of all."""
    if errors.empty:
        return ""
    # Rounded up: "at most" is then true of what is written.
    largest = np.ceil(errors.groupby("measure")["error"].max() * 1e4) / 1e4
    words = {"rho": "a held-out ρ", "importance": "an importance", "rsa": "an RSA correlation"}
    words["contribution"] = "a contribution"
    of = [
        f"{number(largest[name], 4)} of {text}" for name, text in words.items() if name in largest
    ]
    ceilings = errors[errors["measure"] == "ceiling"]
    bias = -float(ceilings["bias"].min())
    low = f"; ceilings are too low by up to about {number(bias, 4)}" if bias >= LOW else ""
    return (
        f"Computed on {n_pairs:,} of {n_all:,} pairs, {n_designs} independent balanced designs; "
        f"from how these differ, the choice of the pairs has a standard error of at most "
        f"{', '.join(of)}, with the same stimuli{low} (pair_errors.csv has each)."
    )

"""Whether the second of two analyses repeats the first: of other stimuli, or of the other half."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, number
from mlem_core.base.typing import FloatArray, layer_name
from mlem_core.inference.tables import similarity_table
from mlem_core.measures.importance import most_important
from mlem_core.robustness import two_analyses
from mlem_core.robustness.two_analyses import Paired

# A convention: importances of an analysis that repeats another correlate above this, for sure.
REPEATED = 0.5
LARGEST = 3  # changes that are named
_CALLED = {"importance": "Importances", "rsa": "RSA", "weighted_tau": "Weighted Kendall τ"}


def replication(
    both: tuple[Analysis, Analysis], results: tuple[Results, Results], intervals: Paired | None
) -> tuple[list[str], dict[str, pd.DataFrame]]:
    """Whether the second of two analyses repeats the first: in sentences, and as tables.

    It does where the same feature matters most, and importances correlate above `REPEATED` (by the
    lower bound, where there is one).

    Returns
    -------
    sentences, the answer first; and tables: "correlations" (quantity, n, value, lower, upper:
    Pearson's, over n layers and features or pairs of layers), "importances" and "similarities" as
    `two_analyses` gives their differences

    Raises
    ------
    InputError
        No layer and feature is in both.
    """
    importances = two_analyses.importance_differences(results, intervals).table
    similarities = two_analyses.similarity_differences(results, intervals).table
    if importances.empty:
        raise InputError("no layer and feature is in both analyses; expected the same in both.")
    rows = []
    for name in _CALLED:
        table = importances if name == "importance" else similarities
        keys = [end if name == "importance" else f"{name}_{end}" for end in ("first", "second")]
        value = float(_pearson(*table[keys].to_numpy(np.float64).T))
        lower = upper = np.nan
        if intervals is not None and np.isfinite(value):
            r = intervals.estimate(_pearson, *two_analyses.known_of(name, table, intervals))
            lower, upper = np.clip([r.lower, r.upper], -1.0, 1.0).tolist()
        rows.append((name, len(table), value, lower, upper))
    found = pd.DataFrame(rows, columns=["quantity", "n", "value", "lower", "upper"])
    at = ["model", "layer", "feature"]
    profiles = importances.set_index(at)[["first", "second"]].unstack("feature")
    top = [most_important(profiles[end]) for end in ("first", "second")]
    holds = top[0] == top[1] and (found["value" if intervals is None else "lower"][0] > REPEATED)
    leads = "both" if top[0] == top[1] else f"the first, {top[1]} in the second"
    answer = "replicates" if holds else "does not replicate"
    said = [f"The result {answer}: {top[0]} matters most in {leads}."]
    for name, _, value, lower, upper in filter(lambda row: np.isfinite(row[2]), rows):
        sure = ""
        if intervals is not None and np.isfinite(lower):
            sure = f" (95 % CI {number(lower)} to {number(upper)}, over {intervals.over})"
        said.append(f"{_CALLED[name]} of the two correlate at {number(value)}{sure}.")
    names = importances["feature"] + " in " + importances["model"] + ":"
    said += _headline(both, intervals)
    said.append(_largest("importance", names + importances["layer"].astype(str), importances))
    if len(similarities):
        names = similarities["layer_a"] + " and " + similarities["layer_b"]
        rsa = similarities.rename(columns=lambda name: name.removeprefix("rsa_"))
        said.append(_largest("RSA", names, rsa))
    return said, {"correlations": found, "importances": importances, "similarities": similarities}


def _pearson(x: FloatArray, y: FloatArray) -> FloatArray:
    """Correlation (...) of (..., n) numbers; NaN for fewer than three, or where all are one."""
    x, y = (one - one.mean(axis=-1, keepdims=True) for one in (x, y))
    norm = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    known = (norm > 0) & (x.shape[-1] > 2)
    r: FloatArray = np.where(known, (x * y).sum(axis=-1) / np.where(known, norm, 1.0), np.nan)
    return r


def _headline(both: tuple[Analysis, Analysis], intervals: Paired | None) -> list[str]:
    """What the second has of the layers that are the most similar in the first."""
    shared = two_analyses.common_layers(*both)
    if len(shared) < 2:
        return []
    pair, most = (one.most_alike(shared) for one in both)
    first, again = (one.rsa[tuple(map(one.layers.index, pair))] for one in both)
    sure = ""
    if intervals is not None:
        row = similarity_table(intervals.second, pair).table.iloc[0]
        sure = f" (95 % CI {number(row['rsa_lower'])} to {number(row['rsa_upper'])})"
    there = "the most similar too"
    if {*most} != {*pair}:
        there = f"less similar than {listed([*map(layer_name, most)])}"
    return [
        f"{listed([*map(layer_name, pair)])}, the most similar layers of the first (RSA "
        f"{number(first)}), have RSA {number(again)}{sure} in the second, where they are {there}."
    ]


def _largest(what: str, names: pd.Series, table: pd.DataFrame) -> str:
    order = table["difference"].abs().sort_values(ascending=False, kind="stable").index[:LARGEST]
    parts = [
        f"{names[at]} {number(table['first'][at])} and {number(table['second'][at])}"
        + (f" (corrected p {table['p_corrected'][at]:.2g})" if table["p"].notna()[at] else "")
        for at in order
    ]
    return f"Largest changes of {what}: {'; '.join(parts)}."

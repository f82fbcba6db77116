"""Two analyses beside each other: how far their results differ, and whether one repeats the other.

Both answers rest on the same stimuli where these are the same, and vary together: what is left out
is left out of both, and the interval is that of the difference (a paired delete-block jackknife,
`mlem_core.inference.resample`). Of different stimuli each loses blocks of its own, and the
variances add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.context import SelectionContext, no_report
from mlem_core.analysis.results import Results
from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.errors import InputError
from mlem_core.base.labels import NAMES
from mlem_core.base.parameters import option_text
from mlem_core.base.text import fraction, listed
from mlem_core.base.typing import FloatArray, Layer, Report, layer_name, parse_layer
from mlem_core.inference.intervals import (
    FamilyOfTests,
    LayerIntervals,
    family_of_tests,
    similarity_table,
)
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.inference.resample import Estimate, estimate_from_error, jackknife, standard_error
from mlem_core.measures.importance import most_important
from mlem_core.measures.similarity import weighted_tau
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

# Fields of a spec that are said by what is in the analysis, or that change no number.
_OTHERWISE = ("stimuli", "models", "representations", "layers", "features", "values", "device")


# A value (...) of an analysis, and the same without each block of its stimuli (n_blocks, ...).
JackknifeValue = tuple[FloatArray, FloatArray]


class Paired(NamedTuple):
    """Intervals of two analyses.

    together : whether the same blocks of the same stimuli were left out of both; else each lost
        blocks of its own, and is taken as independent of the other: with sentences or words in
        common intervals of differences are too wide rather than too narrow
    """

    first: LayerIntervals
    second: LayerIntervals
    together: bool = True

    @classmethod
    def find(cls, first: Analysis, second: Analysis, store: Store) -> Paired | None:
        """Intervals of the layers that both have, if the store has them."""
        layers = common_layers(first, second)
        if not layers:
            return None
        both = [
            LAYER_INTERVALS.find(SelectionContext(each, each.select(layers=layers), store))
            for each in (first, second)
        ]
        if both[0] is None or both[1] is None:
            return None
        return cls(both[0], both[1], same_stimuli(first, second))

    @classmethod
    def get(
        cls, first: Analysis, second: Analysis, store: Store, report: Report = no_report
    ) -> Paired:
        """Intervals of the layers that both have, computed where the store does not have them.

        Raises as `mlem_core.inference.layer_intervals.compute_layer_intervals`.
        """
        layers = common_layers(first, second)
        both = [
            LAYER_INTERVALS.get(SelectionContext(each, each.select(layers=layers), store, report))
            for each in (first, second)
        ]
        return cls(both[0], both[1], same_stimuli(first, second))

    @property
    def over(self) -> str:
        """Resampling units of the intervals, and what each analysis leaves out."""
        if self.together:
            return f"{self.first.units.over}; the same are left out of both"
        over = dict.fromkeys(one.units.over for one in (self.first, self.second))
        return f"{listed([*over])} of each, taken as independent"

    def estimate(
        self,
        statistic: Callable[[FloatArray, FloatArray], FloatArray],
        one: JackknifeValue,
        other: JackknifeValue,
    ) -> Estimate:
        """A statistic of a value of each analysis; it takes a leading axis in either or both."""
        value, (first, second) = statistic(one[0], other[0]), (self.first, self.second)
        if self.together:
            return jackknife(value, statistic(one[1], other[1]), first.sizes)
        error = np.hypot(
            standard_error(statistic(one[1], other[0]), first.sizes),
            standard_error(statistic(one[0], other[1]), second.sizes),
        )
        return estimate_from_error(value, error, (*first.sizes, *second.sizes))


def common_layers(first: Analysis, second: Analysis) -> tuple[Layer, ...]:
    """The layers (model, layer) that both have, in the order of the first."""
    return tuple(layer for layer in first.layers if layer in second.layers)


def differences_in_words(first: Analysis, second: Analysis) -> str:
    """Sentence on the inputs and choices in which two analyses differ."""
    models = [{model for model, _ in analysis.layers} for analysis in (first, second)]
    contents = first.manifest["models"], second.manifest["models"]
    are_same_stimuli = same_stimuli(first, second)
    same_models = models[0] == models[1]
    if same_models and are_same_stimuli:
        same_models = all(same_content(contents[0][name], contents[1][name]) for name in models[0])
    same_inputs = {
        "stimuli": are_same_stimuli,
        "models": same_models,
        "layers": models[0] != models[1] or first.layers == second.layers,
        "features": first.pairs.features == second.pairs.features,
        "features coded by value": first.pairs.resolved == second.pairs.resolved,
    }
    parts = [name for name, same in same_inputs.items() if not same]
    for field in fields(AnalysisSpec):
        values = [_describe_value(getattr(one.spec, field.name)) for one in (first, second)]
        if field.name not in _OTHERWISE and values[0] != values[1]:
            label = parameters()[field.name].label
            parts.append(f"{label[:1].lower()}{label[1:]} ({values[0]}; {values[1]})")
    if not parts:
        return "Both analyses are of the same stimuli, models and choices."
    return f"The first and the second differ in {listed(parts)}."


def _describe_value(value: Any) -> str:
    if value in ((), None):
        return "as found" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return listed(list(map(option_text, value)), most=6)
    return str(value)


# Intervals


def same_stimuli(first: Analysis, second: Analysis) -> bool:
    """Whether the stimuli are the same, in one order; their features may be others."""

    def identity(stimuli: StimulusSet) -> list[Any]:
        units = (stimuli.word_index, stimuli.groups, stimuli.items)
        return [stimuli.sentences, *(None if own is None else list(own) for own in units)]

    return identity(first.stimuli) == identity(second.stimuli)


def importance_differences(
    results: tuple[Results, Results], intervals: Paired | None
) -> FamilyOfTests:
    """Each importance in the first analysis less that in the second, means over folds.

    Returns
    -------
    model, layer, feature, first, second, difference and, NaN without intervals, lower, upper, p,
    p_corrected. The family is all rows
    """
    keys = ["model", "layer", "feature"]
    means = [
        one.importance.groupby(keys, sort=False)["importance"].mean().rename(name)
        for one, name in zip(results, ("first", "second"), strict=True)
    ]
    table = pd.concat(means, axis=1, join="inner").reset_index()
    value = (table["first"] - table["second"]).to_numpy(np.float64)
    table = table.assign(difference=value, lower=np.nan, upper=np.nan, p=np.nan)
    if intervals is not None and len(table):
        found = intervals.estimate(np.subtract, *jackknife_values("importance", table, intervals))
        table = table.assign(**found.columns("lower", "upper", "p"))
    return family_of_tests(table, "differences of importance")


def jackknife_values(
    name: str, table: pd.DataFrame, intervals: Paired
) -> tuple[JackknifeValue, JackknifeValue]:
    """The "importance", "rsa" or "weighted_tau" of a table of differences, in either analysis."""
    found: list[JackknifeValue] = []
    for own, end in ((intervals.first, "first"), (intervals.second, "second")):
        if name == "importance":
            layers = [(str(model), int(n)) for model, n in table[["model", "layer"]].to_numpy()]
            column = [1 + own.columns.index(feature) for feature in table["feature"]]
            value, without = table[end], own.scores_without[:, own.places(layers), column]
        else:
            value, whole = table[f"{name}_{end}"], own.values_without
            if name == "weighted_tau":
                whole = np.stack([weighted_tau(scores[:, 1:]) for scores in own.scores_without])
            a, b = (own.places(list(map(parse_layer, table[f"layer_{end}"]))) for end in "ab")
            without = whole[:, a, b]
        found.append((value.to_numpy(np.float64), without))
    return found[0], found[1]


def similarity_differences(
    results: tuple[Results, Results], intervals: Paired | None
) -> FamilyOfTests:
    """Both similarities of every two layers that both have, in the first less in the second.

    Returns
    -------
    layer_a, layer_b ("model:layer"), and for rsa and weighted_tau _first, _second, _difference;
    NaN without intervals, rsa_lower, rsa_upper, rsa_p, rsa_p_corrected. The family is all pairs
    """
    layers = [layer for layer in results[0].layers if layer in results[1].layers]
    names = [layer_name(layer) for layer in layers]
    a, b = np.triu_indices(len(layers), 1)
    table = pd.DataFrame({"layer_a": np.array(names)[a], "layer_b": np.array(names)[b]})
    for name, square in (("rsa", "similarity_rsa"), ("weighted_tau", "similarity_profiles")):
        both = [
            getattr(one, square).loc[names, names].to_numpy(np.float64)[a, b] for one in results
        ]
        columns = {"first": both[0], "second": both[1], "difference": both[0] - both[1]}
        table = table.assign(**{f"{name}_{key}": value for key, value in columns.items()})
    table = table.assign(rsa_lower=np.nan, rsa_upper=np.nan, rsa_p=np.nan)
    if intervals is not None and len(table):
        rsa = intervals.estimate(np.subtract, *jackknife_values("rsa", table, intervals))
        table = table.assign(rsa_lower=rsa.lower, rsa_upper=rsa.upper, rsa_p=rsa.p)
    return family_of_tests(table, "differences of RSA", "rsa_p")


# A convention: importances of an analysis that repeats another correlate above this, for sure.
REPEATED = 0.5
_CALLED = {"importance": "Importances", "rsa": "RSA", "weighted_tau": "Weighted Kendall τ"}


def replication(
    both: tuple[Analysis, Analysis], results: tuple[Results, Results], intervals: Paired | None
) -> tuple[list[str], dict[str, pd.DataFrame]]:
    """Whether the second of two analyses repeats the first: in sentences, and as tables.

    It does where the same feature matters most, and importances correlate above `REPEATED` (by the
    lower bound, where there is one).

    Raises InputError: no layer and feature is in both.

    Returns
    -------
    sentences, the answer first; and tables: "correlations" (quantity, n, value, lower, upper:
    Pearson's, over n layers and features or pairs of layers), "importances" and "similarities" as
    `two_analyses` gives their differences
    """
    importances = importance_differences(results, intervals).table
    similarities = similarity_differences(results, intervals).table
    if importances.empty:
        raise InputError("no layer and feature is in both analyses; expected the same in both.")
    rows = []
    for name in _CALLED:
        table = importances if name == "importance" else similarities
        keys = [end if name == "importance" else f"{name}_{end}" for end in ("first", "second")]
        value = float(_pearson(*table[keys].to_numpy(np.float64).T))
        lower = upper = np.nan
        if intervals is not None and np.isfinite(value):
            r = intervals.estimate(_pearson, *jackknife_values(name, table, intervals))
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
            sure = f" (95 % CI {fraction(lower)} to {fraction(upper)}, over {intervals.over})"
        said.append(f"{_CALLED[name]} of the two correlate at {fraction(value)}{sure}.")
    said += _headline(both, intervals)
    return said, {"correlations": found, "importances": importances, "similarities": similarities}


def _pearson(x: FloatArray, y: FloatArray) -> FloatArray:
    """Correlation (...) of (..., n) numbers; NaN for fewer than three, or where all are one."""
    x, y = (one - one.mean(axis=-1, keepdims=True) for one in (x, y))
    norm = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    known = (norm > 0) & (x.shape[-1] > 2)
    r: FloatArray = np.where(known, (x * y).sum(axis=-1) / np.where(known, norm, 1.0), np.nan)
    return r


def _headline(both: tuple[Analysis, Analysis], intervals: Paired | None) -> list[str]:
    """Similarity in the second analysis of the layers that are most similar in the first."""
    shared = common_layers(*both)
    if len(shared) < 2:
        return []
    pair, most = (one.most_alike(shared) for one in both)
    first, again = (one.rsa[tuple(map(one.layers.index, pair))] for one in both)
    sure = ""
    if intervals is not None:
        row = similarity_table(intervals.second, pair).table.iloc[0]
        sure = f" (95 % CI {fraction(row['rsa_lower'])} to {fraction(row['rsa_upper'])})"
    there = "the most similar too"
    if {*most} != {*pair}:
        there = f"less similar than {listed([*map(NAMES.layer_title, most)])}"
    return [
        f"{listed([*map(NAMES.layer_title, pair)])}, the most similar layers of the first (RSA "
        f"{fraction(first)}), have RSA {fraction(again)}{sure} in the second, where they are "
        f"{there}."
    ]

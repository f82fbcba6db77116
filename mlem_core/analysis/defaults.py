"""The choices that an analysis makes itself: how it is fitted, and what is coded by value.

Both are made once for all layers, by `mlem_core.estimators.choice`. What differs from the papers'
choices, ridge and coding as same or different, has to gain `GAIN` of ρ for each that does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.values import MOST_STIMULI, recommended_values
from mlem_core.base.typing import IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.choice import FEWEST_TO_CHOOSE, GAIN, across_folds
from mlem_core.estimators.registry import estimator_named
from mlem_core.pairs.columns import AUTO
from mlem_core.pairs.tables import PairTables

# The entry of a manifest that says what was chosen, and the ρ of each choice.
CHOSEN = "chosen"
BY = "chosen by inner cross-validation"


def with_choices_open(spec: AnalysisSpec, stimuli: StimulusSet) -> AnalysisSpec:
    """The analysis whose tables tell which choices are best: by value what can be; ridge.

    With fewer than `FEWEST_TO_CHOOSE` folds nothing can be chosen: coded as same or different.
    """
    among, values = estimator_named(spec.estimator).among, spec.values
    if values == AUTO:
        values = recommended_values(stimuli, spec) if spec.folds >= FEWEST_TO_CHOOSE else ()
    return replace(spec, estimator=among[0] if among else spec.estimator, values=values)


def settled(
    spec: AnalysisSpec, stimuli: StimulusSet, tables_of: Callable[[IntArray], PairTables]
) -> tuple[AnalysisSpec, dict[str, Any]]:
    """The analysis with its choices made, and what its manifest says of them; none is {}.

    Parameters
    ----------
    spec, stimuli : the specification, and its stimuli with the features
    tables_of : gives the pair tables of all layers `with_choices_open` of the stimuli in these
        rows, a seeded sample of those that are more than `MOST_STIMULI`
    """
    first, names = with_choices_open(spec, stimuli), estimator_named(spec.estimator).among
    names = names or (spec.estimator,)
    codings = ((), first.values) if spec.values == AUTO and first.values else (first.values,)
    if spec.folds < FEWEST_TO_CHOOSE or len(names) * len(codings) == 1:
        return first, {}
    rows = np.random.default_rng(spec.seed).permutation(len(stimuli))[:MOST_STIMULI]
    tables = tables_of(np.sort(rows)).with_interactions(spec.interactions)
    of = {first.values: tables} | ({(): tables.same_or_different()} if len(codings) > 1 else {})
    rho = {
        (name, values): float(across_folds(of[values], ranked="rank" in name).mean())
        for name, values in itertools.product(names, codings)
    }

    def gained(choice: tuple[str, tuple[str, ...]]) -> float:
        return rho[choice] - GAIN * (names.index(choice[0]) + codings.index(choice[1]))

    estimator, values = max(rho, key=gained)
    scores = [[name, list(coded), round(score, 4)] for (name, coded), score in rho.items()]
    chosen = {"estimator": estimator, "values": list(values), "rho": scores}
    return replace(first, estimator=estimator, values=values), chosen


def said_of_choice(manifest: Mapping[str, Any], estimator: str) -> str:
    """The clause that follows the name of an estimator that was chosen; else empty."""
    return f", {BY}" if manifest.get(CHOSEN, {}).get("estimator") == estimator else ""

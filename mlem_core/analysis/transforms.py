"""Variants of an analysis that need no new run of a model: views of stored representations.

A view leaves out stimuli by their position, or changes the units of a layer; everything after it
(distances, statistics of pairs, maps) sees the view only, under an identity of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.numbers import moderate
from mlem_core.base.parameters import Registry
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extending import entry_modules
from mlem_core.pairs.distances import equal_rows
from mlem_core.stimuli.folds import fold_groups
from mlem_core.stimuli.stimulus_set import StimulusSet

if TYPE_CHECKING:
    from mlem_core.representations.layers import Representations


# Which stimuli an analysis keeps, by what a screen calls it.
POSITIONS = {"all": "all", "without-first": "without words at position 0"}
HALVES = {"both": "both halves", "first": "the first half", "second": "the second half"}
VERSION = 1  # counted up when a view of the same arrays becomes another

# A unit is an outlier where the logarithm of its variance is so many robust standard deviations
# above the median unit's. Variances of units spread over orders of magnitude, about evenly on a
# logarithmic scale; of normally distributed values 3 in 10 million lie beyond 5.
OUTLIER = 5.0
# In a layer with hardly any spread 5 of them may be nothing: at least this (1.65 times the median).
LEAST_SPREAD = 0.1


def kept_stimuli(stimuli: StimulusSet, positions: str) -> IntArray:
    """The rows of the stimuli that a choice of `POSITIONS` keeps, ascending.

    Raises InputError: stimuli are to be left out by position that are whole sentences, or too few
    are left.
    """
    if positions == "all":
        return np.arange(len(stimuli))
    if stimuli.word_index is None:
        what = "whole sentences" if stimuli.level == "sentence" else "no text"
        raise InputError(
            f"the stimuli of {stimuli.name} are {what} and have no position; the only choice of "
            "positions for them is all."
        )
    kept = np.flatnonzero(stimuli.word_index > 0)
    if len(kept) < 2:
        raise InputError(
            f"{len(kept)} stimuli of {stimuli.name} are left without those at position 0; at least "
            "2 are needed to form a pair."
        )
    return kept


class StimulusFilter(NamedTuple):
    """Choice of the stimuli of an analysis: by `POSITIONS`, and by one of the `HALVES`.

    Halves are of what folds are `over`, drawn with their seed. Over both, a stimulus whose sentence
    is in the one half and its item in the other is in neither.
    """

    positions: str = "all"
    half: str = "both"
    over: str = "sentences"
    seed: int = 0

    def rows(self, whole: StimulusSet) -> IntArray:
        """The rows that are kept, ascending; raises as `kept_stimuli` and `fold_groups`."""
        rows = kept_stimuli(whole, self.positions)
        units = ("sentences", "items") if self.over == "both" else (self.over,)
        for what in units if self.half != "both" else ():
            unit = np.unique(fold_groups(whole, what), return_inverse=True)[1]
            place = np.random.default_rng(self.seed).permutation(int(unit.max()) + 1)
            rows = rows[place[unit[rows]] % 2 == (self.half == "second")]
        return rows

    def apply(self, whole: StimulusSet) -> StimulusSet:
        """The stimuli that are kept; raises as `rows`."""
        rows = self.rows(whole)
        return whole if len(rows) == len(whole) else whole.take(rows)

    @property
    def identity(self) -> str:
        """Text for this choice in the identity of a view; "all" is everything."""
        halved = "" if self.half == "both" else f" half={self.half} {self.over} {self.seed}"
        return f"{self.positions}{halved}"


def variances(rows: NDArray[np.floating]) -> FloatArray:
    """The variance of each unit over the stimuli: (n_stimuli, n_units) to (n_units,)."""
    return rows.var(axis=0, dtype=np.float64)


def outlier_units(variance: FloatArray) -> IntArray:
    """The units whose variance stands far above the others', the largest first.

    With v the logarithm of the variance of the units that vary, m its median and s = 1.4826 times
    the median of |v - m|, but at least `LEAST_SPREAD`: those with v > m + `OUTLIER` s. They are
    fewer than half of the units.

    `variance` is (n_units,), see `variances`.

    Source: outlier dimensions are described by Kovaleva et al. (2021) and, as what dominates
    similarities, by Timkey and van Schijndel (2021).
    """
    varies = variance > 0
    if not varies.any():
        return np.empty(0, dtype=np.int64)
    log = np.log(variance, where=varies, out=np.full(len(variance), -np.inf))
    middle = np.median(log[varies])
    spread = max(1.4826 * float(np.median(np.abs(log[varies] - middle))), LEAST_SPREAD)
    outliers = np.flatnonzero(log > middle + OUTLIER * spread)
    return outliers[np.argsort(-variance[outliers], kind="stable")]


def changed_units(rows: NDArray[np.floating], units: str) -> NDArray[np.floating]:
    """A layer (n_stimuli, n_units) after a choice of `UNITS`.

    Rows that are equal up to the precision of their type stay equal.
    """
    change = UNITS.named(units).change
    if change is None:
        return rows
    # Rounding that is nothing beside a large unit would be something without it.
    rows = moderate(np.asarray(rows))
    return change(rows[equal_rows(rows)].astype(np.float64))


def _standardised(rows: FloatArray) -> FloatArray:
    """Each unit with mean 0 and variance 1 over the stimuli, in place; 0 where it does not vary."""
    variance = variances(rows)
    varies = variance > 1e-24 * np.square(rows).mean(axis=0)
    rows -= rows.mean(axis=0)
    rows /= np.where(varies, np.sqrt(variance), np.inf)
    return rows


def _drop_outlier_units(rows: FloatArray) -> FloatArray:
    return np.delete(rows, outlier_units(variances(rows)), axis=1)


@dataclass(frozen=True)
class UnitChange:
    """Change of the units of a layer before distances are computed.

    Attributes
    ----------
    name, label : how a user asks for it, and what a screen calls it
    change : of rows (n_stimuli, n_units), which it may overwrite, those of the changed units; None
        leaves them as they are
    """

    name: str
    label: str
    change: Callable[[FloatArray], FloatArray] | None = None


UNITS = Registry[UnitChange]("choice of units", entry_modules)
for _units in (
    UnitChange("raw", "as they are"),
    UnitChange("standardised", "each with variance 1", _standardised),
    UnitChange("without-outliers", "without those of outlying variance", _drop_outlier_units),
):
    UNITS.register(_units)


def view(source: Representations, rows: IntArray, kept: str, units: str) -> Representations:
    """Representations as an analysis with these choices sees them.

    `rows` and `kept` are `StimulusFilter.rows` and `StimulusFilter.identity`.
    """
    if kept == "all" and units == "raw":
        return source

    return source.with_arrays(
        partial(_changed, source, None if kept == "all" else rows, units),
        identity=f"{source.identity} view={VERSION} positions={kept} units={units}",
        facts={**source.facts, "source_identity": source.identity},
        n_stimuli=len(rows),
    )


def _changed(
    source: Representations, rows: IntArray | None, units: str, layer: int
) -> NDArray[np.floating]:
    array = source[layer] if rows is None else source.rows(layer, rows)
    # Distances have no units.
    return array if source.distances else changed_units(array, units)

"""Chance: what the contribution of a feature is when its labels are permuted.

A feature that is constant on words also says which word a stimulus is, and words recur in the
stimuli that a contribution is learnt from and in those that it is computed on; so do places,
neighbours, documents. Cross-fitting removes noise, but not this. So the labels of one feature are
permuted among the units that settle it (`mlem_core.stimuli.levels`), all others as they are; what
it contributes then is chance, and its contribution is the excess over that. What chance gives to
all features of one unit is called *word identity* (*place*, *sentence identity*).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.parallel import cores, map_in_order
from mlem_core.base.text import listed, many, percent
from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.inference.intervals import PERMUTATIONS
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permuted_contributions import PermutedContributions
from mlem_core.measures.decomposition import IDENTITY, Decomposition
from mlem_core.pairs.columns import FeatureColumn
from mlem_core.stimuli.levels import (
    FEWEST_LABELLINGS,
    MOSTLY,
    MOVED,
    STIMULUS,
    Exchange,
    TimeExchange,
    exchanges,
    recurring_units,
)
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Packed

UNCORRECTED = "Not corrected for chance: random labels may contribute as much."
# Permutations of a feature at once.
AT_ONCE = 100
# Layers, spread over all, whose contributions tell which unit's permuted labels reach most.
PILOT_LAYERS = 6
# Permutations by which the unit is found whose labels earn most.
PILOT = 20
# After so many permutations no more are drawn where at least so many of them have what the true
# labels have: p is large.
FIRST, ENOUGH = 39, 10

# What a column has (n_permutations, ...) where each stimulus takes the value of another
# (n_permutations, n_stimuli).
Statistic = Callable[[IntArray], FloatArray]


class PermutationNull(NamedTuple):
    """What a column has when its labels are permuted: a feature, a candidate, an erased feature.

    unit : whose labels are permuted: of the units that (nearly) settle the column, the one whose
        permuted labels reach most
    moved : share of the stimuli that take the labels of others, of those that can
    n_labellings : how many different ones there are
    givers : (n_permutations, n_stimuli) the stimulus whose value each has
    draws : (1 + n_permutations, ...) what the column has, with its true labels first; where p is
        clearly large, those of `n_drawn` permutations, again and again
    n_drawn : how many permutations were drawn
    """

    unit: str
    moved: float
    n_labellings: float
    givers: IntArray
    draws: FloatArray
    n_drawn: int = 0

    @property
    def unknown(self) -> str:
        """Why the null is not known, in a clause; "" where it is."""
        return why_unknown(self.unit, self.moved, self.n_labellings)


def why_unknown(unit: str, moved: float, n_labellings: float) -> str:
    """Why labels of a unit give no null, in a clause; "" where they do."""
    if n_labellings < FEWEST_LABELLINGS:
        ways = many(round(n_labellings), "different labelling")
        return f"{ways} of the {unit}s, where {FEWEST_LABELLINGS} are needed"
    if moved < MOVED:
        share = f"{percent(moved)} of the stimuli would take the label of another {unit}"
        return f"{share}, where {percent(MOVED)} are needed"
    return ""


def permutation_null(
    ways: Sequence[Exchange | TimeExchange],
    values: NDArray[Any],
    statistic: Statistic,
    n_permutations: int,
    rng: np.random.Generator,
    pilot: Statistic,
) -> PermutationNull:
    """What a column has under labels that are permuted among the units that reach most.

    `farthest_exchange` says which units these are. A unit that settles most of the column and
    cannot exchange labels leaves the null unknown: permuted, the column then has 0. Permutations
    are drawn until p is clearly large: those of other columns, which are permuted alone, are
    independent of them.

    Source: Besag and Clifford (1991), sequential Monte Carlo p-values.

    Parameters
    ----------
    ways : of `mlem_core.stimuli.levels.exchanges`
    values : (n_stimuli,) of the column
    pilot : of less work, which gives the reach
    """
    true = np.arange(len(values))[None]
    nulls = [
        PermutationNull(way.unit, way.moved(values), way.n_labellings(values), true, np.empty(0))
        for way in ways
    ]
    able = [pair for pair in zip(ways, nulls, strict=True) if not pair[1].unknown]
    for way, null in zip(ways, nulls, strict=True):
        if null.unknown and (way.agreement >= MOSTLY or not able):
            draws = statistic(true)
            nothing = np.zeros((n_permutations, *draws.shape[1:]))
            return null._replace(draws=np.concatenate((draws, nothing)))
    way, null = able[farthest_exchange([way for way, _ in able], pilot, rng)]
    givers = way.draw(n_permutations, rng)
    draws = statistic(np.concatenate((true, givers[:FIRST])))
    n_above = np.sum(draws[1:] >= draws[0] - 1e-12, axis=0)
    if n_permutations > FIRST and np.any(n_above < ENOUGH):
        draws = np.concatenate((draws, statistic(givers[FIRST:])))
    n_drawn = len(draws) - 1
    permuted = np.resize(draws[1:], (n_permutations, *draws.shape[1:]))
    return null._replace(
        givers=givers, draws=np.concatenate((draws[:1], permuted)), n_drawn=n_drawn
    )


def farthest_exchange(
    ways: Sequence[Exchange | TimeExchange], statistic: Statistic, rng: np.random.Generator
) -> int:
    """Number of the way whose permuted labels reach most: their mean and two standard deviations.

    These are of `PILOT` permutations, on average over the columns of the statistic.
    """
    reach = [0.0]
    if len(ways) > 1:
        draws = [statistic(way.draw(PILOT, rng)) for way in ways]
        reach = [float((d.mean(axis=0) + 2.0 * d.std(axis=0)).mean()) for d in draws]
    return int(np.argmax(reach))


def corrected_p(draws: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """p of what columns have, corrected over the columns: (n_columns, ...).

    The share of all rows, the true one among them, in which the largest of all columns is as far
    above its mean, in standard deviations. Mean and standard deviation are over all rows, so that
    the true labels are treated as the permuted ones are.

    Parameters
    ----------
    draws : (1 + n_permutations, n_columns, ...) what they have, with their true labels first
    known : (n_columns,) whether the null is known; NaN where not

    Source: Westfall and Young (1993), the maximum statistic.
    """
    spread = draws.std(axis=0, ddof=1)
    far = (draws - draws.mean(axis=0)) / np.where(spread > 1e-12, spread, np.inf)
    largest = far[:, known].max(axis=1, initial=-np.inf)
    p = np.mean(largest[:, None] >= far[0] - 1e-9, axis=0)
    p[~known] = np.nan
    return np.asarray(p)


class ContributionNull(NamedTuple):
    """Contributions of each feature to the similarity of n_layers layers when it is permuted.

    features : (n_features,) names
    units : (n_features,) "word", "place", ... or "stimulus": whose labels are permuted
    moved : (n_features,) share of the stimuli that take the labels of others
    n_labellings : (n_features,) how many different labellings of the units there are
    n_drawn : (n_features,) how many permutations were drawn, see
        `PermutationNull`
    draws : (1 + n_permutations, n_features, n_layers, n_layers) as
        `mlem_core.inference.permuted_contributions` has them, those of the true labels first
    together : (n_identities, n_layers, n_layers) contribution of the features of each identity as
        one when their labels are permuted together, the mean over `PILOT` permutations
    control_units : (n_controls,) units that recur
    controls : (n_controls, n_layers, n_layers) contribution of a random number of each unit,
        beside all features, the mean over `PILOT` numbers
    """

    features: tuple[str, ...]
    units: tuple[str, ...]
    moved: FloatArray
    n_labellings: FloatArray
    n_drawn: FloatArray
    draws: Annotated[FloatArray, Packed(np.float32, symmetric=True)]
    together: FloatArray
    control_units: tuple[str, ...]
    controls: FloatArray

    def select_layers(self, places: Sequence[int]) -> ContributionNull:
        """Contributions by chance to the similarity of some of the layers."""
        draws, together, controls = (
            array[..., places, :][..., places]
            for array in (self.draws, self.together, self.controls)
        )
        return self._replace(draws=draws, together=together, controls=controls)

    @property
    def n_permutations(self) -> int:
        return len(self.draws) - 1

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n_features,) whether enough stimuli take the labels of others."""
        return (self.moved >= MOVED) & (self.n_labellings >= FEWEST_LABELLINGS)

    @property
    def mean(self) -> FloatArray:
        """(n_features, n_layers, n_layers) the mean over permutations; 0 where it is not known."""
        shown = self.known[:, None, None]
        return np.where(shown, self.draws[1:].mean(axis=0), 0.0)

    @property
    def error(self) -> FloatArray:
        """(n_features,) standard error of the mean in two layers, from so many permutations."""
        spread = self.draws[1:, :, 0, -1].std(axis=0, ddof=1)
        return np.where(self.known, spread / np.sqrt(np.maximum(self.n_drawn, 1.0)), 0.0)

    @property
    def p(self) -> FloatArray:
        """(n_features, n_layers, n_layers) p, as `corrected_p` gives it."""
        return corrected_p(self.draws, self.known)

    @property
    def identities(self) -> tuple[str, ...]:
        """The terms that features of a unit have by chance: "word identity", "place identity"."""
        return tuple(unit + IDENTITY for unit in self.identity_units)

    @property
    def identity_units(self) -> tuple[str, ...]:
        """The units that identities are of."""
        return tuple(dict.fromkeys(unit for unit in self.units if unit != STIMULUS))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on the features whose chance is not known; none where there are none."""
        rest = [
            f"{name} ({why})"
            for name, *how in zip(
                self.features, self.units, self.moved, self.n_labellings, strict=True
            )
            if (why := why_unknown(*how))
        ]
        text = (
            f"Chance is not known for {listed(rest)}. Their contributions may be "
            f"{listed(self.identities or ('stimulus identity',), last='or')}."
        )
        return (text,) if rest else ()

    def control_table(self) -> pd.DataFrame:
        """What labels without meaning contribute to two layers.

        Returns
        -------
        unit, random_number (one a unit, beside all features), together (all features that are
        permuted among these units, permuted together, as one; NaN where there is none)
        """
        together = dict(zip(self.identity_units, self.together[:, 0, -1], strict=True))
        units = dict.fromkeys((*self.control_units, *together))
        of_controls = dict(zip(self.control_units, self.controls[:, 0, -1], strict=True))
        rows = [(unit, of_controls.get(unit, np.nan), together.get(unit, np.nan)) for unit in units]
        return pd.DataFrame(rows, columns=["unit", "random_number", "together"])

    def apart(self, terms: FloatArray) -> FloatArray:
        """Contributions beyond chance, identities and "unexplained": (..., n_terms, n, n).

        Parameters
        ----------
        terms : (..., n_features + 1, n_layers, n_layers) contributions, and "unexplained", to which
            chance of labels of single stimuli is added
        """
        mean, units = self.mean, np.array(self.units)
        of_units = [mean[units == unit].sum(axis=0) for unit in self.identity_units]
        shape = *terms.shape[:-3], len(of_units), *mean.shape[1:]
        identities = np.broadcast_to(np.reshape(of_units, shape[-3:]), shape)
        rest = terms[..., -1:, :, :] + mean[units == STIMULUS].sum(axis=0)
        return np.concatenate((terms[..., :-1, :, :] - mean, identities, rest), axis=-3)

    def subtract_from_all(self, split: Decomposition) -> Decomposition:
        """A similarity of layers as a sum of contributions beyond chance, and identities."""
        values = self.apart(split.values)
        nothing = np.full((len(self.identities), *values.shape[1:]), np.nan)
        shown = self.known[:, None, None]
        return replace(
            split,
            features=(*split.features, *self.identities),
            terms=values[:-1],
            unexplained=values[-1],
            error=None if split.error is None else np.concatenate((split.error, nothing)),
            chance=np.concatenate((np.where(shown, self.mean, np.nan), nothing)),
            p=np.concatenate((self.p, nothing)),
            units=(*self.units, *self.identity_units),
        )

    def subtract_chance(self, terms: pd.DataFrame) -> pd.DataFrame:
        """The contributions to two layers beyond chance; they still add up to the similarity.

        Parameters
        ----------
        terms : term, value and maybe error, of the features in their order and "unexplained"

        Returns
        -------
        term, value, chance, p, unit: the features, less what chance gives; identities (of words,
        sentences) with what chance gives to all features of their level; "unexplained", to which
        chance of labels of single stimuli is added
        """
        value, rest = np.split(terms["value"].to_numpy(dtype=np.float64)[:, None, None], [-1])
        two = self._replace(draws=self.draws[:, :, :1, -1:])
        error = terms["error"].to_numpy()[:-1, None, None] if "error" in terms else None
        whole = value.sum(axis=0) + rest[0]
        return two.subtract_from_all(
            Decomposition(self.features, value, rest[0], whole, error)
        ).pair(0, 0)


def chance_at_level(
    pairs: LayerPairs,
    stimuli: StimulusSet,
    n_permutations: int = PERMUTATIONS,
    seed: int = 0,
    *,
    values: Sequence[FloatArray] | None = None,
    progress: Counted | None = None,
) -> ContributionNull:
    """Contributions of each feature under labels that are permuted among its units.

    Parameters
    ----------
    pairs : all pairs of the stimuli, in n_layers layers
    stimuli : of the analysis
    values : for each layer (n_pairs,) what it gives every pair, centred, where that is not its rank
        (RSA); the statistics of the pairs then have it in the place of ranks, see
        `mlem_core.pairs.similarity_moments`
    progress : called with the number of permutations done and their total, of all features
    """
    rng = np.random.default_rng(seed)
    permuted = PermutedContributions.from_moments(
        pairs.statistics.moments, pairs.ranks if values is None else values
    )
    some, features = pairs.select_stimuli(stimuli), pairs.statistics.features
    n_layers = pairs.statistics.moments.n_layers
    spread = np.unique(np.linspace(0, n_layers - 1, PILOT_LAYERS).round().astype(np.int64))
    pilot, nulls = permuted.select_layers(spread.tolist()), list[PermutationNull]()
    for feature, name in enumerate(features):

        def contributions(givers: IntArray, feature: int = feature) -> FloatArray:
            parts = np.split(givers, range(AT_ONCE, len(givers), AT_ONCE))
            of_parts = map_in_order(
                partial(permuted.feature_contributions, [feature]), parts, cores()
            )
            return np.concatenate(list(of_parts))

        ways = exchanges(some, pairs.folds, name)
        of_pilot = partial(pilot.feature_contributions, [feature])
        nulls.append(
            permutation_null(ways, some.values(name), contributions, n_permutations, rng, of_pilot)
        )
        if progress is not None:
            progress(len(nulls) * n_permutations, len(features) * n_permutations)
    chance = ContributionNull(
        features,
        tuple(null.unit for null in nulls),
        np.array([null.moved for null in nulls]),
        np.array([null.n_labellings for null in nulls]),
        np.array([float(null.n_drawn) for null in nulls]),
        np.stack([null.draws for null in nulls], axis=1),
        np.zeros((0, n_layers, n_layers)),
        *_controls(permuted, some, rng),
    )
    together = []
    for unit in chance.identity_units:
        of_unit = np.flatnonzero((np.array(chance.units) == unit) & chance.known).tolist()
        if len(of_unit) > 1:
            givers = nulls[of_unit[0]].givers[:PILOT]
            together.append(permuted.feature_contributions(of_unit, givers).mean(axis=0))
        else:
            together.append(chance.mean[of_unit].sum(axis=0))
    return chance._replace(together=np.reshape(together, (-1, n_layers, n_layers)))


def _controls(
    permuted: PermutedContributions, stimuli: StimulusSet, rng: np.random.Generator
) -> tuple[tuple[str, ...], FloatArray]:
    """`control_units` and `controls` of chance; none where products of features are columns."""
    contributions = dict[str, FloatArray]()
    units = {} if permuted.columns.interactions else recurring_units(stimuli)
    for unit, numbers in units.items():
        sizes = np.bincount(numbers)
        if len(sizes) < 2 or sizes.max() < 2:
            continue
        values = rng.standard_normal(len(sizes))[numbers]
        column = FeatureColumn("random number", "ordered", values, (values.min(), values.max()))
        with_number = permuted.with_feature(column, "ignore")
        way = Exchange(unit, numbers, np.zeros(len(sizes), dtype=np.int64))
        last = [len(permuted.columns.features)]
        draws = with_number.feature_contributions(last, way.draw(PILOT, rng))
        contributions[unit] = draws.mean(axis=0)
    n_layers = permuted.moments.n_layers
    stacked = np.reshape(list(contributions.values()), (-1, n_layers, n_layers))
    return tuple(contributions), stacked


def chance_note(n_permutations: int) -> str:
    """Note that contributions are beyond chance, for a caption."""
    return (
        f"contributions beyond chance (labels permuted {n_permutations} times); p corrected over "
        "features"
    )

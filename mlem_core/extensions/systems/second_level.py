"""What makes systems differ: a MLEM whose stimuli are systems and whose features are properties.

Squared distances of systems, cross-validated over halves of the stimuli, are predicted from those
of their properties by the non-negative ridge regression of `RidgeMLEM`. Noise in a system is then
no distance; a square may be below 0. Systems are divided into folds, several times at random. ρ is
of the pairs inside a fold, by a metric fitted to the pairs of the other systems. The importance of
a property is how much ρ falls when the systems of a fold exchange its values; properties of a group
exchange them together.

Intervals are over systems and stimuli: the bootstrap draws systems (or whole classes of a property,
such as families), the jackknife leaves out each block of stimuli, the penalty held. p is of the
permutation test of systems, corrected over properties (Holm 1979).

Source: Salle et al. (2026, third version of arXiv:2406.12620), its second level and its grouped
importance, which has no intervals over systems.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.text import fraction, listed, many, sentence_case
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.normal_equations import NormalEquations, ridge_weights
from mlem_core.estimators.registry import FoldFits
from mlem_core.estimators.ridge_solver import ALPHAS, RidgeSolver
from mlem_core.extensions.systems.model_groups import Squares
from mlem_core.extensions.systems.properties import Properties
from mlem_core.extensions.systems.property_tests import GROUP, permutation_tests
from mlem_core.inference.group_means import interval_reach
from mlem_core.inference.intervals import SIGNIFICANT
from mlem_core.inference.resample import standard_error
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.pairs.ranks import score_patterns
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics
from mlem_core.stimuli.folds import group_folds

# Divisions into folds, systems of a fold (so that it has six pairs), and folds at most.
DIVISIONS, IN_FOLD, MOST_FOLDS = 20, 4, 5
# Permutations of the systems of a fold (all, where there are no more).
PERMUTATIONS = 12
# Bootstrap replicates of the systems, and the share of these that one has on average: copies of a
# system say nothing new, so t has fewer degrees of freedom.
REPLICATES, DISTINCT = 50, 1 - math.exp(-1)
# Systems at least: with fewer, two folds cannot both be of four.
FEWEST = 8
# With fewer systems (or groups) a property is seldom named that alone carries the distances.
CONCLUSIVE = 15
# Digits to which squared distances must agree to be tied.
DIGITS = 12
Mask = NDArray[np.bool_]
SCORES = ["measure", "fold", "rho", "ceiling"]
IMPORTANCES = ["measure", "property", "importance", "lower", "upper", "p"]


class SecondLevel(NamedTuple):
    """Held-out scores of the second level, importances of properties, and sentences on them.

    scores : `SCORES`, a row for each measure and fold of each division
    importances : `IMPORTANCES`, a row for each measure and property (or group of properties)
    """

    scores: pd.DataFrame
    importances: pd.DataFrame
    notes: list[str]

    def named(self, measure: str) -> list[str]:
        """Properties by a measure whose interval is above 0 and whose p is below .05, in words."""
        rows = self.importances[self.importances["measure"] == measure]
        sure = rows[(rows["lower"] > 0) & (rows["p"] < SIGNIFICANT)]
        ordered = sure.sort_values("importance", ascending=False)
        return [f"{row.property} ({fraction(row.importance)})" for row in ordered.itertuples()]

    def finding(self, measure: str, systems: str, n_units: int) -> str:
        """What sets these systems, of so many groups, apart by a measure, in a sentence."""
        named = self.named(measure)
        if not named:
            if n_units < CONCLUSIVE:
                return f"{sentence_case(systems)} are too few to test what sets them apart."
            return f"No property reliably sets {systems} apart."
        sets = "set" if len(named) > 1 else "sets"
        return f"{sentence_case(listed(named))} {sets} {systems} apart."

    def lines(self) -> list[str]:
        """Sentences on what the distances of systems go with, by each measure."""
        sentences = []
        for measure in self.importances["measure"].unique():
            scores = self.scores[self.scores["measure"] == measure]
            rho, named = fraction(scores["rho"].mean()), self.named(measure)
            claim = f"importances {listed(named)}" if named else "no property reliably does"
            sentences.append(
                f"What makes systems differ ({measure}): {claim}; held-out ρ {rho}, mean over "
                "folds of systems."
            )
        return sentences + self.notes


def second_level(
    measured: Mapping[str, Squares],
    properties: Properties,
    *,
    groups: Sequence[str] = (),
    families: Sequence[str] = (),
    seed: int = 0,
) -> SecondLevel:
    """Fit the second level to each measure of distance.

    Parameters
    ----------
    measured : squared distances of n_systems systems by the name of each measure; none where they
        are not computed; then `groups` are needed
    groups : (n_systems,) group of each system, such as seeds of one model, which are in one fold
        and are drawn as a whole; empty: each system for itself
    families : (n_systems,) in the place of groups there, where families are drawn as a whole
    seed : of the folds and permutations
    """
    n = len(groups) or len(next(iter(measured.values())).values)
    labels = list(families or groups)
    units = np.unique(labels, return_inverse=True)[1] if labels else np.arange(n)
    n_units = int(units.max()) + 1
    notes = properties.notes()
    if not properties.values or n < FEWEST or n_units < 4 or not measured:
        why = "there are no distances over halves of the stimuli. Compute confidence intervals, or "
        why += "add stimuli."
        if not properties.values:
            why = "no property differs; expected one that some systems share."
        elif n < FEWEST or n_units < 4:
            few = f"{many(n, 'system')} in {n_units} groups" if n_units < n else many(n, "system")
            why = f"found {few}; expected at least {FEWEST} systems."
        none = pd.DataFrame(columns=SCORES), pd.DataFrame(columns=IMPORTANCES)
        return SecondLevel(*none, [f"No second level: {why}"])
    if n_units < CONCLUSIVE:
        what = many(n, "system") if n_units == n else f"{n_units} groups of systems"
        notes.append(
            f"{what} allow no conclusion on properties that are not named: with 8 systems, one "
            "that alone carries the distances is seldom named (docs/validation)."
        )
    scores, rows = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    factors = properties.factors | ({GROUP: list(groups)} if len({*groups}) < len(groups) else {})
    for measure, (values, left) in measured.items():
        try:
            fits = Divisions.from_targets(values, properties, units, seed)
        except InputError as refused:
            notes.append(f"No second level ({measure}): {refused}")
            continue
        scores += [(measure, number, *both) for number, both in enumerate(fits.scores, 1)]
        importances = fits.importances(values[None])[0]
        variances, freedom = [fits.variance(values)], [DISTINCT * n_units - 1]
        if left is not None:
            variances.append(standard_error(fits.importances(left.without), left.sizes) ** 2)
            freedom.append(min(left.sizes) - 1)
        reach = interval_reach(np.stack(variances), np.array(freedom))
        tests, untested = permutation_tests(-values, factors, seed=seed)
        tests = [test for test in tests if test.name in properties.parts]
        p = holm({test.name: test.p for test in tests})
        vain = [test.name for test in tests if test.smallest * max(1, len(p)) >= SIGNIFICANT]
        if vain:
            untested.append(
                f"{many(n, 'system')} are too few for a conclusion on {listed(vain)}: corrected, "
                f"p cannot fall below {SIGNIFICANT:g}."
            )
        notes += [note for note in untested if note not in notes]
        for part, value, half in zip(properties.parts, importances, reach, strict=True):
            rows.append((measure, part, value, value - half, value + half, p.get(part, np.nan)))
    tables = pd.DataFrame(scores, columns=SCORES), pd.DataFrame(rows, columns=IMPORTANCES)
    return SecondLevel(*tables, notes)


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """p corrected over those that are known, step by step from the smallest."""
    known = sorted((value, name) for name, value in p.items() if np.isfinite(value))
    steps = (min(1.0, value * (len(known) - at)) for at, (value, _) in enumerate(known))
    return {name: p for (_, name), p in zip(known, itertools.accumulate(steps, max), strict=True)}


@dataclass(frozen=True)
class Divisions:
    """Systems in folds, several times over, and the penalties that were chosen there.

    Attributes
    ----------
    squares : (n_systems, n_systems, n_properties) squared distances by each property
    parts : the properties of each part, by number
    units : (n_systems,) what is in one fold together, and drawn together
    folds : (n_divisions, n_systems) the fold of each system
    alphas : (n_divisions, n_folds) the penalty of each metric
    scores : held-out ρ and feature ceiling of each fold of each division
    seed : of the permutations
    """

    squares: FloatArray
    parts: tuple[tuple[int, ...], ...]
    units: IntArray
    folds: IntArray
    alphas: FloatArray
    scores: list[tuple[float, float]]
    seed: int

    @classmethod
    def from_targets(
        cls, targets: FloatArray, properties: Properties, units: IntArray, seed: int = 0
    ) -> Divisions:
        """Divisions of systems, with what cross-validation by `RidgeSolver` finds in them.

        `targets` are squared distances (n_systems, n_systems).
        """
        names = list(properties.values)
        folds, alphas, scores = draw_divisions(units, seed), [], list[tuple[float, float]]()
        for of_systems in folds:
            fits = fold_fits(targets, properties, of_systems)
            alphas.append(fits.alpha[0])
            scores += [*zip(fits.rho[0].tolist(), fits.ceiling[0].tolist(), strict=True)]
        parts = tuple(tuple(map(names.index, members)) for members in properties.parts.values())
        squares = np.moveaxis(properties.distances(), 0, -1) ** 2
        return cls(squares, parts, units, folds, np.stack(alphas), scores, seed)

    def importances(self, targets: FloatArray, present: Mask | None = None) -> FloatArray:
        """(n_sets, n_parts) importances with each set of targets, means over folds; NaN of none.

        Targets are squared distances (n_sets, n_systems, n_systems); `present`
        (n_systems, n_systems) has the pairs that are there, None: all.
        """
        n_folds, n = self.alphas.shape[1], len(self.squares)
        first, second = np.triu_indices(n, 1)
        there = np.ones((n, n), bool) if present is None else present
        outside = (self.folds[:, None] != np.arange(n_folds)[:, None]).reshape(-1, n)
        fitted = outside[:, first] & outside[:, second] & there[first, second]
        weights = fit_weights(
            self.squares[first, second], targets[:, first, second], fitted, self.alphas.ravel()
        )
        falls = []
        for at, inside in enumerate(~outside):
            tested = np.flatnonzero(inside)
            tested = tested[there[np.ix_(tested, tested)].any(axis=1)]
            if len(tested) > 2 and fitted[at].sum() > 2:
                falls.append(self._fall(weights[:, at], targets, tested, there))
        none = np.full((len(targets), len(self.parts)), np.nan)
        return np.mean(falls, axis=0) if falls else none

    def variance(self, targets: FloatArray) -> FloatArray:
        """(n_parts,) variance of the importances over units of systems, by the bootstrap.

        Copies of a unit are in one fold; two copies of a system are no pair.
        """
        of_unit = [np.flatnonzero(self.units == unit) for unit in range(self.units.max() + 1)]
        rng = np.random.default_rng(self.seed)
        replicates = []
        for drawn in rng.integers(0, len(of_unit), (REPLICATES, len(of_unit))):
            at = np.concatenate([of_unit[unit] for unit in drawn])
            different = at[:, None] != at
            replicates += [
                *self.select_systems(at).importances(targets[np.ix_(at, at)][None], different)
            ]
        return np.asarray(np.nanvar(replicates, axis=0, ddof=1))

    def select_systems(self, at: IntArray) -> Divisions:
        """Divisions of some systems, which may be there several times."""
        return replace(self, squares=self.squares[np.ix_(at, at)], folds=self.folds[:, at])

    def _fall(
        self, weights: FloatArray, targets: FloatArray, tested: IntArray, there: Mask
    ) -> FloatArray:
        """(n_sets, n_parts) how much ρ falls on the pairs of the systems of a fold."""
        a, b = np.triu_indices(len(tested), 1)
        known = there[tested[a], tested[b]]
        a, b = a[known], b[known]
        truth = targets[:, tested[a], tested[b]]
        terms = weights[:, None] * self.squares[tested[a], tested[b]]
        total = terms.sum(axis=-1)
        rho = _rho(total[:, None], truth)
        orders = tested[fold_orders(len(tested), self.seed)]
        by_part = np.stack([terms[..., part].sum(axis=-1) for part in self.parts], axis=1)
        products = [
            np.tensordot(weights[:, part], self.squares[..., part], (1, 2)) for part in self.parts
        ]
        others = np.stack(products, axis=1)[..., orders[:, a], orders[:, b]]
        drawn = (total[:, None] - by_part)[:, :, None] + others
        after = _rho(drawn.reshape(len(truth), -1, len(a)), truth).reshape(drawn.shape[:-1])
        return np.asarray(rho - after.mean(axis=-1))


def draw_divisions(units: IntArray, seed: int) -> IntArray:
    """(n_divisions, n_systems) the fold of each system, several times; as many folds as can be.

    Raises InputError: units that make no two folds of three systems.
    """
    for n_folds in range(int(np.clip(len(units) // IN_FOLD, 2, MOST_FOLDS)), 0, -1):
        divisions = list[IntArray]()
        for trial in range(3 * DIVISIONS):
            try:
                divisions.append(group_folds(units, n_folds, seed + trial, "systems"))
            except InputError:
                continue
            if len(divisions) == DIVISIONS:
                return np.stack(divisions)
    raise InputError(
        "found systems that make no two folds of three; expected more of them, or smaller groups."
    )


def fold_fits(targets: FloatArray, properties: Properties, folds: IntArray) -> FoldFits:
    """Fits of `RidgeSolver` to squared distances of systems, one layer, tested on each fold.

    With fewer than three folds none is left to choose the penalty, which is the smallest then.
    """
    cells = {
        name: values
        if isinstance(values, np.ndarray)
        else pd.Series([value or None for value in values], dtype=object)
        for name, values in properties.values.items()
    }
    # The least square is 0: neither ranks nor a fit with an intercept depend on a constant.
    distances = np.sqrt(targets - min(0.0, float(targets.min())))
    np.fill_diagonal(distances, 0.0)
    compared = ComparedPairs.from_features(feature_columns(pd.DataFrame(cells)), folds, "ignore")
    pairs = pair_statistics(compared, [partial(np.asarray, distances)], distance=PRECOMPUTED)
    solver = RidgeSolver()
    if folds.max() < 2:
        solver.alphas = ALPHAS[:1]
    return solver.cross_validate(pairs)


def fit_weights(squares: FloatArray, y: FloatArray, pairs: Mask, alphas: FloatArray) -> FloatArray:
    """(n_sets, n_fits, n_properties) weights of ridge regressions with penalties alphas (n_fits,).

    Targets y (n_sets, n_pairs) are regressed on squares (n_pairs, n_properties); `pairs`
    (n_fits, n_pairs) are those that are fitted.
    """
    n = np.maximum(pairs.sum(axis=1), 1.0)
    x_mean = pairs @ squares / n[:, None]
    gram = np.tensordot(pairs.astype(np.float64), squares[:, :, None] * squares[:, None], axes=1)
    gram += alphas[:, None, None] * np.eye(squares.shape[1])
    gram -= n[:, None, None] * x_mean[:, :, None] * x_mean[:, None]
    low = np.where(pairs, y[:, None], np.inf).min(axis=-1)
    span = np.where(pairs, y[:, None], -np.inf).max(axis=-1) - low
    # The least target has no part in what is centred.
    masked = pairs * y[:, None]
    y_mean = masked.sum(axis=-1) / n
    moment = masked @ squares - (n * y_mean)[..., None] * x_mean
    moment = np.divide(
        moment, span[..., None], out=np.zeros_like(moment), where=span[..., None] > 0
    )
    # The penalty is in the matrix already.
    none = np.zeros((1, squares.shape[1], squares.shape[1]))
    return ridge_weights(NormalEquations(gram, moment, x_mean, y_mean), none)[:, :, 0]


@cache
def fold_orders(n: int, seed: int) -> IntArray:
    """(n_orders, n) orders of the systems of a fold: all, or `PERMUTATIONS` random ones."""
    every = list(itertools.islice(itertools.permutations(range(n)), PERMUTATIONS + 1))
    if len(every) <= PERMUTATIONS:
        return np.array(every)
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(n), (PERMUTATIONS, 1)), axis=1)


def _rho(values: FloatArray, truth: FloatArray) -> FloatArray:
    """Spearman ρ (n_sets, m) of numbers (n_sets, m, n) with others (n_sets, n); 0 where all tie."""
    ranks = np.stack([pd.Series(np.round(distances, DIGITS)).rank() for distances in truth])
    ranks -= (truth.shape[1] + 1) / 2
    return score_patterns(values, np.ones(truth.shape[1]), ranks, (ranks**2).sum(axis=1)).rho

"""What else explains the similarity of two layers: columns beyond the features of an analysis.

The gain of a candidate c is v(S and c) - v(S): what the features S explain of the RSA correlation
of two layers with c among them, less what they explain without it, cross-fitted
(`mlem_core.measures.decomposition`). Chance is the gain of c when its labels are permuted at its
level (`mlem_core.inference.chance`). The word itself, and which sentence it is, would say the same
permuted among words or sentences: these labels are permuted among stimuli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import student_quantile
from mlem_core.base.text import fraction, many, percent, sentence_case
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer
from mlem_core.data.candidates import Candidate, as_feature, candidates_of
from mlem_core.data.levels import MOVED, STIMULUS, exchange_of, exchanges
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.chance import corrected_p, largest_chance
from mlem_core.inference.corrections import SIGNIFICANT, check_permutations
from mlem_core.inference.layer_pairs import LayerPairs, Relabelled
from mlem_core.inference.replicates import relabelled_pairs
from mlem_core.inference.resample import check_enough, in_parts, jackknife
from mlem_core.pairs.columns import FeatureColumn, codes_of, feature_columns
from mlem_core.pairs.crossfit import CrossFit, explained_alone, places, share_alone
from mlem_core.pairs.resampling_units import RankedPairs, Weights
from mlem_core.pairs.tables import PairTables
from mlem_core.storage.store import Store

# Permutations of the labels of each candidate: p of .005 at the least.
LABELLINGS = 199
# Distances of a numeric candidate are put into so many bins.
BINS = 16
# Blocks of each kind of unit that are left out in turn.
BLOCKS = 24
# Coded by value where so few pairs have a pattern that no pair of other stimuli has; left out where
# so many have.
FEW_ALONE, MOST_ALONE = 0.1, 0.5


@dataclass(frozen=True)
class Rest:
    """What candidates would explain of the similarity of two layers, beyond the features.

    Attributes
    ----------
    layers : the two
    table : candidate, level (of the labels that are permuted), gain, lower, upper, p (corrected
        over the candidates); by gain, in units of ρ and beyond chance
    rsa, explained : of the two layers, and what the features explain of it
    left_out : why other candidates are not in the table
    labels : of each candidate, as a sentence calls it
    """

    layers: tuple[Layer, ...]
    table: pd.DataFrame
    rsa: float
    explained: float
    left_out: dict[str, str]
    labels: dict[str, str]

    @property
    def sentence(self) -> str:
        """The best candidate beyond chance, with its interval; or that there is none."""
        n = len(self.table)
        sure = self.table[(self.table["p"] < SIGNIFICANT) & (self.table["lower"] > 0)]
        if not len(sure):
            return (
                f"No column of {n} candidates explains more of the RSA than its labels permuted, "
                "beyond these features."
            )
        best = sure.iloc[0]
        share = percent(best["gain"] / self.rsa)
        low, high = fraction(best["lower"]), fraction(best["upper"])
        return (
            f"{sentence_case(self.labels[best['candidate']])} would explain {share} of the RSA "
            f"beyond these features (gain {fraction(best['gain'])}, 95 % CI {low} to {high}, "
            f"p = {fraction(best['p'], 3)}, corrected over {many(n, 'candidate')})."
        )

    @property
    def notes(self) -> list[str]:
        """A sentence on each candidate that was left out."""
        return [f"{name} was left out: {why}." for name, why in self.left_out.items()]


def explain_rest(
    analysis: Analysis,
    a: Layer | str,
    b: Layer | str,
    store: Store,
    n_permutations: int = LABELLINGS,
    progress: Counted | None = None,
) -> Rest:
    """Columns that would explain more of two layers' RSA than the features do.

    Candidates are those of `mlem_core.data.candidates.candidates_of`; `rest_of` takes others.

    Parameters
    ----------
    a, b : ("minilm", 3) or "minilm:3"
    store : where the representations are
    n_permutations : of the labels of each candidate
    progress : called with the number of candidates done and their total

    Raises
    ------
    InputError
        A layer that the analysis does not have; fewer than 20 permutations; too few sentences;
        representations that are no longer in the store.

    Examples
    --------
    >>> explain_rest(analysis, "m:0", "m:1", store, 20).table.columns[0]
    'candidate'
    """
    check_permutations(n_permutations)
    pairs = LayerPairs.of_sample(analysis, analysis.select(layers=[a, b]).layers, store)
    own, missing = pairs.stimuli_of(analysis.stimuli), analysis.spec.missing
    return rest_of(pairs, own, candidates_of(own), missing, n_permutations, progress)


def rest_of(
    pairs: LayerPairs,
    stimuli: StimulusSet,
    candidates: Sequence[Candidate],
    missing: str = "ignore",
    n_permutations: int = LABELLINGS,
    progress: Counted | None = None,
) -> Rest:
    """`explain_rest` of pairs of two layers.

    Parameters
    ----------
    pairs : all pairs of the stimuli, with the features
    stimuli : these
    missing : what a missing value of a candidate is, see `mlem_core.pairs.patterns.PairIndex.build`

    Raises
    ------
    InputError
        Too few sentences.
    """
    check_enough(pairs.n_groups)
    pairs, left_out = pairs.coarse, dict[str, str]()
    fit, blocks = CrossFit.of(pairs.tables), pairs.units.blocks(BLOCKS)
    explained, of_each = _explained(fit)[0], explained_alone(fit, range(fit.codes.shape[1]))
    without = _without_each(pairs.whole.by_stimulus, pairs.tables, blocks.weights)
    rows, all_draws, labels = [], [], dict[str, str]()
    for done, candidate in enumerate(candidates):
        if progress is not None:
            progress(done, len(candidates))
        try:
            beside = _Beside.of(pairs, stimuli, candidate, missing)
            if beside is None:
                continue
            level, draws = beside.by_chance(n_permutations, of_each)
        except InputError as error:
            left_out[candidate.name] = str(error).rstrip(".")
            continue
        gain, chance = _explained(CrossFit.of(beside.tables))[0] - explained, draws - explained
        own = _without_each(beside.ranked.by_stimulus, beside.tables, blocks.weights) - without
        bounds = jackknife(gain, own, blocks.sizes)
        more = student_quantile(n_permutations - 1) * chance.std(ddof=1) / np.sqrt(n_permutations)
        ends = (
            gain - chance.mean() + sign * np.hypot(end - gain, more)
            for sign, end in ((-1, bounds.lower), (1, bounds.upper))
        )
        rows.append((candidate.name, level, gain, *ends))
        all_draws.append(chance)
        labels[candidate.name] = candidate.label
    table = pd.DataFrame(rows, columns=["candidate", "level", "gain", "lower", "upper"])
    if rows:
        draws, gains = np.stack(all_draws, axis=1), table["gain"].to_numpy()
        table["p"] = corrected_p(draws, gains, np.ones(len(rows), dtype=bool))
        table["gain"] = gains - draws.mean(axis=0)
    table = table.reindex(columns=[*table.columns[:5], "p"])
    table = table.sort_values("gain", ascending=False, ignore_index=True)
    rsa = float(np.asarray(np.corrcoef(np.stack(pairs.ranks)))[0, 1])
    return Rest(pairs.layers, table, rsa, float(explained), left_out, labels)


class _Beside(NamedTuple):
    """Pairs with a candidate beside their features, as their last one.

    stimuli : with the candidate as their only feature
    relabelled : the pairs, and the tables that they have when stimuli take other values of it
    ranked, tables : the pairs by the cells of their tables
    is_identity : whether it says which word or sentence a stimulus is
    """

    stimuli: StimulusSet
    relabelled: Relabelled
    ranked: RankedPairs
    tables: PairTables
    is_identity: bool = False

    @classmethod
    def of(
        cls, pairs: LayerPairs, stimuli: StimulusSet, candidate: Candidate, missing: str
    ) -> _Beside | None:
        """Pairs with a candidate, coded by value where pairs suffice; None: it does not apply.

        Raises
        ------
        InputError
            It distinguishes no pairs, or nearly all of them; chance is not known.
        """
        own = as_feature(stimuli, candidate)
        if own is None:
            return None
        column = feature_columns(own)[0]
        if len(column.present) + (missing == "level" and pd.isna(column.values).any()) < 2:
            raise InputError("it has the same value for all stimuli")
        if column.kind == "nominal" and len(column.present) == len(stimuli):
            raise InputError("no two stimuli have the same value")
        if column.resolvable and column.kind == "nominal":
            found = cls._coded(pairs, own, column.with_names(), missing)
            if share_alone(found.tables) < FEW_ALONE:
                return found._replace(is_identity=candidate.is_identity)
        found = cls._coded(pairs, own, column, missing)
        if len(found.tables.codes) == len(pairs.tables.codes):
            raise InputError("it follows from the features")
        if (alone := share_alone(found.tables)) > MOST_ALONE:
            raise InputError(f"{percent(alone)} of the pairs have a pattern of their own with it")
        return found._replace(is_identity=candidate.is_identity)

    @classmethod
    def _coded(
        cls, pairs: LayerPairs, own: StimulusSet, column: FeatureColumn, missing: str
    ) -> _Beside:
        coded, tables = codes_of(column, missing, BINS), pairs.tables
        # As if it were the same for all pairs, until stimuli take its values.
        with_it = replace(
            tables,
            features=(*tables.features, column.name),
            codes=np.column_stack((tables.codes, np.zeros(len(tables.codes), dtype=np.int64))),
        )
        f, everyone = len(tables.features), np.arange(len(own))
        more = replace(pairs, tables=with_it, coded=(*pairs.coded, coded))
        return cls(own, Relabelled.of(more, f), *relabelled_pairs(more, f, everyone))

    def by_chance(self, n_permutations: int, of_each: FloatArray) -> tuple[str, FloatArray]:
        """Level of the labels, and v (n_permutations,) when they are permuted.

        Permutations are the same for all candidates of a level.

        Parameters
        ----------
        of_each : (2, n_features) what each feature alone explains

        Raises
        ------
        InputError
            Too few stimuli take the labels of others.
        """
        name, folds = self.tables.features[-1], self.relabelled.pairs.folds
        values, rng = self.stimuli.values(name), np.random.default_rng(0)
        ways = exchanges(self.stimuli, folds, name)
        if self.is_identity:
            ways = (exchange_of(self.stimuli, folds, STIMULUS),)
        level, moved, draws = largest_chance(
            ways, values, (n_permutations,), rng, partial(self.permuted, of_each)
        )
        if moved < MOVED:
            raise InputError(
                f"permuted, it is nearly the same ({percent(moved)} of the stimuli change)"
            )
        return level, draws

    def permuted(self, of_each: FloatArray, givers: IntArray) -> FloatArray:
        """v (n,) when stimuli take the value of the candidate from givers (n, n_stimuli)."""
        f, squares = of_each.shape[1], self.tables.rank_squares[None]
        ranks, none = np.stack(self.relabelled.pairs.ranks), np.zeros((2, f + 1), dtype=np.int64)

        def one(rows: IntArray) -> FloatArray:
            keys, sums = self.relabelled.sums(rows[0], ranks)
            cells = self.relabelled.tables(keys)
            fit = CrossFit.of_draws(cells, sums[:1], sums[None, 1:], squares, none)
            # What the features alone explain is the same for all labels.
            order = places(np.column_stack((of_each, explained_alone(fit, [f]))))
            return _explained(replace(fit, priority=order))

        return in_parts(one, givers)


def _explained(fit: CrossFit) -> FloatArray:
    """(n_draws,) v of all features, of two layers."""
    return fit.explained(np.arange(fit.codes.shape[1]), fit.codes, fit.flat)[:, 0, 1]


def _without_each(pairs: RankedPairs, tables: PairTables, weights: Weights) -> FloatArray:
    """v (n_blocks,) of two layers without each block of stimuli."""
    priority = CrossFit.of(tables).priority
    found = [
        _explained(CrossFit.of_draws(tables, sums.counts, sums.sums, sums.squares, priority))
        for sums in pairs.draw(weights)
    ]
    return np.concatenate(found)

"""What else explains the similarity of two layers, or one layer: columns beyond the features.

The gain of a candidate c is v(S and c) - v(S): what the features S explain of the RSA correlation
of two layers with c among them, less what they explain without it, cross-fitted
(`mlem_core.measures.decomposition`). Of one layer v is the share of the variance of its ranks.
Chance is the gain of c when its labels are permuted among its units
(`mlem_core.inference.permutation_null`). The word itself, the words next to it, and which sentence
it is, would say the same permuted among these: their labels are permuted among stimuli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import SelectionContext, Stage, no_report
from mlem_core.base.errors import InputError
from mlem_core.base.text import fraction, listed, many, percent, sentence_case
from mlem_core.base.typing import FloatArray, IntArray, Layers, Report, counting
from mlem_core.extensions.candidates.candidate_gains import (
    AugmentedFit,
    BaselineFit,
    model_candidates,
    stimulus_candidates,
)
from mlem_core.inference.intervals import PERMUTATIONS, SIGNIFICANT, check_permutations
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import corrected_p
from mlem_core.inference.resample import check_enough, jackknife
from mlem_core.stimuli.candidates import Candidate
from mlem_core.stimuli.stimulus_set import (
    NO_WORD,
    StimulusSet,
    bare,
    group_name,
    neighbouring_words,
)
from mlem_core.storage.store import Store

# Units that recur, at least: of fewer nothing is said.
FEWEST = 20


def explainable(pairs: LayerPairs, stimuli: StimulusSet) -> pd.DataFrame:
    """Shares of the RSA of two layers that are a function of a unit, with 95 % intervals.

    Of one layer they are shares of the variance of its ranks.

    Parameters
    ----------
    pairs : of the stimuli

    Returns
    -------
    unit, n_stimuli (that share it with others, at least two each), share, lower, upper; no row for
    a unit if fewer than `FEWEST` of its kind recur
    """
    from scipy.spatial.distance import squareform

    rows, squares = [], []
    for doubled in (pairs.ranks[0], pairs.ranks[-1]):
        square = squareform(0.5 * (doubled - (len(doubled) + 1.0)))
        # A stimulus is not compared with itself.
        np.fill_diagonal(square, np.nan)
        squares.append(square)
    blocks = pairs.units.blocks(BLOCKS)
    for unit, labels in _units(stimuli):
        numbers = pd.factorize(pd.Series(labels))[0].astype(np.int64)
        recurs = np.bincount(numbers)[numbers] > 1
        if len(np.unique(numbers[recurs])) < FEWEST:
            continue
        share = common_share(squares, numbers, recurs)
        left = [common_share(squares, numbers, recurs & (kept > 0)) for kept in blocks.weights]
        if np.isfinite([share, *left]).all():
            bounds = jackknife(np.array(share), np.array(left), blocks.sizes)
            ends = float(bounds.lower), float(bounds.upper)
            rows.append((unit, int(recurs.sum()), share, *ends))
    return pd.DataFrame(rows, columns=["unit", "n_stimuli", "share", "lower", "upper"])


def _units(stimuli: StimulusSet) -> Iterator[tuple[str, list[str]]]:
    """Units that stimuli may share, and that of each stimulus: (n_stimuli,)."""
    if stimuli.level == "word":
        words = [bare(word) for word in stimuli.words]
        yield "the word", words
        before = zip(neighbouring_words(stimuli, -1), words, strict=True)
        # What begins a sentence has nothing before it that could differ.
        yield (
            "the word and the one before it",
            [f"{left} {word}" if left != NO_WORD else word for left, word in before],
        )
    elif stimuli.items is not None:
        yield f"the {stimuli.item_name}", [*map(str, stimuli.items)]
    yield f"the {group_name(stimuli)}", [*map(str, stimuli.groups)]


def common_share(squares: list[FloatArray], units: IntArray, kept: NDArray[np.bool_]) -> float:
    """Share of the covariance of two layers that is a function of the units of the stimuli.

    What pairs of occurrences of the words u and w have in common, whatever else differs, is the
    mean of their ranks; two layers share as much of it as the mean in one covaries with the mean
    in the other. Both means are of disjoint occurrences (i, j) and (k, l), i ≠ k and j ≠ l, so
    that noise has no part in it:

        E[r_A(i, j) r_B(k, l)] over the pairs of words, less the product of the means.

    The rest is of these occurrences alone: no function of the word explains it.

    Parameters
    ----------
    squares : of each of the two layers (n_stimuli, n_stimuli) ranks of the pairs
    units : (n_stimuli,) the unit of each
    kept : (n_stimuli,) which stimuli count; units of fewer than two of them do not

    Returns NaN where fewer than three units are left, or the layers do not covary.
    """
    from scipy.sparse import csr_array

    sizes = np.bincount(units[kept], minlength=units.max() + 1)
    at = np.flatnonzero(kept & (sizes[units] > 1))
    names, unit = np.unique(units[at], return_inverse=True)
    n, n_units = sizes[names].astype(np.float64), len(names)
    if n_units < 3:
        return np.nan
    of = csr_array((np.ones(len(at)), (np.arange(len(at)), unit)), shape=(len(at), n_units))
    a, b = (square[np.ix_(at, at)] for square in squares)
    gaps = np.isnan(a)
    a, b = np.where(gaps, 0.0, a), np.where(gaps, 0.0, b)
    sum_a, sum_b = (of.T @ own for own in (a, b))
    both = of.T @ (a * b) @ of
    one_end = (sum_a * sum_b) @ of
    sum_a, sum_b = sum_a @ of, sum_b @ of
    disjoint = sum_a * sum_b - one_end - one_end.T + both
    u, w = np.triu_indices(n_units, 1)
    whole = ~(of.T @ gaps.astype(np.float64) @ of > 0)[u, w]
    u, w = u[whole], w[whole]
    weight = n[u] * n[w]
    common = disjoint[u, w] / ((n[u] - 1) * (n[w] - 1))
    means = sum_a[u, w].sum() * sum_b[u, w].sum() / weight.sum()
    total = both[u, w].sum() - means
    return float((common.sum() - means) / total) if total > 0 else np.nan


# Permutations of the labels of each candidate; and for the mean of what permuted labels gain beside
# other candidates.
LABELLINGS, FEW_LABELLINGS = PERMUTATIONS, 19
# Blocks of each kind of unit that are left out in turn.
BLOCKS = 24
_COLUMNS = ["candidate", "unit", "gain", "lower", "upper", "p", "label", "kind"]
# So many candidates explain more together at most, of so many with the largest gains.
TOGETHER, FIRST = 3, 5


@dataclass(frozen=True)
class CandidateSearch:
    """What candidates would explain of two layers' RSA, or of one layer, beyond the features.

    Attributes
    ----------
    table : candidate, unit (whose labels are permuted), gain, lower, upper, p (corrected
        over the candidates), label, kind; by gain, in units of ρ (of one layer: as a share of the
        variance of its ranks) and beyond chance
    together : candidates (", " between them), gain, lower, upper: of those with the largest gains
        beyond chance, one more in each row, each the one that adds most
    reach : unit, n_stimuli, share, lower, upper: how much of the RSA, or of the variance, is a
        function of the word, of the word and what stands before it, or of the sentence
        (`mlem_core.extensions.candidates.candidate_search`)
    left_out : candidate, why
    rsa, explained : of the two layers (of one: 1), and what the features explain of it
    """

    table: pd.DataFrame
    together: pd.DataFrame
    reach: pd.DataFrame
    left_out: pd.DataFrame
    rsa: float
    explained: float

    @property
    def sure(self) -> pd.DataFrame:
        """The candidates that explain more than chance: p below .05, interval above 0."""
        return self.table[(self.table["p"] < SIGNIFICANT) & (self.table["lower"] > 0)]

    @property
    def columns(self) -> pd.DataFrame:
        """Those beyond chance that a feature can be made of: all but distances in other layers."""
        return self.sure[self.sure["kind"] != "rdm"]

    @property
    def best(self) -> str:
        """The best candidate beyond chance, its share of the RSA and interval; "" if none is."""
        if not len(self.columns):
            return ""
        best = self.columns.iloc[0]
        share, low, high = (percent(best[name] / self.rsa) for name in ("gain", "lower", "upper"))
        return f"{sentence_case(best['label'])} would explain {share} more ({low} to {high})."

    @property
    def sentences(self) -> list[str]:
        """What the best candidate explains, what the first ones explain together, the reach."""
        n, sure = many(len(self.table), "candidate"), self.columns
        said = [f"No column of {n} explains more than its labels permuted, beyond these features."]
        if len(sure):
            best = sure.iloc[0]
            said = [
                f"{self.best[:-1]}: gain {_interval(best, 'gain')}, p = {fraction(best['p'], 3)}, "
                f"corrected over {n}."
            ]
        if len(layers := self.sure[self.sure["kind"] == "rdm"]):
            other = layers.iloc[0]
            gain = f"have the largest gain, {_interval(other, 'gain')}"
            said.append(f"Of other layers, {other['label']} {gain}.")
        if len(self.together) > 1:
            last = self.together.iloc[-1]
            labels = dict(zip(self.table["candidate"], self.table["label"], strict=True))
            named = listed([labels[name] for name in last["candidates"].split(", ")])
            said.append(f"Together, {named} would explain {_interval(last, 'gain')} more.")
        of = "of the RSA" if self.rsa < 1 else "of the variance of the distances"
        for _, row in self.reach.iterrows():
            share, low, high = (percent(row[name]) for name in ("share", "lower", "upper"))
            said.append(
                f"{share} ({low} to {high}) {of} is a function of {row['unit']}, over "
                f"{many(int(row['n_stimuli']), 'stimulus')} that share it."
            )
        return said

    def written(self, stem: str) -> dict[str, pd.DataFrame]:
        """Tables by the names of their files, such as "what_else.csv", "what_else_reach.csv"."""
        return {
            f"{stem}.csv": self.table.drop(columns=["label", "kind"]),
            f"{stem}_together.csv": self.together,
            f"{stem}_reach.csv": self.reach,
        }

    @property
    def notes(self) -> list[str]:
        """A sentence on each candidate that was left out."""
        of = zip(self.left_out["candidate"], self.left_out["why"], strict=True)
        return [f"{name} was left out: {why}." for name, why in of]


def _interval(row: pd.Series, name: str) -> str:
    low, high = fraction(row["lower"]), fraction(row["upper"])
    return f"{fraction(row[name])} (95 % CI {low} to {high})"


def explain_rest(
    analysis: Analysis,
    layers: Layers,
    store: Store,
    features: Sequence[str] | None = None,
    n_permutations: int = LABELLINGS,
    report: Report | None = None,
) -> CandidateSearch:
    """Columns that would explain more of two layers' RSA, or of one layer, than the features do.

    Candidates are those of `stimulus_candidates` and of `model_candidates`;
    `score_candidates` takes others. The result is kept.

    Parameters
    ----------
    layers : two, such as "minilm:3,smollm2:20", or one
    store : where the representations are
    features : by default those of the analysis; others are candidates then
    n_permutations : of the labels of each candidate
    report : called with the number of candidates done and their total

    Raises
    ------
    InputError
        No or more than two layers, or one that the analysis does not have; fewer than 20
        permutations; too few sentences; representations that are no longer in the store.

    Examples
    --------
    >>> explain_rest(analysis, "m:0,m:1", store, n_permutations=20).table.columns[0]
    'candidate'
    """
    context = SelectionContext(
        analysis, analysis.select(features, layers), store, report or no_report
    )
    return CANDIDATES.get(context, permutations=n_permutations)


def compute_candidates(
    context: SelectionContext, permutations: int = LABELLINGS
) -> CandidateSearch:
    """What else explains the layers of a selection; raises as `explain_rest`."""
    check_permutations(permutations)
    analysis, store = context.analysis, context.required_store
    # In the order of the analysis, whichever of the two is looked at first.
    selection = analysis.select(context.selection.features, context.selection.layers)
    if len(selection.layers) > 2:
        raise InputError(f"found {len(selection.layers)} layers; expected one or two.")
    pairs = LayerPairs.from_analysis(analysis, selection, store)
    stimuli = pairs.select_stimuli(analysis.stimuli).select(list(selection.features))
    from_models, left_out = model_candidates(analysis, stimuli, pairs, store)
    search = score_candidates(
        pairs,
        stimuli,
        [*stimulus_candidates(stimuli), *from_models],
        analysis.spec.missing,
        permutations,
        context.report,
    )
    gone = pd.DataFrame(left_out, columns=search.left_out.columns)
    return replace(search, left_out=pd.concat((search.left_out, gone), ignore_index=True))


def _candidates_key(context: SelectionContext, permutations: int = LABELLINGS) -> dict[str, Any]:
    """Features and layers, in any order: the metric model has no part in it."""
    features, layers = context.selection.features, context.selection.layers
    without_metric = Selection(features, tuple(sorted(layers)), "", False)
    return context.analysis.key(without_metric, permutations=permutations)


CANDIDATES = Stage[CandidateSearch](
    "what-else", 3, CandidateSearch, compute_candidates, key=_candidates_key
)


def score_candidates(
    pairs: LayerPairs,
    stimuli: StimulusSet,
    candidates: Sequence[Candidate],
    missing: str = "ignore",
    n_permutations: int = LABELLINGS,
    report: Report | None = None,
) -> CandidateSearch:
    """`explain_rest` of pairs of two layers, or of one.

    Raises InputError: too few sentences.

    Parameters
    ----------
    pairs : all pairs of the stimuli, with the features
    stimuli : these
    missing : what a missing value of a candidate is, see
        `mlem_core.pairs.pair_columns.PairColumns.from_features`
    """
    check_enough(pairs.n_groups)
    refused: list[tuple[str, str]] = []
    base = BaselineFit.from_pairs(pairs, pairs.units.blocks(BLOCKS))
    told = counting(report or (lambda progress: None), "what else", "candidates")
    rows, all_draws = [], []
    for done, candidate in enumerate(candidates):
        told(done, len(candidates))
        try:
            tried = AugmentedFit.from_pairs(pairs, stimuli, candidate, missing)
            null = tried.permute_labels(n_permutations)
        except InputError as error:
            refused.append((candidate.name, str(error).rstrip(".")))
            continue
        gain, lower, upper = base.gain(tried, null.draws[1 : 1 + null.n_drawn])
        kind = candidate.kind or "nominal"
        rows.append((candidate.name, null.unit, gain, lower, upper, np.nan, candidate.label, kind))
        all_draws.append(null.draws)
    table = pd.DataFrame(rows, columns=_COLUMNS)
    if rows:
        draws = np.stack(all_draws, axis=1)
        table["p"] = corrected_p(draws, np.ones(len(rows), dtype=bool))
        table["gain"] -= draws[1:].mean(axis=0)
    table = table.sort_values("gain", ascending=False, ignore_index=True)
    rsa = float(pairs.statistics.moments.rsa[0, -1])
    left_out = pd.DataFrame(refused, columns=["candidate", "why"])
    none = pd.DataFrame(columns=["candidates", "gain", "lower", "upper"])
    rest = CandidateSearch(table, none, explainable(pairs, stimuli), left_out, rsa, base.explained)
    first = {*rest.columns["candidate"].head(FIRST)}
    chosen = [one for one in candidates if one.name in first]
    return replace(rest, together=_together(base, stimuli, chosen, missing))


def _together(
    base: BaselineFit, stimuli: StimulusSet, candidates: list[Candidate], missing: str
) -> pd.DataFrame:
    """`CandidateSearch.together` of the candidates that explain more than chance."""
    left, now = {one.name: one for one in candidates}, base
    names, chances, rows = list[str](), list[FloatArray](), []
    while left and len(names) < TOGETHER:
        tried = []
        for one in left.values():
            with suppress(InputError):  # it follows from those before it
                with_it = AugmentedFit.from_pairs(now.pairs, stimuli, one, missing)
                chance = with_it.permute_labels(FEW_LABELLINGS).draws[1:]
                gain, lower, _ = now.gain(with_it, chance)
                if lower > 0:
                    tried.append((gain - chance.mean(), one.name, with_it, chance))
        if not tried:
            break
        _, name, with_it, chance = max(tried, key=lambda one: one[0])
        del left[name]
        names.append(name)
        chances.append(chance)
        gain, *ends = base.gain(with_it, *chances)
        rows.append((", ".join(names), gain - sum(one.mean() for one in chances), *ends))
        now = BaselineFit.from_pairs(with_it.pairs, base.blocks)
    return pd.DataFrame(rows, columns=["candidates", "gain", "lower", "upper"])

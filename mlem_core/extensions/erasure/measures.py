"""Forward passes with a concept erased from one layer, and measures of what that changes.

These are of later layers, and of predictions. Held-out sentences have the eraser of their training
folds (see `erasers`). Pairs inside a fold have one eraser, so that similarities are of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.extensions.erasure.erasers import Eraser, Forms, erased_passes, leace
from mlem_core.inference.block_influence import jackknife_scores
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.importance import fitted
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.resampling_units import Blocks, StimulusUnits
from mlem_core.representations.extraction import During, passes, untouched
from mlem_core.representations.forward import LoadedModel
from mlem_core.representations.predictions import masked_surprisal, word_predictions
from mlem_core.representations.tokens import TokenizedStimuli, tokenize
from mlem_core.stimuli.stimulus_set import StimulusSet


class Concept(NamedTuple):
    """What is erased.

    columns : (n_stimuli, n_columns) numbers
    there : (n_stimuli,) which stimuli erasers are fitted on
    targets : (n_stimuli, n_columns) numbers whose mean state each stimulus gets; None: the mean of
        all states
    spared : (n_stimuli, n_spared) numbers that erasers leave in the states as they are
    """

    columns: FloatArray
    there: NDArray[np.bool_]
    targets: FloatArray | None = None
    spared: FloatArray | None = None

    @classmethod
    def from_values(cls, values: NDArray[Any], missing: str) -> Concept:
        """A feature as numbers: a column for each value of a categorical one.

        A missing value leaves a stimulus out of the fit, or is a level of its own.

        Parameters
        ----------
        values : (n_stimuli,) see `mlem_core.stimuli.stimulus_set.StimulusSet.values`
        missing : see `mlem_core.pairs.pair_columns.PairColumns.from_features`
        """
        there, level = ~pd.isna(values), missing == "level"
        if values.dtype == np.float64:
            columns = np.where(there, values, values[there].mean() if there.any() else 0.0)[:, None]
            columns = np.column_stack((columns, ~there)) if level else columns
        else:
            codes = pd.factorize(values)[0]
            columns = codes[:, None] == np.arange(-1 if level else 0, codes.max() + 1)
        return cls(columns.astype(np.float64), there | level)

    def eraser(self, states: FloatArray) -> Eraser:
        """The eraser that is fitted on states (n_stimuli, n_units) of all stimuli."""
        return leace(states[self.there], self.columns[self.there])

    def interchanged(self, rng: np.random.Generator) -> Concept:
        """The concept with the values of other stimuli, drawn at random, as targets."""
        targets, rows = self.columns.copy(), np.flatnonzero(self.there)
        targets[rows] = self.columns[rng.permutation(rows)]
        return self._replace(targets=targets)


@dataclass(frozen=True)
class ErasedRuns:
    """A model, the stimuli, and the layer that a concept is erased from.

    Attributes
    ----------
    analysis : its folds are those of erasers, which are fitted on all of its stimuli
    loaded, head : the model without and with its head; None where it predicts nothing
    layers : the erased layer, then the later ones that are looked at
    shown : (n_shown,) those that are run
    forms : minimal pairs among the shown stimuli
    positions : one of `mlem_core.extensions.erasure.erasers.ERASED`
    """

    analysis: Analysis
    loaded: LoadedModel
    head: Any
    layers: tuple[int, ...]
    shown: IntArray
    forms: Forms | None
    positions: str

    @cached_property
    def few(self) -> StimulusSet:
        """The stimuli that are run."""
        return self.analysis.stimuli.take(self.shown)

    @cached_property
    def _tokens(self) -> list[tuple[TokenizedStimuli, IntArray]]:
        """Tokens of the shown stimuli, then of forms, each with the shown stimuli that they are."""
        sets = [(self.few, np.arange(len(self.shown)))]
        if self.forms is not None:
            sets.append((self.forms.sentences, np.tile(self.forms.rows, 2)))
        special = self.analysis.spec.extraction.special_tokens
        return [(tokenize(stimuli, self.loaded, special), rows) for stimuli, rows in sets]

    @property
    def n_predictions(self) -> int:
        """Number of measures of predictions: surprisal, and right forms."""
        return 0 if self.head is None else 1 + (self.forms is not None)

    @cached_property
    def before(self) -> list[FloatArray]:
        """States of all stimuli in the layers, (n_stimuli, n_units) each, nothing erased."""
        return self._states(
            tokenize(
                self.analysis.stimuli, self.loaded, self.analysis.spec.extraction.special_tokens
            )
        )

    def states(self, erasers: Sequence[Eraser], shifts: FloatArray) -> list[FloatArray]:
        """States of the shown stimuli in the layers, erased by the eraser of each fold."""
        tokens = self._tokens[0]
        during = self._during(erasers, shifts, *tokens, self.loaded.model)
        return self._states(tokens[0], during=during)

    def shifts(self, erasers: Sequence[Eraser], concept: Concept) -> FloatArray:
        """(n_shown, rank) the erasers' coordinates of the mean state of each target; 0 without.

        The mean is a linear function of the columns, fitted on the training stimuli of the fold:
        for a categorical feature that of the stimuli with the value.
        """
        folds = self.analysis.folds
        shifts = np.zeros((len(folds), max(len(eraser.right) for eraser in erasers)))
        if concept.targets is None:
            return shifts[self.shown]
        for fold, eraser in enumerate(erasers):
            train = concept.there & (folds != fold)
            mean = concept.columns[train].mean(axis=0)
            sides = (self.before[0][train] - eraser.mean) @ eraser.right.T
            slopes = np.linalg.lstsq(concept.columns[train] - mean, sides)[0]
            held_out = concept.there & (folds == fold)
            shifts[held_out, : len(eraser.right)] = (concept.targets[held_out] - mean) @ slopes
        return shifts[self.shown]

    def _states(self, tokens: TokenizedStimuli, during: During = untouched) -> list[FloatArray]:
        found: list[FloatArray] = []
        asked = tokens, self.loaded, self.analysis.spec.extraction.pooling, self.layers
        for rows, arrays in passes(*asked, during=during):
            found = found or [np.zeros((len(tokens.spans), own.shape[1])) for own in arrays]
            for own, array in zip(found, arrays, strict=True):
                own[rows] = array
        return found

    def _during(
        self,
        erasers: Sequence[Eraser],
        shifts: FloatArray,
        tokens: TokenizedStimuli,
        rows: IntArray,
        model: Any,
    ) -> During:
        folds = self.analysis.folds[self.shown[rows]]
        of_sentences = np.array([folds[stimuli[0]] for stimuli in tokens.stimuli])
        how = self.layers[0], erasers, of_sentences, self.positions, shifts[rows]
        return erased_passes(model, self.loaded.n_layers, tokens, *how)

    def predictions(self, erasers: Sequence[Eraser] | None, shifts: FloatArray) -> list[FloatArray]:
        """Surprisal of each shown stimulus; for each minimal pair 1 if the right form is likelier.

        NaN where nothing stands before a word.
        """
        loaded, masked, found = self.loaded, not self.loaded.causal, []
        for tokens in self._tokens[: self.n_predictions]:
            during: During = untouched
            if erasers is not None:
                during = self._during(erasers, shifts, *tokens, self.head)
            asked = tokens[0], loaded, self.head, during
            of = masked_surprisal(*asked) if masked else word_predictions(*asked).surprisal
            found.append(of)
        if len(found) > 1:
            right, wrong = np.split(found[1], 2)
            found[1] = np.where(np.isnan(right + wrong), np.nan, (right < wrong).astype(float))
        return found

    def erasers(
        self, states: FloatArray, concept: Concept, rows: IntArray | None = None
    ) -> list[Eraser]:
        """The eraser of each fold, fitted on states (n_rows, n_units) of its training.

        Raises InputError: the concept is the same in all training stimuli of a fold.

        Parameters
        ----------
        rows : the stimuli of the states; None: all
        """
        rows = np.arange(len(self.analysis.stimuli)) if rows is None else rows
        there, folds, found = concept.there[rows], self.analysis.folds[rows], []
        for fold in range(int(self.analysis.folds.max()) + 1):
            train = there & (folds != fold)
            columns = concept.columns[rows][train]
            if not train.any() or not np.ptp(columns, axis=0).any():
                raise InputError(
                    f"what is to be erased has fewer than two values in the {int(train.sum())} "
                    f"stimuli that train fold {fold}; choose a feature with two values in each."
                )
            spared = None if concept.spared is None else concept.spared[rows][train]
            found.append(leace(states[train], columns, spared))
        return found

    def without(
        self, now: Sequence[FloatArray], concept: Concept
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Shown states of each later layer before, and now, the concept erased there from both."""
        folds, found = self.analysis.folds[self.shown], []
        changed = concept if concept.targets is None else Concept(concept.targets, concept.there)
        for was, own in zip(self.before[1:], now[1:], strict=True):
            pair = []
            for states, erasers in (
                (was[self.shown], self.erasers(was, concept)),
                (own, self.erasers(own, changed, self.shown)),
            ):
                erased = np.empty_like(states)
                for fold, eraser in enumerate(erasers):
                    erased[folds == fold] = eraser(states[folds == fold])
                pair.append(erased)
            found.append((pair[0], pair[1]))
        return found


IMPORTANCE, RSA_WITH, REST = "importance", "RSA with ", "rest"
SURPRISAL, FORMS = "surprisal", "right form"
PREDICTIONS = (SURPRISAL, FORMS)
# Blocks of each kind of unit that are left out in turn.
BLOCKS = 24

# Centred ranks of the distances inside each fold: (n, n), 0 on the diagonal.
FoldRanks = list[FloatArray]


class Found(NamedTuple):
    """Measures with a concept erased, or with none.

    values : (n_rows,) see `Measures.rows`
    states : of the shown stimuli in each layer
    predictions : values whose means the last measures are
    """

    values: FloatArray
    states: list[FloatArray]
    predictions: list[FloatArray]


@dataclass(frozen=True)
class Measures:
    """What is measured of runs.

    Attributes
    ----------
    others : the ranks in layers of other models, by the name of the layer
    """

    model: str
    runs: ErasedRuns
    others: dict[str, FoldRanks]

    @property
    def distance(self) -> str:
        """The neural distance in the layers of the model."""
        return self.runs.analysis.spec.neural_distance(self.model)

    @cached_property
    def folds(self) -> IntArray:
        """The fold of each shown stimulus."""
        return self.runs.analysis.folds[self.runs.shown]

    @cached_property
    def units(self) -> StimulusUnits:
        """Units of the shown stimuli."""
        return StimulusUnits.from_stimuli(self.runs.few, self.folds)

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks of them that are left out in turn."""
        return self.units.blocks(BLOCKS)

    @cached_property
    def estimator(self) -> str:
        """That of the analysis, or ridge where it cannot be refitted."""
        own = str(self.runs.analysis.spec.estimator)
        return own if estimator_named(own).refitted else "ridge"

    @cached_property
    def columns(self) -> PairColumns:
        """Columns of all pairs of the shown stimuli."""
        columns = self.runs.analysis.pairs.columns.drop_interactions().columns
        return columns.select_stimuli(self.runs.shown)

    @cached_property
    def rows(self) -> list[tuple[str, int, str]]:
        """Measure, layer and feature of each value; of predictions the last layer."""
        layers, last = self.runs.layers, self.runs.loaded.n_layers
        found = [(IMPORTANCE, at, name) for at in layers for name in self.columns.features]
        found += [(f"{RSA_WITH}{name}", at, "") for name in self.others for at in layers]
        found += [(REST, at, "") for at in layers[1:]]
        return found + [(name, last, "") for name in PREDICTIONS[: self.runs.n_predictions]]

    @cached_property
    def before(self) -> Found:
        """The measures with nothing erased."""
        return self.found(None)

    def found(self, concept: Concept | None) -> Found:
        """The measures with a concept erased, or with none."""
        runs, erasers, shifts = self.runs, None, np.zeros(0)
        states = [own[runs.shown] for own in runs.before]
        if concept is not None:
            erasers = runs.erasers(runs.before[0], concept)
            shifts = runs.shifts(erasers, concept)
            states = runs.states(erasers, shifts)
        values = [fitted(self._pairs(states).statistics, self.estimator).mean_scores[:, 1:].ravel()]
        ranks = self._ranks(states) if self.others else []
        values += [held_out_rsa(x, y) for y in self.others.values() for x in ranks]
        if concept is None:
            values.append(np.ones(len(states) - 1))
        else:
            both = runs.without(states, concept)
            values += [held_out_rsa(*self._ranks(pair)) for pair in both]
        each = runs.predictions(erasers, shifts)
        values += [np.atleast_1d(np.nanmean(own)) for own in each]
        return Found(np.concatenate(values), states, each)

    def _ranks(self, states: Sequence[FloatArray]) -> list[FoldRanks]:
        return [fold_ranks(own, self.folds, self.distance) for own in states]

    def jackknife_changes(self, now: Found, concept: Concept) -> FloatArray:
        """(n_blocks, n_rows) the change of each measure without each block of stimuli."""
        was, weights = self.before, self.blocks.weights
        pairs = self._pairs([*was.states, *now.states])
        importances = jackknife_scores(pairs, self.estimator, self.blocks)[..., 1:]
        first, second = np.split(importances, 2, axis=1)
        found = [(second - first).reshape(len(weights), -1)]
        by_fold = [weights[:, self.folds == fold].astype(float) for fold in np.unique(self.folds)]
        ranks = [self._ranks(one.states) if self.others else [] for one in (was, now)]
        for other in self.others.values():
            for x, y in zip(*ranks, strict=True):
                change = held_out_rsa(y, other, by_fold) - held_out_rsa(x, other, by_fold)
                found.append(change[:, None])
        for pair in self.runs.without(now.states, concept):
            x, y = self._ranks(pair)
            found.append(held_out_rsa(x, y, by_fold)[:, None] - 1.0)
        forms = self.runs.forms
        of = [np.arange(len(self.folds)), *([] if forms is None else [forms.rows])]
        for rows, values, others in zip(of, was.predictions, now.predictions, strict=False):
            there = ~np.isnan(values)
            own = weights[:, rows[there]].astype(float)
            found.append((own @ (others - values)[there] / own.sum(axis=1))[:, None])
        return np.concatenate(found, axis=1)

    def _pairs(self, states: Sequence[FloatArray]) -> LayerPairs:
        """The pairs of the shown stimuli in some layers."""
        squared = [
            squared_distances(of_layer.astype(np.float32), self.distance) for of_layer in states
        ]
        layers = [(self.model, at) for at in range(len(states))]
        units = self.units
        return LayerPairs.from_distances(
            layers, squared, self.columns, self.folds, units.groups, units.items
        )


def fold_ranks(states: FloatArray, folds: IntArray, distance: str) -> FoldRanks:
    """Ranks of the distances of states (n_stimuli, n_units) inside each fold."""
    return [
        square_ranks(states[folds == fold].astype(np.float32), distance)
        for fold in np.unique(folds)
    ]


def square_ranks(states: Any, distance: str) -> FloatArray:
    """(n, n) centred ranks of the distances of some stimuli, 0 on the diagonal."""
    from scipy.spatial.distance import squareform

    ranks = pair_ranks(squared_distances(states, distance)).astype(np.float64)
    square: FloatArray = squareform(ranks - ranks.mean())
    return square


def held_out_rsa(
    a: FoldRanks, b: FoldRanks, weights: Sequence[FloatArray] | None = None
) -> FloatArray:
    """RSA over the pairs inside each fold, mean over folds: (n_draws,).

    Parameters
    ----------
    weights : for each fold (n_draws, n) how often each stimulus counts; ranks are those of all
    """
    found = []
    for fold, (x, y) in enumerate(zip(a, b, strict=True)):
        w = np.ones((1, len(x))) if weights is None else weights[fold]
        both, of_x, of_y = (((w @ one) * w).sum(axis=1) for one in (x * y, x * x, y * y))
        found.append(both / np.sqrt(np.maximum(of_x * of_y, 1e-300)))
    mean: FloatArray = np.mean(found, axis=0)
    return mean

"""Forward passes of a model with a concept erased from one layer.

Held-out sentences have the eraser of their training folds (`mlem_core.models.erasing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.minimal_pairs import Forms
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models.erasing import ErasedPasses, Eraser, leace
from mlem_core.models.extraction import During, ExtractionOptions, passes, untouched
from mlem_core.models.forward import LoadedModel
from mlem_core.models.surprisal import masked_surprisal, word_predictions
from mlem_core.models.tokens import TokenizedStimuli, tokenize


class Concept(NamedTuple):
    """What is erased.

    columns : (n_stimuli, n_columns) numbers
    there : (n_stimuli,) which stimuli erasers are fitted on
    """

    columns: FloatArray
    there: NDArray[np.bool_]

    @classmethod
    def of(cls, values: NDArray[Any], missing: str) -> Concept:
        """A feature as numbers: a column for each value of a categorical one.

        A missing value leaves a stimulus out of the fit, or is a level of its own.

        Parameters
        ----------
        values : (n_stimuli,) see `mlem_core.data.stimuli.StimulusSet.values`
        missing : see `mlem_core.pairs.patterns.PairIndex.build`
        """
        there, level = ~pd.isna(values), missing == "level"
        if values.dtype == np.float64:
            columns = np.where(there, values, values[there].mean() if there.any() else 0.0)[:, None]
            columns = np.column_stack((columns, ~there)) if level else columns
        else:
            codes = pd.factorize(values)[0]
            columns = codes[:, None] == np.arange(-1 if level else 0, codes.max() + 1)
        return cls(columns.astype(np.float64), there | level)


@dataclass(frozen=True)
class ErasedRuns:
    """A model, the stimuli, and the layer that a concept is erased from.

    Attributes
    ----------
    loaded, head : the model without and with its head; None where it predicts nothing
    layers : the erased layer, then the later ones that are looked at
    stimuli, folds : all, which erasers are fitted on, and the fold of each (n_stimuli,)
    shown : (n_shown,) those that are run
    forms : minimal pairs among the shown stimuli
    positions : one of `mlem_core.models.erasing.ERASED`
    options : for taking hidden states
    """

    loaded: LoadedModel
    head: Any
    layers: tuple[int, ...]
    stimuli: StimulusSet
    folds: IntArray
    shown: IntArray
    forms: Forms | None
    positions: str
    options: ExtractionOptions

    @cached_property
    def few(self) -> StimulusSet:
        """The stimuli that are run."""
        return self.stimuli.take(self.shown)

    @cached_property
    def _tokens(self) -> list[tuple[TokenizedStimuli, IntArray]]:
        """Tokens of the shown stimuli, then of forms, each with the folds of its sentences."""
        sets, folds = [self.few], [self.folds[self.shown]]
        if self.forms is not None:
            sets.append(self.forms.sentences)
            folds.append(np.tile(folds[0][self.forms.rows], 2))
        found = []
        for own, fold in zip(sets, folds, strict=True):
            tokens = tokenize(own, self.loaded, self.options.special_tokens)
            found.append((tokens, np.array([fold[rows[0]] for rows in tokens.stimuli])))
        return found

    @property
    def n_predictions(self) -> int:
        """Number of measures of predictions: surprisal, and right forms."""
        return 0 if self.head is None else 1 + (self.forms is not None)

    @cached_property
    def before(self) -> list[FloatArray]:
        """States of all stimuli in the layers, (n_stimuli, n_units) each, nothing erased."""
        return self._states(tokenize(self.stimuli, self.loaded, self.options.special_tokens))

    def states(self, erasers: Sequence[Eraser]) -> list[FloatArray]:
        """States of the shown stimuli in the layers, erased by the eraser of each fold."""
        tokens = self._tokens[0]
        return self._states(tokens[0], during=self._during(erasers, *tokens, self.loaded.model))

    def _states(self, tokens: TokenizedStimuli, during: During = untouched) -> list[FloatArray]:
        found: list[FloatArray] = []
        asked = tokens, self.loaded, self.options.pooling, self.layers
        for rows, arrays in passes(*asked, during=during):
            found = found or [np.zeros((len(tokens.spans), own.shape[1])) for own in arrays]
            for own, array in zip(found, arrays, strict=True):
                own[rows] = array
        return found

    def _during(
        self, erasers: Sequence[Eraser], tokens: TokenizedStimuli, folds: IntArray, model: Any
    ) -> During:
        erased = ErasedPasses(self.layers[0], erasers, folds, self.positions)
        return erased.during(model, self.loaded.n_layers, tokens)

    def predictions(self, erasers: Sequence[Eraser] | None) -> list[FloatArray]:
        """Surprisal of each shown stimulus; for each minimal pair 1 if the right form is likelier.

        NaN where nothing stands before a word.
        """
        loaded, masked, found = self.loaded, not self.loaded.causal, []
        for tokens in self._tokens[: self.n_predictions]:
            during: During = untouched
            if erasers is not None:
                during = self._during(erasers, *tokens, self.head)
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

        Parameters
        ----------
        rows : the stimuli of the states; None: all

        Raises
        ------
        InputError
            The concept is the same in all training stimuli of a fold.
        """
        rows = np.arange(len(self.stimuli)) if rows is None else rows
        there, folds, found = concept.there[rows], self.folds[rows], []
        for fold in range(int(self.folds.max()) + 1):
            train = there & (folds != fold)
            columns = concept.columns[rows][train]
            if not train.any() or not np.ptp(columns, axis=0).any():
                raise InputError(
                    f"what is to be erased has fewer than two values in the {int(train.sum())} "
                    f"stimuli that train fold {fold}; choose a feature with two values in each."
                )
            found.append(leace(states[train], columns))
        return found

    def without(
        self, now: Sequence[FloatArray], concept: Concept
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Shown states of each later layer before, and now, the concept erased there from both."""
        folds, found = self.folds[self.shown], []
        for was, own in zip(self.before[1:], now[1:], strict=True):
            pair = []
            for states, erasers in (
                (was[self.shown], self.erasers(was, concept)),
                (own, self.erasers(own, concept, self.shown)),
            ):
                erased = np.empty_like(states)
                for fold, eraser in enumerate(erasers):
                    erased[folds == fold] = eraser(states[folds == fold])
                pair.append(erased)
            found.append((pair[0], pair[1]))
        return found
